"""Hundreds of strangers at a bridge that may open few files: who is known is served, and the log stays small."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bridge_harness import BridgeProcess, bridge_process
from tests.harness import PATIENCE, allowed_files
from tests.inspection import eventually

DESCRIPTORS = 120
STRANGERS = 250
REQUESTS = 600
#: Far below what one line for each attempt would be.
SMALL_LOG = 50_000


@contextlib.asynccontextmanager
async def crowd(bridge: BridgeProcess, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many connections that say nothing, or half a word."""
    host, port = bridge.url.removeprefix("http://").split(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
    try:
        for number, (_, writer) in enumerate(opened):
            if number % 2:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.transport.abort()


@pytest.mark.asyncio
async def test_a_crowd_of_silent_strangers_keeps_nobody_out_and_says_little_in_the_log(tmp_path: Path) -> None:
    async with bridge_process(tmp_path / "data", within=allowed_files(DESCRIPTORS)) as bridge:
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            async with crowd(bridge, STRANGERS) as strangers:
                # The owner comes through the crowd, by link and by page, while it stays.
                _, said, _ = await bridge.run("users", "link", "local")
                other = await bridge.login(said.strip())
                async with bridge.page(other) as second:
                    await second.link("ready")
                    assert (await second.mission("Hello"))["event"] == "complete"
                assert (await page.ask("system", {"action": "status"}))["type"] == "status"
                # Whoever gave way was hung up on; the others wait for a word that never comes.
                await eventually(lambda: sum(map(is_gone, strangers)) > STRANGERS / 2, "the strangers stay")
                assert open_descriptors(bridge) < DESCRIPTORS
        log = bridge.log
        assert len(log) < SMALL_LOG, log[-2000:]
        assert "Traceback" not in log


@pytest.mark.asyncio
async def test_the_connections_of_one_who_is_known_keep_nobody_else_out(tmp_path: Path) -> None:
    """A sprite whose agent was taken over has its token, and a person may lend theirs."""
    async with bridge_process(tmp_path / "data", within=allowed_files(DESCRIPTORS)) as bridge:
        _, said, _ = await bridge.run("users", "add", "ada")
        token = said.split("token")[-1].split()[0]
        address, port = bridge.url.removeprefix("http://").split(":")
        request = f"GET / HTTP/1.1\r\nHost: {address}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        opened = [await asyncio.open_connection(address, int(port)) for _ in range(DESCRIPTORS)]
        for _, writer in opened:
            writer.write(request)
        _, said, _ = await bridge.run("users", "link", "local")
        async with bridge.page(await bridge.login(said.strip())) as page:
            await page.link("ready")
            assert (await page.ask("system", {"action": "status"}))["type"] == "status"
        for _, writer in opened:
            writer.transport.abort()
        assert "Traceback" not in bridge.log


@pytest.mark.asyncio
async def test_a_bridge_whose_descriptors_are_gone_says_so_seldom_and_goes_on(tmp_path: Path) -> None:
    async with bridge_process(tmp_path / "data") as bridge:
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


@pytest.mark.asyncio
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
        ) * 60:
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
