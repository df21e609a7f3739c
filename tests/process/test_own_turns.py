"""Turns that the agent starts itself: recorded, reported, interrupted and limited like turns of a person."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sprite.agent import background as unattended
from sprite.agent.background import MOST_TURNS, Unattended
from sprite.curation import processor
from sprite.scheduler import keep_awake
from tests.emulator import Emulator, Machine
from tests.harness import Client, Message, observations, running_sprite, sprite_process
from tests.inspection import (
    SharedSprite,
    agent_process,
    chat,
    curations,
    descendants,
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
    workspace_db,
)
from tests.scripted_model import USED_UP, OfflineModel, Script

#: Seconds that background work keeps the machine awake.
UNATTENDED_SECONDS = 1800
#: Tests that share one sprite.
shared = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def vm(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Machine]:
    async with Emulator(tmp_path_factory.mktemp("vms")) as emulator:
        yield await emulator.add("ada")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def home_(tmp_path_factory: pytest.TempPathFactory, vm: Machine) -> AsyncIterator[SharedSprite]:
    # The cost limit needs a model with a known price.
    environment = {"TESTS_VM_SOCKET": str(vm.socket), "SPRITE_MODEL": "claude-sonnet-4-5"}
    environment |= {"SPRITE_IDLE_FLUSH_SECONDS": "600", "SPRITE_BACKGROUND_TIMEOUT": str(UNATTENDED_SECONDS)}
    with pytest.MonkeyPatch.context() as patch:
        # The default of two seconds would take longer.
        patch.setattr(keep_awake, "LOOK_SECONDS", 0.2)
        async with shared_sprite(tmp_path_factory.mktemp("own"), **environment) as home:
            yield home


@asynccontextmanager
async def conversation(home: SharedSprite) -> AsyncIterator[Client]:
    """Connect a client to the shared session; afterwards stop background work and reset the model's script."""
    async with home.client() as client:
        yield client
        while (await client.ask("interrupt"))["type"] != "error":
            pass
        assert (await session_of(client))["background"] == []
    home.model.script = Script()
    home.model.requests.clear()
    for name in ("go", "quick"):
        (home.workspace / name).unlink(missing_ok=True)


def until(name: str) -> str:
    """Return a command that runs until a file of this name exists."""
    return f"until [ -e {name} ]; do sleep 0.05; done"


ENDLESS = until("go")
DEAF = f"trap '' TERM HUP; {ENDLESS}"
#: Ends after the turn that started it; within that turn, its notice would belong to it.
QUICK = until("quick")
#: Ends after the turn that started it.
SOON = "sleep 1"


def in_background(command: str, title: str = "the build") -> dict[str, Any]:
    arguments = {"command": command, "description": title, "run_in_background": True}
    return {"type": "tool_use", "name": "Bash", "input": arguments}


def agent_for(prompt: str) -> dict[str, Any]:
    arguments = {"description": "a job", "prompt": prompt, "subagent_type": "general-purpose"}
    return {"type": "tool_use", "name": "Agent", "input": arguments}


def begins(model: OfflineModel, *blocks: dict[str, Any], text: str = "begin it") -> str:
    """Script these calls, and return the message that triggers them."""
    model.script.agent({"match": text, "on": "prompt", "blocks": list(blocks)})
    return text


async def own_turn(client: Client) -> str:
    """Return the id of the next turn that the agent starts itself."""
    message = await client.until(
        lambda m: m["type"] == "agent_event" and m["payload"].get("event") == "started" and _is_own(m["payload"])
    )
    turn_id: str = message["payload"]["mission_id"]
    return turn_id


def _is_own(event: Message) -> bool:
    return bool(event.get("origin") == "agent")


async def session_of(client: Client) -> Message:
    status: Message = (await client.ask("system", {"action": "status"}))["payload"]["session"]
    return status


