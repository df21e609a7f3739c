"""A suspended agent process delays nothing, and its programs end with the sprite."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprite.agent import conversation
from sprite.agent import processes as orphans
from tests.command_line import command
from tests.harness import (
    Client,
    Sprite,
    SpriteProcess,
    observations,
    running_sprite,
    sprite_process,
    started_sprite,
)
from tests.inspection import (
    chat,
    descendants,
    endings,
    eventually,
    family,
    is_running,
    observation_of,
    request_seen,
    runs,
)
from tests.memory_stores import open_stores
from tests.scripted_model import OfflineModel

#: Detached by the shell, by nohup and by setsid: none has a parent in the agent.
DETACHED = "(tail -f /dev/null &) ; nohup tail -f /dev/null & setsid tail -f /dev/null & wait %9; echo begun"


def programs_in(workspace: Path, words: str) -> list[int]:
    """Return the processes of this workspace's agent whose command line contains `words`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                words.encode() in (process / "cmdline").read_bytes().replace(b"\0", b" ")
                and os.fsencode(workspace) in (process / "environ").read_bytes()
            ):
                found.append(int(process.name))
    return found


def cli_process(sprite: Sprite) -> int:
    """Return the process id of the CLI itself, inside the sandbox."""
    return next(pid for pid in family(sprite) if Path(f"/proc/{pid}/comm").read_text() == "claude\n")


@pytest.fixture(autouse=True)
def nothing_is_left(workspace: Path) -> Iterator[None]:
    """Kill all processes that a failed test left."""
    yield
    for pid in programs_in(workspace, ""):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_aborted_cli_is_no_stop_by_person(model: OfflineModel, workspace: Path) -> None:
    """The log must not call it a person's stop; the message can be sent again."""
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        mission = client.send("mission", {"text": "think for ever"})
        await request_seen(model, lambda r: "think for ever" in r.user_text)
        os.kill(cli_process(sprite), signal.SIGINT)
        end = await client.end_of(mission)
        assert (end["event"], end["retryable"]) == ("error", True)
        # The CLI reports the abort, or ends before it can.
        assert observation_of(workspace, mission)["outcome"] in {"crashed", "error"}


