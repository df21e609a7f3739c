"""Whatever is killed, whenever: nothing that was accepted is lost, and nothing is done twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from bridge.offline.model import OfflineModel
from tests.harness import Client, observations, sprite_process
from tests.inspection import (
    agent_process,
    chat,
    descendants,
    endings,
    eventually,
    is_running,
    journal,
    observation_of,
    prompts,
    request_seen,
    runs,
    workspace_db,
)

SLOW_TOUCH = "run `python3 -c 'import time; time.sleep(2)'; touch survived`"


def _conversation(model: OfflineModel, text: str) -> str:
    """What the model was told, in all, when a person said this."""
    return str(prompts(model, text)[0].body["messages"])


async def test_a_killed_agent_process_ends_its_mission_and_the_next_one_resumes_the_conversation(
    model: OfflineModel, workspace: Path
) -> None:
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada.")
        mission = client.send("mission", {"text": "think for ever"})
        await request_seen(model, lambda r: "think for ever" in r.user_text)
        os.kill(agent_process(sprite), signal.SIGKILL)
        end = await client.end_of(mission)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "agent", True)
        assert observation_of(workspace, mission)["outcome"] == "error"

        # In rest it dies unseen: the next mission must not suffer for it.
        await chat(client, "Hello once more")
        assert "My name is Ada." in _conversation(model, "Hello once more")
        killed = agent_process(sprite)
        os.kill(killed, signal.SIGKILL)
        await chat(client, "Hello a third time")
        assert "Hello once more" in _conversation(model, "Hello a third time")
        assert agent_process(sprite) != killed
        assert len({o["session_id"] for o in observations(workspace)}) == 1
        assert len(observations(workspace)) == 4
        assert journal(workspace) == []


async def test_a_turn_of_the_agents_own_holds_up_neither_an_interrupt_nor_after_its_death_the_next_mission(
    model: OfflineModel, workspace: Path
) -> None:
    model.script.agent({"for": "notification", "hang": True, "times": -1})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "use a subagent to run `echo from below`")
        await request_seen(model, lambda r: r.kind == "notification")
        waits = client.send("mission", {"text": "Hello, and stop"})
        # Its own beginning, not that of the agent's turn.
        await client.until(
            lambda m: (
                m["type"] == "agent_event" and (m["payload"]["event"], m["payload"]["mission_id"]) == ("started", waits)
            )
        )
        await client.ask("interrupt")
        assert (await client.end_of(waits))["event"] == "interrupted"
        os.kill(agent_process(sprite), signal.SIGKILL)
        await chat(client, "Hello again")
        assert [(o["trigger"], o["outcome"]) for o in observations(workspace)] == [
            ("user", "complete"),
            ("user", "interrupted"),
            ("task", "error"),
            ("user", "complete"),
        ]
        assert "echo from below" in observations(workspace)[2]["tool_calls_json"]
        assert journal(workspace) == []


async def test_a_turn_in_which_the_sprite_was_killed_is_kept_as_crashed_and_its_session_goes_on(
    model: OfflineModel, workspace: Path
) -> None:
    model.script.agent({"match": "touch survived", "on": "prompt", "blocks": _said_and_done("echo first")})
    model.script.agent({"match": "touch survived", "on": "result", "hang": True})
    async with sprite_process(workspace, model.url) as sprite:
        async with sprite.client() as client:
            (before,) = await chat(client, "My name is Ada.")
            mission = client.send("mission", {"text": SLOW_TOUCH})
            await client.event("tool_result")
            position = {"epoch": client.received[0]["payload"]["epoch"], "last_seq": _last_seq(client)}
            await sprite.kill()
        assert [o["mission_id"] for o in observations(workspace)] == [before]
    async with sprite_process(workspace, model.url) as sprite, sprite.client(resume=position) as client:
        end = await client.end_of(mission)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "crashed", True)
        kept = observation_of(workspace, mission)
        assert (kept["outcome"], kept["user_message"]) == ("crashed", SLOW_TOUCH)
        assert kept["agent_response"] == "I begin."
        assert [call["result"] for call in kept["tool_calls"]] == ["first"]
        assert journal(workspace) == []
        await chat(client, "Hello again")
        assert "My name is Ada." in _conversation(model, "Hello again")
        assert len({o["session_id"] for o in observations(workspace)}) == 1
    assert endings(workspace)[mission] == ["error"]
    chat_lines = workspace_db(workspace, "SELECT role FROM chat_messages WHERE mission_id = ? ORDER BY id", (mission,))
    assert [line["role"] for line in chat_lines] == ["user", "assistant", "error"]


async def test_calls_that_were_running_when_the_sprite_was_killed_are_in_the_crashed_turn_a_subagents_too(
    model: OfflineModel, workspace: Path
) -> None:
    job = {"description": "a job", "prompt": "wait below", "subagent_type": "general-purpose"}
    waits = "python3 -c 'import time; time.sleep(30)'"
    model.script.agent(
        {
            "match": "begin it",
            "on": "prompt",
            "blocks": [{"type": "tool_use", "name": "Agent", "input": {**job, "run_in_background": False}}],
        },
        {"match": "wait below", "for": "subagent", "tool": "Bash", "input": {"command": waits}},
    )
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        mission = client.send("mission", {"text": "begin it"})
        await eventually(lambda: [e["event"] for e in journal(workspace)].count("start") == 2, "both run")
        await sprite.kill()
    async with sprite_process(workspace, model.url) as sprite:
        kept = observation_of(workspace, mission)
        calls = {(call["name"], "agent_id" in call): call for call in kept["tool_calls"]}
        assert calls.keys() == {("Agent", False), ("Bash", True)}
        assert {call["result"] for call in calls.values()} == {"[no result: the turn ended first]"}
        async with sprite.client() as client:
            sync = (await client.until(lambda m: m["type"] == "state_sync"))["payload"]
        asked, used, failed = sync["chat"]
        assert [line["role"] for line in (asked, used, failed)] == ["user", "assistant", "error"]
        assert [tool["name"] for tool in used["tools"]] == ["Agent", "Bash"]
        assert (used["text"], used["status"]) == ("", "error")


async def test_what_a_killed_sprites_agent_was_running_does_not_go_on_after_the_restart(
    model: OfflineModel, workspace: Path
) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        # Longer than any restart takes: only a part of the command that outlives the other comes to the touch.
        client.send("mission", {"text": "run `python3 -c 'import time; time.sleep(600)'; touch survived`"})
        await client.event("tool_use")
        await eventually(lambda: is_running(sprite, "time.sleep(600)"), "the command runs")
        family = descendants(sprite.process.pid)
        # Stopped, the CLI does not end with the sprite, as on a system that does not tell it of its parent's death.
        os.kill(agent_process(sprite), signal.SIGSTOP)
        await sprite.kill()
    assert any(Path(f"/proc/{pid}").exists() for pid in family)
    async with sprite_process(workspace, model.url):
        await eventually(lambda: not any(runs(pid) for pid in family), "the orphans are gone")
    assert not (workspace / "survived").exists()


@pytest.mark.parametrize("when", ["in mid-tool", "in mid-answer", "at rest", "with a command in the background"])
async def test_the_agent_of_a_killed_sprite_ends_with_it_and_takes_along_what_itruns(
    model: OfflineModel, workspace: Path, when: str
) -> None:
    background = {"command": "sleep 600", "run_in_background": True}
    model.script.agent(
        {"match": "Wait", "tool": "Bash", "input": {"command": "trap '' TERM HUP; sleep 600"}},
        {"match": "Think", "hang": True},
        {"match": "Begin", "tool": "Bash", "input": background},
    )
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Hello")
        if when == "in mid-tool":
            client.send("mission", {"text": "Wait"})
        elif when == "in mid-answer":
            client.send("mission", {"text": "Think"})
            await request_seen(model, lambda request: "Think" in request.user_text)
        elif when == "with a command in the background":
            await chat(client, "Begin")
        if when in {"in mid-tool", "with a command in the background"}:
            await eventually(lambda: is_running(sprite, "sleep 600"), "the command runs")
        family = descendants(sprite.process.pid)
        assert family
        await sprite.kill()
        await eventually(lambda: not any(runs(pid) for pid in family), "the agent has ended")


async def test_queued_missions_survive_a_kill_and_run_in_their_order_and_no_id_runs_twice(
    model: OfflineModel, workspace: Path
) -> None:
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        (done,) = await chat(client, "Hello, this is done")
        again = await client.reply(client.send("mission", {"text": "Hello, this is done"}, done))
        assert again["payload"] == {"status": "duplicate"}
        sent = [client.send("mission", {"text": text}) for text in ("think for ever", "Hello 1", "Hello 2", "Hello 3")]
        acks = [(await client.reply(mission))["payload"] for mission in sent]
        assert acks == [
            {"status": "accepted", "position": 0},
            *({"status": "queued", "position": number} for number in (1, 2, 3)),
        ]
        again = await client.reply(client.send("mission", {"text": "Hello 2"}, sent[2]))
        assert again["payload"] == {"status": "duplicate"}
        await request_seen(model, lambda r: "think for ever" in r.user_text)
        await sprite.kill()
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        # A client that has heard no ack sends again: also across the restart, it runs once.
        for mission in (done, *sent):
            again = await client.reply(client.send("mission", {"text": "whatever"}, mission))
            assert again["payload"] == {"status": "duplicate"}
        await chat(client, "Hello, last of all")
    kept = observations(workspace)
    assert [o["user_message"] for o in kept] == [
        "Hello, this is done",
        "think for ever",
        "Hello 1",
        "Hello 2",
        "Hello 3",
        "Hello, last of all",
    ]
    assert [o["mission_id"] for o in kept[:-1]] == [done, *sent]
    assert [o["outcome"] for o in kept] == ["complete", "crashed", *["complete"] * 4]
    assert all(len(ends) == 1 for ends in endings(workspace).values())


def _said_and_done(command: str) -> list[dict[str, object]]:
    return [
        {"type": "text", "text": "I begin."},
        {"type": "tool_use", "name": "Bash", "input": {"command": command}},
    ]


def _last_seq(client: Client) -> int:
    return max((m["seq"] for m in client.received if "seq" in m), default=0)