async def works(client: Client, count: int) -> list[Message]:
    """Wait until this number of background jobs is reported."""
    message = await client.until(
        lambda m: m["type"] == "session_update" and len(m["payload"]["session"]["background"]) == count
    )
    background: list[Message] = message["payload"]["session"]["background"]
    return background


def chat_rows(workspace: Path, turn_id: str) -> list[dict[str, Any]]:
    return workspace_db(workspace, "SELECT * FROM chat_messages WHERE mission_id = ? ORDER BY id", (turn_id,))


def position(client: Client) -> Message:
    """Return the resume position before any event."""
    welcome = client.received[0]["payload"]
    return {"epoch": welcome["epoch"], "last_seq": welcome["last_seq"]}


@shared
async def test_background_command_report_becomes_own_turn(home: SharedSprite, vm: Machine) -> None:
    """It has one end and one chat line; the VM stays awake for the command."""
    text = begins(home.model, in_background(ENDLESS))
    async with conversation(home) as client, home.sprite.client() as other:
        (mission,) = await chat(client, text)
        (work,) = (await session_of(client))["background"]
        assert (work["kind"], work["title"]) == ("command", "the build")
        session = await session_of(client)
        assert session["busy"] is False
        # The limit counts from the person's last message, not from the start of the work.
        assert session["held_until"] < work["since"] + UNATTENDED_SECONDS
        await eventually(lambda: "sprite" in vm.tasks, "the VM is not kept awake")
        (home.workspace / "go").touch()
        own = await own_turn(client)
        end = await client.end_of(own)
        assert end["event"] == "complete"
        assert "completed" in end["text"]
        assert await own_turn(other) == own
        assert (await other.end_of(own)) == end
        after = await session_of(client)
        assert (after["background"], after["running_mission_id"], after["held_until"]) == ([], None, None)
        assert all(event["mission_id"] for event in client.events())
        assert client.received[1]["payload"]["chat"] == []
        async with home.sprite.client(resume=position(client)) as again:
            replayed = await again.until(lambda m: m["type"] == "agent_event" and m["payload"]["event"] == "started")
            wanted = {"event": "started", "mission_id": mission, "origin": "person", "attempt": 1}
            assert replayed["payload"] == {**wanted, "session_id": session["session_id"]}
            assert await own_turn(again) == own
            assert (await again.end_of(own)) == end
        async with home.sprite.client() as fresh:
            sync = (await fresh.until(lambda m: m["type"] == "state_sync"))["payload"]
            line = sync["chat"][-1]
            assert (line["role"], line["origin"], line["mission_id"]) == ("assistant", "agent", own)
            assert (line["text"], line["tools"], line["status"]) == (end["text"], [], "complete")
            asked = sync["chat"][1]
            (tool,) = asked["tools"]
            assert (tool["name"], tool["title"], tool["is_error"]) == ("Bash", ENDLESS, False)
            assert sync["running"] is None
        # Turns pending curation keep the VM awake too.
        await client.ask("system", {"action": "flush"})
        await eventually(lambda: not vm.tasks, "the VM is kept awake")
    assert endings(home.workspace) == {mission: ["complete"], own: ["complete"]}
    assert observation_of(home.workspace, own)["trigger"] == "task"
    assert [row["origin"] for row in chat_rows(home.workspace, own)] == ["agent"]


@shared
async def test_background_agent_report_becomes_own_turn(home: SharedSprite) -> None:
    """The subagent's calls are the tools of its chat line."""
    async with conversation(home) as client:
        (mission,) = await chat(client, f"use a subagent to run `{QUICK}; echo from below`")
        (home.workspace / "quick").touch()
        own = await own_turn(client)
        assert "from below" in (await client.end_of(own))["text"]
        # Calls of the subagent are not reported as events of the mission, before or after its end.
        assert [e["name"] for e in client.events(mission) if e["event"] == "tool_use"] == ["Agent"]
        assert {e["mission_id"] for e in client.events()} == {mission, own}
    kept, report = observation_of(home.workspace, mission), observation_of(home.workspace, own)
    assert [call["name"] for call in kept["tool_calls"]] == ["Agent"]
    assert (report["trigger"], report["user_message"], report["outcome"]) == ("task", "", "complete")
    assert "<task-notification>" in report["notice"]
    assert "from below" in report["agent_response"]
    (call,) = report["tool_calls"]
    assert ("agent_id" in call, call["input"]["command"]) == (True, f"{QUICK}; echo from below")
    (row,) = chat_rows(home.workspace, own)
    assert f'"name":"Bash","title":"{QUICK}; echo from below","is_error":false' in row["tools_json"]


