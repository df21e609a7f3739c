"""Build an archive from a sprite's replica, like the sprite's own export; streamed, a row or chunk at a time."""

import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from typing import IO, Any, Final

import msgspec

from bridge.replicas.sealed_store import SealedStore
from bridge.replicas.store import DamagedError, StoredRow, StoreError
from sprite.protocol import archive as wire
from sprite.protocol.files import shown
from sprite.protocol.replication import MOST_LONG_ROW_BYTES, whole_row
from sprite.protocol.shapes import counted

#: Stored rows that are no tables of an archive; see store.py.
_MEMORY, _FILES, _FOLDERS, _MANIFEST = "memory", "files", "folders", "manifest"
_SCHEMAS: Final = "schemas"
_LEFT_OUT: Final = "files_left_out"
#: Memory limit for a sprite's file rows, measured as JSON: a million names.
MOST_HELD_BYTES: Final = 256 * 1024 * 1024
#: Most files and folders; an archive has a few other entries.
MOST_FILES: Final = wire.MOST_ENTRIES - 1000
#: Most left-out files that are named, with this much of each name: the list must fit into a header.
_MOST_NAMED: Final = 5
_MOST_CHARACTERS: Final = 100
#: Size limit before compression. A few names of the same chunk could otherwise expand without limit.
MOST_BYTES: Final = 64 * 1024 * 1024 * 1024
#: Free space that temporary tables leave on their disk.
_LEFT_FREE_BYTES: Final = 1024 * 1024 * 1024
#: A damaged row of these loses a file or folder, but none of the agent's memory.
_PERSONS: Final = frozenset({_FILES, _FOLDERS})
_ADVICE: Final = (
    "If the agent still runs, it sends the damaged data again. If it is gone, an operator can use "
    "the rest with --leave-out-damaged."
)
_KEPT: Final = {part.path: part for part in wire.PARTS}


class _File(msgspec.Struct, frozen=True):
    """A row of the replica's table `files`: one of the person's files."""

    path: str
    size: int
    mode: int
    modified_ns: int
    chunks: list[str]


class _MemoryFile(msgspec.Struct, frozen=True):
    """A row of the replica's table `memory`: one file of the memory folder."""

    content: wire.Blob
    mode: int
    modified_ns: int


class LeftOut(msgspec.Struct, frozen=True):
    """A row of the replica's table `manifest`: files that a sprite did not ship, and files that an archive leaves out.

    `over_limit` files of `bytes` in total exceed the limit. `unkept` files and folders have an unusable name or are
    unreadable; `named` are some of them with the reason. `damaged` pieces are corrupt or missing in the store;
    `damaged_named` are some of them, files by their paths.
    """

    over_limit: int = 0
    bytes: int = 0
    unkept: int = 0
    named: Sequence[str] = ()
    damaged: int = 0
    damaged_named: Sequence[str] = ()

    def names(self) -> str:
        """Return the files that a replica lacks and the number of damaged pieces as text; "" if there are none."""
        damaged = _names(self.damaged, self.damaged_named)
        return "; ".join(filter(None, (_names(self.unkept, self.named), damaged and f"damaged: {damaged}")))

    def words(self) -> str:
        """Return the files that an archive leaves out as sentences; "" if there are none."""
        sentences = []
        if self.over_limit:
            over = f"{counted(self.over_limit, 'file')} ({self.bytes / 1e6:.1f} MB)"
            sentences.append(f"Missing, because they exceed the size limit: {over}.")
        if self.unkept:
            names = _names(self.unkept, self.named)
            sentences.append(f"Left out, because they are unreadable or have an unusable name: {names}.")
        if self.damaged:
            names = _names(self.damaged, self.damaged_named)
            sentences.append(f"Left out, because they are damaged in the store: {names}.")
        return " ".join(sentences)


def _names(count: int, named: Sequence[str]) -> str:
    """Return some names and the number of others."""
    first = [shown(name, _MOST_CHARACTERS) for name in named[:_MOST_NAMED]]
    return "; ".join(first + ([f"{count - len(first)} more"] if count > len(first) else []))


def _taken(outlet: BytesIO) -> bytes:
    """Return the bytes written since the last call."""
    taken = outlet.getvalue()
    outlet.seek(0)
    outlet.truncate()
    return taken


