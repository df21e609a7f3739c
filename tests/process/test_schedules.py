"""Due actions of a real sprite: on time, late after a stop, once despite kills, and limited."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.emulator import Emulator
from tests.emulator.machine import Machine
from tests.harness import Client, Message, observations, running_sprite, sprite_process
from tests.inspection import (
    SharedSprite,
    descendants,
    endings,
    eventually,
    memory,
    observation_of,
    prompts,
    workspace_db,
)
from tests.memory_stores import open_stores
from tests.scripted_model import USED_UP, OfflineModel, Script

#: Number of times the test kills a sprite.
LIVES = int(os.environ.get("SOAK_KILLS", "0")) // 10 or 1
#: Tests that share one sprite.
shared = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True)
class Home(SharedSprite):
    """A shared sprite, and the VM on which it believes it runs."""

    vm: Machine


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def home_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Home]:
    folder = tmp_path_factory.mktemp("schedules")
    workspace = folder / "workspace"
    workspace.mkdir()
    async with OfflineModel() as model, Emulator(folder / "vms") as emulator:
        vm = await emulator.add("ada")
        async with running_sprite(workspace, model.url, TESTS_VM_SOCKET=str(vm.socket)) as sprite:
            yield Home(model, workspace, sprite, vm)


@asynccontextmanager
async def conversation(home: Home) -> AsyncIterator[Client]:
    """Connect a client; reset the model's script afterwards."""
    async with home.client() as client:
        yield client
    home.model.script = Script()


async def add(client: Client, content: str, after: float = 0.0, **more: Any) -> int:
    """Add an action that is due after this number of seconds. Return its id."""
    asked = {"op": "add_action", "content": content, "due": time.time() + after, **more}
    answer = await client.ask("memory", asked)
    assert answer["type"] == "memory_result", answer
    number: int = answer["payload"]["action"]["id"]
    return number


def action(workspace: Path, number: int) -> dict[str, Any]:
    (row,) = memory(workspace, "SELECT * FROM pending_actions WHERE id = ?", (number,))
    return {**row, "history": [entry["what"] for entry in json.loads(row["history_json"])]}


async def has_status(workspace: Path, number: int, status: str) -> dict[str, Any]:
    await eventually(lambda: action(workspace, number)["status"] == status, f"action {number} is {status}")
    return action(workspace, number)


def started(message: Message) -> bool:
    payload = message["payload"]
    wanted = ("started", "schedule")
    return message["type"] == "agent_event" and (payload["event"], payload.get("origin")) == wanted


async def next_fired(client: Client) -> str:
    """Return the id of the next mission that a schedule starts."""
    mission_id: str = (await client.until(started))["payload"]["mission_id"]
    return mission_id


@shared
async def test_due_action_fires_and_is_reported(home: Home) -> None:
    async with conversation(home) as client:
        later = await add(client, "Call the dentist", 3600.0)
        told = await client.ever(lambda m: m["type"] == "schedule_update")
        assert told["payload"]["next_due"]["action_id"] == later
        status = await client.ask("system", {"action": "status"})
        assert status["payload"]["next_due"] == told["payload"]["next_due"]
        await client.ask("memory", {"op": "resolve_action", "id": later, "status": "dismissed"})
        number = await add(client, "run `touch watered`", 0.5)
        said = await client.ever(lambda m: m["type"] == "chat_said")
        assert (said["payload"]["origin"], said["payload"]["text"]) == ("schedule", "run `touch watered`")
        mission = (await client.ever(started))["payload"]["mission_id"]
        assert said["payload"]["mission_id"] == mission
        assert (await client.end_of(mission))["event"] == "complete"
        assert (home.workspace / "watered").exists()
        spend = (await client.ask("system", {"action": "status"}))["payload"]["spend"]
        costs = [sum(spend[when][who].values()) for when in ("today", "session") for who in ("schedules", "agent")]
        assert costs == [sum(spend["turn"].values()), 0, costs[0], 0]
        assert costs[0] > 0
        done = await client.until(lambda m: m["type"] == "action_update" and m["payload"]["action"]["status"] == "done")
        assert done["payload"]["action"]["id"] == number
        assert [entry["by"] for entry in done["payload"]["action"]["history"]] == ["person", "sprite", "sprite"]
        async with home.sprite.client() as other:
            sync = (await other.until(lambda m: m["type"] == "state_sync"))["payload"]
        assert sync["next_due"] is None
        line = next(line for line in sync["chat"] if (line["role"], line["mission_id"]) == ("user", mission))
        assert (line["origin"], line["status"]) == ("schedule", "complete")
    updates = [m["payload"]["next_due"] for m in client.received if m["type"] == "schedule_update"]
    assert updates[-1] is None
    turn = observation_of(home.workspace, mission)
    assert (turn["user_message"], turn["by_schedule"]) == ("", 1)
    assert "run `touch watered`" in turn["notice"]


