"""The sprite's databases: one owner, one writer thread with a queue, a reader thread, and a connection for queries.

Work with more than one statement is a function over `sqlite3.Connection` that runs as a whole on a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import aiosqlite

from sprite.common import sqlite
from sprite.common.sqlite import Connection, RefusedFileError, Schema
from sprite.errors import DatabaseUnusableError, MigrationPendingError, StorageError

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Tables = TypeVar("_Tables", bound="Tables")
#: Primary result codes that blame the disk, not the statement.
_STORAGE_CODES = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
)
#: Primary result codes for a damaged file.
_DAMAGE_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def to_json(value: Any) -> str:
    """Return a value as JSON for a column, unescaped; values that JSON lacks become text."""
    return json.dumps(value, ensure_ascii=False, default=str)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's disk errors into StorageError, and damage into DatabaseUnusableError."""
    try:
        yield
    except RefusedFileError as error:
        raise DatabaseUnusableError(str(error)) from error
    except sqlite3.DatabaseError as error:
        _raise_storage_error(path, error)
        raise


def _raise_storage_error(path: Path, error: sqlite3.DatabaseError) -> None:
    """Raise the error of ours that stands for one of SQLite's; do nothing if the statement is to blame."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _STORAGE_CODES:
        raise StorageError(f"{StorageError.__doc__} ({path.name}: {error})") from error
    if code in _DAMAGE_CODES:
        raise DatabaseUnusableError(sqlite.damaged(path, str(error))) from error


class Database:
    """One file with a writer thread, a reader thread, and aiosqlite for single queries.

    Readers never wait for the writer's transaction, and see only committed data.
    """

    def __init__(self, path: Path, writer: Connection, reader: Connection, queries: aiosqlite.Connection) -> None:
        self.path = path
        self._writer = writer
        self._reader = reader
        self._queries = queries

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run one statement and commit it before returning."""
        await self._run(self._writer, lambda connection: connection.execute(sql, parameters).close())

    async def transact(
        self, work: Callable[[sqlite3.Connection], _T], *, is_synced: bool = False, is_kept: bool = True
    ) -> _T:
        """Run a function on the writer's thread in one transaction; return its value.

        Once started it runs to its end, even if the caller is cancelled; later writes wait for it. With
        `is_synced`, the result survives a power cut once this method returns (a few ms). With `is_kept` false,
        the writes are rolled back.
        """

        def transaction(connection: sqlite3.Connection) -> _T:
            connection.execute(f"PRAGMA synchronous={'FULL' if is_synced else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                value = work(connection)
                if not is_kept:
                    connection.rollback()
            return value

        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer.thread, transaction, self._writer.raw)
        except sqlite3.DatabaseError as error:
            _raise_storage_error(self.path, error)
            raise

    async def purge(self, reindex: Sequence[str] = ()) -> None:
        """Remove all traces of deleted content: rewrite full text and file, and empty the journal.

        FTS5 keeps deleted words in its segments until they are merged, SQLite keeps them in free pages and the WAL.
        `reindex` are the statements that rewrite the full text, in one transaction.
        """

        def write(tx: sqlite3.Connection) -> None:
            for statement in reindex:
                tx.execute(statement)

        await self.transact(write)
        for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            await self.execute(statement)

    async def copy_to(self, path: Path) -> None:
        """Write the database to a new file, atomically."""
        unfinished = path.with_name(f".{path.name}.new")
        unfinished.unlink(missing_ok=True)
        await self.execute("VACUUM INTO ?", (str(unfinished),))
        unfinished.replace(path)

    async def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a read-only function on the reader's thread."""
        return await self._run(self._reader, work)

    async def _run(self, connection: Connection, work: Callable[[sqlite3.Connection], _T]) -> _T:
        with storage_errors(self.path):
            return await asyncio.get_running_loop().run_in_executor(connection.thread, work, connection.raw)

    async def fetch_all(self, sql: str, parameters: Iterable[Any] = ()) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        try:
            return list(await self._queries.execute_fetchall(sql, parameters))
        except sqlite3.DatabaseError as error:
            _raise_storage_error(self.path, error)
            raise

    async def fetch_as(self, make: Callable[..., _T], sql: str, parameters: Iterable[Any] = ()) -> list[_T]:
        """Return `make(*columns)` for each row of a query."""
        return [make(*row) for row in await self.fetch_all(sql, parameters)]

    async def fetch_column(self, sql: str, parameters: Iterable[Any] = ()) -> list[Any]:
        """Return the first column of each row."""
        return [row[0] for row in await self.fetch_all(sql, parameters)]

    async def fetch_map(self, sql: str, parameters: Iterable[Any] = ()) -> dict[Any, Any]:
        """Return a query's rows as a dictionary: the first column is the key, the second the value."""
        return {row[0]: row[1] for row in await self.fetch_all(sql, parameters)}

    async def fetch_one(self, sql: str, parameters: Iterable[Any] = ()) -> sqlite3.Row | None:
        """Return the first row of a query, or None."""
        rows = await self.fetch_all(sql, parameters)
        return rows[0] if rows else None

    async def fetch_value(self, sql: str, parameters: Iterable[Any] = ()) -> Any:
        """Return the first column of the first row, or None."""
        row = await self.fetch_one(sql, parameters)
        return row[0] if row else None