@shared
async def test_interrupt_stops_own_turn_and_background_work(
    home: SharedSprite,
) -> None:
    home.model.script.agent({"for": "notification", "hang": True})
    text = begins(home.model, in_background(QUICK), in_background(ENDLESS, "the watch"), agent_for("run `ls -R /`"))
    home.model.script.agent({"match": "run `ls -R /`", "for": "subagent", "hang": True})
    async with conversation(home) as client:
        await chat(client, text)
        (home.workspace / "quick").touch()
        own = await own_turn(client)
        await request_seen(home.model, lambda r: r.kind == "notification")
        session = await session_of(client)
        assert (session["busy"], session["running_mission_id"]) == (True, own)
        ids = {work["kind"]: work["id"] for work in session["background"]}
        assert ids.keys() == {"command", "agent"}
        async with home.sprite.client() as newcomer:
            sync = (await newcomer.until(lambda m: m["type"] == "state_sync"))["payload"]
            assert sync["running"]["mission_id"] == own
            assert sync["running"]["events"][0]["origin"] == "agent"
        ack = (await client.ask("interrupt"))["payload"]
        assert ack["stopped"][0] == {"id": own, "kind": "turn"}
        assert {(s["kind"], s["id"]) for s in ack["stopped"][1:]} == set(ids.items())
        assert (await client.end_of(own))["event"] == "interrupted"
        assert (await session_of(client))["background"] == []
        assert (await client.ask("interrupt"))["payload"]["code"] == "not_running"
        await chat(client, "Hello after all")
        assert [(o["trigger"], o["outcome"]) for o in observations(home.workspace)[-3:]] == [
            ("user", "complete"),
            ("task", "interrupted"),
            ("user", "complete"),
        ]
        assert [(row["role"], row["origin"]) for row in chat_rows(home.workspace, own)] == [("assistant", "agent")]
        assert journal(home.workspace) == []


@shared
async def test_interrupt_stops_mission_before_background_work(home: SharedSprite) -> None:
    """A second interrupt stops the background work."""
    text = begins(home.model, in_background(ENDLESS), agent_for("watch it"))
    home.model.script.agent({"match": "watch it", "for": "subagent", "hang": True})
    home.model.script.agent({"match": "think for ever", "hang": True})
    async with conversation(home) as client:
        await chat(client, text)
        mission = client.send("mission", {"text": "think for ever"})
        await request_seen(home.model, lambda r: "think for ever" in r.user_text)
        assert (await client.ask("interrupt"))["payload"]["stopped"] == [{"id": mission, "kind": "mission"}]
        assert (await client.end_of(mission))["event"] == "interrupted"
        works = (await session_of(client))["background"]
        assert {work["kind"] for work in works} == {"command", "agent"}
        # An unknown id stops neither the mission nor the background work.
        assert (await client.ask("interrupt", {"mission_id": "nobody"}))["payload"]["code"] == "not_running"
        stopped = (await client.ask("interrupt"))["payload"]["stopped"]
        assert {(each["id"], each["kind"]) for each in stopped} == {(work["id"], work["kind"]) for work in works}
        assert (await session_of(client))["background"] == []
        await chat(client, "Hello")
        assert not [event for event in client.events() if _is_own(event)]


