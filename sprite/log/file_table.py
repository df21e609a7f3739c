"""The log's tables about the person's files: the entries of the last scan, and file changes not yet in a turn.

They are in transcript.db, because a scan's turn and its entries are written in one transaction. Times are Unix seconds.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sprite.storage.connection import Tables, in_transaction

#: A change to a file without the agent, by a person, or (`held`) by the sprite.
Deed = Literal["uploaded", "deleted", "undone", "held"]

#: Limit for deeds stored between two turns.
MOST_DEEDS: Final = 1_000

USER_FILES: Final = """
    -- The person's files as of the last look that the log has, and what people did to files that no turn has yet.
    CREATE TABLE disk_entries (
        path BLOB PRIMARY KEY,
        size INTEGER NOT NULL,
        modified_ns INTEGER NOT NULL
    );
    CREATE TABLE disk_look (id INTEGER PRIMARY KEY CHECK (id = 1), at REAL NOT NULL, more INTEGER NOT NULL);
    CREATE TABLE file_deeds (
        id INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        what TEXT NOT NULL CHECK (what IN ('uploaded', 'deleted', 'undone', 'held')),
        path BLOB NOT NULL,
        size INTEGER NOT NULL
    );
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or (if `path` ends with a slash) a folder whose contents are not listed."""

    #: Relative to the workspace, as Python decodes it from the disk.
    path: str
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The last scan: its entries by path, its time, and the number of omitted entries; empty and 0 before the first."""

    entries: dict[str, Entry]
    at: float
    more: int
    #: The traces of files whose names a person had forgotten: see `trace_of`.
    nameless: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class FileDeed:
    """A change that a person made to a file; `size` in bytes. `undone`: the person undid the agent's change."""

    id: int
    what: Deed
    path: str
    size: int


class UserFilesLog(Tables):
    """Read and write the known files and the person's file changes."""

    async def known(self) -> KnownFiles:
        """Return the last scan."""
        look = await self._db.fetch_one("SELECT at, more FROM disk_look")
        rows = await self._db.fetch_all("SELECT path, size, modified_ns FROM disk_entries ORDER BY path")
        named = [Entry(os.fsdecode(row[0]), *row[1:]) for row in rows if not _is_trace(row[0])]
        nameless = frozenset(row[0] for row in rows if _is_trace(row[0]))
        at, more = (look[0], look[1]) if look else (0.0, 0)
        return KnownFiles({entry.path: entry for entry in named}, at, more, nameless)

    async def names(self) -> set[str]:
        """Return the path of every known file and of every change."""
        return {*(await self.known()).entries, *(deed.path for deed in await self.deeds())}

    async def keep(self, entries: Sequence[Entry], at: float, more: int) -> None:
        """Store a scan as the last one, without a turn in the log. `more` counts the omitted entries."""
        await self._db.transact(lambda tx: keep_look(tx, entries, at, more))

    @in_transaction
    def add_deed(self, tx: sqlite3.Connection, what: Deed, path: str, size: int) -> None:
        """Record a person's file change; above the limit the oldest are deleted."""
        tx.execute(
            "INSERT INTO file_deeds (at, what, path, size) VALUES (?, ?, ?, ?)",
            (time.time(), what, os.fsencode(path), size),
        )
        tx.execute("DELETE FROM file_deeds WHERE id <= (SELECT max(id) FROM file_deeds) - ?", (MOST_DEEDS,))

    async def deeds(self) -> list[FileDeed]:
        """Return the person's file changes that no turn contains yet, oldest first."""
        rows = await self._db.fetch_all("SELECT id, what, path, size FROM file_deeds ORDER BY id")
        return [FileDeed(row[0], row[1], os.fsdecode(row[2]), row[3]) for row in rows]

    async def drop_deeds(self, up_to: int) -> None:
        """Delete the person's file changes with ids up to `up_to`, because a turn now contains them."""
        await self._db.execute("DELETE FROM file_deeds WHERE id <= ?", (up_to,))

    async def forget(self, is_there: Callable[[str], bool], is_forgotten: Callable[[str], bool]) -> None:
        """Delete the names of files that no longer exist, and of those to be forgotten."""
        paths = await self.names()
        gone = {path for path in paths if not is_there(path)}
        # An existing file leaves a trace, or the next scan would report its name again.
        forgotten = {path for path in paths - gone if is_forgotten(path)}
        unsaid = [(os.fsencode(path),) for path in gone | forgotten]
        traces = [(trace_of(path), os.fsencode(path)) for path in forgotten]

        def write(tx: sqlite3.Connection) -> None:
            # Not REPLACE, because it deletes without running the triggers.
            tx.executemany("DELETE FROM disk_entries WHERE path = ?", [(trace,) for trace, _ in traces])
            tx.executemany("UPDATE disk_entries SET path = ? WHERE path = ?", traces)
            tx.executemany("DELETE FROM disk_entries WHERE path = ?", unsaid)
            tx.executemany("DELETE FROM file_deeds WHERE path = ?", unsaid)

        await self._db.transact(write)


def trace_of(path: str) -> bytes:
    """Return the hash of a forgotten file name: it recognises the file without containing its name."""
    return b"\0" + hashlib.sha256(os.fsencode(path)).digest()


def _is_trace(path: bytes) -> bool:
    # No path contains this byte.
    return path.startswith(b"\0")


def keep_look(tx: sqlite3.Connection, entries: Sequence[Entry], at: float, more: int) -> None:
    """Replace the last scan in the caller's transaction."""
    before = {row[0]: tuple(row) for row in tx.execute("SELECT path, size, modified_ns FROM disk_entries")}
    now = {
        (path := trace if (trace := trace_of(each.path)) in before else os.fsencode(each.path)): (
            path,
            each.size,
            each.modified_ns,
        )
        for each in entries
    }
    # Write only differences, because every written row is replicated.
    tx.executemany("DELETE FROM disk_entries WHERE path = ?", [(path,) for path in before if path not in now])
    tx.executemany(
        "INSERT INTO disk_entries (path, size, modified_ns) VALUES (?, ?, ?) "
        "ON CONFLICT (path) DO UPDATE SET (size, modified_ns) = (excluded.size, excluded.modified_ns)",
        [row for path, row in now.items() if before.get(path) != row],
    )
    tx.execute("INSERT OR REPLACE INTO disk_look VALUES (1, ?, ?)", (at, more))
