"""Rebuild memory from the log of 10,000 curated turns, and forget one, against reading the same log row by row."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path

from benchmarks.report import line
from sprite.config import Settings
from sprite.database.curations import NewCuration
from sprite.database.workspace import open_workspace
from sprite.memory.forgetting.plan import Target
from sprite.memory.rebuild import replay_aside
from tests.memory_stores import Stores, forgetter_of, open_stores

TURNS = 10_000
BATCH = 25
RUNS = 3
WANTED_SECONDS = 3.0
WANTED_FORGET_SECONDS = 30.0


async def fill(stores: Stores) -> None:
    """Fill a log as it grows in use: ten learnings and a rewritten file a batch."""
    for number in range(1, TURNS + 1):
        text = f"My project number {number} is called heron{number} and is written in language {number % 17}."
        call = {"tool_use_id": "t", "name": "Bash", "input": {"command": "ls"}, "result": "a\nb", "is_error": False}
        await stores.turn(text, f"Noted: heron{number}.", calls=[call])
        if number % BATCH == 0:
            first = number - BATCH + 1
            learned = [
                f"FACT [t{n}] The project heron{n} is written in language {n % 17}. | "
                f'"My project number {n} is called heron{n}"'
                for n in range(first, first + 10)
            ]
            known = "\n".join(f"- The project heron{n} matters." for n in range(max(1, number - 120), number))
            answer = "\n".join([*learned, "USER_MD_UPDATE:", "# User", "## Facts", known])
            await stores.projection.log_batch(NewCuration("batch", answer, first, number, model="offline"))


async def rebuild_seconds(stores: Stores) -> tuple[list[float], list[float]]:
    """Return the seconds of each rebuild, and those of reading the rows beside it."""
    seconds, reading = [], []
    for _ in range(RUNS):
        started = time.perf_counter()
        await replay_aside(stores.transcript, stores.folder / "memory.db.new", lambda: None)
        seconds.append(time.perf_counter() - started)
        started = time.perf_counter()
        raw = sqlite3.connect(stores.folder / "transcript.db")
        raw.execute("SELECT * FROM observations").fetchall()
        raw.execute("SELECT * FROM curations").fetchall()
        raw.close()
        reading.append(time.perf_counter() - started)
    return seconds, reading


async def forget_seconds(stores: Stores, settings: Settings) -> float:
    """Return the seconds of the first forget of this log."""
    async with open_workspace(settings.workspace_db) as seen:
        started = time.perf_counter()
        await forgetter_of(settings, stores, seen).forget(Target(turn=30), sure=True)
        return time.perf_counter() - started


async def main() -> None:
    """Print every figure."""
    with tempfile.TemporaryDirectory() as name:
        settings = Settings(Path(name))
        settings.memory.mkdir(parents=True)
        settings.run.mkdir()
        async with open_stores(settings.memory) as stores:
            await fill(stores)
            seconds, reading = await rebuild_seconds(stores)
            forgot = await forget_seconds(stores, settings)
    value = f"{min(seconds):.1f} .. {max(seconds):.1f} s, {min(seconds) / min(reading):.0f} x reading the rows"
    line(f"rebuilding {TURNS:,} curated turns", value, f"< {WANTED_SECONDS:g} s", ok=max(seconds) < WANTED_SECONDS)
    value = f"{forgot:.1f} s, {forgot / min(reading):.0f} x reading the rows"
    line(
        f"forgetting one of {TURNS:,} turns",
        value,
        f"< {WANTED_FORGET_SECONDS:g} s",
        ok=forgot < WANTED_FORGET_SECONDS,
    )


if __name__ == "__main__":
    asyncio.run(main())
