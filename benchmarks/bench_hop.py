"""Cost of a hop between bridges: an echo over the WebSocket, and a small file, both with and without the hop.

Two real bridges over one Postgres, one agent. Each figure is paired: the owner and the other bridge take turns.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.report import line, spread
from tests.bridge_harness import Bridge, PageClient
from tests.bridge_pair import BridgePair, two_bridges
from tests.postgres import own_server

TIMES, WARM_UP = 500, 50
WANTED_MS = 3.0
_MS = 1e3


async def paired(name: str, straight: Callable[[], Awaitable[object]], hop: Callable[[], Awaitable[object]]) -> None:
    """Prints how much later the answer is there by the other bridge."""
    took: tuple[list[float], list[float]] = [], []
    for number in range(TIMES + WARM_UP):
        turns = [(straight, took[0]), (hop, took[1])]
        for ask, samples in turns if number % 2 else reversed(turns):
            began = time.perf_counter()
            await ask()
            if number >= WARM_UP:
                samples.append((time.perf_counter() - began) * _MS)
    added = statistics.median(took[1]) - statistics.median(took[0])
    print(f"      {name}: at the owner {spread(took[0])} ms, at another bridge {spread(took[1])} ms")
    line(f"a hop adds to {name}", f"{added:.2f} ms", f"<= {WANTED_MS:g} ms", ok=added <= WANTED_MS)


async def echoes(pair: BridgePair) -> None:
    """A message that the sprite answers at once."""

    def echo(page: PageClient) -> Callable[[], Awaitable[object]]:
        return lambda: page.ask("heartbeat")

    async with pair.owner.page(token=pair.token) as straight, pair.other.page(token=pair.token) as hop:
        await straight.type("state_sync")
        await hop.type("state_sync")
        await paired("an echo over /ws", echo(straight), echo(hop))


async def small_gets(pair: BridgePair) -> None:
    """A file of a few bytes."""
    (pair.workspace / "documents/small.txt").write_text("hello")
    headers = {"Authorization": f"Bearer {pair.token}"}

    def get(bridge: Bridge) -> Callable[[], Awaitable[object]]:
        async def ask() -> None:
            async with sessions[bridge].get("/files/documents/small.txt", headers=headers) as response:
                assert await response.read() == b"hello"

        return ask

    async with pair.owner.http() as straight, pair.other.http() as hop:
        sessions = {pair.owner: straight, pair.other: hop}
        await paired("a small GET", get(pair.owner), get(pair.other))


async def main() -> None:
    """Both."""
    with own_server() as server, tempfile.TemporaryDirectory() as folder:
        async with two_bridges(Path(folder), server) as pair:
            await echoes(pair)
            await small_gets(pair)


if __name__ == "__main__":
    asyncio.run(main())
