"""Kills of the agent and of the sprite: no accepted mission is lost, and none runs twice."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fake_secrets import TOKENS
from tests.harness import Client, Message, SpriteServer, observations, sprite_process
from tests.inspection import (
    SharedSprite,
    agent_process,
    chat,
    curations,
    endings,
    eventually,
    family,
    found_on_disk,
    is_running,
    journal,
    observation_of,
    prompts,
    request_seen,
    runs,
    shared_sprite,
)
from tests.scripted_model import OfflineModel

#: Marks tests that share one sprite, in this order.
shared = pytest.mark.asyncio(loop_scope="module")


DETACHED = "setsid tail -f /dev/null > /dev/null 2>&1 &"
_chance = random.Random(16)  # noqa: S311 - made-up data, the same in each run
KEY, TOKEN = TOKENS["anthropic"](_chance), TOKENS["github-classic"](_chance)
PRIVATE_WORDS = "I will leave the company in May"
SAID = f"<private>{PRIVATE_WORDS}</private>"
FORBIDDEN = (KEY[:40], KEY[-40:], TOKEN[4:], PRIVATE_WORDS)
LONG = "python3 -c 'import time; time.sleep(600)'"


def _conversation(model: OfflineModel, text: str) -> str:
    """Return all messages that the model received with the prompt `text`."""
    return str(prompts(model, text)[0].body["messages"])


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("crashes")) as home:
        home.model.script.agent({"match": "think for ever", "hang": True, "times": -1})
        yield home


@shared
async def test_dead_agent_is_replaced_and_resumes(home: SharedSprite) -> None:
    """The agent dies at rest, and its reader task dies in a turn; test_own_turns.py kills it in a turn."""
    async with home.client() as client:
        await chat(client, "My name is Ada.")
        killed, processes = agent_process(home.sprite), family(home.sprite)
        os.kill(killed, signal.SIGKILL)
        # The programs inside its sandbox die a little later, and could still take up the mission.
        await eventually(lambda: not any(runs(process) for process in processes), "the agent is gone")
        # The kill must not affect the next mission.
        mission = client.send("mission", {"text": "think for ever"})
        await request_seen(home.model, lambda r: "think for ever" in r.user_text)
        assert "My name is Ada." in _conversation(home.model, "think for ever")
        process = agent_process(home.sprite)
        assert process != killed
        assert isinstance(home.sprite, SpriteServer)
        home.sprite.cancel_task("agent stream")
        end = await client.end_of(mission)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "agent", True)
        assert observation_of(home.workspace, mission)["outcome"] == "error"
        await chat(client, "Hello once more")
        assert "My name is Ada." in _conversation(home.model, "Hello once more")
        assert not runs(process)
        assert len({o["session_id"] for o in observations(home.workspace)}) == 1
        assert len(observations(home.workspace)) == 3


async def test_killed_sprite_keeps_turn_and_queue(model: OfflineModel, workspace: Path) -> None:
    """The restart ends orphaned processes, no secret is on disk, and every turn is curated once."""
    _script_a_long_turn(model)
    texts = (f"begin it with {KEY}. {SAID}", f"Hello 1, export API_SECRET={KEY}. {SAID}", "Hello 2")
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        (done,) = await chat(client, "My name is Ada.")
        again = await client.reply(client.send("mission", {"text": "My name is Ada."}, done))
        assert again["payload"] == {"status": "duplicate"}
        sent = [client.send("mission", {"text": text}) for text in texts]
        acks = [(await client.reply(mission))["payload"] for mission in sent]
        assert acks == [
            {"status": "accepted", "position": 0},
            *({"status": "queued", "position": number} for number in (1, 2)),
        ]
        again = await client.reply(client.send("mission", {"text": "Hello 2"}, sent[2]))
        assert again["payload"] == {"status": "duplicate"}
        await eventually(
            lambda: [e["event"] for e in journal(workspace)].count("start") == 3, "the last call is not running"
        )
        position = {"epoch": client.received[0]["payload"]["epoch"], "last_seq": _last_seq(client)}
        await eventually(
            lambda: is_running(sprite, "time.sleep(600)") and is_running(sprite, "tail -f"),
            "the commands are not running",
        )
        processes = family(sprite)
        assert found_on_disk(workspace, FORBIDDEN) == []
        # A stopped CLI may outlive the sprite, as on systems that do not signal a parent's death.
        os.kill(agent_process(sprite), signal.SIGSTOP)
        await sprite.kill()
    assert found_on_disk(workspace, FORBIDDEN) == []
    assert (workspace / ".os/memory/.agent-at-work").exists(), "later changes would count as the person's edits"
    assert [o["mission_id"] for o in observations(workspace)] == [done]
    killed = sent[0]
    async with sprite_process(workspace, model.url) as sprite, sprite.client(resume=position) as client:
        end = await client.end_of(killed)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "crashed", True)
        await eventually(lambda: not any(runs(pid) for pid in processes), "orphaned processes are still running")
        # A client without an ack sends again; even across the restart, each mission runs once.
        for mission in (done, *sent):
            again = await client.reply(client.send("mission", {"text": "whatever"}, mission))
            assert again["payload"] == {"status": "duplicate"}
        await chat(client, "Hello, last of all")
        # The unredacted text was only in the killed process's memory, so the mission ran with the stored text.
        (request,) = prompts(model, "Hello 1")
        assert "[redacted:" in request.user_text
        assert not [words for words in FORBIDDEN if words in request.user_text]
        await client.ask("system", {"action": "flush"})
        assert "My name is Ada." in _conversation(model, "Hello, last of all")
        assert journal(workspace) == []
        async with sprite.client() as other:
            sync = (await other.until(lambda m: m["type"] == "state_sync"))["payload"]
    _assert_killed_turn_is_kept(workspace, killed, [line for line in sync["chat"] if line["mission_id"] == killed])
    _assert_each_turn_is_there_once(workspace, [done, *sent])
    assert found_on_disk(workspace, FORBIDDEN, session=False) == []
    assert not (workspace / "survived").exists()


def _script_a_long_turn(model: OfflineModel) -> None:
    job = {"description": "a job", "prompt": "wait below", "subagent_type": "general-purpose"}
    below = {"type": "tool_use", "name": "Agent", "input": {**job, "run_in_background": False}}
    begins = [{"type": "text", "text": f"I begin, {TOKEN}."}, _bash(f"echo first {TOKEN}; echo {PRIVATE_WORDS}")]
    model.script.agent(
        {"match": "begin it", "on": "prompt", "blocks": begins},
        {"match": "begin it", "on": "result", "blocks": [below]},
        # The long command outlasts any restart: the touch runs only if a part of the command survives the other.
        {"match": "wait below", "for": "subagent", "blocks": [_bash(f"{DETACHED} {LONG}; touch survived")]},
    )


def _assert_killed_turn_is_kept(workspace: Path, killed: str, lines: list[Message]) -> None:
    kept = observation_of(workspace, killed)
    assert kept["user_message"] == "begin it with [redacted:anthropic-api-key]. [private]"
    assert (kept["outcome"], kept["agent_response"]) == ("crashed", "I begin, [redacted:github-token].")
    calls = [(call["name"], "agent_id" in call, call["result"]) for call in kept["tool_calls"]]
    no_result = "[no result: the turn ended first]"
    assert calls == [
        ("Bash", False, "first [redacted:github-token]\n[private]"),
        ("Agent", False, no_result),
        ("Bash", True, no_result),
    ]
    assert [(line["role"], line["status"]) for line in lines][1:] == [("assistant", "error"), ("error", "error")]
    assert [tool["name"] for tool in lines[1]["tools"]] == ["Bash", "Agent", "Bash"]
    assert endings(workspace)[killed] == ["error"]


def _assert_each_turn_is_there_once(workspace: Path, missions: list[str]) -> None:
    turns = observations(workspace)
    assert [turn["mission_id"] for turn in turns[:-1]] == missions
    assert turns[2]["user_message"].startswith("Hello 1, export API_SECRET=[redacted:")
    assert [turn["user_message"] for turn in turns[3:]] == ["Hello 2", "Hello, last of all"]
    assert [turn["outcome"] for turn in turns] == ["complete", "crashed", *["complete"] * 3]
    assert len({turn["session_id"] for turn in turns}) == 1
    assert all(len(ends) == 1 for ends in endings(workspace).values())
    batches = [c for c in curations(workspace) if c["kind"] == "batch"]
    curated = [n for c in batches for n in range(c["first_observation_id"], c["last_observation_id"] + 1)]
    assert curated == [turn["id"] for turn in turns]


def _bash(command: str) -> dict[str, object]:
    return {"type": "tool_use", "name": "Bash", "input": {"command": command}}


def _last_seq(client: Client) -> int:
    return max((m["seq"] for m in client.received if "seq" in m), default=0)
