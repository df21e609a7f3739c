"""Restore of a lost agent: complete, resumable after a kill at any step, and never over newer data without consent."""

from __future__ import annotations

import asyncio
import io
import shutil
import signal
import sqlite3
import sys
import time
import zipfile
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from bridge.admin.operator_actions import Audit
from bridge.cluster.ownership import Ownership
from bridge.config import Settings
from bridge.db.open import open_database
from bridge.providers.provider import HostError, MachineGoneError
from bridge.providers.sprites import SpritesHost
from bridge.replicas.restore import Asked, LostSprites, Restorer, RestoreRefusedError, Source, exported
from bridge.replicas.sealed_store import SealedStore, open_store
from sprite.cli.archives import export
from sprite.protocol.archive import MANIFEST
from sprite.protocol.replication import Shipped, ShippedRow
from tests.bridge_harness import bridge_environment, run_bridge, running_bridge
from tests.command_line import command, settings_of
from tests.emulator import Emulator, Fault
from tests.emulator.api import TOKEN
from tests.forking import ForkedProcess, fork_module, forking_python
from tests.harness import PATIENCE
from tests.inspection import eventually
from tests.shipments import append
from tests.shipping_by_hand import named, ship
from tests.vms import Disk, Heard, Tokens, greeting, host_of, this_archive


@pytest.fixture(autouse=True)
def sprites_programs_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", forking_python())


async def kept(data: Path, name: str, workspace: Path) -> None:
    """Replicate a workspace into a data folder on which no bridge runs."""
    async with open_store(Settings(data), None) as store:
        await ship(store, name, workspace)


async def archive_of(workspace: Path, target: Path) -> bytes:
    """Return the archive that `export --force` writes, made in this process."""
    given = Namespace(file=str(target), without_files=False, force=True, json=False)
    assert await export(settings_of(workspace), given) == 0
    return target.read_bytes()


# Local workspaces


async def test_deleted_workspace_is_offered_and_restored(curated: Path, tmp_path: Path) -> None:
    data, own = tmp_path / "data", tmp_path / "own.zip"
    workspace = shutil.copytree(curated, data / "workspaces/local")
    (workspace / "documents").mkdir(exist_ok=True)
    (workspace / "documents/notes.txt").write_text("kept")
    before = await archive_of(workspace, own)
    token = (workspace / ".os/run/token").read_text() if (workspace / ".os/run/token").exists() else ""
    await kept(data, "local", workspace)
    shutil.rmtree(workspace)
    async with running_bridge(data) as bridge:
        cookie = await bridge.login()
        async with bridge.page(cookie, resume={}) as page:
            told = (await page.link("unavailable"))["payload"]
            assert "The machine of this agent is gone. Its replica is as of " in told["detail"]
            assert told["offer"] == "restore"
            assert abs(told["as_of"] - time.time()) < 3600
            assert not workspace.exists()
            async with bridge.http() as session:
                for headers, status in (
                    ({}, 403),
                    ({"Cookie": cookie}, 403),
                    ({"Cookie": cookie, "Origin": "https://elsewhere.example"}, 403),
                    ({"Authorization": "Bearer wrong"}, 401),
                ):
                    async with session.post("/restore", headers=headers) as refused:
                        assert refused.status == status
                assert not workspace.exists()
                async with session.post("/restore", headers={"Cookie": cookie, "Origin": bridge.url}) as done:
                    assert done.status == 200, await done.text()
                    assert "local's agent is restored, with 9 turns and 1 file." in (await done.json())["message"]
            await page.link("ready")
            found = await page.ask("memory", {"op": "search", "query": "sister"})
            assert "sister" in str(found["payload"])
            assert (workspace / "documents/notes.txt").read_text() == "kept"
            assert (workspace / ".os/run/token").read_text() != token
            async with (
                bridge.http() as session,
                session.post("/restore", headers={"Cookie": cookie, "Origin": bridge.url}) as again,
            ):
                assert again.status == 409
                assert "The replica has 9 turns" in (await again.text())
            # The audit log omits the rejected restore, which did nothing.
            _, log, _ = await bridge.run("audit")
            assert [line.split()[2:] for line in log.splitlines() if "restore" in line] == [
                ["local", "restore", "local"],
            ]
    assert await archive_of(workspace, own) == before


