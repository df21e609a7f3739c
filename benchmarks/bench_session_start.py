"""Time that a session of Claude Code waits for memory at its start, with 100,000 learnings.

All parts of it at once, as Claude Code starts them: from the file that the sprite keeps, and by a request to a bridge,
beside as many shells that do nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.bench_search import fill_learnings
from benchmarks.report import line, spread
from sprite.config import Settings
from tests.bridge_harness import BridgeProcess, bridge_process
from tests.claude_code import PLUGIN, REMOTE_PLUGIN, ClaudeCode
from tests.inspection import eventually

RUNS = 100
WARM_UP = 5
PARTS = (1, 2, 3)
MOST_MS = 100.0
NOTHING = ("sh", "-c", "true")
#: user.md, as long as it may be.
LINES = "".join(
    f"- {number}. Something that holds for the person, as they once said it in words of their own.\n"
    for number in range(170)
)


async def together(person: ClaudeCode, folder: Path, *commands: tuple[str, ...]) -> tuple[float, float, int]:
    """Milliseconds until the last of the commands has ended and of the processor, and how much they printed."""
    started, worked = time.perf_counter(), processor_ms()
    processes = [
        await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=person.environment, stdout=asyncio.subprocess.PIPE
        )
        for command in commands
    ]
    printed = await asyncio.gather(*(process.communicate() for process in processes))
    elapsed, used = (time.perf_counter() - started) * 1000, processor_ms() - worked
    return elapsed, used, sum(len(out) for out, _ in printed)


def processor_ms() -> float:
    """The processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


async def compare(name: str, person: ClaudeCode, plugin: Path, folder: Path) -> None:
    """Prints the hook's times; both alternate, so that noise affects both."""
    script = str(plugin / "scripts/session-start")
    begun: list[float] = []
    nothing: list[float] = []
    processor: list[float] = []
    for _ in range(RUNS + WARM_UP):
        elapsed, used, printed = await together(person, folder, *(("sh", script, str(part)) for part in PARTS))
        assert printed, "the session begins without memory"
        begun.append(elapsed)
        processor.append(used)
        nothing.append((await together(person, folder, *(NOTHING for _ in PARTS)))[0])
    del begun[:WARM_UP], nothing[:WARM_UP], processor[:WARM_UP]
    slowest, baseline = (statistics.quantiles(each, n=20)[-1] for each in (begun, nothing))
    times = f"{statistics.median(begun) / statistics.median(nothing):.1f} x {spread(nothing)}"
    line(f"SessionStart, {name}: median", f"{spread(begun)} ms ({times})", "stated", ok=True)
    line(f"SessionStart, {name}: processor time", f"{spread(processor)} ms", "stated", ok=True)
    value = f"{slowest:.0f} ms ({slowest / baseline:.1f} x {baseline:.0f})"
    line(f"SessionStart, {name}: 95th percentile", value, f"< {MOST_MS:g} ms", ok=slowest < MOST_MS)


async def remembered(data: Path, learnings: int) -> None:
    """Makes the local person's memory, with so many learnings."""
    async with bridge_process(data) as bridge, bridge.page(await bridge.login()) as page:
        await page.link("ready")
        await page.mission("My name is Ada and I prefer tea.")
        await page.ask("system", {"action": "flush"})
        answer = await page.ask("memory", {"op": "edit", "name": "user.md", "content": f"# User\n{LINES}"})
        assert answer["type"] != "error", answer
    memory = Settings(data / "workspaces/local").memory_db
    with closing(sqlite3.connect(memory)) as connection:
        (had,) = connection.execute("SELECT count(*) FROM learnings").fetchone()
    fill_learnings(memory, learnings - had, 1)


async def kept(bridge: BridgeProcess) -> None:
    """Waits until the sprite has written what sessions elsewhere begin with."""
    folder = Settings(bridge.workspace).boot_files
    long = len(LINES) // 2
    await eventually(lambda: any(path.stat().st_size > long for path in folder.glob("*.md")), "no boot file")


async def main(learnings: int) -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as name:
        data, here = Path(name, "data"), Path(name, "home")
        project = Path(name, "code")
        project.mkdir()
        await remembered(data, learnings)
        async with bridge_process(data) as bridge, bridge.page(await bridge.login()) as page:
            await page.link("ready")
            await kept(bridge)
            sizes = [path.stat().st_size for path in Settings(bridge.workspace).boot_files.iterdir()]
            print(f"      with {learnings:,} learnings, {len(PARTS)} parts at once, {max(sizes):,} bytes in all")
            await compare("from the sprite's file", ClaudeCode(here), PLUGIN, project)
            _, printed, _ = await bridge.run("users", "token", "local", "--scope", "memory:read")
            options = {
                "CLAUDE_PLUGIN_OPTION_BRIDGE_URL": bridge.url,
                "CLAUDE_PLUGIN_OPTION_TOKEN": printed.splitlines()[-1],
            }
            # The first `python` on a developer's PATH may be a wrapper.
            options["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            await compare("by a request", ClaudeCode(Path(name, "laptop"), extra=options), REMOTE_PLUGIN, project)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learnings", type=int, default=100_000)
    asyncio.run(main(parser.parse_args().learnings))
