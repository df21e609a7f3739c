"""Cost of recording file changes at a turn's end, relative to a plain os.walk with a stat of each file."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from benchmarks.report import below, line, ratio
from tests.undo_stage import Stage, opened

FILES = 10_000
CHANGED = 100
ROUNDS = 20
#: A scan reads each file's state, as the walk does.
WANTED_SCAN = 1.0
#: Includes reading, hashing, writing and flushing 100 files.
WANTED_END = 4.0
WANTED_MS = 60.0


async def main() -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(FILES):
            path = folder / f"documents/{number // 100}/{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"line {number}\n" * 40)
        began = time.perf_counter()
        async with opened(folder) as stage:
            line(
                f"first snapshot of {FILES:,} files",
                f"{time.perf_counter() - began:.1f} s",
                "in the background",
                ok=True,
            )
            await _measure(stage)


async def _measure(stage: Stage) -> None:
    walks, scans, processor, ends, changed = list[float](), list[float](), list[float](), list[float](), list[float]()
    await stage.turn("warm")
    for number in range(ROUNDS):
        walks.append(_timed(lambda: _walk(stage.folder)))
        cpu = time.process_time()
        scans.append(_timed(lambda: stage.tracker._scanner.scan(stage.tracker.index)))  # noqa: SLF001
        processor.append((time.process_time() - cpu) * 1000)
        began = time.perf_counter()
        await stage.turn(f"idle {number}")
        ends.append((time.perf_counter() - began) * 1000)
        for file in range(CHANGED):
            (stage.folder / f"documents/{file}/{file * 100}.txt").write_text(f"round {number}\n" * 40)
        began = time.perf_counter()
        await stage.turn(f"turn {number}")
        changed.append((time.perf_counter() - began) * 1000)
    name = f"{FILES:,} unchanged files"
    ratio(f"scan of {name} / os.walk and stat", scans, walks, WANTED_SCAN)
    below(f"scan of {name}, processor time", processor, WANTED_MS)
    ratio(f"turn's end, {name} / os.walk and stat", ends, walks, WANTED_SCAN * 1.5)
    ratio(f"turn's end, {CHANGED} changed files / os.walk and stat", changed, walks, WANTED_END)


def _timed(work: object) -> float:
    assert callable(work)
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _walk(folder: Path) -> None:
    for top, _, names in os.walk(folder):
        for name in names:
            os.stat(os.path.join(top, name))  # noqa: PTH116, PTH118 - the plainest baseline


if __name__ == "__main__":
    asyncio.run(main())
