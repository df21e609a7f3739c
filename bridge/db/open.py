"""The database of one or more bridges: a file (bridge.db) or Postgres.

This module picks the backend in `bridge/db`. Each module keeps its own SQL and runs it with `Database.write` and
`Database.read`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from bridge.db.interface import ConstraintError, Database, DatabaseAwayError, DatabaseError, Rows, Transaction
from bridge.db.sqlite import open_sqlite
from bridge.db.tables import MIGRATIONS, STORE_TABLES
from bridge.errors import OperatorError

__all__ = [
    "MIGRATIONS",
    "STORE_TABLES",
    "ConstraintError",
    "Database",
    "DatabaseAwayError",
    "DatabaseError",
    "Rows",
    "Transaction",
    "in_snapshot",
    "in_transaction",
    "once_back",
    "open_database",
    "token_sha256",
]

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Self = TypeVar("_Self", bound="_Owner")
_AGAIN_SECONDS = 1.0


@asynccontextmanager
async def open_database(where: Path | str, *, level: int = logging.WARNING) -> AsyncIterator[Database]:
    """Open a file, created if missing, or Postgres (postgresql://...), migrated to the newest version.

    `level` is the log level for Postgres outages. Raises OperatorError if the database is damaged, foreign, from a
    newer bridge, unreachable or not writable.
    """
    if isinstance(where, Path):
        async with open_sqlite(where, MIGRATIONS) as database:
            yield database
        return
    # Imported here because the library is only needed with Postgres.
    from bridge.db.postgres import open_postgres

    async with open_postgres(where, MIGRATIONS, level=level) as shared:
        yield shared


async def once_back(work: Callable[[], Awaitable[_T]]) -> _T:
    """Run idempotent work that must not be lost, retrying each second while the database is away."""
    while True:
        try:
            return await work()
        except DatabaseAwayError:
            await asyncio.sleep(_AGAIN_SECONDS)


class _Owner(Protocol):
    _database: Database


def in_transaction(
    method: Callable[Concatenate[_Self, Transaction, _P], _T],
) -> Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]:
    """Make a method run in a transaction (`Database.write`), which it is given."""

    @wraps(method)
    async def write(self: _Self, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return await self._database.write(lambda tx: method(self, tx, *arguments, **named))

    return write


def in_snapshot(
    method: Callable[Concatenate[_Self, Transaction, _P], _T],
) -> Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]:
    """Make a method that only reads run on one snapshot (`Database.read`), which it is given."""

    @wraps(method)
    async def read(self: _Self, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return await self._database.read(lambda tx: method(self, tx, *arguments, **named))

    return read


def token_sha256(token: str) -> bytes:
    """Return the hash under which a token is stored and looked up. Accepts any text."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


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