@dataclass(slots=True)
class _Read:
    """The rows of a replica, collected for its archive; tables are on disk, because the store has its own order."""

    tables: dict[str, IO[bytes]]
    #: Remaining bytes for temporary tables on disk.
    room: int
    leaves_out_damaged: bool = False
    memory: dict[str, _MemoryFile] = field(default_factory=dict)
    files: dict[str, _File] = field(default_factory=dict)
    folders: dict[str, wire.Folder] = field(default_factory=dict)
    schemas: dict[wire.DatabaseName, int] | None = None
    left_out: LeftOut = field(default_factory=LeftOut)
    #: Number of unkept files, and some of them with the reason.
    unkept: int = 0
    named: list[str] = field(default_factory=list)
    #: Damaged pieces, likewise.
    damaged: int = 0
    damaged_named: list[str] = field(default_factory=list)
    #: Bytes in memory: of tables, and of files and folders.
    held: int = 0
    names: int = 0
    size: int = 0

    def leave(self, path: str, why: str) -> None:
        """Count one file or folder as left out of the archive, and keep the reason."""
        self.unkept += 1
        if len(self.named) < _MOST_NAMED:
            self.named.append(f"{path}: {why}")

    def lose(self, table: str, what: str, error: DamagedError) -> None:
        """Count a damaged piece as left out. Raise the error for memory data, unless leaving it out was requested."""
        if table not in _PERSONS and not self.leaves_out_damaged:
            raise DamagedError(f"{error} {_ADVICE}") from error
        self.damaged += 1
        if len(self.damaged_named) < _MOST_NAMED:
            self.damaged_named.append(what)

    def has_place(self, path: str, size: int, content: int = 0) -> bool:
        """Return whether the archive can have a file or folder; leave it out otherwise. `size` is its memory use."""
        why = wire.why_not_kept(path)
        if why is None and self.size + max(content, 0) > MOST_BYTES:
            why = "it is larger than an archive can be"
        if why is None and (self.names + size > MOST_HELD_BYTES or len(self.files) + len(self.folders) >= MOST_FILES):
            why = "there are too many"
        if why is not None:
            self.leave(path, why)
            return False
        self.names += size
        self.size += max(content, 0)
        return True

    def part(self) -> None:
        """Leave out every file with the same name as a folder: the folder has more content."""
        every = sorted([*self.files, *self.folders], key=lambda path: path.replace("/", "\0"))
        for path, following in pairwise(every):
            if path in self.files and (following == path or following.startswith(f"{path}/")):
                del self.files[path]
                self.leave(path, "a folder has the same name")

    def all_left_out(self) -> LeftOut:
        """Return the files that the sprite did not ship, together with those that are left out here."""
        unkept, named = self.left_out.unkept + self.unkept, [*self.named, *self.left_out.named]
        damaged = sorted(self.damaged_named)
        return LeftOut(self.left_out.over_limit, self.left_out.bytes, unkept, named, self.damaged, damaged)

    def take(self, table: str, line: bytes) -> None:
        """Write a row to its temporary table. Raise StoreError above the limits of any sprite or of the disk."""
        self.size += len(line)
        if _KEPT[table].order != "rowid":
            self.held += len(line)
        if self.size > MOST_BYTES or self.held > MOST_HELD_BYTES:
            raise StoreError("The replica of this agent is larger than an archive can be.")
        self.room -= len(line)
        if self.room < 0:
            raise StoreError(
                f"There is too little space in {tempfile.gettempdir()} for the replica. Free some space, or set "
                "TMPDIR to another folder."
            )
        self.tables[table].write(line)


async def archive_of(
    store: SealedStore,
    sprite: str,
    *,
    as_of: float | None = None,
    on_left_out: Callable[[LeftOut], None] = lambda _: None,
    room: int | None = None,
    leaves_out_damaged: bool = False,
) -> AsyncGenerator[bytes, None]:
    """Yield the archive of a sprite's state at `as_of` (Unix seconds; None: the newest), in non-empty pieces.

    `on_left_out` receives the left-out files before the first piece. `room` limits temporary bytes on disk (None: the
    free space minus a reserve). A damaged file is left out; any other damaged row only if `leaves_out_damaged`. Raise
    StoreError without a replica or enough disk space, DamagedError for a corrupt row.
    """
    outlet = BytesIO()
    if room is None:
        room = shutil.disk_usage(tempfile.gettempdir()).free - _LEFT_FREE_BYTES
    with ExitStack() as stack:
        # Unnamed files vanish however this process ends.
        tables: dict[str, IO[bytes]] = {path: stack.enter_context(tempfile.TemporaryFile()) for path in _KEPT}
        read = _Read(tables, room, leaves_out_damaged)
        await _read(store, sprite, as_of, read)
        if read.schemas is None:
            raise StoreError(f"The replica of {sprite}'s agent is not complete yet, so no archive can be made from it.")
        read.part()
        await _check_files(store, sprite, read)
        on_left_out(read.all_left_out())
        archive = stack.enter_context(wire.ArchiveWriter(outlet))
        for path in _KEPT:
            with archive.table(path) as rows:
                for line in _ordered(path, read.tables[path]):
                    if rows.add(line) and (piece := _taken(outlet)):
                        yield piece
        for name in wire.MEMORY_FILES:
            if (kept := read.memory.get(name)) is not None:
                archive.memory(name, kept.content.base64, kept.mode, kept.modified_ns)
        # Closed before the archive, also if nobody reads on.
        async with aclosing(_write_files(archive, read, store, sprite)) as writing:
            async for _ in writing:
                if piece := _taken(outlet):
                    yield piece
        archive.end(read.schemas)
    yield _taken(outlet)


