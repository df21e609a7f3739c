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
from tests.harness import observations, sprite_process
from tests.inspection import (
    agent_process,
    chat,
    descendants,
    eventually,
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


async def test_a_turn_whose_agent_is_stopped_ends_in_words_and_the_next_mission_resumes_the_conversation(
    model: OfflineModel, workspace: Path
) -> None:
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
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
    assert [row["outcome"] for row in observations(workspace)] == ["complete", "error", "complete"]


async def test_an_agent_that_is_stopped_hears_no_interrupt_and_is_ended_with_the_turn(
    model: OfflineModel, workspace: Path
) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        mission = client.send("mission", {"text": "run `tail -f /dev/null`"})
        await eventually(lambda: is_running(sprite, "tail -f"), "the command runs")
        family = descendants(sprite.process.pid)
        os.kill(agent_process(sprite), signal.SIGSTOP)
        await client.ask("interrupt")
        assert (await client.end_of(mission))["event"] == "interrupted"
        await eventually(lambda: not any(runs(pid) for pid in family), "what was interrupted does not go on unseen")
        await chat(client, "Hello again")


async def test_a_sprite_whose_agent_is_stopped_ends_in_order_and_so_does_what_the_agent_ran(
    model: OfflineModel, workspace: Path
) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        client.send("mission", {"text": "run `tail -f /dev/null`"})
        await eventually(lambda: is_running(sprite, "tail -f"), "the command runs")
        family = descendants(sprite.process.pid)
        os.kill(agent_process(sprite), signal.SIGSTOP)
        assert await sprite.stop() == 0
    await eventually(lambda: not any(runs(pid) for pid in family), "all of it has ended")
    assert [row["outcome"] for row in observations(workspace)] == ["interrupted"]


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_what_the_agent_detached_outlasts_its_session_and_ends_with_the_sprite(
    how: str, model: OfflineModel, workspace: Path
) -> None:
    model.script.agent({"match": "Begin", "tool": "Bash", "input": {"command": f"{DETACHED} > /dev/null 2>&1"}})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Begin")
        await eventually(lambda: len(programs_in(workspace, "tail -f")) == 3, "all three run")
        begun = programs_in(workspace, "tail -f")
        await client.ask("system", {"action": "new_session"})
        assert programs_in(workspace, "tail -f") == begun, "a server that the person asked for goes on"
        if how == "stopped":
            assert await sprite.stop() == 0
        else:
            await sprite.kill()
    if how == "killed":
        async with sprite_process(workspace, model.url):
            await eventually(lambda: not any(runs(pid) for pid in begun), "the next one ends what it finds")
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
