"""Replicate what is in no table: scan memory files and the person's files, and read contents in chunks.

Files are sent unredacted, like in an export: a project comes back with its `.env`, and a replica encrypts its data.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import os
import stat
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from sprite.backup.archive import NO_FILES, SCHEMAS, Found, LeftOut, MemoryFile, memory_files, walk
from sprite.config import Settings
from sprite.log.transcript import TranscriptDB
from sprite.protocol.archive import PARTS, Row, kept_mode, kept_time
from sprite.protocol.files import shown, size_in_words
from sprite.protocol.replication import Lacks, ShippedChunk, ShippedRow
from sprite.protocol.shapes import counted
from sprite.storage.changes import ShipState
from sprite.workspace.database import WorkspaceDB
from sprite.workspace.user_files import folder_of

#: Size of the pieces of files and of long rows, in bytes.
CHUNK_BYTES: Final = 256 * 1024
#: A row that is longer, as JSON, is sent in chunks.
LONGEST_ROW: Final = CHUNK_BYTES
#: Limit for rows and chunks in a message, in bytes on the wire: base64 makes four of three. A frame takes 1 MiB.
MESSAGE_BYTES: Final = 768 * 1024

#: The archive's names for the rows of a table.
PATHS: Final = {part.table: part.path for part in PARTS}


@dataclass(frozen=True, slots=True)
class Item:
    """A row to send to the replica: the number of its entry, its length as JSON, and the chunks to send before it."""

    change: int
    row: ShippedRow
    size: int
    chunks: list[bytes] = field(default_factory=list)


def item(change: int, table: str, row_id: int | str, row: Row | Mapping[str, Any] | None) -> Item:
    """Return a row with its size and chunks as an `Item`; the caller assigns its position later."""
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
    """Split bytes into chunks."""
    yield from (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))


def digest(data: bytes) -> str:
    """Return the SHA-256 of a chunk in hex, which is its name."""
    return hashlib.sha256(data).hexdigest()


def chunk_of(data: bytes) -> ShippedChunk:
    """Return a chunk in wire format."""
    return ShippedChunk(digest(data), base64.b64encode(data).decode())


def size_of(chunk: ShippedChunk) -> int:
    """Return the number of bytes that a chunk occupies in a frame."""
    return len(chunk.data) + 100


def in_messages(items: Iterable[Item]) -> Iterator[tuple[list[Item], list[bytes]]]:
    """Yield the content of each message: rows without chunks, or chunks of the first row of a later message."""
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
#: The person's files in a replica, the newest first.
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
    chunks: list[str] = []


class FolderFacts(msgspec.Struct, frozen=True):
    """A folder's metadata."""

    mode: int
    modified_ns: int


