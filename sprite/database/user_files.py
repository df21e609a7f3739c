"""What the log was told of the person's files: the entries as of the last look, and what a person did since a turn.

The tables are transcript.db's, since a look's turn and what it was made of are written in one transaction.
Times are Unix seconds but where they say nanoseconds.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sprite.database.connection import Database

#: What a person did to a file by themselves.
Deed = Literal["uploaded", "deleted"]

#: Of what people did between two turns so much is kept.
MOST_DEEDS: Final = 1_000

USER_FILES: Final = """
    -- The person's files as of the last look that the log has, and what people did to files that no turn has yet.
    CREATE TABLE disk_entries (
        path BLOB PRIMARY KEY,
        size INTEGER NOT NULL,
        modified_ns INTEGER NOT NULL,
        changed_ns INTEGER NOT NULL,
        inode INTEGER NOT NULL
    );
    CREATE TABLE disk_look (id INTEGER PRIMARY KEY CHECK (id = 1), at REAL NOT NULL, more INTEGER NOT NULL);
    CREATE TABLE file_deeds (
        id INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        what TEXT NOT NULL CHECK (what IN ('uploaded', 'deleted')),
        path BLOB NOT NULL,
        size INTEGER NOT NULL
    );
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or (`path` ends with a slash) a folder that is not looked into.

    `path` is from the workspace, as Python has it from the disk. Times are in nanoseconds: of the content, and of the
    entry itself, which a move changes, too.
    """

    path: str
    size: int
    modified_ns: int
    changed_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The entries of the last look by path, when it was, and how many more there were; none and 0 before the first.

    `nameless` are the traces of those whose names a person had forgotten: see `trace_of`.
    """

    entries: dict[str, Entry]
    at: float
    more: int
    nameless: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class FileDeed:
    """Something that a person did to a file; `size` in bytes."""

    id: int
    what: Deed
    path: str
    size: int


class UserFilesLog:
    """The verbs of both."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def known(self) -> KnownFiles:
        """The last look."""
        look = await self._db.fetch_one("SELECT at, more FROM disk_look")
        rows = await self._db.fetch_all("SELECT path, size, modified_ns, changed_ns, inode FROM disk_entries")
        named = [Entry(os.fsdecode(row[0]), *row[1:]) for row in rows if not _is_trace(row[0])]
        nameless = frozenset(row[0] for row in rows if _is_trace(row[0]))
        at, more = (look[0], look[1]) if look else (0.0, 0)
        return KnownFiles({entry.path: entry for entry in named}, at, more, nameless)

    async def keep(self, entries: Sequence[Entry], at: float, more: int) -> None:
        """Replaces the last look where nothing of it has to be told."""
        await self._db.transact(lambda tx: keep_look(tx, entries, at, more))

    async def add_deed(self, what: Deed, path: str, size: int) -> None:
        """Notes what a person did; beyond the bound the oldest are let go."""

        def write(tx: sqlite3.Connection) -> None:
            tx.execute(
                "INSERT INTO file_deeds (at, what, path, size) VALUES (?, ?, ?, ?)",
                (time.time(), what, os.fsencode(path), size),
            )
            tx.execute("DELETE FROM file_deeds WHERE id <= (SELECT max(id) FROM file_deeds) - ?", (MOST_DEEDS,))

        await self._db.transact(write)

    async def deeds(self) -> list[FileDeed]:
        """What no turn has yet, oldest first."""
        rows = await self._db.fetch_all("SELECT id, what, path, size FROM file_deeds ORDER BY id")
        return [FileDeed(row[0], row[1], os.fsdecode(row[2]), row[3]) for row in rows]

    async def drop_deeds(self, up_to: int) -> None:
        """A turn has them."""
        await self._db.execute("DELETE FROM file_deeds WHERE id <= ?", (up_to,))

    async def forget(self, is_there: Callable[[str], bool], is_forgotten: Callable[[str], bool]) -> None:
        """Lets go of the names of files that are no more, and of those that are to be forgotten.

        A file that is still there leaves a trace, or the next look would tell its name anew.
        """
        paths = {*(await self.known()).entries, *(deed.path for deed in await self.deeds())}
        gone = {path for path in paths if not is_there(path)}
        forgotten = {path for path in paths - gone if is_forgotten(path)}
        unsaid = [(os.fsencode(path),) for path in gone | forgotten]
        traces = [(trace_of(path), os.fsencode(path)) for path in forgotten]

        def write(tx: sqlite3.Connection) -> None:
            # Not REPLACE, which deletes without asking the triggers.
            tx.executemany("DELETE FROM disk_entries WHERE path = ?", [(trace,) for trace, _ in traces])
            tx.executemany("UPDATE disk_entries SET path = ? WHERE path = ?", traces)
            tx.executemany("DELETE FROM disk_entries WHERE path = ?", unsaid)
            tx.executemany("DELETE FROM file_deeds WHERE path = ?", unsaid)

        await self._db.transact(write)


def trace_of(path: str) -> bytes:
    """What is kept of a name that a person had forgotten: enough to know the file by, and no word of it."""
    return b"\0" + hashlib.sha256(os.fsencode(path)).digest()


def _is_trace(path: bytes) -> bool:
    # No path has this byte.
    return path.startswith(b"\0")


def keep_look(tx: sqlite3.Connection, entries: Sequence[Entry], at: float, more: int) -> None:
    """Replaces the last look, in the transaction of whoever tells of it."""
    columns = "path, size, modified_ns, changed_ns, inode"
    before = {row[0]: tuple(row) for row in tx.execute(f"SELECT {columns} FROM disk_entries")}  # noqa: S608 - ours
    now = {
        (path := trace if (trace := trace_of(each.path)) in before else os.fsencode(each.path)): (
            *(path, each.size, each.modified_ns, each.changed_ns, each.inode),
        )
        for each in entries
    }
    # Only what differs is written: every row that is, is shipped.
    tx.executemany("DELETE FROM disk_entries WHERE path = ?", [(path,) for path in before if path not in now])
    tx.executemany(
        f"INSERT INTO disk_entries ({columns}) VALUES (?, ?, ?, ?, ?) "  # noqa: S608 - ours
        "ON CONFLICT (path) DO UPDATE SET (size, modified_ns, changed_ns, inode) = "
        "(excluded.size, excluded.modified_ns, excluded.changed_ns, excluded.inode)",
        [row for path, row in now.items() if before.get(path) != row],
    )
    tx.execute("INSERT OR REPLACE INTO disk_look VALUES (1, ?, ?)", (at, more))
