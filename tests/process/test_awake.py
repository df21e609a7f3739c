"""The sprite keeps its VM awake while there is work, and releases it afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sprite.scheduler import keep_awake
from tests.emulator import Emulator
from tests.harness import running_sprite
from tests.inspection import eventually
from tests.memory_stores import open_stores
from tests.scripted_model import OfflineModel

LOOK_SECONDS = 0.4


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of two seconds would take longer."""
    monkeypatch.setattr(keep_awake, "LOOK_SECONDS", LOOK_SECONDS)


async def test_vm_is_kept_awake_for_work(model: OfflineModel, workspace: Path, emulator: Emulator) -> None:
    """Missions and flushes count as work."""
    vm = await emulator.add("ada")
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    # No turn waits for a rest, which would keep the VM awake.
    more = {"TESTS_VM_SOCKET": str(vm.socket), "SPRITE_BATCH_TURNS": "1"}
    async with running_sprite(workspace, model.url, **more) as sprite:
        async with sprite.client() as client:
            assert vm.task_calls == []
            mission = client.send("mission", {"text": "think for ever"})
            await eventually(lambda: "sprite" in vm.tasks, "the VM is not kept awake")
            assert not await vm.doze()
            await client.ask("interrupt")
            await client.end_of(mission)
            await eventually(lambda: not vm.tasks, "the VM is still kept awake")
            # On a slow machine the hold is renewed meanwhile.
            assert list(dict.fromkeys(method for method, _ in vm.task_calls)) == ["PUT", "DELETE"]

            # A failed request to start or end the hold is retried at the next look.
            vm.refusals = ["PUT", "DELETE", "DELETE"]
            mission = client.send("mission", {"text": "think for ever"})
            await eventually(lambda: bool(vm.tasks), "the VM is not kept awake")
            await client.ask("interrupt")
            await client.end_of(mission)
            await eventually(lambda: not vm.tasks, "the VM is still kept awake")
            assert vm.refusals == []

            # The delay is far longer than the interval between looks at the hold.
            model.script.curator({"match": "My name is Ada", "delay": 4 * LOOK_SECONDS})
            await client.mission("My name is Ada.")
            flush = asyncio.create_task(client.ask("system", {"action": "flush"}))
            await asyncio.sleep(2 * LOOK_SECONDS)
            assert not flush.done()
            assert vm.tasks
            await flush
            await eventually(lambda: not vm.tasks, "the VM is still kept awake")
            client.send("mission", {"text": "think for ever"})
            await eventually(lambda: model.requests[-1].user_text == "think for ever", "the model was not asked")
            await eventually(lambda: bool(vm.tasks), "the VM is not kept awake")
        await sprite.stop()
        assert not vm.tasks


async def test_work_continues_when_vm_api_fails(model: OfflineModel, workspace: Path, tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        writer.close()

    (workspace / ".os/memory").mkdir(parents=True)
    async with open_stores(workspace / ".os/memory") as stores:
        await stores.turn("My name is Ada.")
    # pytest's folder can be too long for a socket path.
    path = Path("/tmp") / f"{tmp_path.name[-20:]}.sock"  # noqa: S108 - gone at the end
    server = await asyncio.start_unix_server(hang_up, path)
    try:
        async with (
            running_sprite(workspace, model.url, TESTS_VM_SOCKET=str(path)) as sprite,
            sprite.client() as client,
        ):
            model.script.curator({"delay": 2 * LOOK_SECONDS})
            status = (await client.ask("system", {"action": "flush"}))["payload"]
            assert (status["last_error"], status["memory"]["waiting"]) == (None, 0)
            assert asked.is_set()
            await sprite.stop()
    finally:
        server.close()
        path.unlink(missing_ok=True)