async def _check_files(store: SealedStore, sprite: str, read: _Read) -> None:
    """Leave out each file whose chunks are incomplete."""
    sizes = dict[str, int]()
    for path, file in list(read.files.items()):
        try:
            await _check_file(store, sprite, file, sizes)
        except DamagedError as error:
            del read.files[path]
            read.lose(_FILES, path, error)


async def _check_file(store: SealedStore, sprite: str, file: _File, sizes: dict[str, int]) -> None:
    """Raise DamagedError if a chunk is damaged or missing, or the file's size differs. Note the sizes of chunks."""
    size = 0
    for sha256 in file.chunks:
        if sha256 not in sizes:
            sizes[sha256] = len(await store.chunk(sprite, sha256))
        size += sizes[sha256]
        if size > file.size:
            # An untrusted row may name all chunks.
            break
    if size != file.size:
        raise DamagedError(f"The stored chunks of {file.path} of {sprite} do not have its {file.size} bytes.")


async def _write_files(
    archive: wire.ArchiveWriter, read: _Read, store: SealedStore, sprite: str
) -> AsyncGenerator[None, None]:
    for path in sorted([*read.folders, *read.files], key=lambda each: _as_walked(each, is_file=each in read.files)):
        if (file := read.files.get(path)) is None:
            archive.folder(read.folders[path])
            continue
        with archive.file(path, file.size, file.mode, file.modified_ns) as entry:
            for sha256 in file.chunks:
                chunk = await store.chunk(sprite, sha256)
                for at in range(0, len(chunk), wire.CHUNK_BYTES):
                    entry.write(chunk[at : at + wire.CHUNK_BYTES])
                    yield


async def _read(store: SealedStore, sprite: str, as_of: float | None, read: _Read) -> None:
    def lose(table: str, error: DamagedError) -> None:
        read.lose(table, "one with a damaged name" if table in _PERSONS else error.what, error)

    async for stored in store.rows(sprite, as_of, lose):
        name = stored.row.get("path")
        what = name if stored.table in _PERSONS and isinstance(name, str) else f"row {stored.id} of {stored.table}"
        try:
            _take(read, stored, await _whole(store, sprite, stored.row))
        except DamagedError as error:
            read.lose(stored.table, what, error)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            words = (
                f"The store of {sprite} is damaged: row {str(stored.id)[:200]} of {stored.table} is invalid. {error}"
            )
            read.lose(stored.table, what, DamagedError(words))


def _take(read: _Read, stored: StoredRow, row: dict[str, Any]) -> None:
    """Check a stored row and add it to `read`, the rows for the archive. Raise ValueError for an invalid one."""
    table = stored.table
    if table in _KEPT:
        read.take(table, msgspec.json.encode(row) + b"\n")
    elif table == _MEMORY and stored.id in wire.MEMORY_FILES:
        read.memory[str(stored.id)] = msgspec.convert(row, _MemoryFile)
    elif table == _FILES:
        file = msgspec.convert(row, _File)
        if read.has_place(file.path, len(msgspec.json.encode(file)), file.size):
            read.files[file.path] = file
    elif table == _FOLDERS:
        folder = msgspec.convert(row, wire.Folder)
        if read.has_place(folder.path, len(msgspec.json.encode(folder))):
            read.folders[folder.path] = folder
    elif table == _MANIFEST and stored.id == _SCHEMAS:
        read.schemas = msgspec.convert(row, dict[wire.DatabaseName, int])
    elif table == _MANIFEST and stored.id == _LEFT_OUT:
        read.left_out = msgspec.convert(row, LeftOut)


async def _whole(store: SealedStore, sprite: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return the whole row, assembled from its chunks if it was too long to ship directly."""
    names = msgspec.convert(row["chunks"] if row.keys() == {"chunks"} else [], list[str])
    chunks, size = dict[str, bytes](), 0
    for sha256 in names:
        if sha256 not in chunks:
            chunks[sha256] = await store.chunk(sprite, sha256)
            size += len(chunks[sha256])
        if size > MOST_LONG_ROW_BYTES:
            break
    return whole_row(row, lambda sha256: chunks.get(sha256, b""))


def _ordered(path: str, lines: IO[bytes]) -> list[bytes] | IO[bytes]:
    """Return the lines of a table in the archive's order."""
    lines.seek(0)
    order = _KEPT[path].order
    if order == "rowid":
        return lines
    # Few and short lines: names of files.
    return sorted(lines, key=lambda line: _column(line, order))


def _column(line: bytes, name: str) -> bytes:
    value = msgspec.json.decode(line, type=dict[str, str | int | float | wire.Blob | None])[name]
    return value.base64 if isinstance(value, wire.Blob) else str(value).encode()


def _as_walked(path: str, *, is_file: bool) -> list[tuple[bool, str]]:
    """Return a sort key for the order of a directory walk: a folder, its files by name, then its subfolders."""
    *above, name = path.split("/")
    return [*((True, folder) for folder in above), (not is_file, name)]
