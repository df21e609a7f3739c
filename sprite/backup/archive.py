"""Export a workspace: tables and memory files as of one moment, the person's files as they are found."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final

from sprite.common.sqlite import Schema
from sprite.config import Settings
from sprite.errors import DatabaseUnusableError, OperatorError
from sprite.log import transcript
from sprite.memory.files import LARGEST_FILE_BYTES
from sprite.memory.folders import USER_FOLDERS
from sprite.protocol import archive as layout
from sprite.storage.connection import empty_database, plain_reader
from sprite.workspace import database as workspace

SCHEMAS: Final[dict[layout.DatabaseName, Schema]] = {
    "transcript.db": transcript.SCHEMA,
    "workspace.db": workspace.SCHEMA,
}
#: Time limit for finding a moment without writes. A busy sprite writes some ten times a second.
_PATIENCE_SECONDS = 20.0
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file of the memory folder: its bytes and metadata."""

    content: bytes
    mode: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Open databases in read transactions begun at one moment, and the memory files of that moment by name on disk."""

    databases: Mapping[layout.DatabaseName, sqlite3.Connection]
    memory_files: Mapping[str, MemoryFile]

    def let_go(self) -> None:
        """End the read transactions. Until then the databases' journals keep forgotten data."""
        for database in self.databases.values():
            database.execute("ROLLBACK")


@asynccontextmanager
async def snapshot(settings: Settings) -> AsyncIterator[Snapshot]:
    """Yield a snapshot of the workspace. Raises OperatorError if no sprite has run here, or it never stops writing."""
    async with AsyncExitStack() as stack:
        # One connection per database sees every commit of others, and one holds the snapshot.
        watching, looking = [{name: stack.enter_context(_opened(settings, name)) for name in SCHEMAS} for _ in range(2)]
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            before = _versions(watching)
            files = memory_files(settings)
            for database in looking.values():
                database.execute("BEGIN")
                # The transaction's snapshot starts with the first read.
                database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if _versions(watching) == before and memory_files(settings) == files:
                break
            for database in looking.values():
                database.execute("ROLLBACK")
            if time.monotonic() > until:
                raise OperatorError(
                    "The sprite writes without a pause, so no consistent snapshot could be taken. Try again when it "
                    "is idle."
                )
            await asyncio.sleep(_PAUSE_SECONDS)
        yield Snapshot(looking, files)


def path_of(settings: Settings, name: layout.DatabaseName) -> Path:
    """Return the path of the database with this name."""
    return settings.workspace_db if name == "workspace.db" else settings.memory / name


def _opened(settings: Settings, name: layout.DatabaseName) -> AbstractContextManager[sqlite3.Connection]:
    path = path_of(settings, name)
    if name == "workspace.db" and not path.exists():
        # Turns were imported, and no sprite has run here yet.
        return empty_database(SCHEMAS[name])
    return plain_reader(path, SCHEMAS[name])


def _versions(databases: Mapping[layout.DatabaseName, sqlite3.Connection]) -> list[int]:
    return [database.execute("PRAGMA data_version").fetchone()[0] for database in databases.values()]


