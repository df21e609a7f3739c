"""`export` and `import` as processes: beside a working sprite, killed, on a full disk and for a VM."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import shutil
import signal
import sys
import zipfile
from pathlib import Path

import pytest

from bridge.providers.bootstrap import Archive
from bridge.providers.provider import HostError
from tests.bridge_harness import run_bridge, running_bridge
from tests.command_line import command, killed, started
from tests.emulator import Emulator, Fault
from tests.harness import PATIENCE, ROOT, running_sprite, sprite_environment
from tests.inspection import eventually, workspace_db
from tests.scripted_model import OfflineModel
from tests.vms import Disk, Heard, Tokens, host_of

#: Number of imports to kill: the first one at once, before it writes anything, and the others at random.
LIVES = int(os.environ.get("SOAK_KILLS", "0")) // 4 or 2


async def test_imported_agent_continues_with_its_memory(curated: Path, tmp_path: Path, model: OfflineModel) -> None:
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    archive, new = tmp_path / "sprite.zip", tmp_path / "new"
    async with running_sprite(workspace, model.url):
        code, out, err = await command(workspace, "export", str(archive))
        assert (code, err) == (0, "")
        assert "9 turns" in out
    assert (await command(new, "import", str(archive)))[0] == 0
    found = [await command(where, "memory", "search", "sister") for where in (workspace, new)]
    assert found[0] == found[1]
    async with running_sprite(new, model.url) as sprite, sprite.client() as client:
        shown = [workspace_db(where, "SELECT text FROM chat_messages ORDER BY id") for where in (workspace, new)]
        assert shown[0] == shown[1]
        assert {"text": "My sister is Belzoni."} in shown[1]
        told = await client.ask("memory", {"op": "search", "query": "sister"})
        assert "Belzoni" in str(told["payload"])
        code, _, err = await command(new, "import", str(archive))
        assert code == 2
        assert "already has a memory" in err


async def test_killed_import_leaves_nothing_or_everything(curated: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("KILL_SEED") or secrets.randbits(32))
    print(f"KILL_SEED={seed}")  # noqa: T201 - pytest shows it where the test fails
    rng = random.Random(seed)  # noqa: S311 - no secret
    source = shutil.copytree(curated, tmp_path / "source")
    (source / "documents/many").mkdir(parents=True)
    for number in range(50):
        (source / f"documents/many/{number}.txt").write_text("x" * number)
    archive, again = tmp_path / "sprite.zip", tmp_path / "again.zip"
    assert (await command(source, "export", str(archive)))[0] == 0
    deaths = nothing = 0
    _, longest = await killed(tmp_path / "first", "import", str(archive))
    for life in range(LIVES):
        new = tmp_path / f"new-{life}"
        code, _ = await killed(new, "import", str(archive), seconds=rng.uniform(0.0, longest) if life else 0.0)
        deaths += code < 0
        system = new / ".os"
        if not (system / "import").exists() and not (system / "memory/transcript.db").exists():
            nothing += 1
            assert not (new / "documents").exists()
        elif code:
            # The import is committed: a reading command reports it, or sees all of it.
            code, _, err = await command(new, "status")
            assert code == 0 or "cut off" in err
        if not (system / "memory/transcript.db").exists() or (system / "import").exists():
            assert (await command(new, "import", str(archive)))[0] == 0
        assert (await command(new, "export", "--force", str(again)))[0] == 0
        assert again.read_bytes() == archive.read_bytes()
    assert deaths, "no import was killed"
    assert nothing, "no import was killed early enough to leave nothing"


async def test_interrupted_export_leaves_nothing(curated: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    (workspace / "documents").mkdir(exist_ok=True)
    with (workspace / "documents/large").open("wb") as large:
        large.truncate(1 << 36)
    target = tmp_path / "out/sprite.zip"
    target.parent.mkdir()
    process = await started(workspace, "export", str(target))
    await eventually(
        lambda: any(path.stat().st_size > 10_000 for path in target.parent.iterdir()), "the export has not begun"
    )
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE):
        await process.communicate()
    assert process.returncode == 130
    assert list(target.parent.iterdir()) == []


async def test_export_to_full_disk_leaves_nothing(curated: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    (workspace / "photo").write_bytes(os.urandom(1_000_000))
    target = tmp_path / "out/sprite.zip"
    target.parent.mkdir()
    # 100 kB are enough for the files that SQLite writes beside a reader.
    limited = f"ulimit -f 200; exec {sys.executable} -m sprite export {target} --workspace {workspace}"
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", limited, cwd=ROOT, env=sprite_environment(None), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        _, err = await process.communicate()
    assert process.returncode == 2
    assert b"Nothing was left behind" in err
    assert list(target.parent.iterdir()) == []


# The bridge's commands


async def test_bridge_export_works_with_and_without_bridge(curated: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(curated, data / "workspaces/ada")
    target = tmp_path / "ada.zip"
    assert (await command(data / "workspaces/ada", "export", str(tmp_path / "own.zip")))[0] == 0
    async with running_bridge(data) as bridge:
        await bridge.run("users", "add", "ada")
        status, out, err = await bridge.run("export", "ada", str(target))
        assert (status, out) == (0, "")
        assert "which only you can read" in " ".join(err.split())
        assert target.read_bytes() == (tmp_path / "own.zip").read_bytes()
        assert target.stat().st_mode & 0o777 == 0o600
        status, _, err = await bridge.run("export", "ada", str(target))
        assert status == 2
        assert "exists already" in err
        for name, words in {"bo": "nothing to export", "../ada": "not a valid name"}.items():
            status, _, err = await bridge.run("export", name, str(tmp_path / "none.zip"))
            assert status
            assert words in err
            assert ".." not in err.replace("../ada", "")
        status, _, err = await bridge.run("restore", "bo")
        assert (status, "There is no replica of bo's agent" in err) == (2, True)
    status, _, err = await run_bridge("export", "ada", str(target), "--force", "--data", str(data))
    assert status == 0, err
    assert target.read_bytes() == (tmp_path / "own.zip").read_bytes()
    (data / "workspaces/ada/.os/memory/transcript.db").write_text("no database" * 100)
    status, _, err = await run_bridge("export", "ada", str(tmp_path / "none.zip"), "--data", str(data))
    assert status == 2
    assert "left untouched" in " ".join(err.split())
    assert not [path for path in tmp_path.iterdir() if "none" in path.name]


async def test_vm_export_works_and_reports_errors(
    emulator: Emulator, tokens: Tokens, disk: Disk, tmp_path: Path
) -> None:
    machine = await disk.put_into(emulator, tokens)
    (machine.workspace / "documents").mkdir(exist_ok=True)
    (machine.workspace / "documents/large").write_bytes(os.urandom(3_000_000))
    target = tmp_path / "ada.zip"
    async with host_of(emulator, Archive.of(ROOT), tokens) as host:
        target.write_bytes(b"".join([chunk async for chunk in await host.export("ada", Heard())]))
        with zipfile.ZipFile(target) as made:
            assert made.testzip() is None
            assert made.getinfo("files/documents/large").file_size == 3_000_000
        with pytest.raises(HostError, match="bo has no VM yet"):
            await host.export("bo", Heard())
        assert "bo" not in emulator.machines
        (machine.workspace / ".os/memory/transcript.db").rename(tmp_path / "transcript.db")
        with pytest.raises(HostError, match=r"(?s)Writing the archive failed.*transcript\.db"):
            [chunk async for chunk in await host.export("ada", Heard())]
        emulator.faults.append(Fault("GET", "/v1/sprites/ada/exec", status=500))
        with pytest.raises(HostError, match="cut off"):
            [chunk async for chunk in await host.export("ada", Heard())]
    code, out, _ = await command(tmp_path / "new", "import", str(target))
    assert code == 0
    assert "1 file" in out
