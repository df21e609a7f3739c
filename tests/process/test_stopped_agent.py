"""An agent's process that is stopped holds up no one, and nothing that it began outlasts the sprite."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.fake_model.model import OfflineModel
from sprite.agent import processes as orphans
from tests.command_line import command
from tests.harness import Client, Sprite, observations, running_sprite
from tests.inspection import agent_process, chat, eventually, family, is_running, request_seen, runs
from tests.memory_stores import open_stores

#: Left in the background by its shell, by nohup, and in a session of its own: none has a parent in the agent any more.
DETACHED = "(tail -f /dev/null &) ; nohup tail -f /dev/null & setsid tail -f /dev/null & wait %9; echo begun"


def programs_in(workspace: Path, words: str) -> list[int]:
    """The processes with these words that an agent of this workspace began."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                words.encode() in (process / "cmdline").read_bytes().replace(b"\0", b" ")
                and os.fsencode(workspace) in (process / "environ").read_bytes()
            ):
                found.append(int(process.name))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(workspace: Path) -> Iterator[None]:
    """A test that fails leaves no process behind."""
    yield
    for pid in programs_in(workspace, ""):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_stopped_agent_ends_turn_interrupt_and_sprite(model: OfflineModel, workspace: Path) -> None:
    """Programs that it detached outlast its session, and end with the sprite."""
    model.script.agent({"match": "Begin", "tool": "Bash", "input": {"command": f"{DETACHED} > /dev/null 2>&1"}})
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        # In a turn: it ends in words, and the next mission resumes the conversation.
        await chat(client, "My name is Ada.")
        mission = client.send("mission", {"text": "think for ever"})
        await request_seen(model, lambda r: "think for ever" in r.user_text)
        stopped = agent_process(sprite)
        os.kill(stopped, signal.SIGSTOP)
        end = await client.end_of(mission)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "agent", True)
        assert "it was stopped from outside" in end["message"]
        await eventually(lambda: not runs(stopped), "it has ended")
        await chat(client, "Begin")
        request = next(r for r in model.requests if r.kind == "main" and r.user_text == "Begin")
        assert "My name is Ada." in str(request.body["messages"])
        await eventually(lambda: len(programs_in(workspace, "tail -f")) == 3, "all three run")
        begun = programs_in(workspace, "tail -f")
        # It hears no interrupt: it is ended with the turn.
        mission, processes = await stopped_in_a_command(sprite, client)
        await client.ask("interrupt")
        assert (await client.end_of(mission))["event"] == "interrupted"
        await eventually(lambda: not any(runs(pid) for pid in processes), "what was interrupted goes on unseen")
        await client.ask("system", {"action": "new_session"})
        assert programs_in(workspace, "tail -f") == begun, "a server that the person asked for goes on"
        # The sprite ends in order, and so does all that the agent ran.
        mission, processes = await stopped_in_a_command(sprite, client)
        await sprite.stop()
        end = await client.end_of(mission)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "crashed", True)
    await eventually(lambda: not any(runs(pid) for pid in (*begun, *processes)), "all of it has ended")
    assert [row["outcome"] for row in observations(workspace)] == [
        *("complete", "error", "complete"),
        *("interrupted", "crashed"),
    ]


async def stopped_in_a_command(sprite: Sprite, client: Client) -> tuple[str, list[int]]:
    """A mission whose agent is stopped while a command runs; its id, and the agent's processes."""
    mission = client.send("mission", {"text": "run `tail -F /dev/null`"})
    await eventually(lambda: is_running(sprite, "tail -F"), "the command runs")
    processes = family(sprite)
    os.kill(agent_process(sprite), signal.SIGSTOP)
    return mission, processes


async def test_forget_ends_what_a_killed_sprites_agent_left(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known by its environment, and deaf to a polite end."""
    # Looks at every process of the machine, for as long as it waits.
    monkeypatch.setattr(orphans, "GRACE_SECONDS", 0.2)
    (workspace / ".os/memory").mkdir(parents=True)
    (workspace / ".os/run").mkdir()
    async with open_stores(workspace / ".os/memory") as stores:
        await stores.turn("My name is Ada.")
    deaf = "trap '' TERM; tail -f /dev/null & while :; do wait; done"
    state = {"CLAUDE_CONFIG_DIR": str(workspace / ".os/run/claude")}
    left = await asyncio.create_subprocess_exec("sh", "-c", deaf, env={**os.environ, **state}, start_new_session=True)
    await eventually(lambda: programs_in(workspace, "tail -f") != [], "it runs")
    code, _, said = await command(workspace, "memory", "forget", "--text", "Ada", "--yes")
    assert code == 0, said
    await eventually(lambda: programs_in(workspace, "trap") == [], "it has ended")
    assert await left.wait() == -signal.SIGKILL
    assert programs_in(workspace, "tail -f") == []
