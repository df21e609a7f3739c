"""Following Claude Code's session logs: what it costs at rest, and what a prompt pays for it.

A prompt of the real CLI is compared with one while nothing follows, in turn, so that noise hits both alike.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.report import below, line, ratio
from tests.claude_code import ClaudeCode
from tests.harness import ROOT, sprite_environment
from tests.inspection import eventually
from tests.process.test_following import said
from tests.scripted_model import OfflineModel
from tests.session_logs import record, write_many

SESSIONS, TURNS_EACH = 100, 100
PROMPTS = 12
REST_SECONDS = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")


def command(verb: str, workspace: Path, *arguments: str | Path) -> list[str | Path]:
    """A command of the sprite's."""
    return [sys.executable, "-m", "sprite", verb, "--workspace", workspace, *arguments]


@contextmanager
def following(workspace: Path, logs: Path) -> Iterator[subprocess.Popen[str]]:
    """A follower that is ready."""
    words = command("follow", workspace, logs)
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=sprite_environment(None)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.terminate()


def cpu_seconds(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mb(pid: int) -> float:
    """Memory of a process, in MB, with what it shares."""
    (kib,) = [row.split()[1] for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS")]
    return int(kib) * 1024 / 1e6


def has_turns(workspace: Path, count: int) -> bool:
    """Whether so many turns were taken."""
    return len(said(workspace)) == count


def at_rest(workspace: Path, logs: Path) -> None:
    """Prints what a follower costs while nobody works, after it has caught up with everything."""
    with following(workspace, logs) as process:
        while not has_turns(workspace, SESSIONS * TURNS_EACH):
            time.sleep(0.2)
        time.sleep(5)
        before = cpu_seconds(process.pid)
        time.sleep(REST_SECONDS)
        share = 100 * (cpu_seconds(process.pid) - before) / REST_SECONDS
        memory = resident_mb(process.pid)
    line(f"at rest beside {SESSIONS} sessions: memory", f"{memory:.0f} MB", "< 60 MB", ok=memory < 60)
    line("  and of a core", f"{share:.2f} %", "< 1 %", ok=share < 1)


async def prompts(folder: Path) -> None:
    """Prints what a prompt with a tool call takes in the real CLI, with a follower and without."""
    with_one, without, late = [], [], []
    (folder / "code").mkdir()
    async with OfflineModel() as model:
        claude = ClaudeCode(folder / "person", model.url)
        workspace, logs = folder / "beside", claude.home / ".claude/projects"

        async def say(text: str) -> float:
            began = time.perf_counter()
            await claude.say(text, folder / "code")
            return 1000 * (time.perf_counter() - began)

        await say("run `echo warm`")
        for number in range(PROMPTS):
            without.append(await say(f"run `echo {number}`"))
            with following(workspace, logs):
                with_one.append(await say(f"run `echo {number}`"))
                ended = time.perf_counter()
                await eventually(partial(has_turns, workspace, 2 * number + 3), "the turn is in the log")
                late.append(time.perf_counter() - ended)
    ratio("a prompt with a tool call, with a follower / without", with_one, without, 1.1)
    added = statistics.median(a - b for a, b in zip(with_one, without, strict=True))
    line("  added to it, median of the pairs", f"{added:.0f} ms", "0 ms but for noise", ok=added < 50)
    below("from the CLI's end to the turn in the log", late, 2, "s")


def main() -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        logs = folder / "many"
        write_many(asyncio.run(record(folder)).log("everyday"), logs, sessions=SESSIONS, turns=TURNS_EACH)
        at_rest(folder / "rest", logs)
        asyncio.run(prompts(folder))


if __name__ == "__main__":
    main()
