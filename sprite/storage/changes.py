"""The changes that wait for the replica, and the replica's position.

Triggers write an entry for each changed row, without content, in the transaction of the change. Positions number the
replicated rows: each is issued durably before it is used, and is at least the time of its issue (microseconds since
1970), so that a restored disk never issues an old one again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sprite.common.sqlite import LARGEST_ROW_ID
from sprite.protocol.archive import PARTS, DatabaseName, Row
from sprite.storage.connection import Database, Tables, in_transaction

#: Limit for the entries of one read.
_MOST_ENTRIES = 200

_TABLE = """
    CREATE TABLE ship_changes (
        -- Grows with each change, and no number comes twice.
        change INTEGER PRIMARY KEY AUTOINCREMENT,
        part TEXT NOT NULL,
        row INTEGER NOT NULL,
        UNIQUE (part, row)
    );
"""


def noted(tables: Sequence[str]) -> str:
    """Return a migration script that records all rows of these tables and their later changes."""
    return _TABLE + "".join(map(triggers, tables)) + "".join(map(_note_all, tables))


def triggers(table: str) -> str:
    """Return a script that records every change of a table. Its rows must have numbers (no WITHOUT ROWID)."""
    # Deleted first instead of REPLACE: the outer statement's conflict clause would also apply to the trigger.
    insert = "INSERT INTO ship_changes (part, row)"
    forget = f"DELETE FROM ship_changes WHERE part = '{table}' AND row"  # noqa: S608 - our own tables
    return f"""
        CREATE TRIGGER {table}_ship_new AFTER INSERT ON {table} BEGIN
            {forget} = NEW.rowid;
            {insert} VALUES ('{table}', NEW.rowid);
        END;
        CREATE TRIGGER {table}_ship_changed AFTER UPDATE ON {table} BEGIN
            {forget} IN (OLD.rowid, NEW.rowid);
            {insert} SELECT '{table}', OLD.rowid UNION SELECT '{table}', NEW.rowid;
        END;
        CREATE TRIGGER {table}_ship_gone AFTER DELETE ON {table} BEGIN
            {forget} = OLD.rowid;
            {insert} VALUES ('{table}', OLD.rowid);
        END;
    """  # noqa: S608 - our own tables


def _note_all(table: str) -> str:
    return f"INSERT INTO ship_changes (part, row) SELECT '{table}', rowid FROM {table} ORDER BY rowid;\n"  # noqa: S608 - our own


def shipped_tables(database: DatabaseName) -> list[str]:
    """Return the replicated tables of a database."""
    return [part.table for part in PARTS if part.database == database]


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that waits for the replica: its table, number and columns (None: deleted); `change` numbers its entry."""

    change: int
    table: str
    id: int
    row: Row | None