class Omitted(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of files that are not replicated."""

    #: Files beyond the size limit, and their bytes.
    over_limit: int = 0
    bytes: int = 0
    #: Files with unusable names or content, and the SHA-256 of their list.
    unkept: int = 0
    names: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a scan for replication: files (without contents) and folders by `name_of`, and omissions."""

    files: dict[str, FileFacts]
    folders: dict[str, FolderFacts]
    paths: dict[str, str]
    omitted: Omitted
    #: Some of the unkept files, as text.
    unkept: list[str]


def name_of(path: str) -> str:
    """Return the SHA-256 of a path, which identifies its file: a forgotten name must not remain below `.os/`."""
    return hashlib.sha256(path.encode()).hexdigest()


def look(workspace: Path, limit: int) -> Look:
    """Scan all outside `.os/`, and select the newest files that together have at most `limit` bytes. Blocks."""
    found, folders, paths = list[tuple[str, FileFacts]](), dict[str, FolderFacts](), dict[str, str]()
    unkept = LeftOut()

    def leave_out(path: str, why: str) -> None:
        if why not in NO_FILES:
            unkept.add(shown(path), why)

    for each in walk(workspace, leave_out):
        if not isinstance(each, Found):
            folders[name_of(each.path)] = FolderFacts(each.mode, each.modified_ns)
            paths[name_of(each.path)] = each.path
        elif (seen := _seen(each)) is not None:
            found.append((each.path, seen))
    chosen, omitted, left = dict[str, FileFacts](), list[int](), limit
    for path, seen in sorted(found, key=lambda file: (-file[1].modified_ns, file[1].size, file[0])):
        if seen.size > left:
            omitted.append(seen.size)
            continue
        left -= seen.size
        chosen[name_of(path)] = seen
        paths[name_of(path)] = path
    # A sparse file may be long without a byte on disk.
    size = min(sum(omitted), _MOST_SAID)
    names = hashlib.sha256("\n".join(unkept.named).encode()).hexdigest() if unkept.count else ""
    return Look(chosen, folders, paths, Omitted(len(omitted), size, unkept.count, names), unkept.named)


def _seen(found: Found) -> FileFacts | None:
    try:
        entry = os.stat(found.name, dir_fd=found.folder, follow_symlinks=False)
    except OSError:
        return None
    return _of(entry) if stat.S_ISREG(entry.st_mode) else None


def _of(entry: os.stat_result) -> FileFacts:
    mode, modified_ns = kept_mode(entry.st_mode), kept_time(entry.st_mtime_ns)
    return FileFacts(entry.st_size, mode, modified_ns, entry.st_ctime_ns, entry.st_ino)


def contents(
    workspace: Path, files: Iterable[tuple[str, str]], known: set[str]
) -> Iterator[tuple[list[ShippedChunk], dict[str, FileFacts]]]:
    """Read files, and yield for each message the next chunks, and the facts of files that these complete. Blocks.

    Skips chunks in `known`, the names of those that the replica has, and adds those that were read.
    """
    chunks, facts, size = list[ShippedChunk](), dict[str, FileFacts](), 0
    until = time.monotonic() + _LONGEST_SECONDS
    for chunk in _chunks(workspace, files, known, facts):
        if chunk is not None:
            chunks.append(chunk)
            size += size_of(chunk)
        if size + _CHUNK_SIZE > MESSAGE_BYTES or time.monotonic() > until:
            yield chunks, dict(facts)
            facts.clear()
            chunks, size, until = [], 0, time.monotonic() + _LONGEST_SECONDS
    yield chunks, facts


def _chunks(
    workspace: Path, files: Iterable[tuple[str, str]], known: set[str], facts: dict[str, FileFacts]
) -> Iterator[ShippedChunk | None]:
    """Yield each chunk of the files, None instead of a known one; collect the facts of each file at its end."""
    for name, path in files:
        try:
            if (read := (yield from chunks_of(workspace, path, known))) is not None:
                facts[name] = read
        except OSError as error:
            # It was deleted meanwhile, or is unreadable.
            log.debug("a file is not shipped: %s", error.strerror)
        yield None


def chunks_of(workspace: Path, path: str, known: set[str]) -> Generator[ShippedChunk | None, None, FileFacts | None]:
    """Yield the chunks of a file, None instead of a known one; return its facts, or None if it changed meanwhile.

    Raises OSError if it is unreadable, not a file any more, or behind a link.
    """
    descriptor = _opened(workspace, path)
    try:
        before, names, size = _of(os.fstat(descriptor)), list[str](), 0
        while data := os.read(descriptor, min(CHUNK_BYTES, before.size - size)):
            size += len(data)
            names.append(digest(data))
            yield None if names[-1] in known else chunk_of(data)
            known.add(names[-1])
        now = _of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
    if now != before or size != now.size:
        return None
    # A file that may change without a new timestamp is read again at the next scan.
    changed = -1 if time.time_ns() - now.modified_ns < _RACY_NS else now.changed_ns
    return msgspec.structs.replace(now, changed_ns=changed, chunks=names)


def _opened(workspace: Path, path: str) -> int:
    with folder_of(workspace, path) as (at, name):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return descriptor


#: The names of the parts on the wire.
FILES: Final = "files"
FOLDERS: Final = "folders"
MEMORY: Final = "memory"
MANIFEST: Final = "manifest"
OMITTED: Final = "files_left_out"
#: After activity the person's folders are scanned again, but not sooner than the first interval after the last scan,
#: and in any case after the second.
_SOONEST_SECONDS = 2.0
_LATEST_SECONDS = 30.0
#: A scan takes at most one part in this many of the time.
_RARELY = 20

_FILE = msgspec.json.Decoder(FileFacts)


class Looks:
    """Scan memory files and the person's files for one connection, and record changes to replicate."""

    def __init__(self, settings: Settings, state: ShipState) -> None:
        self.settings = settings
        self.state = state
        self._paths: dict[str, str] = {}
        self._unkept: list[str] = []
        self._looked_at = 0.0
        self._took = 0.0
        #: Zero until the second scan, which follows the backlog of a new connection.
        self._pause = 0.0
        #: The recorded facts of files, and the files whose content must be sent, with their paths.
        self.shipped: dict[str, FileFacts] = {}
        self.changed: list[tuple[str, str]] = []
        #: Chunks that the replica has or is receiving.
        self.known: set[str] = set()
        #: Chunks that the replica has lost.
        self._lost: set[str] = set()

    async def begin(self, again: Lacks | None) -> None:
        """Load the recorded state, and mark the pieces that the replica needs `again` as waiting to be sent."""
        rows = await self.state.rows(FILES)
        self.shipped = await asyncio.to_thread(lambda: {name: _FILE.decode(facts) for name, facts in rows.items()})
        if again is not None:
            self._lost.update(again.chunks)
            # The row of a file follows its chunks.
            await self.state.note(again.rows, [name for name in self.shipped if self._has_lost(name)])

    async def look_at_memory(self) -> None:
        """Record changes of memory files and of facts about the whole workspace, not of the person's files."""
        found = await asyncio.to_thread(memory_files, self.settings)
        await self._note(MEMORY, {name: _json(_facts_of(file)) for name, file in found.items()})
        schemas = _json({name: len(schema.migrations) for name, schema in SCHEMAS.items()})
        if (await self.state.rows(MANIFEST)).get("schemas") != schemas:
            await self.state.put(MANIFEST, {"schemas": schemas})

    def is_due(self, active_at: float) -> bool:
        """Return whether to scan the person's files now; the last activity was at `active_at` (monotonic seconds)."""
        passed = time.monotonic() - self._looked_at
        if not self._looked_at or passed > max(_LATEST_SECONDS, self._took * _RARELY):
            return True
        return not self.is_fresh(active_at) and passed > max(self._pause, self._took * _RARELY)

    def is_fresh(self, active_at: float) -> bool:
        """Return whether the last scan of the person's files came after the last activity."""
        return self._looked_at > active_at

    async def look_at_files(self) -> None:
        """Scan the person's files and record changes; set `changed` to the files whose content must be sent."""
        self._pause = _SOONEST_SECONDS if self._looked_at else 0.0
        self._looked_at = time.monotonic()
        found = await asyncio.to_thread(look, self.settings.workspace, MOST_FILE_BYTES)
        self._took = time.monotonic() - self._looked_at
        # Deleted files need no path.
        self._paths = found.paths
        self._unkept = found.unkept
        self.changed = [
            (name, found.paths[name])
            for name, seen in found.files.items()
            if self._has_lost(name)
            or name not in self.shipped
            or seen != msgspec.structs.replace(self.shipped[name], chunks=[])
        ]
        self.known = {chunk for facts in self.shipped.values() for chunk in facts.chunks} - self._lost
        # In this order, so that a replica never has a name as a file and as a folder.
        gone = [name for name in self.shipped if name not in found.files]
        if gone:
            await self.state.put(FILES, {}, gone)
        for name in gone:
            del self.shipped[name]
        await self._note(FOLDERS, {name: _json(folder) for name, folder in found.folders.items()})
        omitted = _json(found.omitted)
        if (await self.state.rows(MANIFEST)).get(OMITTED, _json(Omitted())) != omitted:
            await self.state.put(MANIFEST, {OMITTED: omitted})

    async def note_files(self, files: Mapping[str, FileFacts]) -> None:
        """Record the facts of files whose content the replica now has."""
        await self.state.put(FILES, {name: _json(facts) for name, facts in files.items()})
        self.shipped.update(files)
        self._lost.difference_update(*(facts.chunks for facts in files.values()))

    def _has_lost(self, name: str) -> bool:
        return name in self.shipped and not self._lost.isdisjoint(self.shipped[name].chunks)

    async def _note(self, part: str, now: Mapping[str, str]) -> None:
        before = await self.state.rows(part)
        changed = {name: facts for name, facts in now.items() if before.get(name) != facts}
        gone = [name for name in before if name not in now]
        # Memory is looked at twice a second: without a change, nothing waits for the writer.
        if changed or gone:
            await self.state.put(part, changed, gone)

    def row(self, part: str, name: str, facts: str | None, memory: Mapping[str, MemoryFile]) -> dict[str, Any] | None:
        """Return the columns to send for a part's thing (a file, folder or memory file); None if it is gone."""
        if facts is None:
            return None
        known: dict[str, Any] = msgspec.json.decode(facts)
        if part == MEMORY:
            return _row_of(memory[name]) if name in memory else None
        if (part, name) == (MANIFEST, OMITTED) and known.pop("names", ""):
            # The names are not stored here.
            return {**known, "named": self._unkept}
        if part not in {FILES, FOLDERS}:
            return known
        if name not in self._paths:
            return None
        shown = {"path": self._paths[name], **known}
        for ours in ("changed_ns", "inode"):
            shown.pop(ours, None)
        return shown


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _facts_of(file: MemoryFile) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(file.content).hexdigest(), "mode": file.mode, "modified_ns": file.modified_ns}


