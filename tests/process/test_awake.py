"""The VM is held awake while there is work, and let go when there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.offline.model import OfflineModel
from sprite.awake import LOOK_SECONDS
from tests.emulator import Emulator, Machine
from tests.harness import running_sprite
from tests.inspection import eventually


@pytest.fixture
async def vm(tmp_path: Path) -> AsyncIterator[Machine]:
    async with Emulator(tmp_path / "vms") as emulator:
        yield await emulator.add("ada")


async def test_a_mission_holds_the_vm_until_it_ends(model: OfflineModel, workspace: Path, vm: Machine) -> None:
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    async with (
        running_sprite(workspace, model.url, SPRITE_VM_SOCKET=str(vm.socket)) as sprite,
        sprite.client() as client,
    ):
        assert vm.task_calls == []
        mission = client.send("mission", {"text": "think for ever"})
        await client.event("started")
        await eventually(lambda: "sprite" in vm.tasks, "the VM is held")
        assert not await vm.doze()
        await client.ask("interrupt")
        await client.end_of(mission)
        await eventually(lambda: not vm.tasks, "the VM is let go")
        # On a slow machine the hold was renewed meanwhile.
        assert list(dict.fromkeys(method for method, _ in vm.task_calls)) == ["PUT", "DELETE"]


async def test_a_flush_holds_the_vm_and_so_does_the_last_one_before_the_end(
    model: OfflineModel, workspace: Path, vm: Machine
) -> None:
    async with running_sprite(workspace, model.url, SPRITE_VM_SOCKET=str(vm.socket)) as sprite:
        async with sprite.client() as client:
            await client.mission("My name is Ada.")
            await eventually(lambda: not vm.tasks, "the VM is let go")
            before = len(vm.task_calls)
            # Far longer than the hold's looks are apart.
            model.script.curator({"delay": 4 * LOOK_SECONDS})
            flush = asyncio.create_task(client.ask("system", {"action": "flush"}))
            await eventually(lambda: "PUT" in dict(vm.task_calls[before:]), "the VM is held")
            assert not flush.done()
            await flush
            await client.mission("I prefer tea.")
        await sprite.stop()
        assert not vm.tasks
        assert len(vm.task_calls) > before


async def test_a_hold_that_could_not_be_ended_is_ended_at_the_next_look(
    model: OfflineModel, workspace: Path, vm: Machine
) -> None:
    vm.refusals = ["PUT", "DELETE", "DELETE"]
    async with (
        running_sprite(workspace, model.url, SPRITE_VM_SOCKET=str(vm.socket)) as sprite,
        sprite.client() as client,
    ):
        model.script.agent({"match": "think for ever", "hang": True, "times": -1})
        mission = client.send("mission", {"text": "think for ever"})
        await eventually(lambda: bool(vm.tasks), "the VM is held")
        await client.ask("interrupt")
        await client.end_of(mission)
        await eventually(lambda: not vm.tasks, "the VM is let go")
    assert vm.refusals == []


async def test_a_vm_whose_api_refuses_or_hangs_up_does_not_stop_the_work(
    model: OfflineModel, workspace: Path, tmp_path: Path
) -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    # Its path is short enough for a socket below pytest's folder only sometimes.
    path = Path("/tmp") / f"{tmp_path.name[-20:]}.sock"  # noqa: S108 - gone at the end
    server = await asyncio.start_unix_server(hang_up, path)
    try:
        async with (
            running_sprite(workspace, model.url, SPRITE_VM_SOCKET=str(path)) as sprite,
            sprite.client() as client,
        ):
            assert (await client.mission("Hello"))["event"] == "complete"
            assert await sprite.stop() == 0
    finally:
        server.close()
        path.unlink(missing_ok=True)