class ShipChanges(Tables):
    """Read and write one database's list of changed rows that wait for the replica (`ship_changes`)."""

    def __init__(self, database: Database, tables: Sequence[str]) -> None:
        super().__init__(database)
        self._tables = tables

    async def newest(self) -> int:
        """Return the newest entry's number, 0 if there is none."""
        return int(await self._db.fetch_value("SELECT coalesce(max(change), 0) FROM ship_changes"))

    async def count(self, after: int = 0) -> int:
        """Return how many changed rows wait for the replica after entry `after`."""
        return int(await self._db.fetch_value("SELECT count(*) FROM ship_changes WHERE change > ?", (after,)))

    async def after(self, change: int, up_to: int = LARGEST_ROW_ID, *, size: int) -> list[ChangedRow]:
        """Return changed rows after the entry `change` up to `up_to`, oldest change first, from one snapshot.

        The last one is the row that makes them larger than `size` bytes, so at least one is returned if there
        is any.
        """
        return await self._db.read(partial(self._read, change=change, up_to=up_to, size=size))

    async def waiting(self) -> dict[str, list[int]]:
        """Return the numbers of all rows that wait for the replica, by table."""
        found: dict[str, list[int]] = {}
        for row in await self._db.fetch_all("SELECT part, row FROM ship_changes ORDER BY change"):
            found.setdefault(row[0], []).append(row[1])
        return found

    async def drop(self, up_to: int) -> None:
        """Delete the entries up to this number, because the replica has acknowledged their rows."""
        await self._db.execute("DELETE FROM ship_changes WHERE change <= ?", (up_to,))

    @in_transaction
    def note_all(self, tx: sqlite3.Connection) -> None:
        """Mark all rows of the tables as waiting for the replica."""
        tx.execute("DELETE FROM ship_changes")
        for table in self._tables:
            tx.execute(_note_all(table))

    @in_transaction
    def note(self, tx: sqlite3.Connection, ranges: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Mark rows as waiting for the replica, by table and inclusive range of numbers.

        A range of a single number also marks a row that no longer exists.
        """
        for table, spans in ranges.items():
            sql = (
                "INSERT OR IGNORE INTO ship_changes (part, row) "  # noqa: S608 - our own tables
                f"SELECT '{table}', rowid FROM {table} WHERE rowid BETWEEN ?1 AND ?2 "
                f"UNION SELECT '{table}', ?1 WHERE ?1 = ?2"
            )
            tx.executemany(sql, spans)

    def _read(self, tx: sqlite3.Connection, change: int, up_to: int, size: int) -> list[ChangedRow]:
        found: list[ChangedRow] = []
        tx.execute("BEGIN")
        try:
            entries = tx.execute(
                "SELECT change, part, row FROM ship_changes WHERE change > ? AND change <= ? ORDER BY change LIMIT ?",
                (change, up_to, _MOST_ENTRIES),
            ).fetchall()
            for number, table, row_number in entries:
                sql = f"SELECT * FROM {table} WHERE rowid = ?"  # noqa: S608 - our own tables
                row = tx.execute(sql, (row_number,)).fetchone()
                found.append(ChangedRow(number, table, row_number, None if row is None else dict(row)))
                size -= 0 if row is None else sum(len(value) for value in row if isinstance(value, str | bytes))
                if size < 0:
                    break
        finally:
            tx.execute("COMMIT")
        return found


#: Table of replicated things outside the databases, by their part and name.
ROWS = "ship_rows"

#: Beside table rows: files and global facts by name, with their details as JSON. No name is a file's name: see
#: `sprite/backup/replica_files.py`.
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


class ShipState(Tables):
    """Read and update the state of replication: positions, the replica's identity, and facts about files."""

    async def followed(self) -> Followed:
        """Return how far the replica follows this sprite."""
        row = await self._db.fetch_one("SELECT numbering, acked, acked_at, is_anew, baseline, store FROM ship_state")
        assert row is not None  # noqa: S101 - the migration made it
        return Followed(row[0], row[1], row[2], bool(row[3]), row[4], row[5])

    async def has_issued(self, position: int) -> bool:
        """Return whether this position was issued and not acknowledged yet, so that a message may have used it."""
        sql = "SELECT EXISTS (SELECT 1 FROM ship_issued WHERE ? BETWEEN first AND last)"
        return bool(await self._db.fetch_value(sql, (position,)))

    async def has_issued_any(self) -> bool:
        """Return whether any issued position is unacknowledged, so that a replica may have such data."""
        return bool(await self._db.fetch_value("SELECT EXISTS (SELECT 1 FROM ship_issued)"))

    @in_transaction
    def issue(self, tx: sqlite3.Connection, count: int) -> int:
        """Reserve this many consecutive positions; return the first."""
        sql = "SELECT max(acked, coalesce((SELECT max(last) FROM ship_issued), 0)) FROM ship_state"
        first = max(int(tx.execute(sql).fetchone()[0]) + 1, time.time_ns() // 1000)
        tx.execute("INSERT INTO ship_issued VALUES (?, ?)", (first, first + count - 1))
        return first

    @in_transaction
    def acknowledge(self, tx: sqlite3.Connection, through: int, store: str | None) -> None:
        """Record that a replica of this identity (None: unknown) has everything up to this position."""
        sql = "UPDATE ship_state SET acked = max(acked, ?), acked_at = ?, store = ?"
        tx.execute(sql, (through, time.time(), store))
        tx.execute("DELETE FROM ship_issued WHERE last <= ?", (through,))

    # --- from the beginning ---

    @in_transaction
    def begin_anew(self, tx: sqlite3.Connection) -> None:
        """Begin to send everything again, because the replica asks for it.

        `begun_anew` completes this after the rows of the other databases were marked.
        """
        # The replica may return with an earlier position.
        tx.execute("INSERT OR REPLACE INTO ship_issued SELECT 1, acked FROM ship_state WHERE acked > 0")
        tx.execute("UPDATE ship_state SET is_anew = 1, acked = 0, baseline = NULL")
        # The chunks of files that the replica has are now unknown.
        tx.execute("DELETE FROM ship_rows WHERE facts IS NULL OR part = 'files'")

    async def begun_anew(self, baseline: int) -> None:
        """Finish `begin_anew`, and store the baseline: the replica later deletes rows of earlier positions."""
        await self._db.execute("UPDATE ship_state SET is_anew = 0, baseline = ?", (baseline,))

    async def rebased(self) -> None:
        """Clear the baseline, because it is queued for the replica."""
        await self._db.execute("UPDATE ship_state SET baseline = NULL")

    # --- rows of what is in no table ---

    async def rows(self, part: str) -> dict[str, str]:
        """Return the stored facts (JSON by name) of the existing things of a part, a kind such as `files`."""
        sql = "SELECT name, facts FROM ship_rows WHERE part = ? AND facts IS NOT NULL"
        return await self._db.fetch_map(sql, (part,))

    @in_transaction
    def put(self, tx: sqlite3.Connection, part: str, changed: Mapping[str, str], gone: Collection[str] = ()) -> None:
        """Store facts (JSON by name) of changed things of a part such as `files`; mark `gone` names as deleted."""
        tx.executemany(
            "INSERT INTO ship_rows (part, name, facts) VALUES (?, ?, ?) "
            "ON CONFLICT (part, name) DO UPDATE SET facts = excluded.facts",
            [(part, name, facts) for name, facts in changed.items()],
        )
        tx.executemany("UPDATE ship_rows SET facts = NULL WHERE part = ? AND name = ?", [(part, name) for name in gone])

    @in_transaction
    def note(self, tx: sqlite3.Connection, parts: Collection[str], but: Collection[str] = ()) -> None:
        """Mark all things of these parts, such as `files`, as waiting for the replica, except the names in `but`."""
        for part in parts:
            for number, name in tx.execute("SELECT id, name FROM ship_rows WHERE part = ?", (part,)).fetchall():
                if name not in but:
                    tx.execute("INSERT OR IGNORE INTO ship_changes (part, row) VALUES (?, ?)", (ROWS, number))

    @in_transaction
    def let_go(self, tx: sqlite3.Connection, ids: Collection[int]) -> None:
        """Delete rows that the replica has acknowledged: those of things that are gone, and of tombstones."""
        for number in ids:
            sql = "DELETE FROM ship_rows WHERE id = ? AND (facts IS NULL OR part = ?)"
            if tx.execute(sql, (number, TOMBSTONES)).rowcount:
                # This deletion need not be replicated.
                tx.execute("DELETE FROM ship_changes WHERE part = ? AND row = ?", (ROWS, number))

    async def tombstones(self) -> int:
        """Return the number of forgets that the replica has not confirmed."""
        sql = "SELECT count(*) FROM ship_rows WHERE part = ? AND facts IS NOT NULL"
        return int(await self._db.fetch_value(sql, (TOMBSTONES,)))


def is_position(position: int) -> bool:
    """Return whether a number is in the valid range of positions."""
    return 0 <= position <= LARGEST_ROW_ID
