"""A turn through the whole server against the same turn on a bare SDK client, and what a hook callback costs.

Both use the same stand-in model, in its own process, and alternate, so that noise affects both.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, ResultMessage

from benchmarks.report import below, ratio
from sprite.capture.recorder import TurnRecorder
from sprite.log.transcript import open_transcript
from tests.harness import PATIENCE, ROOT, Client, SpriteProcess, sprite_environment, sprite_process
from tests.inspection import children

TURNS = 120
WARM_UP = 10
SESSIONS = 12
#: Seconds without activity after which the agent that was started ahead counts as ready.
REST_SECONDS = 0.5
HOOK_EVENTS = ("UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "Stop", "PreCompact")
KINDS = {"plain turn": "hello there", "Bash turn": "run `true`"}


@asynccontextmanager
async def stand_in(*arguments: str) -> AsyncIterator[str]:
    """The offline model in its own process; yields its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.scripted_model", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().split()[-1]
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def bare_client(url: str, folder: Path) -> AsyncIterator[ClaudeSDKClient]:
    """The SDK alone, with callbacks that do nothing on the events that we hook."""

    async def nothing(*_: Any) -> Any:
        return {}

    prompt = folder / "prompt.md"
    prompt.write_text("You are a helpful agent.")
    environment = sprite_environment(url)
    options = ClaudeAgentOptions(
        cwd=folder,
        permission_mode="bypassPermissions",
        setting_sources=[],
        # As for us: what a person sees while it is said costs the same on both sides.
        include_partial_messages=True,
        system_prompt={"type": "file", "path": str(prompt)},
        hooks={event: [HookMatcher(hooks=[nothing])] for event in HOOK_EVENTS},  # type: ignore[misc]
        env={
            **{k: v for k, v in environment.items() if k.startswith(("ANTHROPIC", "CLAUDE"))},
            "CLAUDE_CONFIG_DIR": str(folder / "claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "IS_SANDBOX": "1",
        },
    )
    async with ClaudeSDKClient(options) as client:
        yield client


async def bare_turn(client: ClaudeSDKClient, text: str) -> float:
    """Milliseconds from the query to its result."""
    started = time.perf_counter()
    await client.query(text)
    async for message in client.receive_messages():
        if isinstance(message, ResultMessage):
            break
    return (time.perf_counter() - started) * 1000


async def served_turn(client: Client, text: str) -> float:
    """Milliseconds from the mission to its `complete`."""
    started = time.perf_counter()
    ended = await client.mission(text)
    assert ended["event"] == "complete", ended
    return (time.perf_counter() - started) * 1000


async def turns(url: str, folder: Path) -> None:
    """Both kinds of turn, bare and served in alternation."""
    workspace = folder / "workspace"
    bare = folder / "bare"
    workspace.mkdir()
    bare.mkdir()
    async with (
        bare_client(url, bare) as sdk,
        sprite_process(workspace, url, SPRITE_BATCH_TURNS="1000000") as sprite,
        sprite.client() as client,
    ):
        for name, text in KINDS.items():
            served, alone = [], []
            for number in range(TURNS + WARM_UP):
                alone.append(await bare_turn(sdk, text))
                served.append(await served_turn(client, text))
                if number < WARM_UP:
                    served.clear()
                    alone.clear()
            ratio(f"{name}, whole server / bare client", served, alone, 1.10)


async def first_word(client: Client, text: str) -> float:
    """Milliseconds from the mission to its first text; returns when it has ended."""
    started = time.perf_counter()
    mission_id = client.send("mission", {"text": text})
    await client.event("text_delta")
    elapsed = (time.perf_counter() - started) * 1000
    await client.end_of(mission_id)
    return elapsed


async def at_rest(sprite: SpriteProcess) -> None:
    """Waits until the agent's process is there and has nothing to do, as when a person writes the first message."""
    before = -1
    async with asyncio.timeout(PATIENCE):
        while (now := sum(cpu_ticks(pid) for pid in children(sprite.process.pid))) != before or now == 0:
            before = now
            await asyncio.sleep(REST_SECONDS)


def cpu_ticks(process_id: int) -> int:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def first_words(url: str, folder: Path) -> None:
    """The first text of a session's first mission against that of a later one: the agent is started ahead."""
    workspace = folder / "sessions"
    workspace.mkdir()
    first, later = [], []
    # A person's settings: the tests' own start no agent ahead.
    settings = {"SPRITE_BATCH_TURNS": "1000000", "SPRITE_PREWARM_SECONDS": "600"}
    async with sprite_process(workspace, url, **settings) as sprite, sprite.client() as client:
        for _ in range(SESSIONS):
            await client.ask("system", {"action": "new_session"})
            await at_rest(sprite)
            first.append(await first_word(client, "hello there"))
            later += [await first_word(client, "hello there") for _ in range(WARM_UP)][1:]
    ratio("first text of a session / of a later turn", first, later, 3.0)


async def hooks(folder: Path) -> None:
    """Each callback's work, its journal row included, on a real log."""
    async with open_transcript(folder / "transcript.db") as transcript:
        recorder = TurnRecorder(transcript, print)
        await transcript.start_session("s")
        recorder.session_id = "s"
        samples: dict[str, list[float]] = {"UserPromptSubmit": [], "PostToolUse": [], "Stop": []}
        result = {"stdout": "x" * 1500, "stderr": ""}
        for _ in range(300):
            recorder.open_mission(str(uuid.uuid4()), "hello")
            for event, call in (
                ("UserPromptSubmit", recorder.prompt_submitted("p", "hello")),
                (
                    "PostToolUse",
                    recorder.tool_ended(
                        "p", "t", "Bash", {"command": "ls " * 100}, result, is_error=False, agent_id=None
                    ),
                ),
                ("Stop", recorder.stopped("p", "done " * 100)),
            ):
                started = time.perf_counter()
                await call
                samples[event].append((time.perf_counter() - started) * 1000)
            await recorder.close_mission("complete")
        for event, values in samples.items():
            below(f"hook callback {event}, journal row included", values, 0.5)


async def flush_beside(folder: Path) -> None:
    """The last turn of a batch against the turns before it: starting a flush must cost the turn nothing."""
    workspace = folder / "flushing"
    workspace.mkdir()
    async with (
        stand_in() as url,
        sprite_process(workspace, url, SPRITE_BATCH_TURNS="5") as sprite,
        sprite.client() as client,
    ):
        await served_turn(client, "hello")
        ordinary: list[float] = []
        flushing: list[float] = []
        for number in range(2, 101):
            (flushing if number % 5 == 0 else ordinary).append(await served_turn(client, "hello there"))
        ratio("turn that starts a flush / turn that does not", flushing, ordinary, 1.10)


async def main() -> None:
    """Prints every figure."""
    os.environ["CLAUDE_CODE_MAX_RETRIES"] = "0"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with stand_in() as url:
            await turns(url, folder)
            await first_words(url, folder)
        await hooks(folder)
        await flush_beside(folder)


if __name__ == "__main__":
    asyncio.run(main())
