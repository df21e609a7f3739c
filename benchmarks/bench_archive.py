"""10,000 curated turns as an archive, and a workspace made of it, against copying the databases and a rebuild."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path

from benchmarks.bench_rebuild import BATCH, TURNS, fill
from benchmarks.report import line
from sprite.backup.archive import Export, snapshot
from sprite.backup.archive_reader import opened
from sprite.backup.restore import Restore
from sprite.common.files import whole_file
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.log.transcript import open_transcript
from sprite.memory.folders import make_folders, workspace_lock
from sprite.memory.opening import replay_aside
from tests.memory_stores import open_stores

RUNS = 3
WANTED_EXPORT_SECONDS = 5.0
WANTED_IMPORT_SECONDS = 15.0


async def main() -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = Settings(folder / "workspace")
        settings.workspace.mkdir()
        make_folders(settings)
        async with open_stores(settings.memory) as stores:
            await fill(stores, 1, TURNS // BATCH)
        archive = folder / "sprite.zip"
        copying = [await _timed(_copy(settings, folder / f"copy-{run}")) for run in range(RUNS)]
        exporting = [await _timed(_export(settings, archive)) for _ in range(RUNS)]
        replaying = await _timed(_replay(settings, folder / "memory.db"))
        importing = await _timed(_import(Settings(folder / "new"), archive))
        databases = settings.transcript_db.stat().st_size + settings.memory_db.stat().st_size
        size = archive.stat().st_size
    turns = f"{TURNS:,} curated turns"
    value = (
        f"{min(exporting):.2f} .. {max(exporting):.2f} s, {min(exporting) / min(copying):.1f} x copying the databases"
    )
    line(f"exporting {turns}", value, f"< {WANTED_EXPORT_SECONDS:g} s", ok=max(exporting) < WANTED_EXPORT_SECONDS)
    value = f"{importing:.1f} s, {importing / replaying:.2f} x replaying the log"
    line(f"importing {turns}", value, f"< {WANTED_IMPORT_SECONDS:g} s", ok=importing < WANTED_IMPORT_SECONDS)
    value = f"{size / 1e6:.1f} MB, {size / databases:.2f} x the databases"
    line("the archive", value, "< 0.5 x", ok=size < databases / 2)


async def _timed(work: Awaitable[None]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def _copy(settings: Settings, folder: Path) -> None:
    """As a backup of SQLite's own is made: a consistent copy of each."""
    folder.mkdir()
    for path in (settings.transcript_db, settings.memory_db):
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(folder / path.name)) as target:
            source.backup(target)


async def _replay(settings: Settings, path: Path) -> None:
    async with open_transcript(settings.transcript_db) as transcript:
        await replay_aside(transcript, path, lambda: None)


async def _export(settings: Settings, archive: Path) -> None:
    async with snapshot(settings) as look:
        with whole_file(archive, force=True, error=OperatorError) as stream:
            for _ in Export(look, settings.workspace).write(stream):
                await asyncio.sleep(0)


async def _import(settings: Settings, archive: Path) -> None:
    async def nobody_looks(_done: int) -> None:
        return

    settings.system.mkdir(parents=True)
    with opened(archive) as made, workspace_lock(settings):
        for _ in made.verify():
            pass
        await Restore(settings, made, nobody_looks).run()


if __name__ == "__main__":
    asyncio.run(main())
