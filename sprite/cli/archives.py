"""`export` writes a workspace as one archive; `import` of an archive restores one. See docs/archive.md."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sprite.backup import restore
from sprite.backup.archive import Export, LeftOut, snapshot
from sprite.backup.archive_reader import Archive, opened
from sprite.cli.output import say, say_json, warn
from sprite.common.files import whole_file
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.memory.folders import workspace_lock
from sprite.protocol.archive import Manifest
from sprite.protocol.framing import one_line
from sprite.protocol.shapes import counted

_STDOUT = "-"


async def export(settings: Settings, target: str, *, without_files: bool, force: bool, as_json: bool) -> int:
    """Write the archive to a file, or for "-" to stdout."""
    restore.refuse_cut_off(settings)
    with ExitStack() as stack:
        if target == _STDOUT:
            if sys.stdout.isatty():
                raise OperatorError("An archive is not text. Name a file, or redirect it: `export - > FILE`.")
            stream = sys.stdout.buffer
        else:
            stream = stack.enter_context(whole_file(Path(target), force=force, error=OperatorError))
        async with snapshot(settings) as look:
            made = Export(look, None if without_files else settings.workspace)
            with tqdm(total=made.total(), unit="row", desc="exporting", disable=None) as progress:
                try:
                    for step in made.write(stream):
                        progress.update(step)
                        # Let Ctrl-C be handled.
                        await asyncio.sleep(0)
                    stream.flush()
                except BrokenPipeError as error:
                    raise OperatorError(
                        "The program that read the archive has ended, so the archive is incomplete."
                    ) from error
    if made.manifest is not None and target != _STDOUT:
        _tell(Path(target), made.manifest, as_json=as_json)
    _tell_left_out(made.left_out)
    return 0


async def export_command(settings: Settings, arguments: argparse.Namespace) -> int:
    """Write the archive that the arguments describe."""
    without_files, force = arguments.without_files, arguments.force
    return await export(settings, arguments.file, without_files=without_files, force=force, as_json=arguments.json)


def _tell(path: Path, manifest: Manifest, *, as_json: bool) -> None:
    if as_json:
        say_json({"file": str(path), "bytes": path.stat().st_size, **_facts(manifest)})
        return
    say(f"Wrote {one_line(path)}: {_words(manifest)}.")
    say("Only you can read it. Things that you make the agent forget later stay in it.")


def _tell_left_out(left_out: LeftOut) -> None:
    for words in left_out.named:
        warn(f"left out: {one_line(words)}")
    if left_out.count > len(left_out.named):
        warn(f"left out: and {left_out.count - len(left_out.named)} more")


async def restore_archive(settings: Settings, path: Path, *, dry_run: bool, as_json: bool) -> int:
    """Import an archive; with `dry_run` only verify it and print its content, whatever the workspace is."""
    with opened(path) as archive:
        if not dry_run and not restore.is_cut_off(settings):
            folder = settings.workspace
            restore.refuse_too_large(next(path for path in (folder, *folder.parents) if path.exists()), archive)
        with _bar(archive.size, "B", "checking") as progress:
            for size in archive.verify():
                progress.update(size)
                # Let Ctrl-C be handled.
                await asyncio.sleep(0)
        if not dry_run:
            if not restore.is_cut_off(settings):
                restore.refuse_lived_in(settings, archive)
            await _restore(settings, archive)
    if as_json:
        say_json({**_facts(archive.manifest), "imported": not dry_run})
        return 0
    outcome = f"{one_line(path)} is complete and undamaged" if dry_run else f"Imported {one_line(path)}"
    say(f"{outcome}: {_words(archive.manifest)}.")
    return 0


async def _restore(settings: Settings, archive: Archive) -> None:
    # Take the lock only now, so that a refused import leaves no folders behind.
    settings.system.mkdir(mode=0o700, parents=True, exist_ok=True)
    with workspace_lock(settings):
        for folder in (settings.system, settings.memory, settings.run):
            folder.chmod(0o700)
        if restore.finish(settings) == archive.raw_manifest:
            # The same import was interrupted in its last step, and is complete now.
            return
        restore.refuse_same_names(archive, settings.system)
        # Check again, because the workspace may be in use since.
        restore.refuse_lived_in(settings, archive)
        with _bar(restore.steps(archive), "row", "importing") as progress:

            async def on_step(done: int) -> None:
                progress.update(done)
                await asyncio.sleep(0)

            await restore.Restore(settings, archive, on_step).run()


def _bar(total: int, unit: str, words: str) -> tqdm[Any]:
    return tqdm(total=total, unit=unit, unit_scale=True, desc=words, disable=None)


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {"rows": {table.path: table.rows for table in manifest.tables}, "files": len(manifest.files)}


def _words(manifest: Manifest) -> str:
    rows = {table.path: table.rows for table in manifest.tables}
    return (
        f"{counted(rows['log/observations.jsonl'], 'turn')}, {counted(rows['canvas/cards.jsonl'], 'card')}, "
        f"{counted(rows['chat/messages.jsonl'], 'line')} of chat, {counted(len(manifest.files), 'file')}"
    )
