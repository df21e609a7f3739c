"""Write an archive into a stream in one forward pass; memory holds only a row and a chunk of a file.

The same content gives the same bytes: entries have a fixed order and no times. Times and permissions are in the
manifest. This module uses no database and no disk: the caller passes rows and files in the order of the layout.
"""

from __future__ import annotations

import hashlib
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, Final, Self, cast

import msgspec

from sprite.protocol.archive import (
    FILES,
    FORMAT,
    MANIFEST,
    MEMORY,
    MEMORY_FILES,
    README,
    DatabaseName,
    Folder,
    Manifest,
    PlainFile,
    TableFile,
    kept_mode,
    kept_time,
    readme,
)

#: Size of pieces in which rows are compressed and files should be passed.
CHUNK_BYTES: Final = 1 << 18
#: The earliest time that a ZIP file can represent.
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
#: Entries from this size on use 64-bit lengths; compressed data may be slightly longer than its source.
_LARGE_BYTES: Final = 2_000_000_000


class _Forwards:
    """A write-only stream, so that a file and a pipe get the same bytes."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def write(self, data: bytes) -> int:
        self._raw.write(data)
        return len(data)

    def flush(self) -> None:
        self._raw.flush()


class Entry:
    """A file being written; its bytes are counted and hashed."""

    def __init__(self, out: BinaryIO) -> None:
        self.size = 0
        self._out = out
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The SHA-256 (hex) of the written bytes."""
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._out.write(data)
        self._digest.update(data)
        self.size += len(data)


class Rows:
    """A table being written, one line per row."""

    def __init__(self, entry: Entry) -> None:
        #: The number of rows given.
        self.count = 0
        self._entry = entry
        self._held = list[bytes]()
        self._held_bytes = 0

    def add(self, line: bytes) -> bool:
        """Add a row from `to_line`. Return whether this wrote data."""
        self._held.append(line)
        self._held_bytes += len(line)
        self.count += 1
        if self._held_bytes < CHUNK_BYTES:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Write the held rows."""
        if self._held:
            self._entry.write(b"".join(self._held))
        self._held, self._held_bytes = [], 0


class ArchiveWriter:
    """Write an archive: `with ArchiveWriter(stream) as archive:`.

    Then call `table`, `memory`, `file`, `folder` and `end`, in this order. `shows_derived` includes the tables that
    can be rebuilt from the log.
    """

    def __init__(self, stream: BinaryIO, *, shows_derived: bool = True) -> None:
        self._shows_derived = shows_derived
        self._zip = zipfile.ZipFile(cast("BinaryIO", _Forwards(stream)), "w")
        self._tables, self._memory = list[TableFile](), list[PlainFile]()
        self._files, self._folders = list[PlainFile](), list[Folder]()

    def __enter__(self) -> Self:
        self._zip.writestr(_entry(README, zipfile.ZIP_STORED), readme(shows_derived=self._shows_derived))
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @contextmanager
    def table(self, path: str) -> Iterator[Rows]:
        """Open the next table, in the order of PARTS."""
        with self._open(path, is_large=True) as entry:
            rows = Rows(entry)
            yield rows
            rows.flush()
        self._tables.append(TableFile(path, entry.size, entry.sha256, rows.count))

    def memory(self, name: str, content: bytes, mode: int, modified_ns: int) -> None:
        """Add a file of the memory folder by its name there, in the order of MEMORY_FILES."""
        path = f"{MEMORY}/{MEMORY_FILES[name]}"
        self._zip.writestr(_entry(path), content)
        digest = hashlib.sha256(content).hexdigest()
        self._memory.append(PlainFile(path, len(content), digest, kept_mode(mode), kept_time(modified_ns)))

    @contextmanager
    def file(self, path: str, size: int, mode: int, modified_ns: int) -> Iterator[Entry]:
        """Open one of the person's files by its path in the workspace; `size` is its approximate length."""
        name = f"{FILES}/{path}"
        with self._open(name, is_large=size > _LARGE_BYTES) as entry:
            yield entry
        self._files.append(PlainFile(name, entry.size, entry.sha256, kept_mode(mode), kept_time(modified_ns)))

    def folder(self, folder: Folder) -> None:
        """Add one of the person's folders; it may be empty."""
        self._folders.append(Folder(folder.path, kept_mode(folder.mode), kept_time(folder.modified_ns)))

    def end(self, schemas: Mapping[DatabaseName, int]) -> Manifest:
        """Write the manifest and end the archive. `schemas` has the number of migrations of each database."""
        manifest = Manifest(FORMAT, dict(schemas), self._tables, self._memory, self._files, self._folders)
        self._zip.writestr(_entry(MANIFEST), msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        return manifest

    @contextmanager
    def _open(self, path: str, *, is_large: bool) -> Iterator[Entry]:
        with self._zip.open(_entry(path), "w", force_zip64=is_large) as out:
            yield Entry(cast("BinaryIO", out))


def _entry(path: str, compression: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, _NO_TIME)
    info.create_system, info.compress_type = _UNIX, compression
    info.external_attr = (stat.S_IFREG | 0o600) << 16
    return info