async def test_existing_workspace_is_replaced_only_with_over(curated: Path, tmp_path: Path) -> None:
    """The earlier workspace is moved aside."""
    data = tmp_path / "data"
    workspace = shutil.copytree(curated, data / "workspaces/ada")
    before = await archive_of(workspace, tmp_path / "before.zip")
    await kept(data, "ada", workspace)
    (workspace / "documents").mkdir(exist_ok=True)
    (workspace / "documents/newer.txt").write_text("newer")
    now = await archive_of(workspace, tmp_path / "now.zip")
    # The restore is rejected before the replica is read.
    shutil.copy(data / "store/ada/log.db", tmp_path / "log.db")
    with sqlite3.connect(data / "store/ada/log.db") as file:
        file.execute("UPDATE stored_rows SET sealed = zeroblob(length(sealed))")
    status, out, _ = await run_bridge("restore", "ada", "--data", str(data))
    assert status == 1
    assert "The replica has 9 turns" in " ".join(out.split())
    assert "--over" in out
    shutil.copy(tmp_path / "log.db", data / "store/ada/log.db")
    assert await archive_of(workspace, tmp_path / "now.zip") == now
    status, out, _ = await run_bridge("restore", "ada", "--over", "--data", str(data))
    assert status == 0, out
    assert await archive_of(workspace, tmp_path / "again.zip") == before
    (aside,) = (path for path in workspace.parent.iterdir() if path.name.startswith("ada.before-"))
    assert aside.name in "".join(out.split())
    _, log, _ = await run_bridge("audit", "--data", str(data))
    assert [line.split()[2:] for line in log.splitlines() if "restore" in line] == [
        ["cli", "restore", "ada", "(over", "yes)"],
    ]
    assert await archive_of(aside, tmp_path / "aside.zip") == now


