"""`python -m bridge serve` as it is run: the way to an agent, signals, kills, second starts, and clear refusals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from bridge.offline_model import OfflineModel
from tests.bridge_harness import BridgeProcess, bridge_environment, run_bridge, running_bridge
from tests.harness import PATIENCE, ROOT, observations


async def test_a_page_talks_to_an_agent_that_draws_a_card(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            done = await page.mission("make a table card of apples 3, pears 5")
            assert done["event"] == "complete"
            assert any(message["type"] == "canvas_update" for message in page.received)
        status, out, _ = await bridge.run("status")
        assert status == 0
        assert "running" in out
        assert "local" in out
        assert await bridge.stop() == 0
    assert [row["outcome"] for row in observations(bridge.workspace)] == ["complete"]


async def test_sigterm_says_goodbye_to_pages_and_leaves_no_process(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge, bridge.page(await bridge.login()) as page:
        await page.link("ready")
        sprite = int((bridge.workspace / ".os/run/lock").read_text())
        bridge.process.send_signal(signal.SIGTERM)
        assert await page.closed() == 1001
        assert await bridge.ended() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(sprite, 0)


async def test_a_stop_in_the_middle_of_a_turn_stores_the_turn(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            await page.send("mission", {"text": "run `sleep 600`"})
            await page.until(lambda m: m["type"] == "agent_event" and m["payload"]["event"] == "tool_use")
            bridge.process.send_signal(signal.SIGTERM)
            assert await page.closed() == 1001
        assert await bridge.ended() == 0
    assert [row["outcome"] for row in observations(bridge.workspace)] == ["interrupted"]


async def test_make_run_prints_the_address_of_the_page_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    make = await asyncio.create_subprocess_exec(
        *("make", "run", f"ARGS=--port 0 --data {tmp_path / 'data'}"),
        cwd=ROOT,
        env=bridge_environment(),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert make.stdout is not None
        async with asyncio.timeout(PATIENCE):
            lines = [(await make.stdout.readline()).decode() for _ in range(3)]
            assert "/login?token=" in lines[0]
            assert "offline stand-in" in lines[1]
            assert "browser" in lines[2]
            # As a terminal does it: everything in the foreground gets it.
            os.killpg(make.pid, signal.SIGINT)
            await make.wait()
    finally:
        if make.returncode is None:
            os.killpg(make.pid, signal.SIGKILL)
            await make.wait()


async def test_what_was_said_before_a_stop_is_curated_by_then(tmp_path: Path) -> None:
    """The model proxy answers until the sprites have ended: their last flush needs it."""
    async with running_bridge(tmp_path / "data") as bridge:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            await page.mission("my name is Wilhelmina")
        assert await bridge.stop() == 0
    assert "Wilhelmina" in (bridge.workspace / ".os/memory/user.md").read_text()


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge:
        bridge.process.send_signal(signal.SIGINT)
        bridge.process.send_signal(signal.SIGINT)
        # Where the first one was quick enough, there was nothing left to be ended.
        assert await bridge.ended() in {0, 128 + signal.SIGINT}


async def test_after_a_kill_everything_is_still_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running_bridge(data) as bridge:
        _, out, _ = await bridge.run("users", "add", "ada")
        token = out.split("token")[-1].split()[0]
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            await page.mission("my name is Wilhelmina")
        await bridge.kill()
    port = int(bridge.url.rpartition(":")[2])
    async with running_bridge(data, port=port) as bridge:
        async with bridge.page(cookie) as page:
            sync = await page.type("state_sync")
            assert any("Wilhelmina" in line["text"] for line in sync["chat"])
        async with bridge.http() as session, session.get("/", headers={"Authorization": f"Bearer {token}"}) as response:
            assert response.status == 200
    with closing(sqlite3.connect(data / "bridge.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_second_bridge_on_the_same_folder_is_refused_and_the_first_lives_on(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge:
        status, out, err = await bridge.run("serve", "--port", "0")
        assert (status, out) == (2, "")
        assert f"process {bridge.process.pid}" in err
        assert "--data" in err
        assert len(err.splitlines()) == 1
        assert (await bridge.run("status"))[0] == 0


async def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, out, err = await run_bridge("serve", "--port", port, "--data", str(tmp_path / "data"))
    assert (status, out) == (2, "")
    assert port in err
    assert "--port" in err
    assert len(err.splitlines()) == 1


async def test_listening_for_others_needs_somebody_who_may_come_in(tmp_path: Path) -> None:
    data = tmp_path / "data"
    status, out, err = await run_bridge("serve", "--host", "0.0.0.0", "--port", "0", "--data", str(data))  # noqa: S104
    assert (status, out) == (2, "")
    assert "users add" in err
    assert (await run_bridge("users", "add", "ada", "--data", str(data)))[0] == 0
    async with running_bridge(data, host="0.0.0.0") as bridge:  # noqa: S104
        # People have links of their own: none is printed.
        assert bridge.address == bridge.url
    assert (await run_bridge("users", "revoke", "ada", "--data", str(data)))[0] == 0
    assert (await run_bridge("serve", "--host", "0.0.0.0", "--port", "0", "--data", str(data)))[0] == 2  # noqa: S104


@pytest.mark.parametrize(
    ("flags", "environment", "words"),
    [
        (["--data", "/dev/null/data"], {}, "cannot be written"),
        (["--daily-usd", "much"], {}, "--daily-usd"),
        ([], {"SPRITE_DAILY_USD": "-1"}, "SPRITE_DAILY_USD"),
        ([], {"ANTHROPIC_BASE_URL": "localhost:80?key=secret-in-it"}, "ANTHROPIC_BASE_URL"),
        (["--host", "no.such.host.invalid"], {}, "no.such.host.invalid"),
    ],
)
async def test_settings_that_cannot_work_are_named(
    tmp_path: Path, flags: list[str], environment: dict[str, str], words: str
) -> None:
    where = [] if "--data" in flags else ["--data", str(tmp_path / "data")]
    status, out, err = await run_bridge(
        "serve", "--port", "0", *where, *flags, environment=bridge_environment(**environment)
    )
    assert (status, out) == (2, "")
    assert words in err
    assert "secret-in-it" not in err
    assert len(err.splitlines()) == 1


async def test_a_database_that_is_none_is_left_untouched(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for content in (b"this is not a database, and long enough to be looked at " * 100, foreign(tmp_path)):
        (data / "bridge.db").write_bytes(content)
        status, out, err = await run_bridge("serve", "--port", "0", "--data", str(data))
        assert (status, out) == (2, "")
        assert "left untouched" in err
        assert (data / "bridge.db").read_bytes() == content


def foreign(folder: Path) -> bytes:
    with closing(sqlite3.connect(folder / "foreign.db")) as database:
        database.execute("CREATE TABLE somebody_elses (x)")
    return (folder / "foreign.db").read_bytes()


async def test_people_are_managed_beside_a_running_bridge_and_without_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert "Nobody yet" in (await run_bridge("users", "list", "--data", str(data)))[1]
    async with running_bridge(data) as bridge:
        status, out, _ = await bridge.run("users", "add", "ada")
        assert status == 0
        link = next(word for word in out.split() if "/login?token=" in word)
        assert link.startswith(bridge.url)
        await bridge.login(link)
        assert (await bridge.run("users", "add", "ada"))[0] == 2
        assert "1 browsers" in (await bridge.run("users", "list"))[1]
    # The address that is printed is the one where the bridge was last.
    status, out, _ = await run_bridge("users", "link", "ada", "--data", str(data))
    assert out.startswith(f"{bridge.url}/login?token=")
    assert (await run_bridge("users", "revoke", "ada", "--data", str(data)))[0] == 0
    status, _, err = await run_bridge("users", "revoke", "nobody", "--data", str(data))
    assert status == 2
    assert "nobody" in err
    assert "revoked" in (await run_bridge("users", "list", "--data", str(data)))[1]
    status, out, _ = await run_bridge("users", "list", "--json", "--data", str(data))
    assert '"name":"ada"' in out


async def test_status_tells_of_every_sprite_with_and_without_a_bridge(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running_bridge(data) as bridge:
        await bridge.run("users", "add", "ada")
        _, out, _ = await bridge.run("status", "--json")
        assert '"sprite":"local"' in out
        assert '"sprite":"ada"' in out
        assert '"state":"absent"' in out
    status, out, _ = await run_bridge("status", "--data", str(data))
    assert status == 0
    assert "no bridge runs" in out


async def test_the_control_socket_works_in_a_folder_with_a_very_long_name(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 30) / "data"
    async with running_bridge(data) as bridge:
        assert (await bridge.run("status"))[0] == 0
        short = (data / "run/bridge.sock").readlink()
        assert short.stat().st_mode & 0o077 == 0
        await bridge.kill()
    async with running_bridge(data) as bridge:
        assert (await bridge.run("status"))[0] == 0
        assert not short.exists()
        short = (data / "run/bridge.sock").readlink()
    assert not short.parent.exists()


async def test_no_secret_is_in_the_log(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data", ANTHROPIC_AUTH_TOKEN="") as bridge:
        _, out, _ = await bridge.run("users", "add", "ada")
        token = out.split("token")[-1].split()[0]
        cookie = await bridge.login()
        planted = "planted-secret-7f3a"
        async with bridge.http() as session:
            for path in (f"/login?token={planted}", f"/{planted}?x={planted}", f"/files/documents/{planted}.txt"):
                async with session.get(path, headers={"Cookie": cookie, "X-Api-Key": planted}) as response:
                    await response.read()
            async with session.post("/logout", headers={"Origin": f"https://{planted}.example"}) as response:
                assert response.status == 403
        await broken_requests(bridge, planted)
        async with bridge.page(cookie) as page:
            await page.link("ready")
            done = await page.mission(f"please remember {planted}")
            # An id is a client's own words, too.
            await page.ask("mission", {"text": "hello"}, planted)
        await bridge.stop()
        secrets = [planted, token, bridge.address.partition("=")[2], cookie.partition("=")[2], "sprite-"]
        assert bridge.log
        assert not [secret for secret in secrets if secret in bridge.log]
        assert '"route":"/files/{path}"' in bridge.log
        assert '"person":"local"' in bridge.log
        assert '"request_id"' in bridge.log
        assert f'"message":"mission complete","sprite":"local","mission_id":"{done["mission_id"]}"' in bridge.log


async def test_the_real_keys_reach_no_sprite_no_page_no_log_and_no_file(tmp_path: Path, model: OfflineModel) -> None:
    key = "sk-ant-planted-real-key-4711"
    async with running_bridge(
        tmp_path / "data",
        ANTHROPIC_API_KEY=key,
        ANTHROPIC_BASE_URL=model.url,
        SPRITES_TOKEN="planted-sprites-token",
    ) as bridge:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            assert (await page.mission("run `env; cat /proc/$PPID/environ`"))["event"] == "complete"
            assert key not in str(page.received)
            assert "planted-sprites-token" not in str(page.received)
        sprite = int((bridge.workspace / ".os/run/lock").read_text())
        environment = Path(f"/proc/{sprite}/environ").read_bytes()
        assert key.encode() not in environment
        assert b"planted-sprites-token" not in environment
        await bridge.stop()
        assert key not in bridge.log
    assert model.requests
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file():
            assert key.encode() not in path.read_bytes(), path


async def broken_requests(bridge: BridgeProcess, planted: str) -> None:
    """Requests that the parser refuses: what they hold must not be noted either."""
    host, port = bridge.url.removeprefix("http://").split(":")
    for broken in (
        f"GET /{planted}\x00 HTTP/1.1\r\n\r\n",
        f"{planted}\r\n\r\n",
        f"GET / HTTP/1.1\r\n{planted}\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(broken.encode())
        async with asyncio.timeout(PATIENCE):
            assert b"400" in await reader.read()
        writer.close()


async def test_metrics_count_and_name_no_content(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge, bridge.http() as session:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            async with session.get("/metrics") as response:
                text = await response.text()
        assert 'bridge_http_requests_total{method="GET",route="/login",status="303"} 1.0' in text
        assert 'bridge_websockets{person="local"} 1.0' in text
        async with session.request("PURGE", "/nothing") as response:
            assert response.status == 405
        async with session.get("/metrics") as response:
            assert "PURGE" not in await response.text()
        async with session.get("/healthz") as response:
            assert (response.status, await response.text()) == (200, "ok\n")
        async with session.get("/readyz") as response:
            assert (response.status, await response.text()) == (200, "ready\n")


async def test_metrics_behind_a_proxy_need_the_operators_token(tmp_path: Path) -> None:
    async with (
        running_bridge(
            tmp_path / "data",
            BRIDGE_PUBLIC_URL="https://sprite.example.org",
            BRIDGE_OPERATOR_TOKEN="for-the-scraper",
        ) as bridge,
        bridge.http() as session,
    ):
        for headers, status in (
            ({}, 403),
            ({"Authorization": "Bearer wrong"}, 403),
            ({"Authorization": "Bearer for-the-scraper"}, 200),
        ):
            async with session.get("/metrics", headers=headers) as response:
                assert response.status == status


async def test_a_huge_body_is_refused_before_it_is_read(tmp_path: Path) -> None:
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1 << 20
            yield bytes(1 << 20)

    async with running_bridge(tmp_path / "data") as bridge, bridge.http() as session:
        before = resident(bridge.process.pid)
        for path in ("/logout", "/v1/messages", "/nothing"):
            try:
                async with session.post(path, data=body(), headers={"Content-Length": str(100 << 20)}) as response:
                    assert response.status in {401, 413}
            except aiohttp.ClientConnectionError:
                # It was hung up on while it still wrote.
                pass
        assert resident(bridge.process.pid) - before < 20 << 20


def resident(pid: int) -> int:
    """Bytes of memory a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