@shared
async def test_heartbeat_is_answered_after_due_actions(home: Home) -> None:
    home.model.script.agent({"match": "due_action", "on": "prompt", "delay": 0.5, "times": -1})
    async with conversation(home) as client:
        for number in range(2):
            await add(client, f"run `echo {number} >> beaten`")
        beats = [client.send("heartbeat"), client.send("heartbeat")]
        for beat in beats:
            await client.ever(lambda m, beat=beat: m.get("reply_to") == beat)  # type: ignore[misc]
        assert (home.workspace / "beaten").read_text() == "0\n1\n"
        order = [m.get("reply_to") or m["payload"].get("event") for m in client.received]
        assert order.index(beats[0]) > max(at for at, what in enumerate(order) if what == "complete")
        assert (await client.ask("heartbeat"))["payload"]["status"] == "done"


@shared
async def test_interrupt_stops_action_and_dismissed_action_never_runs(home: Home) -> None:
    home.model.script.agent({"match": "think for ever", "on": "prompt", "hang": True, "times": -1})
    async with conversation(home) as client:
        hanging = await add(client, "think for ever")
        mission = await next_fired(client)
        await eventually(lambda: "sprite" in home.vm.tasks, "the VM is not kept awake")
        waiting = await add(client, "run `touch never`")
        await client.ask("memory", {"op": "resolve_action", "id": waiting, "status": "dismissed"})
        (stopped,) = (await client.ask("interrupt"))["payload"]["stopped"]
        assert stopped["id"] == mission
        assert (await client.ever(lambda m: m["payload"].get("event") == "interrupted"))["payload"]
        failed = await has_status(home.workspace, hanging, "failed")
        assert failed["history"][-1] == "stopped before it had ended"
        await client.ask("heartbeat")
        # Turns of other tests that are pending curation would keep the VM awake.
        await client.ask("system", {"action": "flush"})
        await eventually(lambda: not home.vm.tasks, "the VM is kept awake")
    assert not (home.workspace / "never").exists()
    assert action(home.workspace, waiting)["status"] == "dismissed"


@shared
async def test_action_without_budget_is_retried_later(home: Home) -> None:
    refusal = {"error": 402, "type": "billing_error", "message": USED_UP, "times": -1}
    home.model.script.agent({"match": "due_action", **refusal})
    async with conversation(home) as client:
        number = await add(client, "Call the dentist")
        end = await client.end_of(await next_fired(client))
        assert (end["event"], end["code"]) == ("error", "budget_used_up")
        await eventually(lambda: action(home.workspace, number)["due"] is not None, "the action is not due again")
        waiting = action(home.workspace, number)
        assert waiting["status"] == "open"
        assert "is used up" in waiting["history"][-1]
        assert "tried again" in waiting["history"][-1]
        await client.ask("memory", {"op": "resolve_action", "id": number, "status": "dismissed"})


