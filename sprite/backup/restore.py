"""Restore a workspace from an archive: staged, with memory.db rebuilt from the log, and moved in atomically."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from sprite.backup.archive import SCHEMAS, Table, path_of
from sprite.backup.archive_reader import Archive
from sprite.common import sqlite
from sprite.common.files import sync
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.log.transcript import open_transcript
from sprite.memory.opening import replay_aside
from sprite.protocol import archive as layout
from sprite.storage.connection import filling, plain_reader
from sprite.workspace.database import open_workspace

_UNDER_WAY: Final = "import.new"
_DECIDED: Final = "import"


def aside(settings: Settings) -> Path:
    """Return the folder in which an import collects files before it moves them into the workspace."""
    return settings.system / _UNDER_WAY


def is_cut_off(settings: Settings) -> bool:
    """Return whether an import was interrupted in its last step, so that the workspace is incomplete."""
    return (settings.system / _DECIDED).exists()


def refuse_cut_off(settings: Settings) -> None:
    """Raise OperatorError if an import was interrupted; for commands that do not complete the import."""
    if is_cut_off(settings):
        raise OperatorError(
            "An import into this workspace was interrupted in its last step. Start the sprite, or run the "
            "import again, to complete it."
        )


def decide(settings: Settings) -> None:
    """Commit the import in the staging folder: from here on `finish` completes it, even after a crash."""
    for top, _, names in os.walk(aside(settings)):
        for path in [*(Path(top, name) for name in names), Path(top)]:
            sync(path)
    aside(settings).replace(settings.system / _DECIDED)
    sync(settings.system)


def finish(settings: Settings) -> bytes | None:
    """Complete a committed import, and delete an uncommitted one. Return the completed one's manifest (JSON), or None.

    Only the owner of the workspace may call this, before it opens any file of the workspace.
    """
    shutil.rmtree(aside(settings), ignore_errors=True)
    decided = settings.system / _DECIDED
    if not decided.exists():
        return None
    raw = (decided / layout.MANIFEST).read_bytes()
    _move_files(decided / layout.FILES, settings.workspace, msgspec.json.decode(raw, type=layout.Manifest))
    if (decided / layout.MEMORY).is_dir():
        for path in sorted((decided / layout.MEMORY).iterdir()):
            path.replace(settings.memory / path.name)
    # They derive from the log that is replaced.
    sqlite.delete(settings.vectors_db)
    for live in (settings.workspace_db, settings.memory_db, settings.transcript_db):
        new = decided / live.name
        if new.exists():
            # An old journal would be applied to the new file.
            sqlite.delete(live)
            new.replace(live)
    for folder in (settings.memory, settings.system, settings.workspace):
        sync(folder)
    # Rename first, because it is atomic, and a removal has many steps.
    decided.replace(aside(settings))
    shutil.rmtree(aside(settings), ignore_errors=True)
    return raw


def _move_files(source: Path, workspace: Path, manifest: layout.Manifest) -> None:
    for folder in manifest.folders:
        (workspace / folder.path).mkdir(parents=True, exist_ok=True)
    for file in manifest.files:
        staged = source / file.path.removeprefix(f"{layout.FILES}/")
        target = workspace / file.path.removeprefix(f"{layout.FILES}/")
        if staged.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            staged.replace(target)
    # Adding an entry to a folder changes its time, so set times at the end, the deepest folders first.
    for folder in sorted(manifest.folders, key=lambda each: each.path.count("/"), reverse=True):
        with contextlib.suppress(FileNotFoundError):
            (workspace / folder.path).chmod(folder.mode & 0o777)
            os.utime(workspace / folder.path, ns=(folder.modified_ns, folder.modified_ns))


#: Tables whose rows show that a workspace is in use.
_LIVED_IN = ("observations", "curations", "turn_journal", "cards", "chat_messages", "missions")
_ROWS_A_STEP = 500
#: Needed space relative to the archive's content: full texts, indexes and memory.db are added.
_ROOM_FACTOR = 3


def refuse_lived_in(settings: Settings, archive: Archive) -> None:
    """Raise OperatorError if the workspace has turns, a canvas, chat or conflicting files."""
    for name in SCHEMAS:
        path = path_of(settings, name)
        if not path.exists():
            continue
        with plain_reader(path, SCHEMAS[name]) as database:
            for part in layout.PARTS:
                if part.database == name and part.table in _LIVED_IN and Table(database, part.table).count():
                    raise OperatorError(
                        f"{settings.workspace} already has a memory: nothing was changed. Import into an empty "
                        "workspace, with --workspace DIR."
                    )
    for folder in archive.manifest.folders:
        _refuse_no_folder(settings.workspace, folder.path)
    for file in archive.manifest.files:
        place = file.path.removeprefix(f"{layout.FILES}/")
        _refuse_no_folder(settings.workspace, place.rpartition("/")[0])
        if os.path.lexists(target := settings.workspace / place) and not _is_same(target, file):
            raise OperatorError(
                f"{target} exists already, with other content than in the archive. Nothing was changed: move it "
                "away, or import into an empty workspace."
            )


def is_folding(folder: Path) -> bool:
    """Return whether the disk of a folder is case-insensitive."""
    with tempfile.NamedTemporaryFile(prefix=".case", dir=folder) as probe:
        return Path(probe.name).with_name(Path(probe.name).name.upper()).exists()


def refuse_same(archive: Archive) -> None:
    """Raise OperatorError if two names differ only in case or composition: the second file would replace the first."""
    every = [file.path.removeprefix(f"{layout.FILES}/") for file in archive.manifest.files]
    every += [folder.path for folder in archive.manifest.folders]
    # Including folders of files: `Docs/` and `docs/` would be merged.
    places = sorted({"/".join(path.split("/")[:end]) for path in every for end in range(1, path.count("/") + 2)})
    seen = dict[str, str]()
    for place in places:
        if (other := seen.setdefault(layout.folded(place), place)) != place:
            raise OperatorError(
                f"{archive.path.name} has {other[:200]!r} and {place[:200]!r}, which this disk takes for the same "
                "name. Nothing was imported: import the archive on a disk that distinguishes these names."
            )


def _refuse_no_folder(workspace: Path, path: str) -> None:
    """Raise OperatorError if a part of a path is a link or a file: a link could lead out of the workspace."""
    above = workspace
    for part in filter(None, path.split("/")):
        above /= part
        if above.is_symlink() or (above.exists() and not above.is_dir()):
            raise OperatorError(f"{above} is not a folder, but the archive needs a folder there. Nothing was changed.")


def _is_same(path: Path, file: layout.PlainFile) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256


def refuse_too_large(folder: Path, archive: Archive) -> None:
    """Raise OperatorError if the archive's content does not fit the disk."""
    free, needed = shutil.disk_usage(folder).free, archive.size * _ROOM_FACTOR
    if needed > free:
        raise OperatorError(
            f"{archive.path.name} needs about {needed >> 20} MB here, and the disk has {free >> 20} MB left. "
            "Nothing was written."
        )


