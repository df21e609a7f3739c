"""Failing deploys and updates: rolled back, reported in plain words and repaired on the next attempt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.providers.bootstrap import UpdateFailedError
from bridge.providers.provider import HostError, TcpChannel
from bridge.providers.sprites import greet
from tests.emulator import Emulator, Fault
from tests.inspection import eventually
from tests.vms import (
    Disk,
    Heard,
    Tokens,
    another_version,
    checkout,
    greeting,
    host_of,
    newer_archive,
    this_archive,
    version_of,
)


async def test_broken_update_is_rolled_back_once(
    emulator: Emulator, tokens: Tokens, disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is reported, and a wake does not retry the update."""
    machine = await disk.put_into(emulator, tokens)
    version = version_of(machine)
    emulator.longest_watch = 10.0
    broken = checkout(
        tmp_path / "new",
        another_version(),
        ("sprite/server.py", lambda text: text + "\nraise SystemExit('planted: it does not start')\n"),
    )
    heard = Heard()
    async with host_of(emulator, broken, tokens) as host:
        assert (await greeting(await host.reach("ada", heard))).server_version == "0.1.0"
        assert "planted: it does not start" in heard.words
        assert "earlier version runs again" in heard.words
        assert version_of(machine) == version
        assert "earlier version" in (await host.state("ada")).detail

        swaps = emulator.counted("POST", "stop")
        await machine.sleep("warm")
        assert (await greeting(await host.reach("ada", Heard()))).server_version == "0.1.0"
        assert emulator.counted("POST", "stop") == swaps
    assert "an update failed" in caplog.text
    assert "planted" not in caplog.text
    # A working version deploys at once.
    async with host_of(emulator, this_archive(), tokens) as host:
        await greeting(await host.reach("ada", Heard()))
    assert emulator.counted("POST", "stop") == swaps


async def test_greeting_fails_when_sprite_hangs_up() -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        channel = await TcpChannel.open("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(HostError, match="first message is invalid"):
            await greet(channel, "a token")


@pytest.mark.soak
async def test_update_without_greeting_is_rolled_back(
    emulator: Emulator, tokens: Tokens, disk: Disk, tmp_path: Path
) -> None:
    await disk.put_into(emulator, tokens)
    rude = checkout(
        tmp_path / "new",
        ("sprite/gateway/connection.py", lambda text: text.replace("async def serve(self) -> None:", _RUDE)),
    )
    async with host_of(emulator, rude, tokens) as host:
        with pytest.raises(UpdateFailedError, match=r"earlier version runs again.*first message"):
            await host.deploy("ada", Heard())
        await greeting(await host.reach("ada", Heard()))


_RUDE = '''async def serve(self) -> None:
        """Hangs up."""
        self._writer.close()

    async def serve_politely(self) -> None:'''


async def test_full_vm_disk_is_reported(emulator: Emulator, tokens: Tokens, disk: Disk) -> None:
    """The file API and the commands report the error differently."""
    machine = await disk.put_into(emulator, tokens)
    machine.services["sprite"].wanted = False
    version = version_of(machine)
    machine.is_disk_full = True
    async with host_of(emulator, newer_archive(), tokens) as host:
        with pytest.raises(UpdateFailedError, match="The VM's disk is full") as caught:
            await host.deploy("ada", Heard())
        assert not caught.value.retryable
        machine.is_disk_full = False
        full = 'case "$*" in *xzf*) echo "tar: write error: No space left on device" >&2; exit 2;; esac'
        machine.put_tool("tar", f'#!/bin/sh\n{full}\nexec /usr/bin/env PATH="${{PATH#*:}}" tar "$@"\n')
        with pytest.raises(UpdateFailedError, match=r"(?s)The VM's disk is full.*tar: write error"):
            await host.deploy("ada", Heard())
    assert version_of(machine) == version
    assert emulator.counted("POST", "stop") == 0
    assert tokens.minted == 1


async def test_service_runs_although_its_start_was_refused(emulator: Emulator, tokens: Tokens, disk: Disk) -> None:
    machine = await disk.put_into(emulator, tokens)
    # The first deploy of the run resolved all dependencies.
    machine.environment["PIP_NO_DEPS"] = "1"
    (machine.workspace / ".os/VERSION").unlink()
    service = machine.services["sprite"]
    service.wanted = False

    def start() -> None:
        starting.append(asyncio.ensure_future(machine.start(service)))

    starting: list[asyncio.Future[None]] = []
    emulator.faults += [
        Fault("PUT", "/services/", then=start, status=400, body="planted"),
        Fault("PUT", "/services/", times=9, status=400, body="planted"),
    ]
    heard = Heard()
    async with host_of(emulator, this_archive(), tokens, egress="bridge") as host:
        await greeting(await host.reach("ada", heard))
    await asyncio.gather(*starting)
    # The egress policy is closed; it was open to the package index during the installation.
    assert emulator.counted("POST", "/policy/") == 2
    assert machine.policy == [{"domain": "127.0.0.1", "action": "allow"}, {"domain": "*", "action": "deny"}]
    assert "SPRITE_EGRESS=bridge\n" in (machine.workspace / ".os/run/model.env").read_text()


@pytest.mark.soak
async def test_missing_package_shows_pip_error(emulator: Emulator, tokens: Tokens, disk: Disk, tmp_path: Path) -> None:
    """The previous version keeps running."""
    machine = await disk.put_into(emulator, tokens)
    machine.environment["PIP_NO_INDEX"] = "1"
    version = version_of(machine)
    new = checkout(tmp_path / "new", ("sprite/requirements.txt", lambda text: text + "no-such-package-of-ours==9.9\n"))
    async with host_of(emulator, new, tokens) as host:
        with pytest.raises(UpdateFailedError, match=r"(?s)No matching distribution.*no-such-package-of-ours"):
            await host.deploy("ada", Heard())
        await greeting(await host.reach("ada", Heard()))
    assert version_of(machine) == version
    assert emulator.counted("POST", "stop") == 0
    assert tokens.minted == 1


async def test_sprite_runs_as_process_without_services(emulator: Emulator, tokens: Tokens, disk: Disk) -> None:
    """An update replaces the process, and a wake revives it."""
    machine = await disk.put_into(emulator, tokens)
    machine.services.clear()
    machine.has_services = False
    (machine.workspace / ".os/VERSION").unlink()
    async with host_of(emulator, this_archive(), tokens) as host:
        await greeting(await host.reach("ada", Heard()))
    fallback = [call for call in emulator.calls if "max_run_after_disconnect=0" in call.query]
    assert len(fallback) == 1
    process = int((machine.workspace / ".os/run/lock").read_text())
    (machine.workspace / ".os/VERSION").unlink()
    async with host_of(emulator, this_archive(), tokens) as host:
        await machine.sleep("warm")
        await greeting(await host.reach("ada", Heard()))
        await eventually(lambda: process not in machine.processes(), "the earlier process is still running")
    assert int((machine.workspace / ".os/run/lock").read_text()) != process
