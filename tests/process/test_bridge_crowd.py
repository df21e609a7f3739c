"""Hundreds of strangers at a bridge that may open few files: who is known is served, and the log stays small."""

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
#: Far below what one line for each attempt would be.
SMALL_LOG = 50_000


@contextlib.asynccontextmanager
async def crowd(
    bridge: BridgeProcess, count: int, *, bearer: str | None = None
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many connections that say nothing, or half a word; or ask for a page, and do not read it."""
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


async def test_crowd_keeps_nobody_out_and_logs_little(tmp_path: Path) -> None:
    async with bridge_process(tmp_path / "data", TESTS_OPEN_FILES=str(DESCRIPTORS)) as bridge:
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            async with crowd(bridge, STRANGERS) as strangers:
                await comes_in(bridge)
                assert (await page.ask("system", {"action": "status"}))["type"] == "status"
                # Whoever gave way was hung up on; the others wait for a word that never comes.
                await eventually(lambda: sum(map(is_gone, strangers)) > STRANGERS / 2, "the strangers stay")
                assert open_descriptors(bridge) < DESCRIPTORS
            # Nor do the connections of one who is known: a sprite that was taken over has its token.
            _, said, _ = await bridge.run("users", "add", "ada")
            async with crowd(bridge, DESCRIPTORS, bearer=said.split("token")[-1].split()[0]):
                await comes_in(bridge)
        log = bridge.log
        assert len(log) < SMALL_LOG, log[-2000:]
        assert "Traceback" not in log


async def comes_in(bridge: BridgeProcess) -> None:
    """Come through a crowd, by link and by page."""
    _, said, _ = await bridge.run("users", "link", "local")
    async with bridge.page(await bridge.login(said.strip())) as page:
        await page.link("ready")
        assert (await page.ask("system", {"action": "status"}))["type"] == "status"


async def test_a_bridge_whose_descriptors_are_gone_says_so_seldom_and_goes_on(tmp_path: Path) -> None:
    async with bridge_process(tmp_path / "data", forks_sprites=True) as bridge:
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            few = open_descriptors(bridge) + 1
            resource.prlimit(bridge.process.pid, resource.RLIMIT_NOFILE, (few, DESCRIPTORS))
            async with crowd(bridge, 50):
                await eventually(lambda: "cannot be taken" in bridge.log, "the shortage is not said")
                assert (await page.ask("system", {"action": "status"}))["type"] == "status"
                assert len(bridge.log) < SMALL_LOG
            resource.prlimit(bridge.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
            async with asyncio.timeout(PATIENCE), bridge.page(cookie) as second:
                await second.link("ready")
        assert bridge.log.count("cannot be taken") <= 2


async def test_what_strangers_ask_for_and_garble_is_counted_and_not_all_of_it_logged(tmp_path: Path) -> None:
    async with bridge_process(tmp_path / "data") as bridge:
        address, port = bridge.url.removeprefix("http://").split(":")
        async with bridge.http() as session:
            for _ in range(REQUESTS):
                async with session.get("/login?token=guess") as answer:
                    assert answer.status in {401, 429}
            async with session.get("/metrics") as answer:
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
