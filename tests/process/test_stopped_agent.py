"""An agent's process that is stopped holds up no one, and nothing that it began outlasts the sprite."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.offline.model import OfflineModel
from tests.command_line import command
from tests.harness import Client, Sprite, observations, running_sprite, sprite_process
from tests.inspection import (
    agent_process,
    chat,
    eventually,
    family,
    is_running,
    request_seen,
    runs,
)

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
        await chat(client, "Hello again")
        (request,) = [r for r in model.requests if r.kind == "main" and r.user_text == "Hello again"]
        assert "My name is Ada." in str(request.body["messages"])
        # It hears no interrupt: it is ended with the turn.
        mission, processes = await stopped_in_a_command(sprite, client)
        await client.ask("interrupt")
        assert (await client.end_of(mission))["event"] == "interrupted"
        await eventually(lambda: not any(runs(pid) for pid in processes), "what was interrupted goes on unseen")
        # The sprite ends in order, and so does all that the agent ran.
        _, processes = await stopped_in_a_command(sprite, client)
        await sprite.stop()
    await eventually(lambda: not any(runs(pid) for pid in processes), "all of it has ended")
    assert [row["outcome"] for row in observations(workspace)] == [
        *("complete", "error", "complete"),
        *("interrupted", "crashed"),
    ]


async def stopped_in_a_command(sprite: Sprite, client: Client) -> tuple[str, list[int]]:
    """A mission whose agent is stopped while a command runs; its id, and the agent's processes."""
    mission = client.send("mission", {"text": "run `tail -f /dev/null`"})
    await eventually(lambda: is_running(sprite, "tail -f"), "the command runs")
    processes = family(sprite)
    os.kill(agent_process(sprite), signal.SIGSTOP)
    return mission, processes


async def test_detached_programs_outlast_session_not_sprite(model: OfflineModel, workspace: Path) -> None:
    model.script.agent({"match": "Begin", "tool": "Bash", "input": {"command": f"{DETACHED} > /dev/null 2>&1"}})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Begin")
        await eventually(lambda: len(programs_in(workspace, "tail -f")) == 3, "all three run")
        begun = programs_in(workspace, "tail -f")
        await client.ask("system", {"action": "new_session"})
        assert programs_in(workspace, "tail -f") == begun, "a server that the person asked for goes on"
        await sprite.stop()
    await eventually(lambda: not any(runs(pid) for pid in begun), "all of it has ended")


async def test_nothing_of_a_killed_sprites_agent_runs_any_more_when_something_is_forgotten(
    model: OfflineModel, workspace: Path
) -> None:
    deaf = "setsid sh -c \"trap '' TERM; tail -f /dev/null & while :; do wait; done\" > /dev/null 2>&1 & echo begun"
    model.script.agent({"match": "Begin", "tool": "Bash", "input": {"command": deaf}})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Begin, my name is Ada")
        await eventually(lambda: programs_in(workspace, "tail -f") != [], "it runs")
        await sprite.kill()
    assert programs_in(workspace, "trap") != []
    code, _, said = await command(workspace, "memory", "forget", "--text", "Ada", "--yes")
    assert code == 0, said
    await eventually(lambda: programs_in(workspace, "trap") == [], "it has ended")