def steps(archive: Archive) -> int:
    """Return the number of rows and files that a restore writes, for showing progress."""
    return sum(table.rows for table in archive.manifest.tables) + len(archive.manifest.files)


class Restore:
    """Restore an archive into this process's workspace. `on_step` receives the number of rows or files done."""

    def __init__(self, settings: Settings, archive: Archive, on_step: Callable[[int], Awaitable[None]]) -> None:
        self._settings = settings
        self._archive = archive
        self._on_step = on_step
        self._folder = aside(settings)

    async def run(self) -> None:
        """Write the archive's content to a staging folder and move it into the workspace, unless anything fails."""
        try:
            self._folder.mkdir(mode=0o700)
            await self._fill("transcript.db")
            await self._fill("workspace.db")
            await self._check_workspace()
            async with open_transcript(self._folder / "transcript.db") as transcript:
                await replay_aside(transcript, self._folder / "memory.db", lambda: None)
            await self._unpack()
            (self._folder / layout.MANIFEST).write_bytes(self._archive.raw_manifest)
            decide(self._settings)
        finally:
            # A committed import is moved in, an uncommitted one is deleted.
            finish(self._settings)

    async def _fill(self, name: layout.DatabaseName) -> None:
        """Fill the tables of a database."""
        with filling(self._folder / name, SCHEMAS[name]) as database:
            for part, file in zip(layout.PARTS, self._archive.manifest.tables, strict=True):
                if part.database != name:
                    continue
                line = 1
                table = Table(database, part.table, part.order)
                try:
                    for done in table.fill(self._archive.rows(file)):
                        line += done
                        await self._on_step(done)
                except ValueError as error:
                    raise self._archive.bad_row(file, line, str(error)) from error

    async def _check_workspace(self) -> None:
        """Check that cards and chat can be shown, and keep missions that were running from beginning again."""
        async with open_workspace(self._folder / "workspace.db") as workspace:
            try:
                await workspace.cards()
                newest: int | None = None
                while lines := await workspace.chat(_ROWS_A_STEP, newest):
                    newest = lines[0].id
                # The journal's newest entries may be lost, including tool calls.
                await workspace.begin_none_again()
            except (TypeError, ValueError, KeyError, msgspec.MsgspecError) as error:
                raise OperatorError(
                    f"{self._archive.path.name}: a card or a line of chat in it cannot be shown ({error}). "
                    "Nothing was imported."
                ) from error

    async def _unpack(self) -> None:
        on_disk = {
            f"{layout.MEMORY}/{called}": f"{layout.MEMORY}/{name}" for name, called in layout.MEMORY_FILES.items()
        }
        for file in [*self._archive.manifest.memory, *self._archive.manifest.files]:
            target = self._folder / on_disk.get(file.path, file.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as stream:
                for chunk in self._archive.chunks(file):
                    stream.write(chunk)
                    await self._on_step(0)
            target.chmod(file.mode & 0o777)
            os.utime(target, ns=(file.modified_ns, file.modified_ns))
            await self._on_step(1)
