"""Clean stop of a sprite on a VM: its last curation reaches the replica, and its reminder begins again."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from bridge.config import Settings
from bridge.hub.hub import Relay
from bridge.replicas.replicator import Replicator
from bridge.replicas.sealed_store import open_store
from sprite.config import LEAST_TURNS
from tests.harness import PATIENCE, observations
from tests.inspection import prompts, workspace_db
from tests.looks import eventually
from tests.memory_stores import seed_turns
from tests.shipments import nothing_kept
from tests.vms import Heard, Tokens, host_of, talking, this_archive
from tests.waking_stage import died

if TYPE_CHECKING:
    from pathlib import Path

    from tests.emulator import Emulator, Machine
    from tests.scripted_model import OfflineModel
    from tests.vms import Disk

STOP_SECONDS = 60.0
Message = dict[str, Any]


def started(message: Message) -> bool:
    return bool(message["type"] == "agent_event" and message["payload"]["event"] == "started")


async def vm_with_model(disk: Disk, emulator: Emulator, tokens: Tokens, model: OfflineModel) -> Machine:
    vm = await disk.put_into(emulator, tokens)
    model_env = vm.workspace / ".os/run/model.env"
    model_env.write_text(model_env.read_text().replace(Tokens().base_url, model.url))
    return vm


async def test_stopped_vm_ships_last_curation(
    model: OfflineModel, emulator: Emulator, disk: Disk, tmp_path: Path
) -> None:
    tokens = Tokens(model.url)
    vm = await vm_with_model(disk, emulator, tokens, model)
    await seed_turns(vm.workspace, *(f"My name is Ada the {number}." for number in range(LEAST_TURNS - 1)))
    async with (
        host_of(emulator, this_archive(), tokens) as host,
        open_store(Settings(data=tmp_path), None) as store,
        Replicator(store, died, nothing_kept, nothing_kept) as replicator,
        Relay(host, [replicator]) as relay,
    ):
        replicator.follow(relay.room_of)
        with relay.held("ada") as room:
            await eventually(lambda: room.is_ready, "the VM does not wake")
            async with talking(await host.reach("ada", Heard())) as talk:
                await talk.say("mission", {"text": "My name is Ada."})
                await talk.until(lambda m: m["type"] == "agent_event" and m["payload"]["event"] == "complete")
            async with asyncio.timeout(PATIENCE):
                while not (await store.position("ada")).is_whole:  # noqa: ASYNC110 - nothing tells us
                    await asyncio.sleep(0.05)
            assert {row["processed"] for row in observations(vm.workspace)} == {0}
            await vm.stop(vm.services["sprite"], STOP_SECONDS)
        assert {row["processed"] for row in observations(vm.workspace)} == {1}
        with closing(sqlite3.connect(vm.workspace / ".os/memory/transcript.db")) as log:
            curations = [row[0] for row in log.execute("SELECT id FROM curations ORDER BY id")]
        assert curations
        rows = [row.id async for row in store.rows("ada") if row.table == "log/curations.jsonl"]
        assert rows == curations


async def test_stopped_vm_restarts_reminder(model: OfflineModel, emulator: Emulator, disk: Disk) -> None:
    """An update stops and starts the service in the middle of a reminder."""
    model.script.agent({"match": "due_action", "on": "prompt", "hang": True, "times": 1})
    tokens = Tokens(model.url)
    vm = await vm_with_model(disk, emulator, tokens, model)
    async with host_of(emulator, this_archive(), tokens) as host:
        async with talking(await host.reach("ada", Heard())) as talk:
            text = "run `echo once >> ran`"
            await talk.say("memory", {"op": "add_action", "content": text, "due": time.time()})
            begun = (await talk.until(started))["payload"]
            await eventually(lambda: bool(prompts(model, "due_action")), "the model is not asked")
            await vm.stop(vm.services["sprite"], STOP_SECONDS)
        async with talking(await host.reach("ada", Heard())) as talk:
            await eventually((vm.workspace / "ran").exists, "the reminder does not begin again")
            again = workspace_db(vm.workspace, "SELECT id, attempt FROM missions")
            assert again == [{"id": begun["mission_id"], "attempt": 2}]