@asynccontextmanager
async def restoring(*arguments: str, environment: dict[str, str]) -> AsyncIterator[ForkedProcess]:
    """Run `python -m bridge restore ...`, and kill it at the end of the block."""
    process = await fork_module("bridge", "restore", *arguments, env=environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_killed_local_restore_can_be_repeated(curated: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    lost = shutil.copytree(curated, tmp_path / "lost")
    await kept(data, "ada", lost)
    before = await archive_of(lost, tmp_path / "before.zip")
    workspace, is_cut_off = data / "workspaces/ada", False
    while not is_cut_off:
        # The restore may finish before it is seen at work; then it is repeated.
        shutil.rmtree(workspace, ignore_errors=True)
        async with restoring("ada", "--data", str(data), environment=bridge_environment()) as process:
            await eventually(partial(is_at_work, workspace, process), "the restore did not start")
            with suppress(ProcessLookupError):
                process.kill()
            ended = await process.wait()
        assert ended in {0, -signal.SIGKILL}
        is_cut_off = not workspace.exists()
    status, out, _ = await run_bridge("restore", "ada", "--data", str(data))
    assert status == 0, out
    assert await archive_of(workspace, tmp_path / "again.zip") == before


def is_at_work(workspace: Path, process: ForkedProcess) -> bool:
    """Return whether the restore has begun to write the workspace, or has ended."""
    return any(workspace.parent.glob(f".{workspace.name}.restoring-*")) or process.returncode is not None


async def test_invalid_restore_changes_nothing(curated: Path, tmp_path: Path) -> None:
    """Reasons: an invalid time, damaged rows, or a missing key."""
    data = tmp_path / "data"
    workspace = data / "workspaces/ada"
    await kept(data, "ada", curated)
    key = (data / "store.key").read_bytes()

    async def refused(*more: str) -> str:
        status, out, err = await run_bridge("restore", "ada", *more, "--data", str(data))
        assert status
        assert not workspace.exists()
        assert not list((data / "run").glob("restore-*"))
        return " ".join((out + err).split())

    assert "Nothing of that time, or of before is stored of ada" in await refused("--as-of", "2020-01-01")
    assert "is not a valid time" in await refused("--as-of", "soon")
    assert "is in the future" in await refused("--as-of", "2999-01-01")
    with sqlite3.connect(data / "store/ada/log.db") as file:
        file.execute("UPDATE stored_rows SET sealed = zeroblob(length(sealed)) WHERE part = 'log/curations.jsonl'")
    assert "The store of ada is damaged: row" in await refused()
    (data / "store.key").write_bytes(b"")
    assert "contains no valid key" in await refused()
    (data / "store.key").unlink()
    assert "is missing, and the store is encrypted with the key in it" in await refused()
    (data / "store.key").write_bytes(key)
    (data / "store.key").chmod(0o600)
    status, out, err = await run_bridge("restore", "ada", "--leave-out-damaged", "--data", str(data))
    assert status == 0, out + err
    assert "damaged in the store: row" in " ".join((out + err).split())


async def test_exports_of_replica_are_whole_and_logged(curated: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    own = await archive_of(curated, tmp_path / "own.zip")
    await kept(data, "ada", curated)
    async with running_bridge(data) as bridge:
        await bridge.run("users", "add", "ada")
        status, _, err = await bridge.run("export", "ada", str(tmp_path / "kept.zip"))
        assert status == 0, err
        assert "made from the replica as of " in " ".join(err.split())
        assert not (data / "workspaces/ada").exists()
    status, _, err = await run_bridge("export", "ada", str(tmp_path / "alone.zip"), "--data", str(data))
    assert status == 0, err
    # The audit log has every export, by any command.
    _, log, _ = await run_bridge("audit", "--data", str(data))
    told = [line.split("  ", 2)[2].strip() for line in log.splitlines() if " export " in line]
    assert [line.split(",")[0].replace("(as_of", "(").split("(")[0] for line in told] == ["export ada "] * 2
    assert "of the store" in told[0]
    assert "of the store" in told[1]
    assert (await command(tmp_path / "new", "import", str(tmp_path / "kept.zip")))[0] == 0
    assert await archive_of(tmp_path / "new", tmp_path / "again.zip") == own


async def test_invalid_file_name_is_left_out_and_reported(curated: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    own = await archive_of(curated, tmp_path / "own.zip")
    async with open_store(Settings(data), None) as store:
        await ship(store, "ada", curated)
        for path in ("../../bad\x1b]0;title\x07\n", ".os/run/token"):
            now = await store.position("ada")
            facts: dict[str, object] = {"path": path, "size": 0, "mode": 0o600, "modified_ns": 1, "chunks": []}
            row = ShippedRow("files", named(path), facts, now.through + 1)
            await append(store, "ada", Shipped(now.log or "", now.through + 1, [row], whole=True))
    said = [r"../../bad\x1b]0;title\x07\n: its name leads elsewhere", ".os/run/token: its name leads elsewhere"]

    def names_both(words: str) -> bool:
        flat = " ".join(words.split())
        return all(name in flat for name in said) and "\x1b]" not in words

    status, out, err = await run_bridge("restore", "ada", "--data", str(data))
    assert status == 0, out + err
    assert (
        "restored, with 9 turns and 0 files. Left out, because they are unreadable or have an unusable name: "
        in out.replace("\n", " ")
    )
    assert names_both(out)
    assert await archive_of(data / "workspaces/ada", tmp_path / "again.zip") == own
    async with running_bridge(data) as bridge:
        # The first export asks the running bridge; the second reads the replica itself.
        for run in (bridge.run, run_bridge):
            more = ("--from", "store", "--force", *(("--data", str(data)) if run is run_bridge else ()))
            status, _, err = await run("export", "ada", str(tmp_path / "kept.zip"), *more)
            assert status == 0, err
            assert names_both(err)
            assert (await command(tmp_path / "look", "import", str(tmp_path / "kept.zip"), "--dry-run"))[0] == 0
    _, log, _ = await run_bridge("audit", "--data", str(data))
    lines = [line for line in log.splitlines() if "left_out" in line]
    # One line for each export.
    assert len(lines) == 2
    assert all(map(names_both, lines))


# VMs


@dataclass
class House:
    """A VM host with the replicas of its sprites."""

    host: SpritesHost
    restorer: Restorer
    store: SealedStore
    losses: LostSprites


@asynccontextmanager
async def house(emulator: Emulator, tokens: Tokens, folder: Path) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        folder.mkdir(exist_ok=True)
        database = await stack.enter_async_context(open_database(folder / "bridge.db"))
        store = await stack.enter_async_context(open_store(Settings(folder), database))
        losses = LostSprites(database, store)
        host = await stack.enter_async_context(host_of(emulator, this_archive(), tokens, guard=losses.refuse))
        restorer = await stack.enter_async_context(Restorer(store, losses, host, folder / "run", Audit(database).note))
        yield House(host, restorer, store, losses)


async def destroyed(emulator: Emulator, name: str = "ada") -> None:
    """Destroy a VM from outside, as at sprites.dev."""
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
        session.delete(f"{emulator.url}/v1/sprites/{name}") as response,
    ):
        assert response.status == 204


def told_apart(one: bytes, other: bytes) -> dict[str, tuple[bytes, bytes]]:
    """Return the entries that differ between two archives, without their manifests."""
    both = []
    for archive in (one, other):
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            both.append({name: opened.read(name) for name in opened.namelist() if name != MANIFEST})
    left, right = both
    names = left.keys() | right.keys()
    return {name: (left.get(name, b""), right.get(name, b"")) for name in names if left.get(name) != right.get(name)}


async def test_destroyed_vm_is_restored_not_recreated_empty(
    emulator: Emulator, tokens: Tokens, disk: Disk, curated: Path, tmp_path: Path
) -> None:
    before = await archive_of(curated, tmp_path / "own.zip")
    machine = await disk.put_into(emulator, tokens)
    emulator.image = disk.packages
    (machine.workspace / ".os/run/token").write_text("the-old-token")
    await destroyed(emulator)
    async with house(emulator, tokens, tmp_path / "data") as home:
        await ship(home.store, "ada", curated)
        for ask in (home.host.reach, home.host.deploy, home.host.export):
            with pytest.raises(MachineGoneError, match=r"is gone. Its replica is as of 20") as gone:
                await ask("ada", Heard())
            assert gone.value.as_of is not None
        assert "ada" not in emulator.machines
        heard, minted = Heard(), tokens.minted
        words = (await home.restorer.restore("ada", Asked("ada"), heard)).words
        assert words == "ada's agent is restored, with 9 turns and 0 files."
        for step in ("Creating the VM", "Sending the archive", "Creating the workspace", "Checking that it works"):
            assert step in heard.words
        assert tokens.minted > minted
        reached = await home.host.reach("ada", Heard())
        assert reached.token not in {"the-old-token", ""}
        await greeting(reached)
        # The loss is no longer reported, and a second restore needs consent.
        with pytest.raises(RestoreRefusedError, match=r"The replica has 9 turns"):
            await home.restorer.restore("ada", Asked("ada"), Heard())
        new = emulator.machines["ada"]
        assert not list((tmp_path / "data/run").glob("restore-*"))
        assert not (new.workspace / ".os/restore.zip").exists()
        await new.sleep("cold")
    assert told_apart(await archive_of(new.workspace, tmp_path / "again.zip"), before) == {}


async def test_interrupted_vm_restore_can_be_repeated(
    emulator: Emulator, tokens: Tokens, disk: Disk, curated: Path, tmp_path: Path
) -> None:
    """No client reaches a half-restored VM."""
    before = await archive_of(curated, tmp_path / "own.zip")
    machine = await disk.put_into(emulator, tokens)
    emulator.image = disk.packages
    async with house(emulator, tokens, tmp_path / "data") as home:
        await ship(home.store, "ada", curated)
        own = Asked("ada", over=True)
        # A failure before the first change leaves the earlier workspace in use.
        emulator.faults = [Fault("PUT", "fs/write", times=9, status=400)]
        with pytest.raises(HostError, match=r"restore\.zip was refused"):
            await home.restorer.restore("ada", own, Heard())
        emulator.faults.clear()
        assert not await home.losses.is_begun("ada")
        await greeting(await home.host.reach("ada", Heard()))
        # A failure after the earlier workspace was moved aside: the empty one is not reachable.
        heard = Heard()
        emulator.faults = [Fault("", "services/sprite/stop", then=lambda: emulator.faults.append(LOST))]
        with pytest.raises(HostError):
            await home.restorer.restore("ada", own, heard)
        emulator.faults.clear()
        assert await home.losses.is_begun("ada")
        with pytest.raises(MachineGoneError, match="was interrupted"):
            await home.host.reach("ada", Heard())
        words = (await home.restorer.restore("ada", Asked("ada"), Heard())).words
        assert "restored, with 9 turns" in words
        await greeting(await home.host.reach("ada", Heard()))
        await machine.sleep("cold")
    assert told_apart(await archive_of(machine.workspace, tmp_path / "again.zip"), before) == {}
    assert [path.name for path in (machine.workspace / ".os").iterdir() if path.name.startswith("before-")]


@pytest.mark.soak
async def test_killed_vm_restore_can_be_repeated(
    emulator: Emulator, tokens: Tokens, disk: Disk, curated: Path, tmp_path: Path
) -> None:
    before = await archive_of(curated, tmp_path / "own.zip")
    machine = await disk.put_into(emulator, tokens)
    emulator.image = disk.packages
    await kept(tmp_path / "data", "ada", curated)
    arguments = ("ada", "--provider", "sprites", "--data", str(tmp_path / "data"))
    environment = bridge_environment(
        SPRITES_TOKEN=TOKEN, TESTS_SPRITES_URL=emulator.url, BRIDGE_PUBLIC_URL="http://127.0.0.1:9"
    )
    async with restoring(*arguments, "--over", environment=environment) as process:

        def kill_once_begun() -> None:
            # The deploy before the restore stops the service too.
            with sqlite3.connect(tmp_path / "data/bridge.db") as file:
                if file.execute("SELECT count(*) FROM restores").fetchone()[0]:
                    process.kill()

        emulator.faults = [Fault("", "services/sprite/stop", times=9, then=kill_once_begun)]
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == -signal.SIGKILL
    emulator.faults.clear()
    # The restore has begun, so it needs no second consent.
    status, out, err = await run_bridge("restore", *arguments, environment=environment)
    assert status == 0, out + err
    assert "restored, with 9 turns" in " ".join(out.split())
    await machine.sleep("cold")
    assert told_apart(await archive_of(machine.workspace, tmp_path / "again.zip"), before) == {}


#: Every further command fails, as on a wedged VM.
LOST = Fault("GET", "/exec", times=99, status=400, body="wedged")


async def test_default_export_leaves_sleeping_vm_asleep(
    emulator: Emulator, tokens: Tokens, disk: Disk, curated: Path, tmp_path: Path
) -> None:
    """Only an export from the machine itself wakes the VM."""
    machine = await disk.put_into(emulator, tokens)
    emulator.image = disk.packages
    async with house(emulator, tokens, tmp_path / "data") as home:
        await ship(home.store, "ada", curated)
        asked: list[tuple[Source | None, bool]] = [(None, True), ("machine", False), (None, False), ("store", True)]
        for source, is_kept in asked:
            export = await exported(Ownership(), home.host, home.restorer, "ada", Heard(), source=source)
            target = tmp_path / "ada.zip"
            target.write_bytes(b"".join([chunk async for chunk in export.chunks]))
            assert (export.as_of is not None) == is_kept
            assert (machine.wakes > 0) == (source is not None or not is_kept)
            status, out, _ = await command(tmp_path / "look", "import", str(target), "--dry-run")
            assert status == 0
            assert ("9 turns" in out) == is_kept