@shared
async def test_scheduled_turn_cannot_add_recurring_action(
    home: Home,
) -> None:
    """Single actions it adds are marked as made by a schedule."""
    calls = [
        {"type": "tool_use", "name": "mcp__sprite__schedule", "input": {"content": "Look again", **wanted}}
        for wanted in ({"rrule": "FREQ=DAILY"}, {"due": "in 2 hours"})
    ]
    home.model.script.agent({"match": "due_action", "on": "prompt", "blocks": calls})
    async with conversation(home) as client:
        number = await add(client, "Look at the kiln")
        mission = await next_fired(client)
        await has_status(home.workspace, number, "done")
    repeat, once = observation_of(home.workspace, mission)["tool_calls"]
    assert (repeat["is_error"], once["is_error"]) == (True, False)
    assert "cannot repeat" in repeat["result"]
    (made,) = memory(home.workspace, "SELECT * FROM pending_actions WHERE mission_id = ?", (mission,))
    assert (made["origin"], made["id"] == number) == ("schedule", False)


async def test_missed_actions_fire_late_once_with_permission(model: OfflineModel, workspace: Path) -> None:
    """Actions missed by a stopped sprite fire at its start; in ask mode they need permission."""

    def is_asked() -> bool:
        return any("permission_request" in str(row["frame"]) for row in workspace_db(workspace, "SELECT * FROM events"))

    (workspace / ".os/memory").mkdir(parents=True)
    four_hours_ago = time.time() - 4 * 3600
    async with open_stores(workspace / ".os/memory") as stores:
        actions = stores.actions_at(lambda: four_hours_ago)
        once = await actions.add("run `touch allowed`", by="person", due=four_hours_ago + 3600)
        await actions.add("Stretch", by="person", due=four_hours_ago + 1800, rrule="FREQ=MINUTELY;INTERVAL=5")
    async with running_sprite(workspace, model.url, permissions="ask") as sprite:
        await eventually(is_asked, "no permission request was stored")
        assert not (workspace / "allowed").exists()
        async with sprite.client() as client:
            sync = (await client.until(lambda m: m["type"] == "state_sync"))["payload"]
            (question,) = sync["permissions"]
            await client.ask("permission", {"request_id": question["request_id"], "decision": "allow"})
            # The heartbeat is answered after both actions.
            await client.ask("heartbeat")
        texts = [line["text"] for line in workspace_db(workspace, "SELECT * FROM chat_messages WHERE role = 'user'")]
        assert [text.split("\n")[0] for text in texts] == ["Stretch", "run `touch allowed`"]
        assert "3 hours late" in texts[0]
        assert "3 hours late" in texts[1]
        assert action(workspace, once.id)["status"] == "done"
        asked = [turn["notice"] for turn in observations(workspace)]
        assert "3 hours late" in asked[1]
        assert "missed" in asked[0]
    assert (workspace / "allowed").exists()
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("heartbeat")
    assert len(observations(workspace)) == 2


async def test_reminder_interrupted_after_tool_call_fails(model: OfflineModel, workspace: Path) -> None:
    """It is not run again; test_waking.py covers reminders without a tool call."""
    model.script.agent({"match": "due_action", "on": "result", "hang": True})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        number = await add(client, "run `echo once >> ran`")
        cut = await next_fired(client)
        # The shell makes the file before the command writes into it.
        ran = workspace / "ran"
        await eventually(lambda: ran.exists() and ran.read_text() == "once\n", "the command did not run")
        await sprite.stop()
        end = await client.end_of(cut)
    assert (end["event"], end["code"], end["retryable"]) == ("error", "crashed", False)
    assert "stopped in the middle" in end["message"]
    async with running_sprite(workspace, model.url) as again, again.client() as client:
        failed = await has_status(workspace, number, "failed")
        assert failed["history"][-1] == "the sprite was stopped in the middle of it"
        await client.ask("heartbeat")
    assert endings(workspace) == {cut: ["error"]}
    assert (workspace / "ran").read_text() == "once\n"
    assert [(turn["outcome"], turn["by_schedule"]) for turn in observations(workspace)] == [("crashed", 1)]


async def asked(model: OfflineModel, times: int) -> None:
    await eventually(lambda: len(prompts(model, "due_action")) >= times, f"the model was not asked {times} times")