@shared
async def test_mission_during_own_turn_waits_for_its_end(home: SharedSprite) -> None:
    home.model.script.agent({"for": "notification", "tool": "Bash", "input": {"command": ENDLESS}})
    text = begins(home.model, in_background(QUICK))
    async with conversation(home) as client:
        await chat(client, text)
        (home.workspace / "quick").touch()
        own = await own_turn(client)
        await client.event("tool_use")
        mission = client.send("mission", {"text": "Hello meanwhile"})
        await client.until(lambda m: m["type"] == "agent_event" and m["payload"]["mission_id"] == mission)
        async with home.sprite.client() as newcomer:
            sync = (await newcomer.until(lambda m: m["type"] == "state_sync"))["payload"]
            assert (sync["running"]["mission_id"], sync["session"]["running_mission_id"]) == (own, mission)
        (home.workspace / "go").touch()
        assert (await client.end_of(own))["event"] == "complete"
        assert (await client.end_of(mission))["event"] == "complete"
        assert [e["event"] for e in client.events(mission)][:1] == ["started"]
        # The tool call and its result belong to the agent's own turn.
        assert "tool_result" not in [e["event"] for e in client.events(mission)]
        assert [o["mission_id"] for o in observations(home.workspace)[-2:]] == [own, mission]


async def test_own_turn_of_killed_sprite_ends_as_crashed(model: OfflineModel, workspace: Path) -> None:
    """Background jobs end too, and the agent's processes die with the sprite even if they ignore signals."""
    said = [
        {"type": "text", "text": "I look at it."},
        {"type": "tool_use", "name": "Bash", "input": {"command": DEAF}},
    ]
    model.script.agent({"for": "notification", "blocks": said})
    text = begins(model, in_background(QUICK), in_background(ENDLESS, "the watch"))
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, text)
        start = position(client)
        (workspace / "quick").touch()
        own = await own_turn(client)
        await client.event("tool_use")
        await eventually(
            lambda: any(entry["event"] == "start" for entry in journal(workspace)),
            "the tool call is not in the journal",
        )
        await eventually(lambda: is_running(sprite, "trap"), "the command does not run")
        processes = family(sprite)
        await sprite.kill()
    await eventually(lambda: not any(runs(pid) for pid in processes), "a process of the agent still runs")
    async with running_sprite(workspace, model.url) as again, again.client(resume=start) as client:
        # The replay still contains the jobs.
        assert len(await works(client, 2)) == 2
        end = await client.end_of(own)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "crashed", False)
        await works(client, 0)
        kept = observation_of(workspace, own)
        assert (kept["outcome"], kept["trigger"], kept["agent_response"]) == ("crashed", "task", "I look at it.")
        (call,) = kept["tool_calls"]
        assert (call["input"]["command"], call["result"]) == (DEAF, "[no result: the turn ended first]")
        assert (await session_of(client))["background"] == []
    assert endings(workspace)[own] == ["error"]
    rows = chat_rows(workspace, own)
    assert [(row["role"], row["origin"]) for row in rows] == [("assistant", "agent"), ("error", "agent")]
    assert "trap" in rows[0]["tools_json"]


@shared
async def test_dead_agent_process_ends_own_turn(home: SharedSprite) -> None:
    """Its background work ends too, and the conversation resumes in the next turn."""
    home.model.script.agent({"for": "notification", "hang": True})
    text = begins(home.model, in_background(QUICK), in_background(ENDLESS))
    async with conversation(home) as client:
        await chat(client, text)
        (home.workspace / "quick").touch()
        own = await own_turn(client)
        await request_seen(home.model, lambda r: r.kind == "notification")
        # A mission queued behind the own turn can be interrupted.
        waits = client.send("mission", {"text": "Hello, and stop"})
        await client.until(lambda m: m["payload"].get("mission_id") == waits and m["payload"].get("event") == "started")
        await client.ask("interrupt", {"mission_id": waits})
        assert (await client.end_of(waits))["event"] == "interrupted"
        commands = descendants(agent_process(home.sprite))
        assert commands
        os.kill(agent_process(home.sprite), signal.SIGKILL)
        end = await client.end_of(own)
        await eventually(lambda: not any(runs(command) for command in commands), "background work goes on")
        assert (end["event"], end["code"]) == ("error", "agent")
        session = await session_of(client)
        assert (session["busy"], session["background"]) == (False, [])
        await chat(client, "Hello after the kill")
        (request,) = prompts(home.model, "Hello after the kill")
        assert text in str(request.body["messages"]), "the conversation is not resumed"
        assert [(o["trigger"], o["outcome"]) for o in observations(home.workspace)[-3:]] == [
            ("user", "interrupted"),
            ("task", "error"),
            ("user", "complete"),
        ]


