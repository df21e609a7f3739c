"""Pending rows for the replica: an entry for each changed row, in the order of the commits.

Triggers write the entries in the transaction of the change, so that no writer can omit them. A row that changes
again keeps only its newer entry. An entry holds no content and no name: a row is read when it is replicated.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sprite.database.connection import LARGEST_ROW_ID, Database
from sprite.protocol.archive import PARTS, DatabaseName, Row

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


def shipped_tables(database: DatabaseName) -> dict[str, tuple[str, ...]]:
    """Return the replicated tables of a database, each with its excluded columns."""
    return {part.table: part.left_out for part in PARTS if part.database == database and not part.derived}


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """The current row of a table and number; None for a deleted one. `change` is the number of its entry."""

    change: int
    table: str
    id: int
    row: Row | None


class ShipChanges:
    """Access the entries of one database for its replicated tables, each with its excluded columns."""

    def __init__(self, database: Database, tables: Mapping[str, Collection[str]]) -> None:
        self._db = database
        self._tables = tables

    async def newest(self) -> int:
        """Return the newest entry's number, 0 if there is none."""
        return int(await self._db.fetch_value("SELECT coalesce(max(change), 0) FROM ship_changes"))

    async def count(self, after: int = 0) -> int:
        """Return the number of rows pending after an entry."""
        return int(await self._db.fetch_value("SELECT count(*) FROM ship_changes WHERE change > ?", (after,)))

    async def after(self, change: int, up_to: int = LARGEST_ROW_ID, *, size: int) -> list[ChangedRow]:
        """Return the next rows after an entry in one snapshot, oldest change first; at least one if there is any.

        It ends with the row that makes them larger than `size` bytes.
        """
        return await self._db.read(partial(self._read, change=change, up_to=up_to, size=size))

    async def waiting(self) -> dict[str, list[int]]:
        """Return the numbers of all pending rows by table."""
        found: dict[str, list[int]] = {}
        for row in await self._db.fetch_all("SELECT part, row FROM ship_changes ORDER BY change"):
            found.setdefault(row[0], []).append(row[1])
        return found

    async def drop(self, up_to: int) -> None:
        """Delete entries that the replica has."""
        await self._db.execute("DELETE FROM ship_changes WHERE change <= ?", (up_to,))

    async def note_all(self) -> None:
        """Mark all rows as pending again."""
        await self._db.transact(self.note_all_in)

    def note_all_in(self, tx: sqlite3.Connection) -> None:
        """Mark all rows as pending in the caller's transaction."""
        tx.execute("DELETE FROM ship_changes")
        for table in self._tables:
            tx.execute(_note_all(table))

    def _read(self, tx: sqlite3.Connection, change: int, up_to: int, size: int) -> list[ChangedRow]:
        found: list[ChangedRow] = []
        tx.execute("BEGIN")
        try:
            entries = tx.execute(
                "SELECT change, part, row FROM ship_changes WHERE change > ? AND change <= ? ORDER BY change LIMIT ?",
                (change, up_to, _MOST_ENTRIES),
            ).fetchall()
            for number, table, row_number in entries:
                columns = self._columns(tx, table)
                sql = f"SELECT {columns} FROM {table} WHERE rowid = ?"  # noqa: S608 - our own tables
                row = tx.execute(sql, (row_number,)).fetchone()
                found.append(ChangedRow(number, table, row_number, None if row is None else dict(row)))
                size -= 0 if row is None else sum(len(value) for value in row if isinstance(value, str | bytes))
                if size < 0:
                    break
        finally:
            tx.execute("COMMIT")
        return found

    def _columns(self, tx: sqlite3.Connection, table: str) -> str:
        left_out = self._tables[table]
        return ", ".join(row[1] for row in tx.execute(f"PRAGMA table_info({table})") if row[1] not in left_out)
