"""`follow` as a process beside the real CLI and a sprite that starts and stops, with random kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sprite.config import Settings
from sprite.imports.follower import Follower, Marks
from tests.claude_code import ClaudeCode
from tests.command_line import command, started
from tests.forking import ForkedProcess, fork_module
from tests.harness import PATIENCE, RunningProcess, observations, sprite_environment, sprite_process
from tests.inspection import eventually
from tests.scripted_model import OfflineModel
from tests.session_logs import Recorded, write_copy, write_many

#: Number of stops or kills at a random moment.
LIVES = int(os.environ.get("SOAK_KILLS", "0")) // 10 or 1
#: Sessions in the logs, and turns in each.
SESSIONS, TURNS = (6, 100) if LIVES > 1 else (3, 40)


class FollowerProcess(RunningProcess):
    """`python -m sprite follow` and its printed lines."""

    def __init__(self, process: ForkedProcess) -> None:
        super().__init__(process)
        self.said: list[str] = []

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = (await self.process.stdout.readline()).decode().rstrip("\n")
        assert line, "the follower ended"
        self.said.append(line)
        return line


@asynccontextmanager
async def follower(workspace: Path, *arguments: str | Path, **extra: str) -> AsyncIterator[FollowerProcess]:
    process = await fork_module(
        "sprite",
        "follow",
        "--workspace",
        *map(str, (workspace, *arguments)),
        env=sprite_environment(None, **extra),
        stdout=asyncio.subprocess.PIPE,
    )
    running = FollowerProcess(process)
    try:
        yield running
    finally:
        await running.kill()


def said(workspace: Path) -> list[str]:
    # The database may not exist yet.
    with contextlib.suppress(sqlite3.OperationalError):
        return [turn["user_message"] for turn in observations(workspace) if turn["source"]]
    return []


async def test_follow_logs_turns_once_across_kills(model: OfflineModel, workspace: Path, tmp_path: Path) -> None:
    claude = ClaudeCode(tmp_path / "home", model.url)
    code = tmp_path / "code"
    (code / ".git").mkdir(parents=True)
    (code / ".git/HEAD").write_text("ref: refs/heads/main\n")
    below = code / "src"
    below.mkdir()
    logs = claude.home / ".claude/projects"
    text = "run `echo once`"

    async def taken(count: int) -> None:
        await eventually(lambda: said(workspace) == [text] * count, f"{count} turns do not reach the log")

    async with follower(workspace, CLAUDE_CONFIG_DIR=str(logs.parent)) as first:
        # Claude Code has never run here, so the follower waits for its folder.
        assert await first.line() == f"following 0 sessions below {logs}"
        session = (await claude.say(text, below))["session_id"]
        assert (await first.line()).startswith(f"new session {session} in {logs}/")
        await taken(1)
        (log,) = logs.rglob(f"{session}.jsonl")
        async with sprite_process(workspace, model.url) as sprite:
            await first.kill()
            # No follower runs now.
            write_copy(log, "second", 1)
            async with follower(workspace, logs) as second:
                assert await second.line() == f"following 2 sessions below {logs}"
                await taken(2)
                await sprite.kill()
                write_copy(log, "third", 2)
                await taken(3)
                assert await second.stop() == 0
    turns = [turn for turn in observations(workspace) if turn["source"]]
    assert {turn["project"] for turn in turns} == {str(code)}
    assert {turn["outcome"] for turn in turns} == {"complete"}
    assert {json.loads(turn["tool_calls_json"])[0]["input"]["command"] for turn in turns} == {"echo once"}
    async with follower(workspace, logs) as third:
        await third.line()
        await taken(3)


async def test_follow_random_kills_import_turns_once(recorded: Recorded, workspace: Path, tmp_path: Path) -> None:
    logs = tmp_path / "many"
    write_many(recorded.log("everyday"), logs, sessions=SESSIONS, turns=TURNS)
    chance = random.Random(14)  # noqa: S311 - no secret
    for _ in range(LIVES):
        async with follower(workspace, logs) as running:
            await running.line()
            # Some followers are stopped in order, the others are killed.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(0, 1.5)):
                    await running.ended()
            await (running.stop() if chance.random() < 0.3 else running.kill())
    async with follower(workspace, logs):
        await eventually(lambda: len(said(workspace)) == SESSIONS * TURNS, "turns are missing")
    keys = Counter((turn["session_id"], turn["sequence_num"], turn["timestamp"]) for turn in observations(workspace))
    assert len(keys) == keys.total() == SESSIONS * TURNS


async def test_follow_of_growing_logs_equals_import(recorded: Recorded, workspace: Path, tmp_path: Path) -> None:
    """Compactions, subagents, forks and commands of the real CLI arrive a third at a time."""
    logs, at_once = tmp_path / "projects", tmp_path / "at-once"
    sources = sorted(recorded.projects.rglob("*"))
    whole = {path: path.read_bytes() for path in sources if path.is_file()}
    for share in (0.31, 0.62, 1.0):
        for path, content in whole.items():
            if recorded.ids["forked"] in path.name and share < 1:
                # The fork began after the end of its original.
                continue
            copy = logs / path.relative_to(recorded.projects)
            copy.parent.mkdir(parents=True, exist_ok=True)
            # A subagent's log is complete before the session logs its result.
            is_ahead = "subagents" in path.parts
            copy.write_bytes(content if is_ahead else content[: int(len(content) * share)])
            # Forks start from idle sessions. Else the fork's copy of the last turn would be read first.
            rested = time.time() - 60
            os.utime(copy, (rested, rested))
        settings = Settings(workspace)
        settings.follow.mkdir(parents=True, exist_ok=True)
        follows = Follower(settings, [logs], Marks(settings.follow / "marks.json"), lambda _: None)
        await follows.look()
        await follows.catch_up()
    assert (await command(at_once, "import", str(logs)))[0] == 0

    def turns(folder: Path) -> dict[str, dict[str, object]]:
        left_out = {"id": 0, "sequence_num": 0}
        return {turn["import_key"]: turn | left_out for turn in observations(folder)}

    assert turns(workspace) == turns(at_once)


async def test_second_follower_of_workspace_is_refused(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    async with follower(workspace, tmp_path / "logs") as running:
        await running.line()
        second = await started(workspace, "follow", str(tmp_path))
        _, complaint = await second.communicate()
        assert second.returncode == 2
        assert f"Another follower (process {running.process.pid})" in complaint.decode()
        running.process.send_signal(signal.SIGINT)
        assert await running.ended() == 0
    async with follower(workspace, tmp_path / "logs") as running:
        assert (await running.line()).startswith("following 0 sessions")
