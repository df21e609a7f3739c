"""A bridge that ends in the middle of a deploy, at whichever step: the next one repairs what it left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from bridge.hosts import vm_scripts
from bridge.hosts.archive import Archive
from bridge.hosts.host import HostError
from tests.bridge_harness import bridge_environment, run_bridge
from tests.emulator import Emulator, Fault
from tests.emulator.api import TOKEN
from tests.forking import fork_module
from tests.harness import PATIENCE, ROOT
from tests.vms import Disk, Heard, Tokens, another_version, checkout, greeting, host_of, version_of

#: The calls of an update are 1 to 15: the VM, a look at it, policy, archive, unpacking, packages, self-check,
#: checkpoint, access to the model, stop, swap, service, its start, probe, VERSION. So many are answered, and the next
#: one never; SOAK_KILLS tries each.
STEPS = range(2, 15) if os.environ.get("SOAK_KILLS") else (6, 12)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return checkout(tmp_path_factory.mktemp("checkout") / "new", another_version())


@pytest.mark.parametrize("step", STEPS)
async def test_an_update_cut_off_at_any_step_is_finished_by_the_next_bridge(
    emulator: Emulator, tokens: Tokens, disk: Disk, new: Archive, step: int
) -> None:
    machine = await disk.put_into(emulator, tokens)
    await machine.wake()
    async with host_of(emulator, new, tokens) as host:
        deploy = asyncio.create_task(host.deploy("ada", Heard()))
        # From the call of that number on nobody is there any more to hear its answer.
        emulator.faults += [Fault("", "", times=step), Fault("", "", then=deploy.cancel)]
        with contextlib.suppress(asyncio.CancelledError):
            await deploy
        assert deploy.cancelled()
    emulator.faults.clear()
    async with host_of(emulator, new, tokens) as host:
        assert (await greeting(await host.reach("ada", Heard()))).server_version == "0.2.0"
        assert version_of(machine).startswith("0.2.0+")
        emulator.calls.clear()
        await host.deploy("ada", Heard())
        assert len(emulator.calls) == 3
    assert len(list((machine.workspace / ".os/releases").iterdir())) <= 3


async def test_a_self_check_that_was_left_behind_and_still_writes_keeps_no_update_from_its_end(
    emulator: Emulator, tokens: Tokens, disk: Disk, new: Archive
) -> None:
    machine = await disk.put_into(emulator, tokens)
    await machine.wake()
    # As Python writes what it has compiled, all the time.
    words = 'n=0; while :; do n=$(((n + 1) % 50)); [ -d "$0" ] || mkdir -p "$0"; : > "$0/$n.pyc"; done 2>/dev/null'
    await machine.spawn(["/bin/sh", "-c", words, "/workspace/.os/releases/left/sprite"], {}, "/workspace")
    async with host_of(emulator, new, tokens) as host:
        heard = Heard()
        assert (await greeting(await host.reach("ada", heard))).server_version == "0.2.0", heard.words


async def test_script_left_behind_changes_nothing_after_next_deploy(
    emulator: Emulator, tokens: Tokens, disk: Disk
) -> None:
    machine = await disk.put_into(emulator, tokens)
    await machine.wake()
    system = machine.workspace / ".os"
    environment = (system / ".venv").readlink().name
    for release in ("earlier", "newer"):
        shutil.copytree(system / "src", system / "releases" / release)
        (system / f"next-{release}.tar.gz").write_bytes(b"")
    # The newer deploy has unpacked its code, and removed what the earlier one had.
    shutil.rmtree(system / "releases/earlier")
    os.utime(system / "next-earlier.tar.gz", (0, 0))
    before = {path: path.lstat().st_mtime_ns for path in (system / "releases").iterdir()}
    for script in (vm_scripts.OWN + vm_scripts.UNPACK, vm_scripts.DOCTOR, vm_scripts.OWN + vm_scripts.SWAP):
        is_swap = "src.new" in script
        text = script.format(
            release="releases/earlier" if is_swap else "earlier",
            environment=f"venvs/{environment}" if is_swap else environment,
        )
        process = await machine.spawn(["/bin/sh", "-c", text], {}, None)
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() != 0
        assert {path: path.lstat().st_mtime_ns for path in (system / "releases").iterdir()} == before
        assert (system / "VERSION").exists()
    service = machine.services["sprite"]
    assert (service.runs, service.restarts) == (True, 0)


@pytest.mark.parametrize("step", [4, 10])
async def test_a_bridge_that_lost_the_sprite_in_the_middle_does_nothing_more_to_its_vm(
    emulator: Emulator, tokens: Tokens, disk: Disk, new: Archive, step: int
) -> None:
    machine = await disk.put_into(emulator, tokens)
    await machine.wake()
    epochs = {"ada": 1}
    async with host_of(emulator, new, tokens, epoch=epochs.get) as host:
        # Another one has it from the call of that number on, which is answered.
        emulator.faults += [Fault("", "", times=step), Fault("", "", then=epochs.clear)]
        with pytest.raises(HostError, match="Another bridge has this sprite now"):
            await host.reach("ada", Heard())
        assert len(emulator.calls) == step + 1
        emulator.faults.clear()
        epochs["ada"], minted = 3, tokens.minted
        assert (await greeting(await host.reach("ada", Heard()))).server_version == "0.2.0"
        assert tokens.minted == minted + 1


async def test_a_call_that_is_cut_off_once_is_made_again(
    emulator: Emulator, tokens: Tokens, disk: Disk, new: Archive
) -> None:
    machine = await disk.put_into(emulator, tokens)
    await machine.wake()
    emulator.faults += [
        Fault("", path, cut=True) for path in ("/policy/", "/fs/write", "/exec", "/services/", "/proxy")
    ]
    async with host_of(emulator, new, tokens) as host:
        await host.deploy("ada", Heard())
        assert not any(fault.times for fault in emulator.faults)
        assert (await greeting(await host.reach("ada", Heard()))).server_version == "0.2.0"


async def test_a_first_deploy_that_failed_is_taken_up_with_the_vm_that_is_there(
    emulator: Emulator, tokens: Tokens, disk: Disk
) -> None:
    emulator.image = disk.packages
    emulator.faults.append(Fault("POST", "/policy/", status=400, body="planted"))
    async with host_of(emulator, Archive.of(ROOT), tokens) as host:
        with pytest.raises(HostError, match="planted"):
            await host.deploy("ada", Heard())
        await greeting(await host.reach("ada", Heard()))
    assert emulator.counted("POST", "/v1/sprites$") == 1


async def test_a_bridge_that_is_killed_in_the_middle_is_followed_by_one_that_finishes(
    emulator: Emulator, tokens: Tokens, disk: Disk, tmp_path: Path
) -> None:
    machine = await disk.put_into(emulator, tokens)
    arguments = ("deploy", "ada", "--provider", "sprites", "--data", str(tmp_path / "data"))
    environment = bridge_environment(
        SPRITES_TOKEN=TOKEN, SPRITES_URL=emulator.url, BRIDGE_PUBLIC_URL="http://127.0.0.1:9"
    )
    process = await fork_module("bridge", *arguments, env=environment)
    emulator.faults += [Fault("", "", times=8), Fault("", "", then=process.kill)]
    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == -signal.SIGKILL
    emulator.faults.clear()
    assert not (machine.workspace / ".os/VERSION").exists()
    code, out, err = await run_bridge(*arguments, environment=environment)
    assert code == 0, out + err
    assert "Setting the network policy" in out
    assert version_of(machine).startswith("0.1.0+")