async def paused(client: Client) -> Message:
    """Wait until the session is paused, and return the reason."""
    message = await client.until(
        lambda m: m["type"] == "session_update" and m["payload"]["session"]["paused"] is not None
    )
    why: Message = message["payload"]["session"]["paused"]
    return why


def begins_another(**more: Any) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """Return a rule that answers each report of a background command with the next command."""

    def answer(body: dict[str, Any]) -> dict[str, Any] | None:
        content = body["messages"][-1]["content"]
        is_result = isinstance(content, list) and any(block["type"] == "tool_result" for block in content)
        return None if is_result else {"for": "any", "blocks": [in_background(SOON)], **more}

    return answer


def own_turns(workspace: Path) -> list[dict[str, Any]]:
    """Return the turns that the agent started since it began the person's last message.

    A command of an earlier test may start one while that message is still queued; the limits do not count it.
    """
    (last,) = workspace_db(
        workspace, "SELECT id, position FROM missions WHERE origin = 'person' ORDER BY position DESC LIMIT 1"
    )
    sql = f"SELECT id, status, error_code FROM missions WHERE origin = 'agent' AND position > {last['position']}"
    logged = [row["mission_id"] for row in observations(workspace)]
    earlier = logged[: logged.index(last["id"])] if last["id"] in logged else []
    return [turn for turn in workspace_db(workspace, f"{sql} ORDER BY position") if turn["id"] not in earlier]


