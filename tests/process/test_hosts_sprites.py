"""Sprites VMs as a host: reaching, waking, cut connections, states and untrusted answers."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from bridge.providers.bootstrap import Archive, contents_of
from bridge.providers.provider import HostError, HostState, NoSuchFileError
from sprite.protocol.frames import encode
from sprite.protocol.messages import Auth
from tests.emulator import Emulator, Fault
from tests.emulator.api import TOKEN
from tests.harness import PATIENCE, ROOT
from tests.vms import Disk, Heard, Tokens, checkout, greeting, host_of, this_archive, version_of


async def test_sleeping_vm_wakes_on_reach(emulator: Emulator, tokens: Tokens, disk: Disk) -> None:
    """A warm VM keeps its process; a cold one restarts its service; a cut connection raises."""
    machine = await disk.put_into(emulator, tokens)
    async with host_of(emulator, this_archive(), tokens) as host:
        assert await host.state("ada") == HostState("cold")
        heard = Heard()
        first = await greeting(await host.reach("ada", heard))
        assert heard.phases == ["waking"]
        # A running, cached VM is reached with two API calls.
        emulator.calls.clear()
        heard = Heard()
        channel = (await host.reach("ada", heard)).channel
        assert len(emulator.calls) == 2
        assert heard.steps == []
        # A cut connection raises at the next read, and closing twice is allowed.
        reading = asyncio.create_task(channel.read())
        await machine.sleep("warm")
        with pytest.raises(OSError, match="cut"):
            async with asyncio.timeout(PATIENCE):
                await reading
        channel.write(b"into the void")
        await channel.close()
        await channel.close()
        assert (await host.state("ada")).state == "warm"
        process = machine.services["sprite"].process
        assert await greeting(await host.reach("ada", Heard())) == first
        assert machine.services["sprite"].process is process
        # `reach` starts a stopped service.
        await machine.sleep("cold")
        machine.services["sprite"].wanted = False
        channel = (await host.reach("ada", Heard())).channel
        assert machine.services["sprite"].runs
        # The channel ends when the sprite closes its connection.
        channel.write(encode(Auth("wrong", client="test")))
        said = b""
        async with asyncio.timeout(PATIENCE):
            while data := await channel.read():
                said += data
        assert b"unauthorized" in said
        await channel.close()
        again = await greeting(await host.reach("ada", Heard()))
        assert again.epoch == first.epoch
        assert await host.state("ada") == HostState("running", version_of(machine))
        assert machine.wakes == 3


async def test_new_epoch_invalidates_cached_vm(emulator: Emulator, tokens: Tokens, disk: Disk, tmp_path: Path) -> None:
    """A replaced VM has a new token, so the host must read it again."""
    await disk.put_into(emulator, tokens)
    epoch = 1
    async with host_of(emulator, this_archive(), tokens, epoch=lambda _: epoch) as host:
        before = await host.reach("ada", Heard())
        assert (await greeting(before)).protocol == 1
        # Another bridge replaces the VM, as a restore does, so the old token becomes invalid.
        await emulator.lose("ada", tmp_path / "lost")
        machine = await disk.put_into(emulator, tokens)
        (machine.workspace / ".os/run/token").write_text("the-new-token")
        await machine.wake()
        epoch = 3
        after = await host.reach("ada", Heard())
        assert (await greeting(after)).protocol == 1
        assert after.token == "the-new-token" != before.token


async def test_channel_carries_large_stream_in_order(emulator: Emulator) -> None:
    machine = await emulator.add("ada")
    echo = (
        "import asyncio\nasync def echo(r, w):\n    while d := await r.read(65536):\n        w.write(d)\n"
        "        await w.drain()\nasync def main():\n"
        "    await (await asyncio.start_server(echo, '0.0.0.0', 8765)).serve_forever()\nasyncio.run(main())"
    )
    from sprites import AsyncSpritesClient

    from bridge.providers.machine import Machine as Vm

    async with AsyncSpritesClient(TOKEN, base_url=emulator.url) as client:
        vm = Vm(client, "ada", lambda: None)
        await vm.serve("echo", ["python3", "-c", echo], "/tmp")  # noqa: S108 - a path inside the VM
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    channel = await vm.connect(8765)
                    break
                except HostError:
                    await asyncio.sleep(0.05)
        sent = b"".join(b"%07d\n" % number for number in range(200_000))
        received = bytearray()

        async def receive() -> None:
            while len(received) < len(sent):
                received.extend(await channel.read())

        receiving = asyncio.create_task(receive())
        for start in range(0, len(sent), 10_000):
            channel.write(sent[start : start + 10_000])
            await channel.drain()
        async with asyncio.timeout(PATIENCE):
            await receiving
        assert received == sent
        await channel.close()
    assert machine.processes()


async def test_state_of_unknown_vm_creates_nothing(emulator: Emulator, tokens: Tokens) -> None:
    """A rejected API token yields the state `unknown` with the setting's name."""
    async with host_of(emulator, this_archive(), tokens) as host:
        assert await host.state("ada") == HostState("absent")
        emulator.faults.append(Fault("GET", "/ada$", times=99, status=401))
        state = await host.state("ada")
        assert (state.state, state.version) == ("unknown", None)
        assert "SPRITES_TOKEN" in state.detail
    assert emulator.machines == {}


