"""A bridge that stops in the middle of a deploy, at any step: the next deploy repairs the VM."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from bridge.providers import vm_scripts
from bridge.providers.provider import HostError
from tests.bridge_harness import bridge_environment, run_bridge
from tests.emulator import Emulator, Fault, Machine
from tests.emulator.api import TOKEN
from tests.forking import fork_module
from tests.harness import PATIENCE
from tests.inspection import eventually
from tests.vms import Disk, Heard, Tokens, greeting, host_of, newer_archive, this_archive, version_of


@pytest.mark.soak
@pytest.mark.parametrize("step", range(2, 14))
async def test_next_bridge_finishes_interrupted_update(
    emulator: Emulator, tokens: Tokens, disk: Disk, step: int
) -> None:
    """The emulator answers `step` calls; the next call gets no answer."""
    machine = await disk.put_into(emulator, tokens)
    await machine.wake()
    async with host_of(emulator, newer_archive(), tokens) as host:
        deploy = asyncio.create_task(host.deploy("ada", Heard()))
        # After that number of calls, no bridge receives the answers.
        emulator.faults += [Fault("", "", times=step), Fault("", "", then=deploy.cancel)]
        with contextlib.suppress(asyncio.CancelledError):
            await deploy
        assert deploy.cancelled()
    emulator.faults.clear()
    async with host_of(emulator, newer_archive(), tokens) as host:
        assert (await greeting(await host.reach("ada", Heard()))).server_version == "0.2.0"
        assert version_of(machine).startswith("0.2.0+")
        emulator.calls.clear()
        await host.deploy("ada", Heard())
        assert len(emulator.calls) == 3
    assert len(releases(machine)) <= 3


def releases(machine: Machine) -> list[Path]:
    return list((machine.workspace / ".os/releases").iterdir())


async def run(machine: Machine, script: str) -> int:
    """Run a script as a deploy does; return its exit status."""
    process = await machine.spawn(["/bin/sh", "-c", script], {}, None)
    async with asyncio.timeout(PATIENCE):
        return await process.wait()


async def test_stale_script_changes_nothing_after_next_deploy(emulator: Emulator, tokens: Tokens, disk: Disk) -> None:
    machine = await disk.put_into(emulator, tokens)
    await machine.wake()
    system = machine.workspace / ".os"
    environment = (system / ".venv").readlink().name
    for release in ("earlier", "newer"):
        shutil.copytree(system / "src", system / "releases" / release)
        (system / f"next-{release}.tar.gz").write_bytes(b"")
    # The newer deploy has unpacked its code and removed the earlier one's.
    shutil.rmtree(system / "releases/earlier")
    os.utime(system / "next-earlier.tar.gz", (0, 0))
    before = {path: path.lstat().st_mtime_ns for path in (system / "releases").iterdir()}
    for script in (vm_scripts.OWN + vm_scripts.UNPACK, vm_scripts.DOCTOR, vm_scripts.OWN + vm_scripts.SWAP):
        is_swap = "src.new" in script
        text = script.format(
            release="releases/earlier" if is_swap else "earlier",
            environment=f"venvs/{environment}" if is_swap else environment,
        )
        assert await run(machine, text) != 0
        assert {path: path.lstat().st_mtime_ns for path in (system / "releases").iterdir()} == before
        assert (system / "VERSION").exists()
    service = machine.services["sprite"]
    assert (service.runs, service.restarts) == (True, 0)
    # A running self-check still writes .pyc files; unpacking a release must work all the same.
    words = 'n=0; while :; do n=$(((n + 1) % 50)); [ -d "$0" ] || mkdir -p "$0"; true > "$0/$n.pyc"; done 2>/dev/null'
    left = system / "releases/left/sprite"
    writing = await machine.spawn(["/bin/sh", "-c", words, "/workspace/.os/releases/left/sprite"], {}, None)
    await eventually((left / "49.pyc").exists, "the script does not write")
    (system / "next-newer.tar.gz").write_bytes(this_archive().data)
    unpack = vm_scripts.OWN + vm_scripts.UNPACK.format(release="newer", environment=environment)
    assert await run(machine, unpack) == 0
    writing.kill()
    assert (system / "releases/newer/sprite/server.py").exists()


@pytest.mark.parametrize("step", [pytest.param(4, marks=pytest.mark.soak), 10])
async def test_deploy_stops_after_lost_lease(emulator: Emulator, tokens: Tokens, disk: Disk, step: int) -> None:
    machine = await disk.put_into(emulator, tokens)
    await machine.wake()
    epochs = {"ada": 1}
    async with host_of(emulator, newer_archive(), tokens, epoch=epochs.get) as host:
        # Another bridge takes the sprite during that call, which is still answered.
        emulator.faults += [Fault("", "", times=step), Fault("", "", then=epochs.clear)]
        with pytest.raises(HostError, match="Another bridge may have this sprite now"):
            await host.reach("ada", Heard())
        assert len(emulator.calls) == step + 1
        emulator.faults.clear()
        epochs["ada"] = 3
        # The lost lease does not count as a failed update: the update is tried again.
        emulator.faults.append(Fault("POST", "/policy/", status=400, body="planted"))
        heard = Heard()
        try:
            await host.reach("ada", heard)
        except HostError as error:
            told = str(error)
        else:
            # Before the swap the earlier version keeps running, and people see the reason.
            told = heard.words
        assert "planted" in told


async def test_next_deploy_finishes_after_kill(emulator: Emulator, tokens: Tokens, disk: Disk, tmp_path: Path) -> None:
    machine = await disk.put_into(emulator, tokens)
    machine.services["sprite"].wanted = False
    arguments = ("deploy", "ada", "--provider", "sprites", "--data", str(tmp_path / "data"))
    environment = bridge_environment(
        SPRITES_TOKEN=TOKEN, TESTS_SPRITES_URL=emulator.url, BRIDGE_PUBLIC_URL="http://127.0.0.1:9"
    )
    process = await fork_module("bridge", *arguments, env=environment)
    emulator.faults += [Fault("", "", times=10), Fault("", "", then=process.kill)]
    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == -signal.SIGKILL
    emulator.faults.clear()
    # The new code is swapped in but not started.
    assert not (machine.workspace / ".os/VERSION").exists()
    assert len(releases(machine)) == 2
    code, out, err = await run_bridge(*arguments, environment=environment)
    assert code == 0, out + err
    assert "Setting the network policy" in out
    assert version_of(machine).startswith("0.1.0+")
    assert len(releases(machine)) <= 3