@shared
async def test_runaway_agent_pauses_after_turn_limit(home: SharedSprite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each report of a background command starts the next one; the person can let the agent continue."""
    # The default limit of five turns would take longer.
    monkeypatch.setattr(unattended, "MOST_TURNS", 2)
    home.model.script.agent(begins_another(), audience="notification")
    async with conversation(home) as client:
        await chat(client, begins(home.model, in_background(SOON)))
        why = await paused(client)
        assert (why["by"], "turns in a row" in why["why"]) == ("turns", True)
        assert [turn["status"] for turn in own_turns(home.workspace)] == ["complete"] * 2
        assert not (await session_of(client))["busy"]
        home.model.script = Script()
        async with home.sprite.client() as other:
            assert (await session_of(other))["paused"] == why
        status = await client.ask("system", {"action": "go_on"})
        assert status["payload"]["session"]["paused"] is None
        await client.ask("system", {"action": "go_on"})
        await client.ask("heartbeat")
        said = workspace_db(home.workspace, "SELECT text FROM chat_messages WHERE role = 'user' ORDER BY id")
        assert [row["text"] for row in said][-2:] == ["begin it", "Go on."]
        (request,) = prompts(home.model, "Go on.")
        assert "<task-notification>" in str(request.body["messages"][-3:])


@shared
async def test_own_turns_pause_at_cost_limit(home: SharedSprite) -> None:
    home.model.script.agent(begins_another(usage={"input_tokens": 300_000}), audience="notification")
    async with conversation(home) as client:
        await chat(client, begins(home.model, in_background(SOON)))
        why = await paused(client)
        assert (why["by"], "$1.00" in why["why"]) == ("cost", True)
        await eventually(lambda: own_turns(home.workspace)[-1]["status"] != "running", "the turn is still running")
        assert len(own_turns(home.workspace)) < MOST_TURNS
        last = own_turns(home.workspace)[-1]
        assert (last["status"], last["error_code"]) == ("error", "paused")


@shared
async def test_turn_without_budget_pauses_and_continues(home: SharedSprite) -> None:
    refusal = {"error": 402, "type": "billing_error", "message": USED_UP, "times": -1}
    home.model.script.agent({"match": "count to ten", **refusal})
    async with conversation(home) as client:
        mission = client.send("mission", {"text": "count to ten"})
        end = await client.end_of(mission)
        assert (end["event"], end["code"]) == ("error", "budget_used_up")
        assert (await session_of(client))["paused"]["by"] == "budget"
        home.model.script = Script()
        await client.ask("system", {"action": "go_on"})
        await client.ask("heartbeat")
        (request,) = prompts(home.model, "Go on.")
        assert "count to ten" in str(request.body["messages"])
        assert (await session_of(client))["paused"] is None


@shared
async def test_vm_sleeps_after_last_client_left(
    home: SharedSprite, vm: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pending turns are curated first."""
    # The default of 30 seconds would take longer.
    monkeypatch.setattr(processor, "LEFT_SECONDS", 2.0)
    async with conversation(home) as client:
        await client.ask("system", {"action": "flush"})
        await chat(client, *(f"Hello {number}" for number in range(5)))
        await eventually(lambda: "sprite" in vm.tasks, "the VM is not kept awake")
        waiting = [turn["id"] for turn in observations(home.workspace)[-5:]]
    await eventually(lambda: not vm.tasks, "the VM is kept awake")
    last = [c for c in curations(home.workspace) if c["kind"] == "batch"][-1]
    assert (last["first_observation_id"], last["last_observation_id"]) == (waiting[0], waiting[-1])


@shared
async def test_unattended_limit_releases_vm_and_ends_turn(
    home: SharedSprite, vm: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = float(UNATTENDED_SECONDS)
    monkeypatch.setattr(Unattended, "held_until", property(lambda self: self._heard_at + limit))
    monkeypatch.setattr(unattended, "_LEAST_TURN_SECONDS", 1.0)
    home.model.script.agent({"for": "notification", "hang": True})
    text = begins(home.model, in_background(QUICK))
    async with conversation(home) as client:
        await chat(client, text)
        # Turns pending curation keep the VM awake too.
        await client.ask("system", {"action": "flush"})
        await eventually(lambda: "sprite" in vm.tasks, "the VM is not kept awake")
        limit = 0.0
        session = await session_of(client)
        (work,) = session["background"]
        assert session["held_until"] < work["since"]
        await eventually(lambda: not vm.tasks, "the VM is kept awake")
        (home.workspace / "quick").touch()
        own = await own_turn(client)
        end = await client.end_of(own)
        assert (end["event"], end["code"], end["retryable"]) == ("error", "too_long", False)
        assert [row["role"] for row in chat_rows(home.workspace, own)] == ["error"]


@shared
async def test_new_session_reports_stopped_background_work(home: SharedSprite) -> None:
    text = begins(home.model, in_background(ENDLESS))
    async with conversation(home) as client:
        await chat(client, text)
        (work,) = (await session_of(client))["background"]
        commands = descendants(agent_process(home.sprite))
        assert commands
        status = (await client.ask("system", {"action": "new_session"}))["payload"]
        await eventually(lambda: not any(runs(command) for command in commands), "a command still runs")
        assert status["stopped"] == [{"id": work["id"], "kind": "command"}]
        assert status["session"]["background"] == []


@shared
async def test_finished_command_is_not_reported_as_stopped(home: SharedSprite) -> None:
    """The command ends and is interrupted at the same moment; the reported outcome is the first one."""
    async with conversation(home) as client:
        text = begins(home.model, in_background("touch done", "a job"))
        await chat(client, text)
        answer = (await client.ask("interrupt"))["payload"]
        if "command" not in {stopped["kind"] for stopped in answer.get("stopped") or []}:
            await eventually((home.workspace / "done").exists, "the command did not run")
