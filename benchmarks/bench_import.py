"""Importing 10,000 turns of real shape in its own process, against a plain `json.loads` of every line.

Each pass starts with an empty workspace; the two alternate, so that noise affects both.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import below, line, spread
from tests.harness import ROOT, observations
from tests.session_logs import record, write_many

SESSIONS = 100
TURNS_EACH = 100
PASSES = 5


def imported(workspace: Path, logs: Path) -> float:
    """Seconds of the whole command, Python's own start included."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "sprite", "import", "--workspace", workspace, logs],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - started


def parsed(logs: Path) -> float:
    """Seconds to read every line with json.loads and do nothing with it."""
    started = time.perf_counter()
    for path in sorted(logs.iterdir()):
        with path.open("rb") as stream:
            for text in stream:
                json.loads(text)
    return time.perf_counter() - started


def main() -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recorded = asyncio.run(record(folder))
        logs = folder / "many"
        size = write_many(recorded.log("everyday"), logs, sessions=SESSIONS, turns=TURNS_EACH)
        first, again, plain = [], [], []
        for number in range(PASSES):
            workspace = folder / f"workspace-{number}"
            plain.append(parsed(logs))
            first.append(imported(workspace, logs))
            again.append(imported(workspace, logs))
            assert len(observations(workspace)) == SESSIONS * TURNS_EACH
        turns = f"{SESSIONS * TURNS_EACH:,} turns, {size / 1e6:.0f} MB"
        below(f"import of {turns}", first, 30, "s")
        below("  the same again: nothing new", again, 30, "s")
        ratios = [a / b for a, b in zip(first, plain, strict=True)]
        line("  import / json.loads of every line", f"{spread(ratios)} x", "-", ok=True)


if __name__ == "__main__":
    main()
