"""How far a store elsewhere has what this sprite has, and what is shipped beside the tables: rows of workspace.db.

Positions number what is shipped. One is issued durably before anything is sent under it, so that it never stands for
two things. They grow with the time (microseconds since 1970): a disk that was set back issues none that it had issued
before, and so finds that a store ahead of it names one that it does not know.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sprite.database.connection import LARGEST_ROW_ID, Database
from sprite.database.ship_changes import triggers

#: Rows that stand for things outside the databases, by their part and name.
ROWS = "ship_rows"

#: Beside the rows of tables: files and what is true of the whole, by name, with what is known of each as JSON. A name
#: is no file's: see `sprite/shipping/files.py`.
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

#: The part of a tombstone: it waits until a store has overwritten what was forgotten.
TOMBSTONES = "tombstones"


@dataclass(frozen=True, slots=True)
class Followed:
    """How a store elsewhere stands to this sprite.

    `numbering` identifies the sequence of positions, `acked` is the position that the store has (0: none ever),
    `acked_at` when it last said so (Unix seconds), `store` its identity. `is_anew`: what is there was not noted anew to
    its end. `baseline`: everything is shipped once more, from this position on.
    """

    numbering: str
    acked: int
    acked_at: float | None
    is_anew: bool
    baseline: int | None
    store: str | None = None


class ShipState:
    """The verbs of all of it."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def followed(self) -> Followed:
        """How far the store is."""
        row = await self._db.fetch_one("SELECT numbering, acked, acked_at, is_anew, baseline, store FROM ship_state")
        assert row is not None  # noqa: S101 - the migration made it
        return Followed(row[0], row[1], row[2], bool(row[3]), row[4], row[5])

    async def has_issued(self, position: int) -> bool:
        """Whether something may have been sent under this position that was not acknowledged."""
        sql = "SELECT EXISTS (SELECT 1 FROM ship_issued WHERE ? BETWEEN first AND last)"
        return bool(await self._db.fetch_value(sql, (position,)))

    async def has_issued_any(self) -> bool:
        """Whether a store may have anything that it did not acknowledge."""
        return bool(await self._db.fetch_value("SELECT EXISTS (SELECT 1 FROM ship_issued)"))

    async def issue(self, count: int) -> int:
        """Takes so many positions in a row; returns the first."""

        def write(tx: sqlite3.Connection) -> int:
            sql = "SELECT max(acked, coalesce((SELECT max(last) FROM ship_issued), 0)) FROM ship_state"
            first = max(int(tx.execute(sql).fetchone()[0]) + 1, time.time_ns() // 1000)
            tx.execute("INSERT INTO ship_issued VALUES (?, ?)", (first, first + count - 1))
            return first

        return await self._db.transact(write)

    async def acknowledge(self, through: int, store: str | None) -> None:
        """Note that a store of this identity (None: unknown) has everything up to this position."""

        def write(tx: sqlite3.Connection) -> None:
            sql = "UPDATE ship_state SET acked = max(acked, ?), acked_at = ?, store = ?"
            tx.execute(sql, (through, time.time(), store))
            tx.execute("DELETE FROM ship_issued WHERE last <= ?", (through,))

        await self._db.transact(write)

    # --- from the beginning ---

    async def begin_anew(self) -> None:
        """The store asks for everything; `begun_anew` ends it, once the other databases have noted all."""

        def write(tx: sqlite3.Connection) -> None:
            # The store may come once more with a position that it has from before.
            tx.execute("INSERT OR REPLACE INTO ship_issued SELECT 1, acked FROM ship_state WHERE acked > 0")
            tx.execute("UPDATE ship_state SET is_anew = 1, acked = 0, baseline = NULL")
            # Which chunks of files the store has is not known any more.
            tx.execute("DELETE FROM ship_rows WHERE facts IS NULL OR part = 'files'")

        await self._db.transact(write)

    async def begun_anew(self, baseline: int) -> None:
        """All is noted; what the store has from before this position and does not get again is gone."""
        await self._db.transact(lambda tx: tx.execute("UPDATE ship_state SET is_anew = 0, baseline = ?", (baseline,)))

    async def rebased(self) -> None:
        """The store was told the baseline."""
        await self._db.execute("UPDATE ship_state SET baseline = NULL")

    # --- rows of what is in no table ---

    async def rows(self, part: str) -> dict[str, str]:
        """What is known of each thing of a part that is there."""
        rows = await self._db.fetch_all(
            "SELECT name, facts FROM ship_rows WHERE part = ? AND facts IS NOT NULL", (part,)
        )
        return {row[0]: row[1] for row in rows}

    async def put(self, part: str, changed: Mapping[str, str], gone: Collection[str] = ()) -> None:
        """Notes things as they now are, as JSON, and things that are gone."""

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
        """The store has these rows: what is gone, and tombstones that it has heard, are not needed any more."""

        def write(tx: sqlite3.Connection) -> None:
            sql = "DELETE FROM ship_rows WHERE id = ? AND (facts IS NULL OR part = ?)"
            for number in ids:
                if tx.execute(sql, (number, TOMBSTONES)).rowcount:
                    # That it went is nobody's business.
                    tx.execute("DELETE FROM ship_changes WHERE part = ? AND row = ?", (ROWS, number))

        if ids:
            await self._db.transact(write)

    async def tombstones(self) -> int:
        """How many forgets the store has not carried out."""
        sql = "SELECT count(*) FROM ship_rows WHERE part = ? AND facts IS NOT NULL"
        return int(await self._db.fetch_value(sql, (TOMBSTONES,)))


def is_position(position: int) -> bool:
    """Whether a number can be a position at all."""
    return 0 <= position <= LARGEST_ROW_ID
