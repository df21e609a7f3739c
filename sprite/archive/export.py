"""Export a workspace: tables and memory files as of one moment, the person's files as they are found."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sprite.archive.snapshot import SCHEMAS, Snapshot
from sprite.archive.walk import LeftOut, walk
from sprite.database.tables import Table
from sprite.errors import DatabaseUnusableError
from sprite.protocol.archive import MEMORY_FILES, PARTS, Folder, Manifest, Part, to_line
from sprite.protocol.archive_writer import CHUNK_BYTES, ArchiveWriter


@dataclass(slots=True)
class Export:
    """Write one archive and release the databases meanwhile; then `manifest` and `left_out` describe it."""

    look: Snapshot
    #: None to leave out the person's files.
    workspace: Path | None
    left_out: LeftOut = field(default_factory=LeftOut)
    manifest: Manifest | None = None

    def total(self) -> int:
        """Return the number of rows to write, without files."""
        return sum(self._table(part).count() for part in PARTS)

    def write(self, stream: BinaryIO) -> Iterator[int]:
        """Write everything; yield the number of rows or files written since the last time."""
        ours = _identity(stream)
        with ArchiveWriter(stream) as archive:
            for part in PARTS:
                yield from self._write_table(archive, part)
            self.look.let_go()
            for name in MEMORY_FILES:
                if (found := self.look.memory_files.get(name)) is not None:
                    archive.memory(name, found.content, found.mode, found.modified_ns)
            for item in () if self.workspace is None else walk(self.workspace, self.left_out):
                if isinstance(item, Folder):
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

    def _table(self, part: Part) -> Table:
        return Table(self.look.databases[part.database], part.table, part.order, part.left_out)

    def _write_table(self, archive: ArchiveWriter, part: Part) -> Iterator[int]:
        told = 0
        with archive.table(part.path) as rows:
            for line in self._lines(part):
                if rows.add(line):
                    yield rows.count - told
                    told = rows.count
        yield rows.count - told

    def _lines(self, part: Part) -> Iterator[bytes]:
        try:
            yield from map(to_line, self._table(part).rows())
        except (sqlite3.OperationalError, ValueError) as error:
            raise DatabaseUnusableError(
                f"{part.table} of {part.database} cannot be read to its end: {error}."
            ) from error


def _write_file(archive: ArchiveWriter, path: str, file: BinaryIO) -> Iterator[int]:
    """Write a file with the length it had when opened, because another process may be appending to it."""
    seen = os.fstat(file.fileno())
    with archive.file(path, seen.st_size, seen.st_mode, seen.st_mtime_ns) as entry:
        while entry.size < seen.st_size and (chunk := file.read(min(CHUNK_BYTES, seen.st_size - entry.size))):
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