async def test_ctrl_c_is_no_stop_by_person(model: OfflineModel, workspace: Path) -> None:
    """It interrupts the agent's CLI before the sprite knows that it ends."""
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        mission = client.send("mission", {"text": "think for ever"})
        await request_seen(model, lambda r: "think for ever" in r.user_text)
        for pid in (*descendants(sprite.pid), sprite.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        assert await sprite.process.wait() == 0
    assert endings(workspace)[mission] == ["error"]


async def test_suspended_agent_ends_with_turn_or_sprite(
    model: OfflineModel, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its detached programs end with it, however they were started. A full disk ends the turn as well."""
    monkeypatch.setattr(conversation, "LOOK_SECONDS", 1.0)
    model.script.agent({"match": "Begin", "tool": "Bash", "input": {"command": f"{DETACHED} > /dev/null 2>&1"}})
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        # During a turn: the turn ends with an error, and the next mission resumes the conversation.
        await chat(client, "My name is Ada.")
        mission = client.send("mission", {"text": "think for ever"})
        await request_seen(model, lambda r: "think for ever" in r.user_text)
        stopped = cli_process(sprite)
        os.kill(stopped, signal.SIGSTOP)
        end = await client.end_of(mission)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "agent", True)
        assert "it was stopped from outside" in end["message"]
        await eventually(lambda: not runs(stopped), "the suspended process still runs")
        # As if the disk were full.
        with monkeypatch.context() as full:
            full.setattr(conversation, "LEAST_FREE_PART", 2.0)
            full.setattr(conversation, "LEAST_FREE_BYTES", 2**62)
            end = await client.end_of(client.send("mission", {"text": "think for ever"}))
        assert (end["event"], end["code"], end["retryable"]) == ("error", "agent", True)
        assert "MiB are free on the disk; free some space" in end["message"]
        # From here on, an interrupt and a stop end the agent before it is found stopped.
        monkeypatch.setattr(conversation, "LOOK_SECONDS", 600.0)
        await chat(client, "Begin")
        request = next(r for r in model.requests if r.kind == "main" and r.user_text == "Begin")
        assert "My name is Ada." in str(request.body["messages"])
        await eventually(lambda: len(programs_in(workspace, "tail -f")) == 3, "not all three programs run")
        begun = programs_in(workspace, "tail -f")
        # The suspended agent cannot receive an interrupt: it is killed with the turn.
        mission, processes = await stopped_in_a_command(sprite, client)
        await client.ask("interrupt")
        assert (await client.end_of(mission))["event"] == "interrupted"
        await eventually(lambda: not any(runs(pid) for pid in processes), "an interrupted process still runs")
        await eventually(lambda: not programs_in(workspace, "tail -f"), "a detached program survived its agent")
        # A regular stop of the sprite ends all programs of the agent.
        mission, processes = await stopped_in_a_command(sprite, client)
        await sprite.stop()
        end = await client.end_of(mission)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "crashed", True)
    await eventually(lambda: not any(runs(pid) for pid in (*begun, *processes)), "a process still runs")
    assert [row["outcome"] for row in observations(workspace)] == [
        *("complete", "error", "error", "complete"),
        *("interrupted", "crashed"),
    ]


async def test_killed_sprite_leaves_no_program(model: OfflineModel, workspace: Path) -> None:
    """Also those that detached themselves, and with the CLI's process group gone."""
    deaf = f"trap '' TERM HUP; {DETACHED} > /dev/null 2>&1"
    model.script.agent({"match": "Begin", "tool": "Bash", "input": {"command": deaf}})
    async with started_sprite(workspace, model.url) as process:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().split()[-1].rsplit(":", 1)
        sprite = SpriteProcess(workspace, process, address[0], int(address[1]))
        async with sprite.client() as client:
            await chat(client, "Begin")
            await eventually(lambda: len(programs_in(workspace, "tail -f")) == 3, "not all three programs run")
            await sprite.kill()
    await eventually(lambda: programs_in(workspace, "") == [], "a program outlives the sprite")


async def test_stop_without_sandbox_ends_hidden_program(model: OfflineModel, workspace: Path) -> None:
    """It has an empty environment and no parent in the agent."""
    number = workspace.parent / "pid"
    hidden = f"env -i setsid -f sh -c 'echo $$ > {number}; exec tail -f /dev/null' > /dev/null 2>&1"
    model.script.agent({"match": "Begin", "tool": "Bash", "input": {"command": hidden}})
    async with sprite_process(workspace, model.url, SPRITE_SANDBOX="off") as sprite, sprite.client() as client:
        await chat(client, "Begin")
        await eventually(lambda: number.exists() and number.read_text().endswith("\n"), "the program does not run")
        program = int(number.read_text())
        assert runs(program)
        await sprite.stop()
    is_left = runs(program)
    if is_left:
        os.kill(program, signal.SIGKILL)
    assert not is_left


async def stopped_in_a_command(sprite: Sprite, client: Client) -> tuple[str, list[int]]:
    """Suspend the agent while a command runs. Return the mission id and the agent's processes."""
    mission = client.send("mission", {"text": "run `tail -F /dev/null`"})
    await eventually(lambda: is_running(sprite, "tail -F"), "the command does not run")
    processes = family(sprite)
    os.kill(cli_process(sprite), signal.SIGSTOP)
    return mission, processes


async def test_forget_kills_processes_of_dead_sprite(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found by their environment, and killed even if they ignore SIGTERM."""
    # Each check reads every process of the machine, so keep it short.
    monkeypatch.setattr(orphans, "GRACE_SECONDS", 0.2)
    (workspace / ".os/memory").mkdir(parents=True)
    (workspace / ".os/run").mkdir()
    async with open_stores(workspace / ".os/memory") as stores:
        await stores.turn("My name is Ada.")
    deaf = "trap '' TERM; tail -f /dev/null & while :; do wait; done"
    state = {"CLAUDE_CONFIG_DIR": str(workspace / ".os/run/claude")}
    left = await asyncio.create_subprocess_exec("sh", "-c", deaf, env={**os.environ, **state}, start_new_session=True)
    await eventually(lambda: programs_in(workspace, "tail -f") != [], "the program does not run")
    code, _, said = await command(workspace, "memory", "forget", "--text", "Ada", "--yes")
    assert code == 0, said
    await eventually(lambda: programs_in(workspace, "trap") == [], "the program still runs")
    assert await left.wait() == -signal.SIGKILL
    assert programs_in(workspace, "tail -f") == []
