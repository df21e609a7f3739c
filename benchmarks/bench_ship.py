"""Costs of shipping the log: bytes on the wire for a byte of log, the time of 10,000 turns, that of a live turn."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from benchmarks.bench_rebuild import BATCH, TURNS, fill
from benchmarks.report import line, ratio
from sprite.log.transcript import NewObservation
from sprite.protocol.replication import Shipped
from tests.harness import ROOT, Client, SpriteProcess, sprite_process
from tests.memory_stores import SESSION
from tests.scripted_model import OfflineModel
from tests.shipping_stage import Copy, Stage, shipping_stage

WANTED_BYTES = 1.2
WANTED_SECONDS = 60.0
#: Within what two equal sprites differ by.
WANTED_TURN = 1.05
LIVE_TURNS = 40
PAIRS = 30


async def main() -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as name:
        await _long_log(Path(name) / "long")
        await _live_log(Path(name) / "live")
        await _turns(Path(name))


async def _long_log(folder: Path) -> None:
    async with shipping_stage(folder) as stage:
        await fill(stage.stores, 1, TURNS // BATCH)
        size = await _size(stage)
        plain, packed = Copy(), Copy()
        began = time.perf_counter()
        await stage.follow(plain)
        seconds = time.perf_counter() - began
        await stage.follow(packed, packed=True)
    name = f"{TURNS:,} turns, {size / 1e6:.1f} MB of log"
    line(f"shipping {name}", f"{seconds:.1f} s", f"< {WANTED_SECONDS:g} s", ok=seconds < WANTED_SECONDS)
    for words, copy in (("plain", plain), ("packed", packed)):
        found = copy.size / size
        line(f"bytes on the wire, {name}, {words}", f"{found:.2f} x", f"<= {WANTED_BYTES} x", ok=found <= WANTED_BYTES)


async def _live_log(folder: Path) -> None:
    """Turns as they are lived: each event in the journal first, then the turn, then that it was curated."""
    sources = sorted((ROOT / "sprite").rglob("*.py"))
    async with shipping_stage(folder) as stage:
        copy = Copy()
        following = asyncio.create_task(stage.follow(copy, lambda _seen, _message: False, packed=True))
        await _drained(stage)
        began = copy.size
        log = stage.stores.transcript
        for turn in range(LIVE_TURNS):
            calls = []
            for number in range(3):
                source = sources[(turn * 3 + number) % len(sources)]
                call = {"name": "Read", "input": {"file_path": str(source)}, "result": source.read_text()[:8000]}
                calls.append({"tool_use_id": f"t{turn}-{number}", "is_error": False, **call})
                await log.journal.append(f"turn{turn}", SESSION, "tool", calls[-1])
                await _drained(stage)
            said = NewObservation(SESSION, f"Read on, {turn}.", calls, "It says so.", "complete")
            observation = await log.add_observation(said)
            await log.journal.drop(f"turn{turn}")
            await _drained(stage)
            await stage.stores.batch("LEARNINGS\n", observation)
        await stage.stores.projection.settle()
        await _drained(stage)
        following.cancel()
        await asyncio.wait({following})
        size = await _size(stage)
    found = (copy.size - began) / size
    name = f"bytes on the wire, {LIVE_TURNS} turns as they are lived, packed"
    line(name, f"{found:.2f} x of {size / 1e6:.1f} MB", f"<= {WANTED_BYTES} x", ok=found <= WANTED_BYTES)


async def _drained(stage: Stage) -> None:
    while await stage.stores.transcript.changes.count() + await stage.workspace.changes.count():  # noqa: ASYNC110 - polled
        await asyncio.sleep(0.02)


async def _size(stage: Stage) -> int:
    rows = await stage.expected()
    return sum(len(msgspec.json.encode(row)) + 1 for table in rows.values() for row in table)


async def _turns(folder: Path) -> None:
    async with OfflineModel() as model:
        plain, shipped = folder / "plain/workspace", folder / "shipped/workspace"
        for workspace in (plain, shipped):
            workspace.mkdir(parents=True)
        async with (
            sprite_process(plain, model.url) as one,
            sprite_process(shipped, model.url) as other,
            one.client() as alone,
            other.client() as followed,
            _followed(other),
        ):
            without, within = list[float](), list[float]()
            await _turn(alone)
            await _turn(followed)
            for _ in range(PAIRS):
                without.append(await _turn(alone))
                within.append(await _turn(followed))
    ratio("a turn with a tool, while it is shipped", within, without, WANTED_TURN)


async def _turn(client: Client) -> float:
    began = time.perf_counter()
    await client.mission("run `echo one`")
    return (time.perf_counter() - began) * 1000


@asynccontextmanager
async def _followed(sprite: SpriteProcess) -> AsyncIterator[None]:
    async with sprite.raw() as client:
        client.send("auth", {"token": sprite.token, "protocol": 1, "client": "store"})
        client.send("ship", {"after": 0, "packed": True})

        async def follow() -> None:
            copy = Copy()
            while (message := await client.next()) is not None:
                if message["type"] == "shipped":
                    copy.take(msgspec.convert(message["payload"], Shipped))
                    client.send("ship_ack", {"through": copy.through})

        following = asyncio.create_task(follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait({following})


if __name__ == "__main__":
    asyncio.run(main())
