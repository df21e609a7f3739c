"""Failures of VMs shared by several bridges: one is destroyed during a mission, and their API is unavailable."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.config import read_keys
from bridge.db.open import open_database
from bridge.replicas.keys import fixed_keys
from bridge.replicas.sealed_store import SealedStore
from bridge.replicas.tables import DatabaseShelf
from tests.cluster_people import Person
from tests.cluster_places import Vms
from tests.cluster_stage import STORE_KEY, Cluster, Slot
from tests.delays import Delays
from tests.harness import observations
from tests.inspection import eventually, journal, observation_of, workspace_db

if TYPE_CHECKING:
    from tests.scripted_model import OfflineModel

#: A mission with many steps.
WORK, STEP = "work on until your machine is gone", "one more step"
#: Rows at least this old when a machine ends are never lost.
LOST_SECONDS = 2.0
#: Calls are retried for some seconds, and then abandoned until the next attempt: both happen.
AWAY_SECONDS = 4.0


def script_work(model: OfflineModel) -> None:
    """Let the model answer WORK with one step after another."""
    command = {"command": f"echo '{STEP}'"}
    model.script.agent({"match": WORK, "tool": "Bash", "input": command, "delay": 0.2, "times": -1})


async def destroyed_in_mid_mission(stage: Cluster, vms: Vms, people: list[Person], name: str) -> None:
    """Destroy a VM of this bridge, and restart the bridge. Another bridge restores it, as it offers."""
    owners = stage.owners()
    person = next(person for person in people if owners.get(person.sprite) == stage.address(name))
    async with person.at_rest():
        async with Delays() as delays:
            mission, began = await person.begin(WORK), time.time()
            await eventually(lambda: _has_worked(stage.workspace(person.sprite), began), "the mission takes no steps")
            ended = time.time()
            person.crashed.add(mission)
            lost = await vms.lose(person.sprite)
        wanted = [row for row in journal(lost) if row["at"] < ended - LOST_SECONDS - delays.longest]
        await _offered(stage.slots[name], stage.tokens[person.sprite])
        await stage.kill(name)
        await stage.start_again(name)
        assert wanted
        assert {row["id"] for row in wanted} <= await _kept(stage, person.sprite)
        await _restored(next(slot for slot in stage.up() if slot.name != name), stage.tokens[person.sprite])
        workspace, before = stage.workspace(person.sprite), observations(lost)
        await eventually(lambda: len(observations(workspace)) > len(before), "the mission does not end")
    crashed = observation_of(workspace, mission)
    steps = [row for row in wanted if row["event"] == "tool"]
    assert crashed["outcome"] == "crashed"
    assert len(crashed["tool_calls"]) >= len(steps) > 1
    assert STEP in json.dumps(crashed["tool_calls"])
    assert _said(workspace)[: len(before)] == _said(lost)
    assert workspace_db(workspace, "SELECT status FROM missions WHERE id = ?", (mission,)) == [{"status": "error"}]


async def api_away(vms: Vms, people: list[Person]) -> None:
    """Put half of the VMs to sleep while none can be woken or reached, and everybody sends missions."""
    async with AsyncExitStack() as resting:
        some = people[: (len(people) + 1) // 2]
        for person in some:
            await resting.enter_async_context(person.at_rest())
        machines = [vms.emulator.machines[person.sprite] for person in some]
        # Wait until their work is replicated, which is impossible while the API is down.
        await eventually(lambda: not any(machine.is_held for machine in machines), "a VM is held although all is over")
        with vms.emulator.away():
            for at, machine in enumerate(machines):
                await machine.sleep("warm" if at % 2 else "cold")
            await resting.aclose()
            await asyncio.sleep(AWAY_SECONDS)


def _has_worked(workspace: Path, began: float) -> bool:
    """Return whether some of it is older than the possible loss."""
    return len([row for row in journal(workspace) if began < row["at"] < time.time() - 2 * LOST_SECONDS]) > 1


async def _offered(slot: Slot, token: str) -> None:
    """Wait until a page at this bridge offers to restore the machine."""
    async with slot.bridge.page(token=token) as page:
        told = await page.until(lambda m: m["type"] == "link" and m["payload"].get("offer") == "restore")
        assert "The machine of this agent is gone" in told["payload"]["detail"]


async def _kept(stage: Cluster, sprite: str) -> set[int | str]:
    """Return the part of the running turn in the bridges' replica."""
    async with open_database(stage.url) as database:
        store = SealedStore(DatabaseShelf(database), fixed_keys(read_keys(STORE_KEY)), 2**31)
        return {row.row["id"] async for row in store.rows(sprite) if row.table == "log/journal.jsonl"}


async def _restored(slot: Slot, token: str) -> None:
    """Restore the machine at a page of this bridge, as its person does."""
    async with slot.bridge.page(token=token) as page:
        await page.until(lambda m: m["type"] == "link" and m["payload"].get("offer") == "restore")
        async with (
            slot.bridge.http() as session,
            session.post("/restore", headers={"Authorization": f"Bearer {token}"}) as done,
        ):
            assert done.status == 200, await done.text()
        await page.link("ready")


def _said(workspace: Path) -> list[tuple[str, str]]:
    return [(turn["mission_id"], turn["agent_response"]) for turn in observations(workspace)]
