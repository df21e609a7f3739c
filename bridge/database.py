"""The database of one or more bridges: a file (bridge.db) or Postgres.

This module picks the backend in `bridge/sql`. Each module keeps its own SQL and runs it with `Database.write` and
`Database.read`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from bridge.sql.interface import (
    ConstraintError,
    Database,
    DatabaseAwayError,
    DatabaseError,
    Rows,
    Transaction,
)
from bridge.sql.sqlite import open_sqlite
from bridge.sql.tables import MIGRATIONS, STORE_TABLES

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
    from bridge.sql.postgres import open_postgres

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
