"""Hundreds of unauthenticated clients at a bridge with few descriptors: owners are served, and the log stays small."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bridge_harness import BridgeProcess, bridge_process
from tests.harness import PATIENCE
from tests.inspection import eventually

DESCRIPTORS = 120
STRANGERS = 200
REQUESTS = 300
#: Far smaller than one line for each attempt.
SMALL_LOG = 50_000


@contextlib.asynccontextmanager
async def crowd(
    bridge: BridgeProcess, count: int, *, bearer: str | None = None
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open `count` connections that send nothing or half a request.

    With `bearer`, they ask for a page and never read it.
    """
    host, port = bridge.url.removeprefix("http://").split(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
    try:
        for number, (_, writer) in enumerate(opened):
            if bearer is not None:
                writer.write(
                    f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {bearer}\r\n\r\n".encode()
                )
            elif number % 2:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def test_crowd_does_not_block_owners(tmp_path: Path) -> None:
    """The log stays small."""
    async with bridge_process(tmp_path / "data", TESTS_OPEN_FILES=str(DESCRIPTORS)) as bridge:
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            async with crowd(bridge, STRANGERS) as strangers:
                await comes_in(bridge)
                assert (await page.ask("system", {"action": "status"}))["type"] == "status"
                # Evicted connections are closed; the others wait for data that never comes.
                await eventually(lambda: sum(map(is_gone, strangers)) > STRANGERS / 2, "no stranger was evicted")
                assert open_descriptors(bridge) < DESCRIPTORS
            # Connections with a valid token must not block owners either: a compromised sprite has one.
            _, said, _ = await bridge.run("users", "add", "ada")
            async with crowd(bridge, DESCRIPTORS, bearer=said.split("token")[-1].split()[0]):
                await comes_in(bridge)
        log = bridge.log
        assert len(log) < SMALL_LOG, log[-2000:]
        assert "Traceback" not in log


async def comes_in(bridge: BridgeProcess) -> None:
    """Log in by link and open a page."""
    _, said, _ = await bridge.run("users", "link", "local")
    async with bridge.page(await bridge.login(said.strip())) as page:
        await page.link("ready")
        assert (await page.ask("system", {"action": "status"}))["type"] == "status"


async def test_bridge_survives_descriptor_shortage(tmp_path: Path) -> None:
    """The log reports the shortage at most twice."""
    async with bridge_process(tmp_path / "data", forks_sprites=True) as bridge:
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            few = open_descriptors(bridge) + 1
            resource.prlimit(bridge.process.pid, resource.RLIMIT_NOFILE, (few, DESCRIPTORS))
            async with crowd(bridge, 50):
                await eventually(lambda: "cannot be taken" in bridge.log, "the shortage is not logged")
                assert (await page.ask("system", {"action": "status"}))["type"] == "status"
                assert len(bridge.log) < SMALL_LOG
            resource.prlimit(bridge.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
            async with asyncio.timeout(PATIENCE), bridge.page(cookie) as second:
                await second.link("ready")
        assert bridge.log.count("cannot be taken") <= 2


async def test_failed_requests_are_counted_but_rarely_logged(tmp_path: Path) -> None:
    async with bridge_process(tmp_path / "data") as bridge:
        address, port = bridge.url.removeprefix("http://").split(":")
        async with bridge.http() as session:
            for _ in range(REQUESTS):
                async with session.get("/login?token=guess") as answer:
                    assert answer.status in {401, 429}
            async with session.get("/metrics", headers=bridge.operator) as answer:
                counted = re.findall(r'bridge_http_requests_total{.*route="/login".*} (\d+)', await answer.text())
        assert sum(map(int, counted)) == REQUESTS
        for garbage in (
            b"\x16\x03\x01\x02\x00\r\n\r\n",
            b"GET / HTTP/9\r\n\r\n",
            b"GET / HTTP/1.1\r\n: x\r\n\r\n",
        ) * 30:
            reader, writer = await asyncio.open_connection(address, int(port))
            writer.write(garbage)
            async with asyncio.timeout(PATIENCE):
                await reader.read(1 << 16)
            writer.transport.abort()
        assert len(bridge.log) < SMALL_LOG, bridge.log[-3000:]


def is_gone(stranger: asyncio.StreamReader) -> bool:
    return stranger.at_eof() or stranger.exception() is not None


def open_descriptors(bridge: BridgeProcess) -> int:
    return len(list(Path(f"/proc/{bridge.process.pid}/fd").iterdir()))
