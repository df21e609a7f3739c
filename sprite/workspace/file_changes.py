"""The change sets of turns, in workspace.db, and the newest state of every path (as Python decodes it).

The tables describe this machine's disk: they are neither archived nor replicated.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sprite.log.file_table import trace_of
from sprite.protocol.shapes import FileCounts
from sprite.storage.connection import Tables, in_transaction

#: Older sets are deleted.
MOST_SETS: Final = 1_000

FILE_CHANGES: Final = """
    CREATE TABLE seen_files (
        path BLOB PRIMARY KEY,
        size INTEGER NOT NULL,
        mode INTEGER NOT NULL,
        changed_ns INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        -- Null: the content is not kept. Empty: a folder.
        sha256 TEXT
    ) WITHOUT ROWID;
    CREATE TABLE change_sets (
        -- The turn, by the id of its mission, or the id of an undo.
        turn TEXT PRIMARY KEY,
        at REAL NOT NULL,
        undoes TEXT,
        is_open INTEGER NOT NULL DEFAULT 0,
        added INTEGER NOT NULL DEFAULT 0,
        modified INTEGER NOT NULL DEFAULT 0,
        deleted INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX change_sets_undone ON change_sets (undoes) WHERE undoes IS NOT NULL;
    CREATE TABLE changes (
        turn TEXT NOT NULL REFERENCES change_sets (turn) ON DELETE CASCADE,
        path BLOB NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('added', 'modified', 'deleted')),
        before TEXT,
        after TEXT,
        size_before INTEGER,
        size INTEGER,
        mode_before INTEGER,
        mode INTEGER,
        -- Whether the person may have made the change.
        is_yours INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (turn, path)
    ) WITHOUT ROWID;
    -- Files whose content came from outside: by an upload, a connection, or a command with network traffic.
    CREATE TABLE outside_files (path BLOB PRIMARY KEY, origin TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of one path. `before` and `after` are contents by SHA-256: "" for a folder, None if not kept.

    Sizes (in bytes) and modes (with the type) are None where there was or is nothing.
    """

    path: str
    before: str | None
    after: str | None
    size_before: int | None
    size: int | None
    mode_before: int | None
    mode: int | None
    is_yours: bool = False

    @property
    def kind(self) -> Literal["added", "modified", "deleted"]:
        """Return how the path changed."""
        return "added" if self.mode_before is None else "deleted" if self.mode is None else "modified"


@dataclass(frozen=True, slots=True)
class SetRow:
    """The files that a turn or an undo changed (a change set); `at` is in Unix seconds.

    `undoes` is the change set that an undo reverts, None for a turn's; `is_open`: the undo has not ended.
    """

    turn: str
    at: float
    undoes: str | None
    is_open: bool


#: A row of `seen_files` without its path: size, mode, changed_ns, inode, sha256.
State = tuple[int, int, int, int, str | None]


class FileChanges(Tables):
    """Read and write change sets, and the newest state of every path."""

    async def states(self) -> list[tuple[bytes, State]]:
        """Return the newest state of each path; of a forgotten path only a trace in place of its name."""
        rows = await self._db.fetch_all("SELECT path, size, mode, changed_ns, inode, sha256 FROM seen_files")
        return [(row[0], (row[1], row[2], row[3], row[4], row[5])) for row in rows]

    async def since(self) -> float | None:
        """Return when the first snapshot was complete (Unix seconds), or None before."""
        found = await self._db.fetch_value("SELECT value FROM meta WHERE key = 'files_since'")
        return None if found is None else float(found)

    @in_transaction
    def record(
        self,
        tx: sqlite3.Connection,
        new: SetRow | None,
        changes: Sequence[FileChange],
        states: Mapping[str, State | None],
        counts: FileCounts,
    ) -> None:
        """Store a change set and the new states of paths (None: gone); with `new` None, only the states.

        The first call stores the first snapshot.
        """
        tx.execute("INSERT OR IGNORE INTO meta VALUES ('files_since', ?)", (str(time.time()),))
        traces = {row[0] for row in tx.execute("SELECT path FROM seen_files WHERE path < x'01'")}
        names = {
            path: trace if traces and (trace := trace_of(path)) in traces else os.fsencode(path) for path in states
        }
        gone = [(names[path],) for path, state in states.items() if state is None]
        tx.executemany("DELETE FROM seen_files WHERE path = ?", gone)
        tx.executemany(
            "INSERT OR REPLACE INTO seen_files VALUES (?, ?, ?, ?, ?, ?)",
            [(names[path], *state) for path, state in states.items() if state is not None],
        )
        if new is None:
            return
        # The caller has merged an earlier set of this turn.
        tx.execute("DELETE FROM change_sets WHERE turn = ?", (new.turn,))
        tx.execute(
            "INSERT INTO change_sets VALUES (?, ?, ?, ?, ?, ?, ?)",
            (new.turn, new.at, new.undoes, new.is_open, counts.added, counts.modified, counts.deleted),
        )
        tx.executemany(
            "INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [_row(new.turn, each) for each in changes]
        )
        tx.execute(
            "DELETE FROM change_sets WHERE turn IN (SELECT turn FROM change_sets ORDER BY at DESC LIMIT -1 OFFSET ?)",
            (MOST_SETS,),
        )

    @in_transaction
    def drop(self, tx: sqlite3.Connection, turn: str) -> None:
        """Delete the change set of an undo that changed nothing."""
        tx.execute("DELETE FROM change_sets WHERE turn = ?", (turn,))

    async def open_sets(self) -> list[SetRow]:
        """Return the undos that were interrupted."""
        return await self._sets("WHERE is_open ORDER BY at")

    async def newest(self, *, undo: bool = False) -> SetRow | None:
        """Return the change set of the newest turn that changed files; with `undo`, of the newest undo."""
        kind = "NOT NULL AND NOT is_open" if undo else "NULL"
        found = await self._sets(f"WHERE undoes IS {kind} ORDER BY at DESC LIMIT 1")
        return found[0] if found else None

    async def find(self, turn: str) -> SetRow | None:
        """Return a change set by its id."""
        found = await self._sets("WHERE turn = ?", (turn,))
        return found[0] if found else None

    async def undos(self, turn: str) -> list[str]:
        """Return the ids of a change set's undos that were not undone themselves, newest first."""
        every = await self._sets("WHERE undoes = ? AND NOT is_open ORDER BY at DESC", (turn,))
        return [each.turn for each in every if not await self.undos(each.turn)]

    async def changes(self, turn: str) -> list[FileChange]:
        """Return the changes of a set, sorted by path."""
        rows = await self._db.fetch_all(
            "SELECT path, before, after, size_before, size, mode_before, mode, is_yours FROM changes "
            "WHERE turn = ? ORDER BY path",
            (turn,),
        )
        return [
            FileChange(**{**row, "path": os.fsdecode(row["path"]), "is_yours": bool(row["is_yours"])}) for row in rows
        ]

    async def wanted(self) -> set[str]:
        """Return the SHA-256 of every content that a state or a change refers to."""
        found = await self._db.fetch_column(
            "SELECT sha256 FROM seen_files UNION SELECT before FROM changes UNION SELECT after FROM changes"
        )
        return set(filter(None, found))

    async def outside(self) -> dict[bytes, str]:
        """Return the files from outside with their origins; of a forgotten path only a trace of its name."""
        return await self._db.fetch_map("SELECT path, origin FROM outside_files")

    @in_transaction
    def mark_outside(self, tx: sqlite3.Connection, came: Mapping[str, str], gone: Iterable[str]) -> None:
        """Record files from outside with their origins, and those that no longer exist."""
        tx.executemany("DELETE FROM outside_files WHERE path = ?", [(os.fsencode(path),) for path in gone])
        tx.executemany(
            "INSERT OR REPLACE INTO outside_files VALUES (?, ?)",
            [(os.fsencode(path), origin) for path, origin in came.items()],
        )

    async def paths(self) -> set[str]:
        """Return all paths, of changes, states and files from outside."""
        rows = await self._db.fetch_column(
            "SELECT path FROM changes UNION SELECT path FROM seen_files UNION SELECT path FROM outside_files"
        )
        return {os.fsdecode(path) for path in rows if path >= b"\1"}

    @in_transaction
    def forget(self, tx: sqlite3.Connection, turns: Collection[str], is_forgotten: Callable[[str], bool]) -> None:
        """Delete the sets of forgotten turns, and all changes of paths with forgotten names.

        An existing file leaves a trace instead of its name: see `trace_of`.
        """
        removed = 1
        tx.executemany("DELETE FROM change_sets WHERE turn = ?", [(turn,) for turn in turns])
        while removed:
            removed = tx.execute(
                "DELETE FROM change_sets WHERE undoes IS NOT NULL AND undoes NOT IN (SELECT turn FROM change_sets)"
            ).rowcount
        paths = [row[0] for row in tx.execute("SELECT DISTINCT path FROM changes")]
        forgotten = [(path,) for path in paths if is_forgotten(os.fsdecode(path))]
        tx.executemany("DELETE FROM changes WHERE path = ?", forgotten)
        for table in ("seen_files", "outside_files"):
            seen = [row[0] for row in tx.execute(f"SELECT path FROM {table} WHERE path >= x'01'")]  # noqa: S608
            traces = [(trace_of(name), path) for path in seen if is_forgotten(name := os.fsdecode(path))]
            tx.executemany(f"UPDATE OR REPLACE {table} SET path = ? WHERE path = ?", traces)  # noqa: S608

    async def _sets(self, where: str, parameters: Iterable[str] = ()) -> list[SetRow]:
        rows = await self._db.fetch_all(f"SELECT turn, at, undoes, is_open FROM change_sets {where}", parameters)  # noqa: S608
        return [SetRow(row[0], row[1], row[2], bool(row[3])) for row in rows]


def _row(turn: str, each: FileChange) -> tuple[object, ...]:
    sizes = (each.size_before, each.size, each.mode_before, each.mode)
    return (turn, os.fsencode(each.path), each.kind, each.before, each.after, *sizes, each.is_yours)