def _row_of(file: MemoryFile) -> dict[str, Any]:
    return {"content": _shown(file.content), "mode": file.mode, "modified_ns": file.modified_ns}


#: Text for a forget that the replica received and has not yet carried out.
NOT_RID_OF_IT = "Forgotten here, but not yet in the bridge's replica"


class ShippingReport(msgspec.Struct, frozen=True):
    """State of replication; `followed` tells whether a replica has data of this sprite."""

    followed: bool
    #: The replica's last acknowledgement (Unix seconds).
    acked_at: float | None
    #: Rows that are not sent or not acknowledged, and forgets that the replica has not confirmed.
    waiting: int
    unshipped_forgets: int
    files_left_out: Omitted

    def words(self) -> list[str]:
        """Return the problems of replication, one line each."""
        left_out = self.files_left_out
        lines = [f"{NOT_RID_OF_IT} ({counted(self.unshipped_forgets, 'forget')})"] if self.unshipped_forgets else []
        if left_out.over_limit:
            lines.append(
                f"missing in the bridge's replica: {counted(left_out.over_limit, 'file')} "
                f"({size_in_words(left_out.bytes)}), because it holds at most {size_in_words(MOST_FILE_BYTES)}"
            )
        if left_out.unkept:
            lines.append(
                f"missing in the replica and in archives: {counted(left_out.unkept, 'path')}, because "
                "the name is unusable or the content unreadable: `python -m sprite export` lists them"
            )
        return lines


async def shipping_report(transcript: TranscriptDB, workspace: WorkspaceDB) -> ShippingReport:
    """Return the state of replication."""
    state = workspace.ship_state
    followed = await state.followed()
    omitted = (await state.rows(MANIFEST)).get(OMITTED, "{}")
    return ShippingReport(
        followed=followed.acked_at is not None,
        acked_at=followed.acked_at,
        waiting=await transcript.changes.count() + await workspace.changes.count(),
        unshipped_forgets=await state.tombstones(),
        files_left_out=msgspec.json.decode(omitted, type=Omitted),
    )
