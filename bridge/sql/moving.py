"""Copy a SQLite database into a new and empty Postgres."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bridge.errors import OperatorError
from bridge.sql.interface import Transaction

_ROWS_AT_ONCE = 2000
#: In order of creation: a table comes after those that it references.
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY rowid"
_NUMBERED = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = current_schema() AND is_identity = 'YES'
"""


def copy(tx: Transaction, path: Path) -> dict[str, int]:
    """Copy all rows in one transaction of the Postgres; return the number for each table.

    Both databases must be at the newest version. Raise OperatorError if a target table has rows.
    """
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source:
        tables = [name for (name,) in source.execute(_TABLES).fetchall()]
        for table in tables:
            if tx.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None:  # noqa: S608 - our own tables
                raise OperatorError(
                    f"The database of BRIDGE_DATABASE_URL is in use: it has rows in {table}. Nothing was changed. What "
                    "a bridge has is moved into a database that is new."
                )
        return {table: _copy_table(tx, source, table) for table in tables}


def continue_numbers(tx: Transaction) -> None:
    """Continue generated numbers after the copied ones."""
    for table, column in tx.execute(_NUMBERED).fetchall():
        newest = f'SELECT coalesce(max("{column}"), 0) + 1 FROM "{table}"'  # noqa: S608 - our own tables
        tx.execute(f"SELECT setval(pg_get_serial_sequence(?, ?), ({newest}), false)", (table, column))


def _copy_table(tx: Transaction, source: sqlite3.Connection, table: str) -> int:
    rows = source.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - our own tables
    columns = [column[0] for column in rows.description]
    names, places = ", ".join(f'"{name}"' for name in columns), ", ".join("?" for _ in columns)
    count = 0
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        tx.executemany(f'INSERT INTO "{table}" ({names}) VALUES ({places})', some)  # noqa: S608 - our own tables
        count += len(some)
    return count
