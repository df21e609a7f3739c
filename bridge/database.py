"""The database of one or more bridges: a file (bridge.db) or a Postgres.

Chooses how it is opened (`bridge/sql`). Each module keeps its own SQL and runs it by `Database.write` and
`Database.read`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

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
    "once_back",
    "open_database",
    "token_sha256",
]

_T = TypeVar("_T")
_AGAIN_SECONDS = 1.0


@asynccontextmanager
async def open_database(where: Path | str, *, level: int = logging.WARNING) -> AsyncIterator[Database]:
    """Opens a file (made where there is none) or a Postgres (postgresql://...), at the newest version.

    `level` is that at which a Postgres' absences are logged.
    OperatorError when it is damaged, foreign, from a newer bridge, cannot be reached or cannot be written.
    """
    if isinstance(where, Path):
        async with open_sqlite(where, MIGRATIONS) as database:
            yield database
        return
    # Only who has a Postgres waits for its library.
    from bridge.sql.postgres import open_postgres

    async with open_postgres(where, MIGRATIONS, level=level) as shared:
        yield shared


async def once_back(work: Callable[[], Awaitable[_T]]) -> _T:
    """Does what must not be lost, may be repeated and can wait: again each second while the database is away."""
    while True:
        try:
            return await work()
        except DatabaseAwayError:
            await asyncio.sleep(_AGAIN_SECONDS)


def token_sha256(token: str) -> bytes:
    """What is stored of a token, and what it is found by; any text may be given for one."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
