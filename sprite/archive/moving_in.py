"""The last step of an import: what was made aside goes to its places. Cut off at any moment, it is taken up again.

An import makes everything in `.os/import.new/`. One rename, to `.os/import/`, decides: before it there is nothing,
after it there is everything, and whoever owns the workspace next finishes what is left to move.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

import msgspec

from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.protocol.archive import FILES, MANIFEST, MEMORY, Folder, Manifest
from sprite.protocol.whole_file import sync

_UNDER_WAY: Final = "import.new"
_DECIDED: Final = "import"
_SUFFIXES = ("", "-wal", "-shm")


def aside(settings: Settings) -> Path:
    """Where an import is made, until it is decided."""
    return settings.system / _UNDER_WAY


def is_cut_off(settings: Settings) -> bool:
    """Whether an import ended while it moved in: what is there is not all of it."""
    return (settings.system / _DECIDED).exists()


def refuse_cut_off(settings: Settings) -> None:
    """OperatorError if that is so, for whoever does not finish it."""
    if is_cut_off(settings):
        raise OperatorError(
            "An import into this workspace was cut off in its last step. Start the sprite, or run the import again: "
            "that finishes it."
        )


def decide(settings: Settings) -> None:
    """From here on the import is done, however this process ends."""
    _sync_tree(aside(settings))
    aside(settings).replace(settings.system / _DECIDED)
    sync(settings.system)


def finish(settings: Settings) -> bytes | None:
    """Moves in what was decided, and throws away what was not; the manifest of what moved in, None if nothing did.

    For the owner of the workspace, before anything of it is opened.
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
    # What is left of it says that it is done; a rename is one step, a removal is many.
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
    # Whatever is put into a folder changes its time, so the deepest come first, and all of them last.
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
