"""Kills of the agent and of the sprite: nothing that was accepted is lost, and nothing runs twice."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bridge.offline.model import OfflineModel
from tests.harness import Client, SpriteServer, observations, running_sprite, sprite_process
from tests.inspection import (
    SharedSprite,
    agent_process,
    chat,
    endings,
    eventually,
    family,
    is_running,
    journal,
    observation_of,
    prompts,
    request_seen,
    runs,
    shared_sprite,
)

#: For tests of the sprite that they share, in their order.
shared = pytest.mark.asyncio(loop_scope="module")


def _conversation(model: OfflineModel, text: str) -> str:
    """What the model was told, in all, when a person said this."""
    return str(prompts(model, text)[0].body["messages"])


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("crashes")) as home:
        home.model.script.agent({"match": "think for ever", "hang": True, "times": -1})
        yield home


@shared
async def test_a_killed_agent_process_ends_its_mission_and_the_next_one_resumes_the_conversation(
    home: SharedSprite,
) -> None:
    async with home.client() as client:
        await chat(client, "My name is Ada.")
        mission = client.send("mission", {"text": "think for ever"})
        await request_seen(home.model, lambda r: "think for ever" in r.user_text)
        os.kill(agent_process(home.sprite), signal.SIGKILL)
        end = await client.end_of(mission)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "agent", True)
        assert observation_of(home.workspace, mission)["outcome"] == "error"

        # It dies at rest, too: the next mission must not suffer for it.
        await chat(client, "Hello once more")
        assert "My name is Ada." in _conversation(home.model, "Hello once more")
        killed = agent_process(home.sprite)
        os.kill(killed, signal.SIGKILL)
        await chat(client, "Hello a third time")
        assert "Hello once more" in _conversation(home.model, "Hello a third time")
        assert agent_process(home.sprite) != killed
        assert len({o["session_id"] for o in observations(home.workspace)}) == 1
        assert len(observations(home.workspace)) == 4


@shared
async def test_unread_conversation_ends_mission_and_resumes(home: SharedSprite) -> None:
    """So it is where the task that reads what the agent says dies."""
    home.model.requests.clear()
    async with home.client() as client:
        mission = client.send("mission", {"text": "think for ever"})
        await request_seen(home.model, lambda r: "think for ever" in r.user_text)
        process = agent_process(home.sprite)
        assert isinstance(home.sprite, SpriteServer)
        home.sprite.cancel_task("agent stream")
        assert (await client.end_of(mission))["event"] == "error"
        await chat(client, "Hello a fourth time")
        assert "Hello once more" in _conversation(home.model, "Hello a fourth time")
        assert not runs(process)


@shared
async def test_a_turn_of_the_agents_own_holds_up_neither_an_interrupt_nor_after_its_death_the_next_mission(
    home: SharedSprite,
) -> None:
    home.model.script.agent({"for": "notification", "hang": True, "times": -1})
    async with home.client() as client:
        before = len(observations(home.workspace))
        await chat(client, "use a subagent to run `echo from below`")
        await request_seen(home.model, lambda r: r.kind == "notification")
        waits = client.send("mission", {"text": "Hello, and stop"})
        # Its own beginning, not that of the agent's turn.
        await client.until(
            lambda m: (
                m["type"] == "agent_event" and (m["payload"]["event"], m["payload"]["mission_id"]) == ("started", waits)
            )
        )
        await client.ask("interrupt")
        assert (await client.end_of(waits))["event"] == "interrupted"
        os.kill(agent_process(home.sprite), signal.SIGKILL)
        await chat(client, "Hello again")
        assert [(o["trigger"], o["outcome"]) for o in observations(home.workspace)[before:]] == [
            ("user", "complete"),
            ("user", "interrupted"),
            ("task", "error"),
            ("user", "complete"),
        ]
        assert "echo from below" in observations(home.workspace)[before + 2]["tool_calls_json"]


async def test_killed_sprite_keeps_turn_and_queue(model: OfflineModel, workspace: Path) -> None:
    job = {"description": "a job", "prompt": "wait below", "subagent_type": "general-purpose"}
    below = {"type": "tool_use", "name": "Agent", "input": {**job, "run_in_background": False}}
    model.script.agent(
        {"match": "begin it", "on": "prompt", "blocks": [{"type": "text", "text": "I begin."}, _bash("echo first")]},
        {"match": "begin it", "on": "result", "blocks": [below]},
        {"match": "wait below", "for": "subagent", "blocks": [_bash("tail -f /dev/null")]},
    )
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        (done,) = await chat(client, "My name is Ada.")
        again = await client.reply(client.send("mission", {"text": "My name is Ada."}, done))
        assert again["payload"] == {"status": "duplicate"}
        sent = [client.send("mission", {"text": text}) for text in ("begin it", "Hello 1", "Hello 2", "Hello 3")]
        acks = [(await client.reply(mission))["payload"] for mission in sent]
        assert acks == [
            {"status": "accepted", "position": 0},
            *({"status": "queued", "position": number} for number in (1, 2, 3)),
        ]
        again = await client.reply(client.send("mission", {"text": "Hello 2"}, sent[2]))
        assert again["payload"] == {"status": "duplicate"}
        await eventually(lambda: [e["event"] for e in journal(workspace)].count("start") == 3, "the last call runs")
        position = {"epoch": client.received[0]["payload"]["epoch"], "last_seq": _last_seq(client)}
        processes = family(sprite)
        await sprite.kill()
    await eventually(lambda: not any(runs(pid) for pid in processes), "the agent has ended")
    assert [o["mission_id"] for o in observations(workspace)] == [done]
    killed = sent[0]
    async with sprite_process(workspace, model.url) as sprite, sprite.client(resume=position) as client:
        end = await client.end_of(killed)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "crashed", True)
        # A client that has received no ack sends again: also across the restart, it runs once.
        for mission in (done, *sent):
            again = await client.reply(client.send("mission", {"text": "whatever"}, mission))
            assert again["payload"] == {"status": "duplicate"}
        await chat(client, "Hello, last of all")
        assert "My name is Ada." in _conversation(model, "Hello, last of all")
        assert journal(workspace) == []
        async with sprite.client() as other:
            sync = (await other.until(lambda m: m["type"] == "state_sync"))["payload"]
    kept = observation_of(workspace, killed)
    assert (kept["outcome"], kept["user_message"], kept["agent_response"]) == ("crashed", "begin it", "I begin.")
    calls = [(call["name"], "agent_id" in call, call["result"]) for call in kept["tool_calls"]]
    no_result = "[no result: the turn ended first]"
    assert calls == [("Bash", False, "first"), ("Agent", False, no_result), ("Bash", True, no_result)]
    lines = [line for line in sync["chat"] if line["mission_id"] == killed]
    assert [(line["role"], line["status"]) for line in lines][1:] == [("assistant", "error"), ("error", "error")]
    assert [tool["name"] for tool in lines[1]["tools"]] == ["Bash", "Agent", "Bash"]
    turns = observations(workspace)
    assert [turn["mission_id"] for turn in turns[:-1]] == [done, *sent]
    assert [turn["user_message"] for turn in turns[2:]] == ["Hello 1", "Hello 2", "Hello 3", "Hello, last of all"]
    assert [turn["outcome"] for turn in turns] == ["complete", "crashed", *["complete"] * 4]
    assert len({turn["session_id"] for turn in turns}) == 1
    assert endings(workspace)[killed] == ["error"]
    assert all(len(ends) == 1 for ends in endings(workspace).values())


async def test_restart_ends_what_killed_sprites_agent_left(model: OfflineModel, workspace: Path) -> None:
    detached = "setsid tail -f /dev/null > /dev/null 2>&1 & "
    # Longer than any restart takes: only a part of the command that outlives the other comes to the touch.
    command = f"{detached} python3 -c 'import time; time.sleep(600)'; touch survived"
    model.script.agent({"match": "begin it", "tool": "Bash", "input": {"command": command}})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        client.send("mission", {"text": "begin it"})
        await eventually(lambda: is_running(sprite, "time.sleep(600)") and is_running(sprite, "tail -f"), "all runs")
        processes = family(sprite)
        # Stopped, the CLI does not end with the sprite, as on a system that does not tell it of its parent's death.
        os.kill(agent_process(sprite), signal.SIGSTOP)
        await sprite.kill()
    assert any(runs(pid) for pid in processes)
    async with running_sprite(workspace, model.url):
        await eventually(lambda: not any(runs(pid) for pid in processes), "the orphans are gone")
    assert not (workspace / "survived").exists()


async def test_agent_ends_with_killed_sprite(model: OfflineModel, workspace: Path) -> None:
    """With a tool that is deaf to signals, and a command in the background."""
    behind = {"command": "tail -f /dev/null", "run_in_background": True}
    model.script.agent(
        {"match": "Wait", "on": "prompt", "tool": "Bash", "input": behind},
        {"match": "Wait", "on": "result", "tool": "Bash", "input": {"command": "trap '' TERM HUP; sleep 600"}},
    )
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        client.send("mission", {"text": "Wait"})
        await eventually(lambda: is_running(sprite, "tail -f") and is_running(sprite, "sleep 600"), "both run")
        processes = family(sprite)
        await sprite.kill()
    await eventually(lambda: not any(runs(pid) for pid in processes), "the agent and its commands have ended")


def _bash(command: str) -> dict[str, object]:
    return {"type": "tool_use", "name": "Bash", "input": {"command": command}}


def _last_seq(client: Client) -> int:
    return max((m["seq"] for m in client.received if "seq" in m), default=0)
