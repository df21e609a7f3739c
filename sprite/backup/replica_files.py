"""Replicate the person's files: select those that fit, and read their content in chunks.

Files are sent unredacted, like in an export: a project comes back with its `.env`, and a replica encrypts its data.
A file is identified by the SHA-256 of its path, because a forgotten name must not remain below `.os/`. Links are
not followed, including one that replaces a folder during a scan.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from sprite.backup.archive import NO_FILES, Found, LeftOut, walk
from sprite.protocol.archive import PARTS, Row, kept_mode, kept_time
from sprite.protocol.files import shown
from sprite.protocol.replication import ShippedChunk, ShippedRow
from sprite.workspace.user_files import folder_of

#: Size of the pieces of files and of long rows, in bytes.
CHUNK_BYTES: Final = 256 * 1024
#: A row that is longer, as JSON, is sent in chunks.
LONGEST_ROW: Final = CHUNK_BYTES
#: Limit for rows and chunks in a message, in bytes on the wire: base64 makes four of three. A frame takes 1 MiB.
MESSAGE_BYTES: Final = 768 * 1024

#: The archive's names for the rows of a table.
PATHS: Final = {part.table: part.path for part in PARTS if not part.derived}


@dataclass(frozen=True, slots=True)
class Item:
    """A row to send: its entry's number, its length as JSON, and the chunks to send before it."""

    change: int
    row: ShippedRow
    size: int
    chunks: list[bytes] = field(default_factory=list)


def item(change: int, table: str, row_id: int | str, row: Row | Mapping[str, Any] | None) -> Item:
    """Return a row to send; its position is assigned later."""
    shipped = ShippedRow(table, row_id, None if row is None else {name: _shown(value) for name, value in row.items()})
    size = len(msgspec.json.encode(shipped))
    if size <= LONGEST_ROW or shipped.row is None:
        return Item(change, shipped, size)
    chunks = list(pieces(msgspec.json.encode(shipped.row)))
    shipped.row = {"chunks": [digest(chunk) for chunk in chunks]}
    return Item(change, shipped, len(msgspec.json.encode(shipped)), chunks)


