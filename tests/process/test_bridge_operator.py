"""The operator's command line: refused starts, people, status and the control socket."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import sqlite3
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.bridge_harness import bridge_environment, bridge_process, run_bridge, running_bridge
from tests.harness import PATIENCE, ROOT


async def test_second_bridge_on_folder_is_refused(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge:
        status, out, err = await bridge.run("serve", "--port", "0")
        assert (status, out) == (2, "")
        assert f"process {os.getpid()}" in err
        assert "--data" in err
        assert len(err.splitlines()) == 1
        assert (await bridge.run("status"))[0] == 0


async def test_taken_port_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, out, err = await run_bridge("serve", "--port", port, "--data", str(tmp_path / "data"))
    assert (status, out) == (2, "")
    assert err.endswith(f": Port {port} on 127.0.0.1 is taken. Choose another with --port (0: any free one).\n")
    assert len(err.splitlines()) == 1


async def test_public_host_requires_known_person(tmp_path: Path) -> None:
    data = tmp_path / "data"
    status, out, err = await run_bridge("serve", "--host", "0.0.0.0", "--port", "0", "--data", str(data))  # noqa: S104
    assert (status, out) == (2, "")
    assert "users add" in err
    assert (await run_bridge("users", "add", "ada", "--data", str(data)))[0] == 0
    async with running_bridge(data, host="0.0.0.0") as bridge:  # noqa: S104
        # People have personal links, so the bridge prints none.
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
async def test_invalid_setting_is_named(
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


async def test_foreign_database_is_left_untouched(tmp_path: Path) -> None:
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


async def test_people_are_managed_with_and_without_bridge(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert "There is no data folder" in (await run_bridge("users", "list", "--data", str(data)))[2]
    assert not data.exists()
    async with running_bridge(data) as bridge:
        status, out, _ = await bridge.run("users", "add", "ada")
        assert status == 0
        link = next(word for word in out.split() if "/login?token=" in word)
        assert link.startswith(bridge.url)
        await bridge.login(link)
        assert (await bridge.run("users", "add", "ada"))[0] == 2
        assert (await bridge.run("users", "role", "ada", "operator"))[1] == "ada is an operator now.\n"
        assert "operator  1 browser" in (await bridge.run("users", "list"))[1]
    # The printed address is that of the last run.
    status, out, _ = await run_bridge("users", "link", "ada", "--data", str(data))
    assert out.startswith(f"{bridge.url}/login?token=")
    assert (await run_bridge("users", "revoke", "ada", "--data", str(data)))[0] == 0
    status, _, err = await run_bridge("users", "revoke", "nobody", "--data", str(data))
    assert status == 2
    assert "nobody" in err
    assert "revoked" in (await run_bridge("users", "list", "--data", str(data)))[1]
    status, out, _ = await run_bridge("users", "list", "--json", "--data", str(data))
    assert '"name":"ada"' in out
    # Both ways write to the same audit log.
    status, out, _ = await run_bridge("audit", "--data", str(data))
    acts = [line.split("  ")[-1].strip() for line in out.splitlines()]
    assert acts == [*("users add ada", "users role ada (role operator)", "users link ada", "users revoke ada")]
    for time in ("yesterday", "2100-01-01"):
        assert (await run_bridge("audit", "--since", time, "--data", str(data)))[0] == 2


LOADED = """
import sys
import zipfile
from bridge.__main__ import main
status = main(sys.argv[1:])
print(*sorted({"bridge.acp.program", "bridge.terminal.client", "rich"} & sys.modules.keys()))
sys.exit(status)
"""


async def test_users_command_imports_no_front_ends(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        LOADED,
        "users",
        "list",
        "--data",
        str(tmp_path / "data"),
        cwd=ROOT,
        env=bridge_environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        out, _ = await process.communicate()
    assert (process.returncode, out.decode().splitlines()[1:]) == (0, [""])


async def test_tokens_are_managed_with_and_without_bridge(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with running_bridge(data) as bridge:
        status, out, _ = await bridge.run("users", "token", "local", "--name", "my phone", "--scope", "ask")
        assert status == 0
        assert "scopes: ask." in out
        phone = out.splitlines()[-1]
        assert phone.startswith("bridge-person-")
        assert (await bridge.run("users", "token", "local", "--name", "my phone"))[0] == 2
        async with bridge.http() as session:
            # The token works only for APIs of its scope.
            headers = {"Authorization": f"Bearer {phone}"}
            for path in ("/", "/ws", "/files/documents/a.txt", "/notify/settings"):
                async with session.get(path, headers=headers) as response:
                    assert response.status == 403
                    assert (await response.json())["error"]["code"] == "missing_scope"
        out = (await bridge.run("users", "tokens", "local"))[1]
        assert "my phone" in out
        assert phone not in bridge.log + out
        full = (await bridge.run("users", "token", "local", "--full"))[1].splitlines()[-1]
        async with bridge.page(token=full) as page:
            await page.link("ready")
            assert (await bridge.run("users", "revoke-token", "local", "token"))[0] == 0
            assert await page.closed() == 1008
    status, out, _ = await run_bridge("users", "token", "local", "--data", str(data))
    assert "memory:read, observe, actions." in out
    listed = (await run_bridge("users", "tokens", "local", "--json", "--data", str(data)))[1]
    assert '"label":"my phone","scopes":["ask"]' in listed
    assert (await run_bridge("users", "revoke-token", "local", "my phone", "--data", str(data)))[0] == 0
    for wrong in (["token", "nobody"], ["tokens", "nobody"], ["revoke-token", "local", "my phone"]):
        status, _, err = await run_bridge("users", *wrong, "--data", str(data))
        assert status == 2
        assert len(err.splitlines()) == 1


async def test_status_works_with_and_without_bridge(tmp_path: Path) -> None:
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


async def test_control_socket_works_in_long_path(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 30) / "data"
    async with bridge_process(data) as bridge:
        assert (await bridge.run("status"))[0] == 0
        short = (data / "run/bridge.sock").readlink()
        assert short.stat().st_mode & 0o077 == 0
        await bridge.kill()
    async with bridge_process(data) as bridge:
        assert (await bridge.run("status"))[0] == 0
        assert not short.exists()
        short = (data / "run/bridge.sock").readlink()
    assert not short.parent.exists()


async def test_person_manages_tokens_and_exports(tmp_path: Path) -> None:
    """Only with a browser's session of this origin."""
    async with running_bridge(tmp_path / "data") as bridge, bridge.http() as session:
        asked = json.dumps({"label": "my phone", "scopes": ["ask"]})
        owner = {"Cookie": await bridge.login(), "Origin": bridge.url}
        async with session.post("/tokens", data=asked, headers=owner) as response:
            token = (await response.json())["secret"]
        refused = [
            ({"Origin": bridge.url}, asked, 401),
            ({"Origin": bridge.url, "Authorization": f"Bearer {token}"}, asked, 401),
            ({"Cookie": owner["Cookie"]}, asked, 403),
            (owner | {"Origin": "https://evil.example"}, asked, 403),
            (owner, asked, 400),
            (owner, "{", 400),
        ]
        for headers, body, status in refused:
            async with session.post("/tokens", data=body, headers=headers) as response:
                assert response.status == status, await response.text()
        async with session.get("/tokens", headers=owner) as response:
            assert [each["label"] for each in (await response.json())["tokens"]] == ["my phone"]
        async with session.delete("/tokens/my%20phone", headers=owner) as response:
            assert response.status == 200
        async with session.get("/tokens", headers=owner) as response:
            assert (await response.json())["tokens"] == []
        async with bridge.page(owner["Cookie"]) as page:
            await page.link("ready")
        async with session.get("/export", headers=owner) as response:
            assert response.status == 200, await response.text()
            assert response.headers["Content-Disposition"] == 'attachment; filename="local.zip"'
            assert zipfile.is_zipfile(io.BytesIO(await response.read()))
        async with session.get("/export", headers={"Authorization": f"Bearer {token}"}) as response:
            assert response.status == 401
        assert "local" in (await bridge.run("audit"))[1]
