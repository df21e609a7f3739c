"""Hundreds of strangers at a bridge that may open few files: who is known is served, and the log stays small."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bridge_harness import BridgeProcess, running_bridge
from tests.harness import PATIENCE, allowed_files
from tests.inspection import eventually

DESCRIPTORS = 120
STRANGERS = 250
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
    async with running_bridge(tmp_path / "data", within=allowed_files(DESCRIPTORS)) as bridge:
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
                gone = [reader for reader in strangers if reader.at_eof() or reader.exception() is not None]
                assert len(gone) > STRANGERS / 2
                assert open_descriptors(bridge) < DESCRIPTORS
        log = bridge.log
        assert len(log) < SMALL_LOG, log[-2000:]
        assert "Traceback" not in log


@pytest.mark.asyncio
async def test_a_bridge_whose_descriptors_are_gone_says_so_seldom_and_goes_on(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge:
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


def open_descriptors(bridge: BridgeProcess) -> int:
    return len(list(Path(f"/proc/{bridge.process.pid}/fd").iterdir()))