@pytest.mark.parametrize("name", ["", "../ada", "Ada", "ada?x", "ada/exec", "a" * 40])
async def test_unsafe_sprite_name_makes_no_api_call(emulator: Emulator, tokens: Tokens, name: str) -> None:
    async with host_of(emulator, this_archive(), tokens) as host:
        with pytest.raises(HostError, match="not a valid name"):
            await host.reach(name, Heard())
    assert emulator.calls == []


async def test_fetch_is_limited_to_documents_and_artifacts(emulator: Emulator, tokens: Tokens) -> None:
    machine = await emulator.add("ada")
    folder = machine.workspace / "documents"
    folder.mkdir(parents=True)
    content = bytes(range(256)) * 4000
    (folder / "a b.bin").write_bytes(content)
    (folder / "empty").touch()
    async with host_of(emulator, this_archive(), tokens) as host:
        assert b"".join([chunk async for chunk in await host.fetch("ada", "documents/a b.bin")]) == content
        assert [chunk async for chunk in await host.fetch("ada", "documents/empty")] == []
        with pytest.raises(NoSuchFileError):
            await host.fetch("ada", "documents/none")
        calls = len(emulator.calls)
        for path in (".os/run/token", "documents/../.os/run/token", "/etc/passwd", "documents"):
            with pytest.raises(NoSuchFileError):
                await host.fetch("ada", path)
        assert len(emulator.calls) == calls


async def test_unreachable_api_raises_retryable_error(
    tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error does not contain the API token."""
    monkeypatch.setattr("bridge.providers.machine._FIRST_PAUSE_SECONDS", 0.02)
    async with Emulator(tmp_path / "gone") as emulator:
        pass
    async with host_of(emulator, this_archive(), tokens) as host:
        with pytest.raises(HostError, match="cannot be reached") as caught:
            await host.reach("ada", Heard())
    assert caught.value.retryable
    assert TOKEN not in str(caught.value)


async def test_slow_api_call_times_out(emulator: Emulator, tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.providers.machine.CALL_SECONDS", 2.0)
    emulator.faults.append(Fault("POST", "/v1/sprites/ada/policy/", delay=PATIENCE))
    async with host_of(emulator, this_archive(), tokens) as host:
        with pytest.raises(HostError, match=r"Setting the network policy took longer than") as caught:
            await host.deploy("ada", Heard())
    assert caught.value.retryable


def test_code_archive_is_reproducible(tmp_path: Path) -> None:
    """Changed code changes the digest, and changed requirements change the environment."""
    again = checkout(tmp_path / "again")
    assert again.data == this_archive().data
    assert again == this_archive()
    small = tmp_path / "small"
    (small / "sprite").mkdir(parents=True)
    for name in ("sprite/__init__.py", "sprite/requirements.txt", "sprite/constraints.txt"):
        (small / name).write_text("# made for this test\n")
    before = Archive.of(small)
    (small / "sprite/__init__.py").write_text("# changed\n")
    changed = Archive.of(small)
    assert changed.digest != before.digest
    assert changed.environment == before.environment
    (small / "sprite/requirements.txt").write_text("# changed\n")
    assert Archive.of(small).environment != before.environment


def test_code_archive_holds_only_sprite_code() -> None:
    names = set(this_archive().hashes)
    assert {
        "sprite/__main__.py",
        "sprite/memory/templates/soul.md",
        "sprite/common/prices.json",
        "requirements.txt",
    } <= names
    rules = {f"sprite/privacy/rules/{path.name}" for path in (ROOT / "sprite" / "privacy" / "rules").iterdir()}
    assert rules
    assert rules <= names
    assert not any(name.startswith(("bridge", "tests")) or "__pycache__" in name for name in names)
    assert str(ROOT).encode() not in this_archive().data
    assert len(this_archive().data) < 1_000_000


NO_FILES = {
    "nothing": b"",
    "words": b"not a tar",
    "bytes": bytes(range(256)) * 40,
    "no tar inside": gzip.compress(b"no tar"),
    "a bomb": gzip.compress(bytes(100 * 2**20), 1),
}


@pytest.mark.parametrize("sent", NO_FILES.values(), ids=NO_FILES)
def test_invalid_vm_archive_raises_error(sent: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        contents_of(sent)
