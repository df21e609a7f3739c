"""Costs of memory in Claude Code: time added to prompts and tools, and calls of the curator.

Sessions of the real CLI with and without the plugin and the follower alternate, so that noise affects both.
"""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.bench_turn import stand_in
from benchmarks.report import line
from tests.claude_code import PLUGIN, ClaudeCode, following
from tests.harness import rows, sprite_process
from tests.inspection import eventually
from tests.scripted_model import OfflineModel
from tests.session_logs import Talk, talking

PAIRS = 60
WARM_UP = 5
#: A real session's: so many turns, with so many tools each.
TURNS, TOOLS = 25, 3
CALL = {"type": "tool_use", "name": "Bash", "input": {"command": "true"}}
STEP = {"match": "three tools", "on": "prompt", "blocks": [CALL] * TOOLS, "times": -1}
#: A delay that a person does not notice.
NOTHING_MS = 2.0


@asynccontextmanager
async def person(folder: Path, url: str, workspace: Path | None) -> AsyncIterator[Talk]:
    """A session of the CLI; with a workspace its person has the plugin, and a follower takes their turns."""
    claude = ClaudeCode(folder / "home", url)
    (claude.home / ".claude/projects").mkdir(parents=True)
    async with AsyncExitStack() as stack:
        if workspace is not None:
            claude.note(workspace)
            await stack.enter_async_context(following(claude.home / ".claude/projects", workspace))
        plugins = [] if workspace is None else [{"type": "local", "path": str(PLUGIN)}]
        yield await stack.enter_async_context(talking(folder, url, env=claude.environment, plugins=plugins))


async def timed(talk: Talk, text: str) -> float:
    """Milliseconds from a prompt to its turn's end."""
    started = time.perf_counter()
    await talk.say(text)
    return (time.perf_counter() - started) * 1000


async def added(folder: Path) -> None:
    """Prints what plugin and follower add to a prompt and to a tool call."""
    script = folder / "script.json"
    script.write_text(json.dumps({"agent": [STEP]}))
    plain, ours = folder / "plain", folder / "ours"
    for each in (plain, ours, folder / "workspace"):
        each.mkdir()
    async with (
        stand_in(str(script)) as url,
        sprite_process(folder / "workspace", url, SPRITE_BATCH_TURNS="1000000"),
        person(plain, url, None) as without,
        person(ours, url, folder / "workspace") as with_memory,
    ):
        found: dict[str, tuple[list[float], list[float]]] = {}
        for text in ("hello there", "three tools"):
            alone, remembered = found.setdefault(text, ([], []))
            for number in range(PAIRS + WARM_UP):
                # The second one finds the machine busy with the end of the first.
                for talk, times in ((without, alone), (with_memory, remembered))[:: 1 if number % 2 else -1]:
                    times.append(await timed(talk, text))
            del alone[:WARM_UP], remembered[:WARM_UP]
    told("added to a prompt", *found["hello there"], 1, "304 ms")
    told("added to a tool call", *found["three tools"], TOOLS, "309 ms")


def told(name: str, alone: Sequence[float], remembered: Sequence[float], count: int, peer: str) -> None:
    """The median of what each pair of turns differs by, of which so many shares are told, with its standard error."""
    differences = [(more - less) / count for less, more in zip(alone, remembered, strict=True)]
    quartiles = statistics.quantiles(differences, n=4)
    error = 1.25 * (quartiles[2] - quartiles[0]) / 1.35 / math.sqrt(len(differences))
    found = statistics.median(differences)
    times = statistics.median(remembered) / statistics.median(alone)
    value = f"{found:+.1f} ms, +- {error:.1f} ({times:.2f} x; claude-mem: {peer})"
    line(name, value, "0 ms", ok=found <= max(NOTHING_MS, 2 * error))


async def calls(folder: Path) -> None:
    """Prints how many calls of a model a session costs."""
    workspace = folder / "curated"
    (folder / "session").mkdir()
    workspace.mkdir()
    async with OfflineModel() as model:
        model.script.agent(STEP)
        async with sprite_process(workspace, model.url), person(folder / "session", model.url, workspace) as talk:
            for _ in range(TURNS):
                await talk.say("three tools")

            log = workspace / ".os/memory/transcript.db"
            left = "SELECT count(*) AS n, coalesce(sum(processed), 0) AS done FROM observations"
            await eventually(lambda: rows(log, left) == [{"n": TURNS, "done": TURNS}], "not curated")
        curator = sum(request.kind == "curator" for request in model.requests)
    value = f"{curator} (claude-mem: 102)"
    line(f"calls of the curator for {TURNS} turns with {TOOLS} tools each", value, "1", ok=curator == 1)


async def main() -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as name:
        await added(Path(name))
        await calls(Path(name))


if __name__ == "__main__":
    asyncio.run(main())