def _shown(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield bytes in chunks."""
    yield from (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))


def digest(data: bytes) -> str:
    """Return the name of a chunk."""
    return hashlib.sha256(data).hexdigest()


def chunk_of(data: bytes) -> ShippedChunk:
    """Return a chunk in wire format."""
    return ShippedChunk(digest(data), base64.b64encode(data).decode())


def size_of(chunk: ShippedChunk) -> int:
    """Return the length of a chunk in a frame."""
    return len(chunk.data) + 100


def in_messages(items: Iterable[Item]) -> Iterator[tuple[list[Item], list[bytes]]]:
    """Yield the content of each message: rows, or chunks of the row that begins the next message."""
    held: list[Item] = []
    size = 0
    for each in items:
        if held and (each.chunks or size + each.size > MESSAGE_BYTES):
            yield held, []
            held, size = [], 0
        for at in range(0, len(each.chunks), 2):
            yield [], each.chunks[at : at + 2]
        held.append(each)
        size += each.size
    if held:
        yield held, []


log = logging.getLogger(__name__)

#: Limit for a chunk on the wire; and for the time of one read, so that rows can be sent in between.
_CHUNK_SIZE = CHUNK_BYTES * 4 // 3 + 200
_LONGEST_SECONDS = 0.3
#: What a replica holds of the person's files, the newest first.
MOST_FILE_BYTES = 2048 * 2**20
#: A file that was written this shortly before reading may be written again without a new timestamp.
_RACY_NS = 100_000_000
#: JavaScript's largest exact integer.
_MOST_SAID = 2**53


class FileFacts(msgspec.Struct, frozen=True):
    """A file as it was when it was sent; times in nanoseconds, `chunks` by SHA-256 (hex)."""

    size: int
    mode: int
    modified_ns: int
    changed_ns: int
    inode: int
    chunks: list[str]


class FolderFacts(msgspec.Struct, frozen=True):
    """A folder's metadata."""

    mode: int
    modified_ns: int


class Omitted(msgspec.Struct, frozen=True, omit_defaults=True):
    """Files that are not replicated: number and bytes of those over the limit, and number of unusable ones.

    The latter are `unkept`, because of their names or because they are unreadable; `names` is the SHA-256 of their
    list.
    """

    over_limit: int = 0
    bytes: int = 0
    unkept: int = 0
    names: str = ""


class _Unkept(LeftOut):
    """Collect left-out files and folders, with names that are safe to show."""

    def add(self, path: str, why: str) -> None:
        """Count one, and name it if there are few."""
        if why not in NO_FILES:
            super().add(shown(path), why)


@dataclass(frozen=True, slots=True)
class Seen:
    """A file at the time of a scan."""

    path: str
    size: int
    mode: int
    modified_ns: int
    changed_ns: int
    inode: int

    def is_as(self, facts: FileFacts | None) -> bool:
        """Return whether this is the version that was sent."""
        return facts is not None and (
            (self.size, self.mode, self.modified_ns, self.changed_ns, self.inode)
            == (facts.size, facts.mode, facts.modified_ns, facts.changed_ns, facts.inode)
        )


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a scan: things to replicate by the names of `name_of`, and the omitted ones."""

    files: dict[str, Seen]
    folders: dict[str, FolderFacts]
    paths: dict[str, str]
    omitted: Omitted
    #: Some of the unkept files, as text.
    unkept: list[str]


def name_of(path: str) -> str:
    """Return the identifier of a file for places where its path must not appear."""
    return hashlib.sha256(path.encode()).hexdigest()


def look(workspace: Path, limit: int) -> Look:
    """Scan everything outside `.os/`, and select files within `limit` bytes. Blocks.

    The newest come first; a file that does not fit is skipped for smaller ones.
    """
    found, folders, paths = list[Seen](), dict[str, FolderFacts](), dict[str, str]()
    unkept = _Unkept()
    for each in walk(workspace, unkept):
        if not isinstance(each, Found):
            folders[name_of(each.path)] = FolderFacts(each.mode, each.modified_ns)
            paths[name_of(each.path)] = each.path
        elif (seen := _seen(each)) is not None:
            found.append(seen)
    chosen, omitted, left = dict[str, Seen](), list[Seen](), limit
    for seen in sorted(found, key=lambda seen: (-seen.modified_ns, seen.size, seen.path)):
        if seen.size > left:
            omitted.append(seen)
            continue
        left -= seen.size
        chosen[name_of(seen.path)] = seen
        paths[name_of(seen.path)] = seen.path
    # A sparse file may be long without a byte on disk.
    size = min(sum(seen.size for seen in omitted), _MOST_SAID)
    names = hashlib.sha256("\n".join(unkept.named).encode()).hexdigest() if unkept.count else ""
    return Look(chosen, folders, paths, Omitted(len(omitted), size, unkept.count, names), unkept.named)


def _seen(found: Found) -> Seen | None:
    try:
        entry = os.stat(found.name, dir_fd=found.folder, follow_symlinks=False)
    except OSError:
        return None
    return _of(found.path, entry) if stat.S_ISREG(entry.st_mode) else None


def _of(path: str, entry: os.stat_result) -> Seen:
    mode, modified_ns = kept_mode(entry.st_mode), kept_time(entry.st_mtime_ns)
    return Seen(path, entry.st_size, mode, modified_ns, entry.st_ctime_ns, entry.st_ino)


class Reading:
    """Read a file chunk by chunk; afterwards `facts` is its state, or None if it changed meanwhile.

    Raises OSError if it is unreadable or not a file any more. Blocks.
    """

    def __init__(self, workspace: Path, path: str) -> None:
        self.facts: FileFacts | None = None
        self._path = path
        self._names: list[str] = []
        self._descriptor = _opened(workspace, path)
        self._before = _of(path, os.fstat(self._descriptor))
        self._read = 0

    def next(self) -> tuple[str, bytes] | None:
        """Return the next chunk with its SHA-256, None at the end."""
        data = os.read(self._descriptor, min(CHUNK_BYTES, self._before.size - self._read))
        if data:
            self._read += len(data)
            self._names.append(hashlib.sha256(data).hexdigest())
            return self._names[-1], data
        now = _of(self._path, os.fstat(self._descriptor))
        if now == self._before and self._read == now.size:
            # A file that may change without a new timestamp is read again at the next scan.
            changed = -1 if time.time_ns() - now.modified_ns < _RACY_NS else now.changed_ns
            self.facts = FileFacts(now.size, now.mode, now.modified_ns, changed, now.inode, self._names)
        return None

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class Contents:
    """Read the contents of files in pieces that fit a message. Blocks.

    Chunks in `known` are skipped, and returned ones are added to it.
    """

    def __init__(self, workspace: Path, files: Sequence[tuple[str, str]], known: set[str]) -> None:
        self._workspace = workspace
        self._files = deque(files)
        self._known = known
        self._reading: tuple[str, Reading] | None = None
        self._in_use = threading.Lock()
        self._is_closed = False

    def next(self) -> tuple[list[ShippedChunk], dict[str, FileFacts]] | None:
        """Return some chunks, and the files that they complete; None at the end."""
        with self._in_use:
            read = self._some() if self._reading or self._files else None
        if self._is_closed:
            self.close()
        return read

    def _some(self) -> tuple[list[ShippedChunk], dict[str, FileFacts]]:
        chunks, size, facts = list[ShippedChunk](), 0, dict[str, FileFacts]()
        until = time.monotonic() + _LONGEST_SECONDS
        while (self._reading or self._files) and size + _CHUNK_SIZE <= MESSAGE_BYTES:
            if self._is_closed or time.monotonic() > until:
                break
            if (chunk := self._step(facts)) is not None:
                chunks.append(chunk)
                size += size_of(chunk)
        return chunks, facts

    def _step(self, facts: dict[str, FileFacts]) -> ShippedChunk | None:
        try:
            if self._reading is None:
                name, path = self._files.popleft()
                self._reading = name, Reading(self._workspace, path)
            name, reading = self._reading
            read = reading.next()
        except OSError as error:
            # It was deleted meanwhile, or is unreadable.
            log.debug("a file is not shipped: %s", error.strerror)
            self._let_go()
            return None
        if read is None:
            if reading.facts is not None:
                facts[name] = reading.facts
            self._let_go()
            return None
        sha256, data = read
        if sha256 in self._known:
            return None
        self._known.add(sha256)
        return ShippedChunk(sha256, base64.b64encode(data).decode())

    def close(self) -> None:
        """Close the current file, at once or when a `next` in another thread has ended. Does not block."""
        self._is_closed = True
        if self._in_use.acquire(blocking=False):
            self._let_go()
            self._in_use.release()

    def _let_go(self) -> None:
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None


def _opened(workspace: Path, path: str) -> int:
    with folder_of(workspace, path) as (at, name):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return descriptor


def known_chunks(facts: Iterable[FileFacts]) -> Iterator[str]:
    """Yield every chunk of these files."""
    for each in facts:
        yield from each.chunks
