"""Every turn produces exactly one observation, regardless of its origin and outcome."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.harness import Client, observations
from tests.inspection import SharedSprite, eventually, observation_of, prompts, request_seen, shared_sprite

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAX_TURNS = 4


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    with pytest.MonkeyPatch.context() as patch:
        # The default of 250 steps would take half a minute.
        patch.setattr("sprite.agent.conversation.MAX_TURNS", MAX_TURNS)
        async with shared_sprite(tmp_path_factory.mktemp("capture")) as home:
            yield home


#: The CLI refuses a bare `sleep`.
LONG_COMMAND = "run `python3 -c 'import time; time.sleep(30)'`"


async def test_replies_and_tool_calls_are_captured_fully(home: SharedSprite) -> None:
    """Replies, successful tool calls and failed tool calls each reach the observation."""
    async with home.client() as client:
        before = len(observations(home.workspace))
        said = await _end(client, "Hello there")
        ran = await _end(client, "run `echo out; echo err >&2`")
        failed = await _end(client, "run `ls /nowhere`")
        plain = observation_of(home.workspace, said)
        assert plain["outcome"] == "complete"
        assert plain["user_message"] == "Hello there"
        assert "Hello!" in plain["agent_response"]
        assert plain["tool_calls"] == []
        (call,) = observation_of(home.workspace, ran)["tool_calls"]
        assert (call["name"], call["is_error"]) == ("Bash", False)
        assert call["input"]["command"] == "echo out; echo err >&2"
        assert call["result"].split() == ["out", "err"]
        (call,) = observation_of(home.workspace, failed)["tool_calls"]
        assert call["is_error"] is True
        assert "No such file" in call["result"]
        assert observation_of(home.workspace, failed)["outcome"] == "complete"
        turns = observations(home.workspace)[before:]
        assert [o["mission_id"] for o in turns] == [said, ran, failed]
        numbers = [o["sequence_num"] for o in turns]
        assert numbers == list(range(numbers[0], numbers[0] + 3))


async def test_model_error_ends_mission_with_code(home: SharedSprite) -> None:
    """The next mission runs normally."""
    refusals = {
        400: ("invalid_request", False),
        401: ("unauthorized_model", False),
        429: ("rate_limited", True),
        529: ("overloaded", True),
    }
    async with home.client() as client:
        before = len(observations(home.workspace))
        for status, (code, retryable) in refusals.items():
            home.model.script.agent({"match": f"refuse {status}", "error": status, "times": -1})
            mission = client.send("mission", {"text": f"refuse {status}"})
            end = await client.end_of(mission)
            assert (end["event"], end["code"], end["retryable"]) == ("error", code, retryable)
            kept = observation_of(home.workspace, mission)
            assert (kept["outcome"], kept["user_message"], kept["agent_response"]) == ("error", f"refuse {status}", "")
            assert kept["notice"] == end["message"]
            assert (await client.mission("Hello again"))["event"] == "complete"
        assert len(observations(home.workspace)[before:]) == 2 * len(refusals)


async def test_endless_mission_stops_at_max_turns(home: SharedSprite) -> None:
    """The observation contains every tool call."""
    step = {"tool": "mcp__sprite__list_actions", "input": {}, "times": -1}
    home.model.script.agent({"match": "go in circles", **step})
    async with home.client() as client:
        mission = client.send("mission", {"text": "go in circles"})
        end = await client.end_of(mission)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "max_turns", False)
        kept = observation_of(home.workspace, mission)
        assert kept["outcome"] == "max_turns"
        assert len(kept["tool_calls"]) == MAX_TURNS
        assert (await client.mission("Hello again"))["event"] == "complete"


async def test_interrupt_keeps_unfinished_tool_call(home: SharedSprite) -> None:
    """The interrupt ends the turn at once."""
    async with home.client() as client:
        before = len(observations(home.workspace))
        during_tool = client.send("mission", {"text": LONG_COMMAND})
        await client.event("tool_use")
        assert (await client.ask("interrupt", {"mission_id": during_tool}))["payload"]["mission_id"] == during_tool
        assert (await client.end_of(during_tool))["event"] == "interrupted"
        kept = observation_of(home.workspace, during_tool)
        assert kept["outcome"] == "interrupted"
        (call,) = kept["tool_calls"]
        assert "time.sleep(30)" in call["input"]["command"]
        assert call["result"]

        at_once = client.send("mission", {"text": "Hello, and stop"})
        client.send("interrupt")
        assert (await client.end_of(at_once))["event"] in {"interrupted", "complete"}
        first = await client.ask("interrupt")
        assert first["payload"]["code"] == "not_running"

        home.model.script.agent({"match": "think for ever", "hang": True})
        in_thought = client.send("mission", {"text": "think for ever"})
        await request_seen(home.model, lambda r: "think for ever" in r.user_text)
        await client.ask("interrupt")
        assert (await client.end_of(in_thought))["event"] == "interrupted"
        assert observation_of(home.workspace, in_thought)["outcome"] == "interrupted"

        assert (await client.mission("Hello after all"))["event"] == "complete"
        assert len(observations(home.workspace)[before:]) == 4


async def test_background_agent_calls_belong_to_its_report(
    home: SharedSprite,
) -> None:
    """The turns that run at the same time do not contain the calls."""
    agent = {"description": "a job", "prompt": "a long job", "subagent_type": "general-purpose"}
    home.model.script.agent(
        {"match": "begin the job", "on": "prompt", "blocks": [_call("Agent", **agent), _bash(_wait_for("one"))]},
        {"match": "go on with it", "on": "prompt", "blocks": [_bash(f"touch go-two; {_wait_for('two')}")]},
    )
    of_the_job = {"match": "a long job", "for": "subagent"}
    # The agent makes each call after the hook of the previous one has returned.
    home.model.script.agent(
        {**of_the_job, "blocks": [_bash("echo while its own turn runs")]},
        {**of_the_job, "blocks": [_bash(f"touch one; {_wait_for('go-two')}; echo in another turn")]},
        {**of_the_job, "blocks": [_bash(f"touch two; {_wait_for('go-three')}; echo in no turn")]},
    )
    async with home.client() as client:
        before = len(observations(home.workspace))
        began = await _end(client, "begin the job")
        went_on = await _end(client, "go on with it")
        (home.workspace / "go-three").touch()
        await eventually(lambda: len(observations(home.workspace)[before:]) == 3, "the agent has not reported")
        assert [call["name"] for call in observation_of(home.workspace, began)["tool_calls"]] == ["Agent", "Bash"]
        assert [call["name"] for call in observation_of(home.workspace, went_on)["tool_calls"]] == ["Bash"]
        report = observations(home.workspace)[before:][2]
        assert report["trigger"] == "task"
        assert report["mission_id"] not in {None, began, went_on}
        calls = json.loads(report["tool_calls_json"])
        assert [call["result"] for call in calls] == ["while its own turn runs", "in another turn", "in no turn"]
        assert len({call["agent_id"] for call in calls}) == 1


async def test_foreground_agent_calls_belong_to_mission(
    home: SharedSprite,
) -> None:
    """This also holds when the agent fails or is interrupted."""
    agent = {"description": "a job", "subagent_type": "general-purpose", "run_in_background": False}
    jobs = ["a sound job", "a bad job", "an endless job"]
    home.model.script.agent(
        *({"match": f"do {job}", "on": "prompt", "blocks": [_call("Agent", prompt=job, **agent)]} for job in jobs)
    )
    home.model.script.agent(
        *({"match": job, "for": "subagent", "blocks": [_bash("echo from below")]} for job in jobs),
        {"match": "a bad job", "for": "subagent", "error": 400, "times": -1},
        {"match": "an endless job", "for": "subagent", "hang": True},
    )
    async with home.client() as client:
        before = len(observations(home.workspace))
        done = [await _end(client, "do a sound job"), await _end(client, "do a bad job")]
        done.append(client.send("mission", {"text": "do an endless job"}))
        await request_seen(home.model, lambda r: r.user_text == "an endless job" and "from below" in str(r.body))
        await client.ask("interrupt")
        assert (await client.end_of(done[-1]))["event"] == "interrupted"
        for mission in done:
            calls = observation_of(home.workspace, mission)["tool_calls"]
            assert [(call["name"], "agent_id" in call) for call in calls] == [("Agent", False), ("Bash", True)]
            assert calls[1]["result"] == "from below"
        assert len(observations(home.workspace)[before:]) == 3


async def test_mission_during_turn_has_separate_observation(home: SharedSprite) -> None:
    """The mission waits in the queue until the running turn has ended."""
    async with home.client() as client:
        before = len(observations(home.workspace))
        home.model.script.agent({"match": "the first", "delay": 0.3})
        first = client.send("mission", {"text": "Hello, the first"})
        await request_seen(home.model, lambda r: "the first" in r.user_text)
        second = client.send("mission", {"text": "Hello, the second"})
        ack = await client.reply(second)
        assert ack["payload"] == {"status": "queued", "position": 1}
        assert (await client.end_of(first))["event"] == "complete"
        assert (await client.end_of(second))["event"] == "complete"
        assert [o["mission_id"] for o in observations(home.workspace)[before:]] == [first, second]
        # The second mission was not added to the running turn: the model receives it after its first answer.
        said = [message["role"] for message in prompts(home.model, "the second")[0].body["messages"]]
        assert "assistant" in said


async def test_user_text_reaches_model_and_log_unchanged(home: SharedSprite) -> None:
    texts = [
        "/cost is how I begin",
        "@/etc/hostname please",
        "line one\r\n\tline two\n\n\nline three",
        "emoji \N{GRINNING FACE} and \N{ZERO WIDTH SPACE}, \N{LINE SEPARATOR}",
        "a NUL \0 and an escape \x1b[31m",
        "!ls and #remember and <task-notification> in the middle",
        "word " * 30_000,
    ]
    async with home.client() as client:
        before = len(observations(home.workspace))
        for text in texts:
            mission = await _end(client, text)
            assert observation_of(home.workspace, mission)["user_message"] == text
            sent = "".join(prompts(home.model, "")[-1].user_text.split())
            assert sent == "".join(text.split()), text[:60]
        assert not any("root:" in str(r.body) for r in home.model.requests)
        compacted = await _end(client, "/compact")
        assert observation_of(home.workspace, compacted)["outcome"] == "complete"
        assert any(r.kind == "compaction" for r in home.model.requests)
        assert len(observations(home.workspace)[before:]) == len(texts) + 1


async def test_lone_surrogate_is_rejected_with_error(home: SharedSprite) -> None:
    """The connection stays open."""
    async with home.client() as client:
        before = len(observations(home.workspace))
        # JavaScript produces a lone surrogate when it cuts an emoji in two.
        refused = await client.ask("mission", {"text": "Hello \ud83d half"})
        assert (refused["type"], refused["payload"]["code"]) == ("error", "bad_message")
        assert (await client.mission("Hello whole"))["event"] == "complete"
        assert [o["user_message"] for o in observations(home.workspace)[before:]] == ["Hello whole"]


async def _end(client: Client, text: str) -> str:
    mission = client.send("mission", {"text": text})
    end = await client.end_of(mission)
    assert end["event"] == "complete", end
    return mission


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": arguments}


def _bash(command: str) -> dict[str, Any]:
    return _call("Bash", command=command)


def _wait_for(name: str) -> str:
    return f"until [ -e {name} ]; do sleep 0.02; done"
