"""Databases and their lock under process failures: a full disk and a killed owner."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sprite.config import Settings
from sprite.errors import WorkspaceLockedError
from sprite.memory.folders import workspace_lock
from tests.forking import fork_code

FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from sprite.errors import StorageError
from tests.memory_stores import open_stores

async def main(folder):
    async with open_stores(folder) as stores:
        await stores.turn("before")
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        failed = 0
        for _ in range(5):
            try:
                await stores.turn("x" * 200_000)
            except StorageError as error:
                failed += 1
                print("refused:", error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await stores.turn("after")
        print(failed, len(await stores.observations()))

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_full_disk_raises_storage_error(tmp_path: Path) -> None:
    """Later turns that fit are written."""
    done = await fork_code(FULL_DISK, str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = await done.communicate()
    assert done.returncode == 0, err.decode()
    *refused, last = out.decode().splitlines()
    failed, written = map(int, last.split())
    assert failed >= 1
    assert written == 7 - failed, "an accepted turn is missing"
    assert all(line.startswith("refused: The disk cannot be written") for line in refused)


async def test_killed_owner_releases_lock(tmp_path: Path) -> None:
    settings = Settings(workspace=tmp_path)
    hold = (
        "import sys, pathlib\nfrom sprite.config import Settings\n"
        "from sprite.memory.folders import workspace_lock\n"
        "with workspace_lock(Settings(workspace=pathlib.Path(sys.argv[1]))):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    owner = await fork_code(hold, str(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"held\n"
    with pytest.raises(WorkspaceLockedError, match=f"process {owner.pid}"), workspace_lock(settings):
        pass
    owner.kill()
    await owner.wait()
    with workspace_lock(settings):
        pass