def memory_files(settings: Settings) -> dict[str, MemoryFile]:
    """Return the files of the memory folder on disk by name, without missing and unsuitable ones."""
    found = {}
    for name in layout.MEMORY_FILES:
        try:
            # Nonblocking, so that a pipe does not block.
            descriptor = os.open(settings.memory / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        with os.fdopen(descriptor, "rb") as stream:
            seen = os.fstat(descriptor)
            # Anything else is quarantined at the next start, and is no memory. The agent-at-work file contains two
            # files.
            largest = LARGEST_FILE_BYTES * (1 if name.endswith(".md") else 4)
            if stat.S_ISREG(seen.st_mode) and seen.st_size <= largest:
                found[name] = MemoryFile(stream.read(), seen.st_mode & 0o777, seen.st_mtime_ns)
    return found


#: Created at each start.
_ALWAYS_THERE: Final = frozenset({"documents", *USER_FOLDERS})
#: Reasons for leaving out something that is no file.
NO_FILES: Final = frozenset({"a link", "no file"})
#: Limit for the names of left-out entries.
_MOST_NAMED = 20


@dataclass(slots=True)
class LeftOut:
    """Entries that cannot be in an archive: links, sockets, undecodable names, unreadable files."""

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, path: str, why: str) -> None:
        """Count an entry that the archive leaves out; keep its name and the reason for the first few."""
        self.count += 1
        if len(self.named) < _MOST_NAMED:
            self.named.append(f"{path}: {why}")


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file in a scan: its path from the workspace, its open folder (a descriptor), and its name there."""

    path: str
    folder: int
    name: str


def walk(workspace: Path, leave_out: Callable[[str, str], None]) -> Iterator[Found | layout.Folder]:
    """Yield every file and folder of the workspace except the sprite's own; `leave_out` gets the unusable ones."""

    def cannot(error: OSError) -> None:
        # Known by its name only, because it was looked up in an open folder.
        leave_out(os.fsdecode(error.filename or ""), error.strerror or "cannot be read")

    for top, folders, names, descriptor in os.fwalk(workspace, onerror=cannot):
        below = os.path.relpath(top, workspace)
        prefix = "" if below == "." else f"{below}/"
        for name in sorted(folders):
            path = f"{prefix}{name}"
            if path == layout.OURS:
                folders.remove(name)
            elif (why := _why_not(path, prefix, name, descriptor)) is not None:
                folders.remove(name)
                leave_out(path, why)
        folders.sort()
        if prefix and below not in _ALWAYS_THERE:
            seen = os.fstat(descriptor)
            yield layout.Folder(below, layout.kept_mode(seen.st_mode), layout.kept_time(seen.st_mtime_ns))
        for name in sorted(names):
            path = f"{prefix}{name}"
            why = _why_not(path, prefix, name, descriptor)
            if why is None:
                yield Found(path, descriptor, name)
            else:
                leave_out(path, why)


def _why_not(path: str, prefix: str, name: str, folder: int) -> str | None:
    if (why := layout.why_not_kept(path)) is not None:
        return why
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError as error:
        return error.strerror
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_ISDIR(mode):
        return "too deep" if prefix.count("/") >= layout.MOST_DEEP else None
    return None if stat.S_ISREG(mode) else "no file"


@dataclass(slots=True)
class Export:
    """Write a snapshot as one archive, and end its read transactions as early as possible."""

    look: Snapshot
    #: None to leave out the person's files.
    workspace: Path | None
    #: After `write`, these describe the archive.
    left_out: LeftOut = field(default_factory=LeftOut)
    manifest: layout.Manifest | None = None

    def total(self) -> int:
        """Return the number of table rows that `write` will write; files are not counted."""
        return sum(self._table(part).count() for part in layout.PARTS)

    def write(self, stream: BinaryIO) -> Iterator[int]:
        """Write the whole archive to a stream; yield after each step how many rows or files it wrote."""
        ours = _identity(stream)
        with layout.ArchiveWriter(stream) as archive:
            for part in layout.PARTS:
                yield from self._write_table(archive, part)
            self.look.let_go()
            for name in layout.MEMORY_FILES:
                if (found := self.look.memory_files.get(name)) is not None:
                    archive.memory(name, found.content, found.mode, found.modified_ns)
            for item in () if self.workspace is None else walk(self.workspace, self.left_out.add):
                if isinstance(item, layout.Folder):
                    archive.folder(item)
                    continue
                try:
                    descriptor = os.open(item.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=item.folder)
                except OSError as error:
                    self.left_out.add(item.path, error.strerror or "cannot be read")
                    continue
                with os.fdopen(descriptor, "rb") as file:
                    if _identity(file) == ours:
                        continue
                    yield from _write_file(archive, item.path, file)
            self.manifest = archive.end({name: len(schema.migrations) for name, schema in SCHEMAS.items()})

    def _table(self, part: layout.Part) -> Table:
        return Table(self.look.databases[part.database], part.table, part.order)

    def _write_table(self, archive: layout.ArchiveWriter, part: layout.Part) -> Iterator[int]:
        told = 0
        with archive.table(part.path) as rows:
            for line in self._lines(part):
                if rows.add(line):
                    yield rows.count - told
                    told = rows.count
        yield rows.count - told

    def _lines(self, part: layout.Part) -> Iterator[bytes]:
        try:
            yield from map(layout.to_line, self._table(part).rows())
        except (sqlite3.OperationalError, ValueError) as error:
            raise DatabaseUnusableError(
                f"{part.table} of {part.database} cannot be read to its end: {error}."
            ) from error