class Tables:
    """Base of the classes that read and write some tables of a database."""

    def __init__(self, database: Database) -> None:
        self._db = database
        #: Run a function in one transaction: see `Database.transact`.
        self.transact = database.transact


def in_transaction(
    method: Callable[Concatenate[_Tables, sqlite3.Connection, _P], _T],
) -> Callable[Concatenate[_Tables, _P], Coroutine[Any, Any, _T]]:
    """Make a method of Tables run in one transaction on the writer's thread; its first argument is the connection."""

    @wraps(method)
    async def transact(self: _Tables, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return await self._db.transact(lambda tx: method(self, tx, *arguments, **named))

    return transact


@asynccontextmanager
async def open_database(path: Path, schema: Schema) -> AsyncIterator[Database]:
    """Open or create the file and migrate it to the newest version.

    Raises DatabaseUnusableError if it is damaged, foreign or of another version of Sprite; StorageError if the disk
    fails.
    """
    async with contextlib.AsyncExitStack() as stack:
        with storage_errors(path):
            writer = await stack.enter_async_context(
                sqlite.connected(partial(sqlite.connect, path, schema), f"{path.name} writer")
            )
        yield await _with_readers(stack, path, schema, writer)


@asynccontextmanager
async def open_reader(path: Path, schema: Schema) -> AsyncIterator[Database]:
    """Open an existing file for reading beside its owning process; it is never migrated."""
    _refuse_missing(path)
    async with contextlib.AsyncExitStack() as stack:
        yield await _with_readers(stack, path, schema, None)


async def _with_readers(
    stack: contextlib.AsyncExitStack, path: Path, schema: Schema, writer: Connection | None
) -> Database:
    with storage_errors(path):
        reader = await stack.enter_async_context(
            sqlite.connected(partial(_open_reader, path, schema), f"{path.name} reader")
        )
        queries = await stack.enter_async_context(aiosqlite.connect(path, isolation_level=None, cached_statements=256))
        queries.row_factory = sqlite3.Row
        await queries.execute_fetchall("PRAGMA query_only=ON")
    return Database(path, writer or reader, reader, queries)


def _open_reader(path: Path, schema: Schema) -> sqlite3.Connection:
    connection = sqlite.connect(path, schema, is_reader=True)
    version = sqlite.pragma(connection, "user_version")
    if version != len(schema.migrations):
        connection.close()
        raise MigrationPendingError(
            f"{path} is at version {version}, this Sprite needs {len(schema.migrations)}. "
            "Start `python -m sprite serve` once: it brings the file up to date."
        )
    return connection


def _refuse_missing(path: Path) -> None:
    if not path.exists():
        raise DatabaseUnusableError(f"There is no {path.name} in {path.parent}: no sprite has run there yet.")


@contextlib.contextmanager
def plain_reader(path: Path, schema: Schema) -> Iterator[sqlite3.Connection]:
    """Open an existing file for reading, blocking. Raises DatabaseUnusableError for a row that cannot be read."""
    _refuse_missing(path)
    with storage_errors(path), contextlib.closing(_open_reader(path, schema)) as connection:
        yield connection


@contextlib.contextmanager
def empty_database(schema: Schema) -> Iterator[sqlite3.Connection]:
    """Return an empty in-memory database with the tables of the newest version."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        sqlite.migrate(connection, Path(schema.name), schema)
        yield connection


@contextlib.contextmanager
def filling(path: Path, schema: Schema) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a new or existing file, in one transaction without syncing; blocks.

    If the block is interrupted, the caller must delete the file.
    """
    with storage_errors(path), contextlib.closing(sqlite.connect(path, schema)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
