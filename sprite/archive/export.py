"""Writes a workspace as an archive: one pass, forwards only, as much in memory as a row and a chunk of a file.

The same state gives the same bytes: entries have a fixed order and no times of their own. What a program needs to know
beside the content (times, permissions) stands in the manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec

from sprite.archive.layout import (
    FILES,
    FORMAT,
    MANIFEST,
    MEMORY,
    MEMORY_FILES,
    PARTS,
    README,
    Folder,
    Manifest,
    Part,
    PlainFile,
    TableFile,
    readme,
    to_line,
)
from sprite.archive.snapshot import SCHEMAS, Snapshot
from sprite.archive.walk import LeftOut, walk
from sprite.database.tables import Table
from sprite.errors import DatabaseUnusableError, OperatorError

_CHUNK_BYTES = 1 << 18
#: The earliest time that a ZIP file can tell.
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
#: From this size on an entry's lengths are written in 64 bits; compressed it may be a little longer than it is.
_LARGE_BYTES: Final = 2_000_000_000


class _Forwards:
    """A stream that is only written to, so that a file and a pipe get the same bytes."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def write(self, data: bytes) -> int:
        self._raw.write(data)
        return len(data)

    def flush(self) -> None:
        self._raw.flush()


@dataclass(slots=True)
class Export:
    """Writes one archive, and lets go of the databases on the way; then it knows what is in it and what is not."""

    look: Snapshot
    #: None to take no files.
    workspace: Path | None
    left_out: LeftOut = field(default_factory=LeftOut)
    manifest: Manifest | None = None

    def total(self) -> int:
        """How many rows there are to write; files come on top."""
        return sum(self._table(part).count() for part in PARTS)

    def write(self, stream: BinaryIO) -> Iterator[int]:
        """Writes everything; yields how many rows or files were written since the last time."""
        ours = _identity(stream)
        tables, memory, files, folders = list[TableFile](), list[PlainFile](), list[PlainFile](), list[Folder]()
        with zipfile.ZipFile(cast("BinaryIO", _Forwards(stream)), "w") as archive:
            archive.writestr(_entry(README, zipfile.ZIP_STORED), readme())
            for part in PARTS:
                yield from self._write_table(archive, part, tables)
            self.look.let_go()
            for name, called in MEMORY_FILES.items():
                if (found := self.look.memory_files.get(name)) is not None:
                    path = f"{MEMORY}/{called}"
                    archive.writestr(_entry(path), found.content)
                    digest = hashlib.sha256(found.content).hexdigest()
                    memory.append(PlainFile(path, len(found.content), digest, found.mode, found.modified_ns))
            for item in () if self.workspace is None else walk(self.workspace, self.left_out):
                if isinstance(item, Folder):
                    folders.append(item)
                    continue
                try:
                    descriptor = os.open(item.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=item.folder)
                except OSError as error:
                    self.left_out.add(item.path, error.strerror or "cannot be read")
                    continue
                with os.fdopen(descriptor, "rb") as file:
                    if _identity(file) == ours:
                        continue
                    yield from _write_file(archive, item.path, file, files)
            schemas = {name: len(schema.migrations) for name, schema in SCHEMAS.items()}
            self.manifest = Manifest(FORMAT, schemas, tables, memory, files, folders)
            archive.writestr(_entry(MANIFEST), msgspec.json.format(msgspec.json.encode(self.manifest), indent=1))

    def _table(self, part: Part) -> Table:
        return Table(self.look.databases[part.database], part.table, part.order, part.left_out)

    def _write_table(self, archive: zipfile.ZipFile, part: Part, written: list[TableFile]) -> Iterator[int]:
        digest, size, rows, new = hashlib.sha256(), 0, 0, 0
        with archive.open(_entry(part.path), "w", force_zip64=True) as out:
            for lines in _chunked(self._lines(part)):
                data = b"".join(lines)
                out.write(data)
                digest.update(data)
                size, rows, new = size + len(data), rows + len(lines), len(lines)
                yield new
        written.append(TableFile(part.path, size, digest.hexdigest(), rows))

    def _lines(self, part: Part) -> Iterator[bytes]:
        try:
            yield from map(to_line, self._table(part).rows())
        except (sqlite3.OperationalError, ValueError) as error:
            raise DatabaseUnusableError(
                f"{part.table} of {part.database} cannot be read to its end: {error}."
            ) from error


def _write_file(archive: zipfile.ZipFile, path: str, file: BinaryIO, written: list[PlainFile]) -> Iterator[int]:
    """As long as it was when it was opened, though somebody may be writing to it."""
    seen = os.fstat(file.fileno())
    digest, size = hashlib.sha256(), 0
    name = f"{FILES}/{path}"
    with archive.open(_entry(name), "w", force_zip64=seen.st_size > _LARGE_BYTES) as out:
        while size < seen.st_size and (chunk := file.read(min(_CHUNK_BYTES, seen.st_size - size))):
            out.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            # However long the file is, whoever watches can end it.
            yield 0
    written.append(PlainFile(name, size, digest.hexdigest(), seen.st_mode & 0o777, seen.st_mtime_ns))
    yield 1


def _chunked(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    held, size = list[bytes](), 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _CHUNK_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _entry(path: str, compression: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, _NO_TIME)
    info.create_system, info.compress_type = _UNIX, compression
    info.external_attr = (stat.S_IFREG | 0o600) << 16
    return info


def _identity(stream: BinaryIO) -> tuple[int, int] | None:
    try:
        seen = os.fstat(stream.fileno())
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


@contextmanager
def whole_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A new file that its owner alone may read, there as a whole once the block has ended well, or not at all.

    OperatorError where there is one already and `force` does not say to replace it, or where it cannot be written.
    """
    _refuse_existing(path, force=force)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise OperatorError(f"{path} cannot be written: {error.strerror}.") from error
    unfinished = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(descriptor)
        _refuse_existing(path, force=force)
        unfinished.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise OperatorError(f"{path} could not be written ({error.strerror}). Nothing was left behind.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _refuse_existing(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise OperatorError(f"{path} is a folder: say which file to write, such as {path / 'sprite.zip'}.")
    if os.path.lexists(path) and not force:
        raise OperatorError(f"{path} is there already. Choose another name, or replace it with --force.")


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
