"""The bridge leaks no key, token or content through logs, files or metrics, and limits the cost of a body."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from tests.bridge_harness import Bridge, bridge_process, running_bridge
from tests.harness import PATIENCE
from tests.looks import files_below
from tests.scripted_model import OfflineModel


async def test_bridge_leaks_no_secret(tmp_path: Path, model: OfflineModel) -> None:
    """Logs and metrics contain no secret, and the operator's keys reach no sprite, page or file."""
    key, planted = "sk-ant-planted-real-key-4711", "planted-secret-7f3a"
    async with bridge_process(
        tmp_path / "data",
        ANTHROPIC_API_KEY=key,
        ANTHROPIC_BASE_URL=model.url,
        SPRITES_TOKEN="planted-sprites-token",
        forks_sprites=True,
    ) as bridge:
        _, out, _ = await bridge.run("users", "add", "ada")
        token = out.split("token")[-1].split()[0]
        cookie = await bridge.login()
        async with bridge.page(cookie) as page, bridge.http() as session:
            await page.link("ready")
            await check_figures(session, bridge.operator)
        async with bridge.http() as session:
            for path in (f"/login?token={planted}", f"/{planted}?x={planted}", f"/files/documents/{planted}.txt"):
                async with session.get(path, headers={"Cookie": cookie, "X-Api-Key": planted}) as response:
                    await response.read()
            async with session.post("/logout", headers={"Origin": f"https://{planted}.example"}) as response:
                assert response.status == 403
        await broken_requests(bridge, planted)
        async with bridge.page(cookie) as page:
            await page.link("ready")
            done = await page.mission(f"run `env; cat /proc/$PPID/environ; echo {planted}`")
            assert done["event"] == "complete"
            assert key not in str(page.received)
            assert "planted-sprites-token" not in str(page.received)
            # The client chooses the id, so it is user content.
            await page.ask("mission", {"text": "hello"}, planted)
        sprite = int((bridge.workspace / ".os/run/lock").read_text())
        environment = Path(f"/proc/{sprite}/environ").read_bytes()
        assert key.encode() not in environment
        assert b"planted-sprites-token" not in environment
        await bridge.stop()
        secrets = [planted, token, bridge.address.partition("=")[2], cookie.partition("=")[2], "sprite-", key]
        assert bridge.log
        assert not [secret for secret in secrets if secret in bridge.log]
        assert '"route":"/files/{path}"' in bridge.log
        assert '"person":"local"' in bridge.log
        assert '"request_id"' in bridge.log
        assert f'"message":"mission complete","sprite":"local","mission_id":"{done["mission_id"]}"' in bridge.log
    assert model.requests
    for file, content in files_below(tmp_path / "data").items():
        assert key.encode() not in content, file


async def broken_requests(bridge: Bridge, planted: str) -> None:
    """Send requests that the parser rejects, with content that must not be logged."""
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


async def check_figures(session: aiohttp.ClientSession, operator: dict[str, str]) -> None:
    """Check the metrics and the probes; metrics must not contain names chosen by unauthenticated clients."""
    async with session.get("/metrics", headers=operator) as response:
        text = await response.text()
    assert 'bridge_http_requests_total{method="GET",route="/login",status="303"} 1.0' in text
    assert 'bridge_websockets{person="local"} 1.0' in text
    for name in ("bridge_spend_today_usd", "bridge_spend_today_estimated_usd"):
        assert f'{name}{{sprite="local"}} 0.0' in text
    async with session.request("PURGE", "/nothing") as response:
        assert response.status == 405
    async with session.get("/metrics", headers=operator) as response:
        assert "PURGE" not in await response.text()
    async with session.get("/healthz") as response:
        assert (response.status, await response.text()) == (200, "ok\n")
    async with session.get("/readyz") as response:
        assert (response.status, await response.text()) == (200, "ready\n")


async def test_metrics_need_operators_token(tmp_path: Path) -> None:
    """Also on loopback, where an agent's programs may run."""
    async with running_bridge(tmp_path / "data") as bridge, bridge.http() as session:
        cookie = await bridge.login()
        full = (await bridge.run("users", "token", "local", "--full"))[1].split()[-1]
        assert stat.S_IMODE((tmp_path / "data/run/operator-token").stat().st_mode) == 0o600
        bearer = bridge.operator["Authorization"]
        assert await _statuses(session, None, "Bearer wrong", f"Bearer {full}", f"Basic {bearer[7:]}", bearer) == [
            *(403, 403, 403, 403, 200)
        ]
        async with session.get("/metrics", headers={"Cookie": cookie}) as response:
            assert response.status == 403


async def test_metrics_open_needs_no_token(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data", "--metrics-open") as bridge, bridge.http() as session:
        assert await _statuses(session, None) == [200]


async def _statuses(session: aiohttp.ClientSession, *words: str | None) -> list[int]:
    """Return the status of `/metrics` for each value of the Authorization header."""
    found = []
    for word in words:
        async with session.get("/metrics", headers={} if word is None else {"Authorization": word}) as response:
            found.append(response.status)
    return found


async def test_huge_body_is_refused_unread(tmp_path: Path) -> None:
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1 << 20
            yield bytes(1 << 20)

    async with bridge_process(tmp_path / "data") as bridge, bridge.http() as session:
        before = resident(bridge.process.pid)
        for path in ("/logout", "/v1/messages", "/nothing"):
            try:
                async with session.post(path, data=body(), headers={"Content-Length": str(100 << 20)}) as response:
                    assert response.status in {401, 413}
            except aiohttp.ClientConnectionError:
                # The bridge closed the connection while the client was still writing.
                pass
        assert resident(bridge.process.pid) - before < 20 << 20


def resident(pid: int) -> int:
    """Return a process's resident memory in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
