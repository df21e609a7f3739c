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
from sprite.backup.archive import Export, snapshot
from sprite.backup.archive_reader import Archive, opened
from sprite.cli.output import show, warn
from sprite.common.files import whole_file
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.memory.folders import workspace_lock
from sprite.protocol.archive import Manifest
from sprite.protocol.framing import one_line
from sprite.protocol.shapes import counted


async def export(settings: Settings, arguments: argparse.Namespace) -> int:
    """Write the archive to a file, or for "-" to stdout."""
    path, is_stdout = Path(arguments.file), arguments.file == "-"
    restore.refuse_cut_off(settings)
    with ExitStack() as stack:
        if is_stdout:
            if sys.stdout.isatty():
                raise OperatorError("An archive is not text. Name a file, or redirect it: `export - > FILE`.")
            stream = sys.stdout.buffer
        else:
            stream = stack.enter_context(whole_file(path, force=arguments.force, error=OperatorError))
        async with snapshot(settings) as look:
            made = Export(look, None if arguments.without_files else settings.workspace)
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
    if made.manifest is not None and not is_stdout:
        facts = {"file": str(path), "bytes": path.stat().st_size, **_facts(made.manifest)}
        later = "Only you can read it. Things that you make the agent forget later stay in it."
        show(arguments, facts, [f"Wrote {one_line(path)}: {_words(made.manifest)}.", later])
    for words in made.left_out.named:
        warn(f"left out: {one_line(words)}")
    if made.left_out.count > len(made.left_out.named):
        warn(f"left out: and {made.left_out.count - len(made.left_out.named)} more")
    return 0


async def restore_archive(settings: Settings, path: Path, arguments: argparse.Namespace) -> int:
    """Import an archive; with `--dry-run` only verify it and print its content, whatever the workspace is."""
    with opened(path) as archive:
        if not arguments.dry_run and not restore.is_cut_off(settings):
            folder = settings.workspace
            restore.refuse_too_large(next(path for path in (folder, *folder.parents) if path.exists()), archive)
        with _bar(archive.size, "B", "checking") as progress:
            for size in archive.verify():
                progress.update(size)
                # Let Ctrl-C be handled.
                await asyncio.sleep(0)
        if not arguments.dry_run:
            if not restore.is_cut_off(settings):
                restore.refuse_lived_in(settings, archive)
            await _restore(settings, archive)
    outcome = f"{one_line(path)} is complete and undamaged" if arguments.dry_run else f"Imported {one_line(path)}"
    facts = {**_facts(archive.manifest), "imported": not arguments.dry_run}
    return show(arguments, facts, [f"{outcome}: {_words(archive.manifest)}."])


async def _restore(settings: Settings, archive: Archive) -> None:
    # Take the lock only now, so that a refused import leaves no folders behind.
    settings.system.mkdir(mode=0o700, parents=True, exist_ok=True)
    with workspace_lock(settings):
        for folder in (settings.system, settings.memory, settings.run):
            folder.chmod(0o700)
        if restore.finish(settings) == archive.raw_manifest:
            # The same import was interrupted in its last step, and is complete now.
            return
        if restore.is_folding(settings.system):
            restore.refuse_same(archive)
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
