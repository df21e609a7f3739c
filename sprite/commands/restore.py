"""`import` of an archive: restore it into an empty workspace. Calls no model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sprite.archive.moving_in import finish, is_cut_off, refuse_cut_off
from sprite.archive.reading import Archive, opened
from sprite.archive.restore import Restore, refuse_lived_in, refuse_same_names, refuse_too_large, steps
from sprite.commands.output import say, say_json, warn
from sprite.config import Settings
from sprite.database.connection import workspace_lock
from sprite.protocol.archive import Manifest
from sprite.protocol.lines import one_line


async def restore_archive(settings: Settings, path: Path, *, dry_run: bool, as_json: bool) -> int:
    """Import an archive; with `dry_run` only verify it and print its content."""
    with opened(path) as archive:
        if not is_cut_off(settings):
            refuse_too_large(_existing(settings.workspace), archive)
        with _bar(archive.size, "B", "checking") as progress:
            for size in archive.verify():
                progress.update(size)
                # Let Ctrl-C be handled.
                await asyncio.sleep(0)
        if dry_run:
            refuse_cut_off(settings)
        if not is_cut_off(settings):
            refuse_lived_in(settings, archive)
        differing = [] if dry_run else await _restore(settings, archive)
    if as_json:
        say_json({**_facts(archive.manifest), "differing": differing, "imported": not dry_run})
        return 0
    for name in differing:
        warn(f"{name}: this Sprite reads the log by other rules than the one that wrote the archive.")
    say(f"{'Would import' if dry_run else 'Imported'} {one_line(path)}: {_words(archive.manifest)}.")
    return 0


async def _restore(settings: Settings, archive: Archive) -> list[str]:
    # Take the lock only now, so that a refused import leaves no folders behind.
    settings.system.mkdir(mode=0o700, parents=True, exist_ok=True)
    with workspace_lock(settings.lock, settings.memory):
        for folder in (settings.system, settings.memory, settings.run):
            folder.chmod(0o700)
        if finish(settings) == archive.raw_manifest:
            # The same import was interrupted in its last step, and is complete now.
            return []
        refuse_same_names(archive, settings.system)
        # Check again, because the workspace may be in use since.
        refuse_lived_in(settings, archive)
        with _bar(steps(archive), "row", "importing") as progress:

            async def on_step(done: int) -> None:
                progress.update(done)
                await asyncio.sleep(0)

            return await Restore(settings, archive, on_step).run()


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _bar(total: int, unit: str, words: str) -> tqdm[Any]:
    return tqdm(total=total, unit=unit, unit_scale=True, desc=words, disable=None)


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {"rows": {table.path: table.rows for table in manifest.tables}, "files": len(manifest.files)}


def _words(manifest: Manifest) -> str:
    rows = {table.path: table.rows for table in manifest.tables}
    # Not every archive contains derived tables.
    counted = [
        f"{rows[path]} {what}"
        for path, what in (
            ("log/observations.jsonl", "turn(s)"),
            ("memory/learnings.jsonl", "learning(s)"),
            ("canvas/cards.jsonl", "card(s)"),
            ("chat/messages.jsonl", "line(s) of chat"),
        )
        if path in rows
    ]
    return ", ".join([*counted, f"{len(manifest.files)} file(s)"])
