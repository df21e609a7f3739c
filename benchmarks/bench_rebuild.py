"""Rebuild memory from the log of 10,000 curated turns, and forget a turn, against reading the same log row by row.

The log is filled with decisions as the guards would make them, since guards are not measured here.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.report import line
from sprite.config import Settings
from sprite.forget.plan import Target
from sprite.log.curations import Curation
from sprite.memory.decision import NewLearning, Numbered, Part, Written
from sprite.memory.opening import replay_aside
from sprite.memory.words import said
from sprite.workspace.database import open_workspace
from tests.memory_stores import SESSION, Stores, forgetter_of, open_stores

BATCH = 25
TAUGHT = 10
TURNS = 10_000
REBUILT = TURNS // BATCH
FEW, MANY = 150, 600
RUNS = 3
WANTED_SECONDS = 3.0
WANTED_FORGET_SECONDS = 30.0
#: Four times the batches; comparing each sentence with each learning takes sixteen times as long.
WANTED_GROWTH = 8.0


async def fill(stores: Stores, first: int, last: int) -> None:
    """Fill a log with these batches as it grows in use: ten learnings and a rewritten file a batch."""
    for batch in range(first, last + 1):
        turns = range((batch - 1) * BATCH + 1, batch * BATCH + 1)
        for number in turns:
            text = f"My project number {number} is called heron{number} and is written in language {number % 17}."
            call = {"tool_use_id": "t", "name": "Bash", "input": {"command": "ls"}, "result": "a\nb", "is_error": False}
            await stores.turn(text, f"Noted: heron{number}.", calls=[call])
        await stores.log(_answer(batch, turns))
    await stores.projection.settle()


def _answer(batch: int, turns: range) -> Curation:
    learned = [
        NewLearning(
            number=(batch - 1) * TAUGHT + at,
            created_at=time.time(),
            type="FACT",
            content=(content := f"The project heron{turn} is written in language {turn % 17}."),
            said=said(content),
            origin="user",
            confidence=0.9,
            turn=turn,
            session=SESSION,
            quote=f"My project number {turn} is called heron{turn}",
        )
        for at, turn in enumerate(turns[:TAUGHT], 1)
    ]
    known = [f"- The project heron{turn} matters." for turn in range(max(1, turns[-1] - 120), turns[-1])]
    content = "\n".join(["# User", "## Facts", *known, ""])
    lines = [f'FACT [t{each.turn}] {each.content} | "{each.quote}"' for each in learned]
    parts: list[Part] = [Numbered(TAUGHT), *learned, Written("user.md", content)]
    return Curation(
        kind="batch",
        response="\n".join([*lines, "USER_MD_UPDATE:", content]),
        first_observation_id=turns[0],
        last_observation_id=turns[-1],
        model="offline",
        decision_json=msgspec.json.encode(parts).decode(),
    )


def reading_seconds(stores: Stores) -> float:
    """Return the seconds of reading the log row by row."""
    started = time.perf_counter()
    raw = sqlite3.connect(stores.folder / "transcript.db")
    raw.execute("SELECT * FROM observations").fetchall()
    raw.execute("SELECT * FROM curations").fetchall()
    raw.close()
    return time.perf_counter() - started


async def rebuild_seconds(stores: Stores) -> float:
    """Return the seconds of one rebuild."""
    started = time.perf_counter()
    await replay_aside(stores.transcript, stores.folder / "memory.db.new", lambda: None)
    return time.perf_counter() - started


async def forget_seconds(stores: Stores, settings: Settings, turn: int) -> float:
    """Return the seconds of forgetting a turn that taught something."""
    async with open_workspace(settings.workspace_db) as seen:
        started = time.perf_counter()
        await forgetter_of(settings, stores, seen).forget(Target(turn=turn), sure=True)
        return time.perf_counter() - started


async def main() -> None:
    """Print every figure."""
    with tempfile.TemporaryDirectory() as name:
        settings = Settings(Path(name))
        settings.memory.mkdir(parents=True)
        settings.run.mkdir()
        async with open_stores(settings.memory) as stores:
            await fill(stores, 1, FEW)
            few = await _report_forget(stores, settings, FEW, turn=30)
            await fill(stores, FEW + 1, REBUILT)
            rebuilt = [await rebuild_seconds(stores) for _ in range(RUNS)]
            reading = min(reading_seconds(stores) for _ in range(RUNS))
            value = f"{min(rebuilt):.1f} .. {max(rebuilt):.1f} s, {min(rebuilt) / reading:.0f} x reading the rows"
            line(
                f"rebuilding {TURNS:,} curated turns",
                value,
                f"< {WANTED_SECONDS:g} s",
                ok=max(rebuilt) < WANTED_SECONDS,
            )
            await fill(stores, REBUILT + 1, MANY)
            many = await _report_forget(stores, settings, MANY, turn=55)
            line(
                f"forgetting in {MANY // FEW} x the batches",
                f"{many / few:.1f} x as long",
                f"< {WANTED_GROWTH:g} x",
                ok=many / few < WANTED_GROWTH,
            )


async def _report_forget(stores: Stores, settings: Settings, batches: int, turn: int) -> float:
    reading = min(reading_seconds(stores) for _ in range(RUNS))
    seconds = await forget_seconds(stores, settings, turn)
    line(
        f"forgetting one of {batches * BATCH:,} turns ({batches} batches)",
        f"{seconds:.1f} s, {seconds / reading:.0f} x reading the rows",
        f"< {WANTED_FORGET_SECONDS:g} s",
        ok=seconds < WANTED_FORGET_SECONDS,
    )
    return seconds


if __name__ == "__main__":
    asyncio.run(main())