@pytest.mark.soak
async def test_reminder_killed_before_tool_call_restarts(model: OfflineModel, workspace: Path) -> None:
    model.script.agent({"match": "due_action", "on": "prompt", "hang": True})
    attempts = []
    number = 0
    for life in range(2):
        async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
            if life == 0:
                number = await add(client, "run `echo once >> ran`")
            begun = (await client.ever(started))["payload"]
            attempts.append((begun["mission_id"], begun["attempt"]))
            if life == 0:
                await asked(model, 1)
                await sprite.kill()
                continue
            await has_status(workspace, number, "done")
    mission = attempts[0][0]
    assert attempts == [(mission, 1), (mission, 2)]
    assert endings(workspace) == {mission: ["complete"]}
    assert (workspace / "ran").read_text() == "once\n"
    assert [(turn["outcome"], turn["by_schedule"]) for turn in observations(workspace)] == [("complete", 1)]


@pytest.mark.soak
async def test_reminder_survives_sigint_of_process_group(model: OfflineModel, workspace: Path) -> None:
    """Ctrl-C in a terminal interrupts the sprite and the agent's CLI at once."""
    model.script.agent({"match": "due_action", "on": "prompt", "hang": True, "times": 1})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        number = await add(client, "run `echo once >> ran`")
        begun = await client.ever(started)
        await asked(model, 1)
        for pid in (*descendants(sprite.pid), sprite.pid):
            os.kill(pid, signal.SIGINT)
        assert await sprite.process.wait() == 0
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        again = await client.ever(started)
        assert (again["payload"]["mission_id"], again["payload"]["attempt"]) == (begun["payload"]["mission_id"], 2)
        await has_status(workspace, number, "done")


@pytest.mark.soak
async def test_reminder_interrupted_three_times_is_given_up(model: OfflineModel, workspace: Path) -> None:
    model.script.agent({"match": "due_action", "on": "prompt", "hang": True, "times": -1})
    number = 0
    for life in range(3):
        async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
            if life == 0:
                number = await add(client, "Call the dentist")
            await client.ever(started)
            await asked(model, life + 1)
            await sprite.stop()
    failed = action(workspace, number)
    if failed["status"] == "open":
        async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
            failed = await has_status(workspace, number, "failed")
    assert failed["history"][-1] == "the sprite was stopped in the middle of it"
    (line,) = workspace_db(workspace, "SELECT text FROM chat_messages WHERE role = 'error'")
    assert "in the middle of this turn" in line["text"]
    assert len(prompts(model, "Call the dentist")) == 3


@pytest.mark.soak
async def test_killed_sprite_fires_each_action_once(model: OfflineModel, workspace: Path) -> None:
    seed = int(os.environ.get("KILL_SEED") or secrets.randbits(32))
    print(f"KILL_SEED={seed}")  # noqa: T201 - pytest shows it where the test fails
    rng = random.Random(seed)  # noqa: S311 - no secret
    numbers: list[int] = []
    for life in range(LIVES):
        async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
            numbers += [await add(client, f"run `echo {life}-{n} >> ran`", rng.uniform(0, 0.3)) for n in range(2)]
            await asyncio.sleep(rng.uniform(0, 1.5))
            await sprite.kill()
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("heartbeat")
    missions = workspace_db(workspace, "SELECT id, action_id, status FROM missions")
    assert sorted(mission["action_id"] for mission in missions) == sorted(numbers)
    assert {mission: len(events) for mission, events in endings(workspace).items()} == {
        mission["id"]: 1 for mission in missions
    }
    assert {turn["mission_id"] for turn in observations(workspace)} == {mission["id"] for mission in missions}
    ran = (workspace / "ran").read_text().split()
    assert len(ran) == len(set(ran))
    for number in numbers:
        entry = action(workspace, number)
        fired = [what for what in entry["history"] if what.startswith("fired")]
        assert (entry["status"] in {"done", "failed"}, len(fired)) == (True, 1), entry
