"""Open the database of one or more bridges."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bridge.db.database import Database
from bridge.db.sqlite import open_sqlite
from bridge.db.tables import MIGRATIONS


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
    # Imported here because psycopg is only needed with Postgres.
    from bridge.db.postgres import open_postgres

    async with open_postgres(where, MIGRATIONS, level=level) as shared:
        yield shared
