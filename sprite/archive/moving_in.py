"""The last step of an import: move the staged files into place. It can be resumed after an interruption.

An import stages everything in `.os/import.new/`. One rename to `.os/import/` decides: before it the import has not
happened, after it the next owner of the workspace completes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

import msgspec

from sprite.common.files import sync
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.protocol.archive import FILES, MANIFEST, MEMORY, Folder, Manifest

_UNDER_WAY: Final = "import.new"
_DECIDED: Final = "import"
_SUFFIXES = ("", "-wal", "-shm")


def aside(settings: Settings) -> Path:
    """Return the staging folder of an import."""
    return settings.system / _UNDER_WAY


def is_cut_off(settings: Settings) -> bool:
    """Return whether an import was interrupted in its last step, so that the workspace is incomplete."""
    return (settings.system / _DECIDED).exists()


def refuse_cut_off(settings: Settings) -> None:
    """Raise OperatorError if so; for commands that do not complete the import."""
    if is_cut_off(settings):
        raise OperatorError(
            "An import into this workspace was cut off in its last step. Start the sprite, or run the import again: "
            "that finishes it."
        )


def decide(settings: Settings) -> None:
    """Commit the import: from here on it will be completed, even if this process ends."""
    _sync_tree(aside(settings))
    aside(settings).replace(settings.system / _DECIDED)
    sync(settings.system)


def finish(settings: Settings) -> bytes | None:
    """Complete a committed import and delete an uncommitted one; return the manifest of the completed one, or None.

    Only for the owner of the workspace, before it opens any file of it.
    """
    shutil.rmtree(aside(settings), ignore_errors=True)
    decided = settings.system / _DECIDED
    if not decided.exists():
        return None
    raw = (decided / MANIFEST).read_bytes()
    manifest = msgspec.json.decode(raw, type=Manifest)
    _move_files(decided / FILES, settings.workspace, manifest)
    if (decided / MEMORY).is_dir():
        for path in sorted((decided / MEMORY).iterdir()):
            path.replace(settings.memory / path.name)
    for live in (settings.workspace_db, settings.memory_db, settings.transcript_db):
        new = decided / live.name
        if new.exists():
            # An old journal would be applied to the new file.
            for suffix in _SUFFIXES:
                Path(f"{live}{suffix}").unlink(missing_ok=True)
            new.replace(live)
    for folder in (settings.memory, settings.system, settings.workspace):
        sync(folder)
    # Rename first, because it is atomic, and a removal has many steps.
    decided.replace(aside(settings))
    shutil.rmtree(aside(settings), ignore_errors=True)
    return raw


def _move_files(source: Path, workspace: Path, manifest: Manifest) -> None:
    for folder in manifest.folders:
        (workspace / folder.path).mkdir(parents=True, exist_ok=True)
    for file in manifest.files:
        staged = source / file.path.removeprefix(f"{FILES}/")
        target = workspace / file.path.removeprefix(f"{FILES}/")
        if staged.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            staged.replace(target)
    # Adding an entry to a folder changes its time, so set times at the end, the deepest folders first.
    for folder in sorted(manifest.folders, key=lambda each: each.path.count("/"), reverse=True):
        _make_as_it_was(workspace, folder)


def _make_as_it_was(workspace: Path, folder: Folder) -> None:
    with contextlib.suppress(FileNotFoundError):
        (workspace / folder.path).chmod(folder.mode & 0o777)
        os.utime(workspace / folder.path, ns=(folder.modified_ns, folder.modified_ns))


def _sync_tree(folder: Path) -> None:
    for top, _, names in os.walk(folder):
        for name in names:
            sync(Path(top) / name)
        sync(Path(top))
