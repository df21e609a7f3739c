"""Replaying 10,000 curated turns, against reading the same log row by row."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path

from benchmarks.report import line
from sprite.database.curations import NewCuration
from sprite.database.memory import open_memory
from sprite.database.transcript import (
    NewObservation,
    TranscriptDB,
    open_transcript,
)
from sprite.memory.files import MemoryFiles
from sprite.memory.projection.projection import Projection
from sprite.memory.rebuild import replay_aside

TURNS = 10_000
BATCH = 25
RUNS = 3
WANTED_SECONDS = 3.0


async def fill(transcript: TranscriptDB, projection: Projection) -> None:
    """A log as it grows in use: ten learnings and a rewritten file a batch."""
    await transcript.start_session("s")
    for number in range(1, TURNS + 1):
        text = f"My project number {number} is called heron{number} and is written in language {number % 17}."
        call = {"tool_use_id": "t", "name": "Bash", "input": {"command": "ls"}, "result": "a\nb", "is_error": False}
        await transcript.add_observation(NewObservation("s", text, [call], f"Noted: heron{number}.", "complete"))
        if number % BATCH == 0:
            first = number - BATCH + 1
            learned = [
                f"FACT [t{n}] The project heron{n} is written in language {n % 17}. | "
                f'"My project number {n} is called heron{n}"'
                for n in range(first, first + 10)
            ]
            known = "\n".join(f"- The project heron{n} matters." for n in range(max(1, number - 120), number))
            answer = "\n".join([*learned, "USER_MD_UPDATE:", "# User", "## Facts", known])
            await projection.log_batch(
                NewCuration(
                    kind="batch",
                    response=answer,
                    first_observation_id=first,
                    last_observation_id=number,
                    model="offline",
                    usage={"input_tokens": 1, "output_tokens": 1},
                    cost_usd=0.0,
                )
            )


async def main() -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with open_transcript(folder / "transcript.db") as transcript:
            files = MemoryFiles(folder)
            files.ensure()
            async with open_memory(folder / "memory.db") as memory:
                await fill(transcript, Projection(transcript, memory, files))
            seconds, reading = [], []
            for _ in range(RUNS):
                started = time.perf_counter()
                await replay_aside(transcript, folder / "memory.db.new", lambda: None)
                seconds.append(time.perf_counter() - started)
                started = time.perf_counter()
                raw = sqlite3.connect(folder / "transcript.db")
                raw.execute("SELECT * FROM observations").fetchall()
                raw.execute("SELECT * FROM curations").fetchall()
                raw.close()
                reading.append(time.perf_counter() - started)
    value = f"{min(seconds):.1f} .. {max(seconds):.1f} s, {min(seconds) / min(reading):.0f} x reading the rows"
    line(f"replaying {TURNS:,} curated turns", value, f"< {WANTED_SECONDS:g} s", ok=max(seconds) < WANTED_SECONDS)


if __name__ == "__main__":
    asyncio.run(main())
