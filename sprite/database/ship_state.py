"""Replication state, and replicated things that are not in tables: rows of workspace.db.

Positions number the replicated rows. A position is issued durably before anything is sent under it, so that it
never has two meanings. Positions grow with the time (microseconds since 1970). So a restored disk never issues an
old position again, and detects a replica that is ahead of it by an unknown position.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sprite.database.connection import LARGEST_ROW_ID, Database
from sprite.database.ship_changes import triggers

#: Table of replicated things outside the databases, by their part and name.
ROWS = "ship_rows"

#: Beside table rows: files and global facts by name, with their details as JSON. No name is a file's name: see
#: `sprite/shipping/files.py`.
SHIP_STATE = (
    """
    CREATE TABLE ship_state (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        -- Which sequence of positions this is: a restored workspace begins another one.
        numbering TEXT NOT NULL,
        acked INTEGER NOT NULL DEFAULT 0,
        acked_at REAL,
        -- The identity of the store that acknowledged last.
        store TEXT,
        -- Whether everything is being noted anew, and from which position on it is shipped once more.
        is_anew INTEGER NOT NULL DEFAULT 0,
        baseline INTEGER
    );
    INSERT INTO ship_state (id, numbering) VALUES (1, lower(hex(randomblob(8))));
    CREATE TABLE ship_issued (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
    CREATE TABLE ship_rows (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        part TEXT NOT NULL,
        name TEXT NOT NULL,
        -- Null for one that is gone.
        facts TEXT CHECK (facts IS NULL OR json_valid(facts)),
        UNIQUE (part, name)
    );
"""  # noqa: S608 - our own schema
    + triggers(ROWS)
)

#: The part of tombstones: each waits until the replica has overwritten the forgotten text.
TOMBSTONES = "tombstones"


@dataclass(frozen=True, slots=True)
class Followed:
    """State of the replica relative to this sprite.

    `numbering` identifies the sequence of positions. `acked` is the position that the replica has (0: none ever),
    `acked_at` the time of that acknowledgement (Unix seconds), `store` the replica's identity. `is_anew`: marking
    all rows as pending has not finished. `baseline`: everything is sent again from this position on.
    """

    numbering: str
    acked: int
    acked_at: float | None
    is_anew: bool
    baseline: int | None
    store: str | None = None


class ShipState:
    """Read and update the replication state."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def followed(self) -> Followed:
        """Return the state of the replica."""
        row = await self._db.fetch_one("SELECT numbering, acked, acked_at, is_anew, baseline, store FROM ship_state")
        assert row is not None  # noqa: S101 - the migration made it
        return Followed(row[0], row[1], row[2], bool(row[3]), row[4], row[5])

    async def has_issued(self, position: int) -> bool:
        """Return whether something unacknowledged may have been sent under this position."""
        sql = "SELECT EXISTS (SELECT 1 FROM ship_issued WHERE ? BETWEEN first AND last)"
        return bool(await self._db.fetch_value(sql, (position,)))

    async def has_issued_any(self) -> bool:
        """Return whether a replica may have unacknowledged data."""
        return bool(await self._db.fetch_value("SELECT EXISTS (SELECT 1 FROM ship_issued)"))

    async def issue(self, count: int) -> int:
        """Reserve this many consecutive positions; return the first."""

        def write(tx: sqlite3.Connection) -> int:
            sql = "SELECT max(acked, coalesce((SELECT max(last) FROM ship_issued), 0)) FROM ship_state"
            first = max(int(tx.execute(sql).fetchone()[0]) + 1, time.time_ns() // 1000)
            tx.execute("INSERT INTO ship_issued VALUES (?, ?)", (first, first + count - 1))
            return first

        return await self._db.transact(write)

    async def acknowledge(self, through: int, store: str | None) -> None:
        """Record that a replica of this identity (None: unknown) has everything up to this position."""

        def write(tx: sqlite3.Connection) -> None:
            sql = "UPDATE ship_state SET acked = max(acked, ?), acked_at = ?, store = ?"
            tx.execute(sql, (through, time.time(), store))
            tx.execute("DELETE FROM ship_issued WHERE last <= ?", (through,))

        await self._db.transact(write)

    # --- from the beginning ---

    async def begin_anew(self) -> None:
        """Start over because the replica asks for everything. `begun_anew` completes it after the other databases."""

        def write(tx: sqlite3.Connection) -> None:
            # The replica may return with an earlier position.
            tx.execute("INSERT OR REPLACE INTO ship_issued SELECT 1, acked FROM ship_state WHERE acked > 0")
            tx.execute("UPDATE ship_state SET is_anew = 1, acked = 0, baseline = NULL")
            # The chunks of files that the replica has are now unknown.
            tx.execute("DELETE FROM ship_rows WHERE facts IS NULL OR part = 'files'")

        await self._db.transact(write)

    async def begun_anew(self, baseline: int) -> None:
        """Set the baseline: older data of the replica that is not sent again is deleted."""
        await self._db.transact(lambda tx: tx.execute("UPDATE ship_state SET is_anew = 0, baseline = ?", (baseline,)))

    async def rebased(self) -> None:
        """Clear the baseline after the replica received it."""
        await self._db.execute("UPDATE ship_state SET baseline = NULL")

    # --- rows of what is in no table ---

    async def rows(self, part: str) -> dict[str, str]:
        """Return the facts of each existing thing of a part."""
        rows = await self._db.fetch_all(
            "SELECT name, facts FROM ship_rows WHERE part = ? AND facts IS NOT NULL", (part,)
        )
        return {row[0]: row[1] for row in rows}

    async def put(self, part: str, changed: Mapping[str, str], gone: Collection[str] = ()) -> None:
        """Store the current facts of things as JSON, and mark others as gone."""

        def write(tx: sqlite3.Connection) -> None:
            tx.executemany(
                "INSERT INTO ship_rows (part, name, facts) VALUES (?, ?, ?) "
                "ON CONFLICT (part, name) DO UPDATE SET facts = excluded.facts",
                [(part, name, facts) for name, facts in changed.items()],
            )
            tx.executemany(
                "UPDATE ship_rows SET facts = NULL WHERE part = ? AND name = ?", [(part, name) for name in gone]
            )

        if changed or gone:
            await self._db.transact(write)

    async def let_go(self, ids: Collection[int]) -> None:
        """Delete acknowledged rows of things that are gone, and of tombstones."""

        def write(tx: sqlite3.Connection) -> None:
            sql = "DELETE FROM ship_rows WHERE id = ? AND (facts IS NULL OR part = ?)"
            for number in ids:
                if tx.execute(sql, (number, TOMBSTONES)).rowcount:
                    # This deletion need not be replicated.
                    tx.execute("DELETE FROM ship_changes WHERE part = ? AND row = ?", (ROWS, number))

        if ids:
            await self._db.transact(write)

    async def tombstones(self) -> int:
        """Return the number of forgets that the replica has not confirmed."""
        sql = "SELECT count(*) FROM ship_rows WHERE part = ? AND facts IS NOT NULL"
        return int(await self._db.fetch_value(sql, (TOMBSTONES,)))


def is_position(position: int) -> bool:
    """Return whether a number can be a position."""
    return 0 <= position <= LARGEST_ROW_ID
