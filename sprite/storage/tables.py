"""Whole tables, row by row: read in the order in which they were written, and filled from another source.

Knows no table by name. A row is a mapping of its columns to SQLite values: null, integer, real, text or a blob.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sprite.protocol.archive import Row, Value

#: Allowed types of a column by its declared type; SQLite itself would take anything.
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "INTEGER": (int,),
    "REAL": (int, float),
    "TEXT": (str,),
    "BLOB": (bytes,),
}


@dataclass(frozen=True)
class Table:
    """A table of an open database without the `left_out` columns, which are 0 when it is filled.

    A row to fill in may lack the columns in `later`; they become null.
    """

    connection: sqlite3.Connection
    name: str
    order: str = "rowid"
    left_out: tuple[str, ...] = ()
    later: tuple[str, ...] = ()

    @cached_property
    def columns(self) -> dict[str, str]:
        """The type of each column, in column order."""
        found = self.connection.execute(f"PRAGMA table_info({self.name})").fetchall()
        return {row[1]: row[2] for row in found if row[1] not in self.left_out}

    def count(self) -> int:
        """Return the number of rows."""
        return int(self.connection.execute(f"SELECT count(*) FROM {self.name}").fetchone()[0])  # noqa: S608 - our own

    def rows(self) -> Iterator[dict[str, Value]]:
        """Yield every row."""
        names = list(self.columns)
        sql = f"SELECT {', '.join(names)} FROM {self.name} ORDER BY {self.order}"  # noqa: S608 - our own tables
        for row in self.connection.execute(sql):
            yield dict(zip(names, row, strict=True))

    def fill(self, rows: Iterable[Row]) -> Iterator[int]:
        """Replace the table's rows in the caller's transaction; yield 1 for each written row.

        Raises ValueError for an invalid row. Triggers that refuse changes are suspended: they protect an existing
        log, and this one is being created.
        """
        guards = self.connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND sql LIKE '%RAISE(ABORT%'",
            (self.name,),
        ).fetchall()
        for name, _ in guards:
            self.connection.execute(f"DROP TRIGGER {name}")
        self.connection.execute(f"DELETE FROM {self.name}")  # noqa: S608 - our own tables
        names = [*self.columns, *self.left_out]
        places = ", ".join("?" * len(names))
        sql = f"INSERT INTO {self.name} ({', '.join(names)}) VALUES ({places})"  # noqa: S608 - our own tables
        for row in rows:
            self._check(row)
            try:
                self.connection.execute(sql, [row.get(name, 0 if name in self.left_out else None) for name in names])
            except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError) as error:
                raise ValueError(str(error)) from error
            yield 1
        for _, definition in guards:
            self.connection.execute(definition)

    def _check(self, row: Row) -> None:
        if odd_columns := (row.keys() ^ self.columns.keys()) - (set(self.later) - row.keys()):
            odd = ", ".join(sorted(odd_columns))
            raise ValueError(f"its columns are not those of the table: {odd[:200]}")
        for name, kind in self.columns.items():
            value = row.get(name)
            if value is not None and not isinstance(value, _KINDS[kind]):
                raise ValueError(f"{name} is no {kind.lower()}")