def _write_file(archive: layout.ArchiveWriter, path: str, file: BinaryIO) -> Iterator[int]:
    """Write a file with the length it had when opened, because another process may be appending to it."""
    seen = os.fstat(file.fileno())
    with archive.file(path, seen.st_size, seen.st_mode, seen.st_mtime_ns) as entry:
        while entry.size < seen.st_size and (chunk := file.read(min(layout.CHUNK_BYTES, seen.st_size - entry.size))):
            entry.write(chunk)
            # Allow cancellation during a long file.
            yield 0
    yield 1


def _identity(stream: BinaryIO) -> tuple[int, int] | None:
    try:
        seen = os.fstat(stream.fileno())
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


#: Allowed types of a column by its declared type; SQLite itself would take anything.
_KINDS: Final[dict[str, tuple[type, ...]]] = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str,), "BLOB": (bytes,)}


@dataclass(frozen=True)
class Table:
    """A table of an open database."""

    connection: sqlite3.Connection
    name: str
    order: str = "rowid"

    @cached_property
    def columns(self) -> dict[str, str]:
        """The type of each column, in column order."""
        return {row[1]: row[2] for row in self.connection.execute(f"PRAGMA table_info({self.name})").fetchall()}

    def count(self) -> int:
        """Return the number of rows."""
        return int(self.connection.execute(f"SELECT count(*) FROM {self.name}").fetchone()[0])  # noqa: S608 - our own

    def rows(self) -> Iterator[dict[str, layout.Value]]:
        """Yield every row."""
        names = list(self.columns)
        sql = f"SELECT {', '.join(names)} FROM {self.name} ORDER BY {self.order}"  # noqa: S608 - our own tables
        for row in self.connection.execute(sql):
            yield dict(zip(names, row, strict=True))

    def fill(self, rows: Iterable[layout.Row]) -> Iterator[int]:
        """Replace the table's rows in the caller's transaction; yield 1 for each. Raises ValueError for an invalid row.

        Triggers that refuse changes are suspended: they protect an existing log, and this one is being created.
        """
        guards = self.connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND sql LIKE '%RAISE(ABORT%'",
            (self.name,),
        ).fetchall()
        for name, _ in guards:
            self.connection.execute(f"DROP TRIGGER {name}")
        self.connection.execute(f"DELETE FROM {self.name}")  # noqa: S608 - our own tables
        names = list(self.columns)
        places = ", ".join("?" * len(names))
        sql = f"INSERT INTO {self.name} ({', '.join(names)}) VALUES ({places})"  # noqa: S608 - our own tables
        for row in rows:
            self._check(row)
            try:
                self.connection.execute(sql, [row[name] for name in names])
            except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError) as error:
                raise ValueError(str(error)) from error
            yield 1
        for _, definition in guards:
            self.connection.execute(definition)

    def _check(self, row: layout.Row) -> None:
        if odd_columns := row.keys() ^ self.columns.keys():
            odd = ", ".join(sorted(odd_columns))
            raise ValueError(f"the row's columns are not those of the table: {odd[:200]}")
        for name, kind in self.columns.items():
            value = row[name]
            if value is not None and not isinstance(value, _KINDS[kind]):
                raise ValueError(f"{name} is no {kind.lower()}")
