"""Open a SQLite file: pragmas, migrations, identity, one writer and one reader connection.

Knows no tables. A damaged or foreign file is refused and left untouched.

aiosqlite runs each connection on its own thread. Work with more than one statement is a synchronous function over
`sqlite3.Connection` and runs there as a whole: see `_Connection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from sprite.errors import DatabaseUnusableError, MendedAtStartError, StorageError

_T = TypeVar("_T")
BUSY_TIMEOUT_MS = 5000
#: The largest row number; sqlite3 raises for larger ones.
LARGEST_ROW_ID = 2**63 - 1
#: Checking every page of a file up to this size takes less than 0.1 s; `doctor` checks larger ones.
QUICK_CHECK_BYTES = 16 * 1024 * 1024
_PRAGMAS = (
    f"busy_timeout={BUSY_TIMEOUT_MS}",
    "journal_mode=WAL",
    # In WAL mode, a killed process loses no data. A power cut may lose the last moments, but never damages the file
    # (https://sqlite.org/pragma.html#pragma_synchronous).
    "synchronous=NORMAL",
    "foreign_keys=ON",
)
#: Primary result codes that blame the disk, not the statement.
_STORAGE_CODES = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
    }
)
#: Primary result codes for a damaged file.
_DAMAGE_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def to_json(value: Any) -> str:
    """Return a value as JSON for a column, unescaped; values that JSON lacks become text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def row_id(value: int | None) -> int:
    """Return the id of an inserted row; sqlite3 types it as optional."""
    if value is None:
        raise sqlite3.InternalError("an INSERT gave no row id")
    return value


@dataclass(frozen=True, slots=True)
class Schema:
    """Requirements for a database file: its identity, and its migration scripts.

    `application_id` is written into the file's header, so that a foreign file is recognised. `migrations[n]` takes
    a file from version n to n + 1.
    """

    name: str
    application_id: int
    migrations: Sequence[str]


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's disk errors into StorageError, and damage into DatabaseUnusableError.

    Other errors pass.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _STORAGE_CODES:
            raise StorageError(f"{StorageError.__doc__} ({path.name}: {error})") from error
        if code in _DAMAGE_CODES:
            raise DatabaseUnusableError(_damaged(path, str(error))) from error
        raise


class _Connection(sqlite3.Connection):
    """A connection that accepts a Python function as a script.

    aiosqlite's public methods each run one statement on the connection's thread, which costs 0.1 ms per statement,
    and none runs a function there. But `executescript` passes on any argument in one hop, and sqlite3 lets us
    choose the connection's class (`factory`). So a function reaches the thread as a script.

    If a file cannot be opened, aiosqlite leaves its thread behind, which then fails on a closed loop. So the
    connection is opened in memory, and `refused` holds the error for the caller to raise.
    """

    def __init__(self, path: Path, **options: Any) -> None:
        self.refused: sqlite3.OperationalError | None = None
        try:
            super().__init__(path, **options)
        except sqlite3.OperationalError as error:
            super().__init__(":memory:", **options)
            self.refused = error

    def executescript(self, sql_script: str | Callable[[sqlite3.Connection], object], /) -> sqlite3.Cursor:
        """Run a script of SQL, or a function on this connection."""
        if isinstance(sql_script, str):
            return super().executescript(sql_script)
        sql_script(self)
        return self.cursor()


async def _run(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], _T]) -> _T:
    """Run a function on the connection's own thread in one hop; return its value.

    Once started it runs to its end, even if the caller is cancelled.
    """
    values: list[_T] = []
    await connection.executescript(lambda raw: values.append(work(raw)))
    return values[0]


class Database:
    """One file with one writer connection (behind a lock) and one reader connection.

    The reader never waits for the writer's transaction, and sees only committed data.
    """

    def __init__(self, path: Path, writer: aiosqlite.Connection, reader: aiosqlite.Connection) -> None:
        self.path = path
        self._writer = writer
        self._reader = reader
        self._lock = asyncio.Lock()

    async def execute(self, sql: str, parameters: Iterable[Any] = ()) -> None:
        """Run one statement; it is committed when this returns."""
        with storage_errors(self.path):
            async with self._lock:
                await self._writer.execute(sql, parameters)

    async def transact(self, work: Callable[[sqlite3.Connection], _T], *, is_synced: bool = False) -> _T:
        """Run a function on the writer's own thread in one transaction; return its value.

        This takes one hop to the thread and back (0.1 ms) for any number of statements. Once started it runs to its
        end, even if the caller is cancelled; later writes wait for it. With `is_synced`, the result survives a
        power cut once this returns (a few ms).
        """
        with storage_errors(self.path):
            async with self._lock:
                return await _run(self._writer, partial(_synced if is_synced else _all_or_nothing, work=work))

    async def purge(self, reindex: Sequence[str] = ()) -> None:
        """Remove all traces of deleted content: rewrite full text and file, and empty the journal.

        FTS5 keeps deleted words in its segments until they are merged, SQLite keeps them in free pages and the WAL.
        `reindex` are the statements that rewrite the full text, in one transaction.
        """

        def write(tx: sqlite3.Connection) -> None:
            for statement in reindex:
                tx.execute(statement)

        await self.transact(write)
        with storage_errors(self.path):
            async with self._lock:
                await self._writer.execute("VACUUM")
                await self._writer.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")

    async def copy_to(self, path: Path) -> None:
        """Write the database to a new file, atomically."""
        unfinished = path.with_name(f".{path.name}.new")
        unfinished.unlink(missing_ok=True)
        with storage_errors(self.path):
            async with self._lock:
                await self._writer.execute("VACUUM INTO ?", (str(unfinished),))
        unfinished.replace(path)

    async def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a read-only function on the reader's own thread: one hop for any number of statements."""
        with storage_errors(self.path):
            return await _run(self._reader, work)

    async def fetch_all(self, sql: str, parameters: Iterable[Any] = ()) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        with storage_errors(self.path):
            return list(await self._reader.execute_fetchall(sql, parameters))

    async def fetch_one(self, sql: str, parameters: Iterable[Any] = ()) -> sqlite3.Row | None:
        """Return the first row of a query, or None."""
        rows = await self.fetch_all(sql, parameters)
        return rows[0] if rows else None

    async def fetch_value(self, sql: str, parameters: Iterable[Any] = ()) -> Any:
        """Return the first column of the first row, or None."""
        row = await self.fetch_one(sql, parameters)
        return row[0] if row else None


def _synced(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], _T]) -> _T:
    connection.execute("PRAGMA synchronous=FULL")
    try:
        return _all_or_nothing(connection, work)
    finally:
        connection.execute("PRAGMA synchronous=NORMAL")


def _all_or_nothing(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], _T]) -> _T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        value = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return value


@asynccontextmanager
async def open_database(path: Path, schema: Schema) -> AsyncIterator[Database]:
    """Open or create the file and migrate it to the newest version.

    Raises DatabaseUnusableError if it is damaged, foreign or of another version of Sprite; StorageError if the disk
    fails.
    """
    async with contextlib.AsyncExitStack() as stack:
        with storage_errors(path):
            writer = await stack.enter_async_context(_connect(path, schema))
            await _run(writer, partial(_migrate, path=path, schema=schema))
            reader = await stack.enter_async_context(_connect(path, schema))
            await reader.execute("PRAGMA query_only=ON")
        yield Database(path, writer, reader)


@asynccontextmanager
async def open_reader(path: Path, schema: Schema) -> AsyncIterator[Database]:
    """Open an existing file for reading beside its owning process; it is never migrated."""
    if not path.exists():
        raise DatabaseUnusableError(f"There is no {path.name} in {path.parent}: no sprite has run there yet.")
    async with contextlib.AsyncExitStack() as stack:
        with storage_errors(path):
            connection = await stack.enter_async_context(_connect(path, schema))
            await connection.execute("PRAGMA query_only=ON")
            version = await _run(connection, partial(_pragma, name="user_version"))
        _refuse_older(path, schema, version)
        yield Database(path, connection, connection)


@contextlib.contextmanager
def plain_reader(path: Path, schema: Schema) -> Iterator[sqlite3.Connection]:
    """Open an existing file for reading on the calling thread, for reading whole tables; it blocks.

    Raises DatabaseUnusableError for a row that cannot be read.
    """
    if not path.exists():
        raise DatabaseUnusableError(f"There is no {path.name} in {path.parent}: no sprite has run there yet.")
    _refuse_no_file(path, schema)
    with storage_errors(path), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        _prepare(connection, path, schema)
        connection.execute("PRAGMA query_only=ON")
        _refuse_older(path, schema, _pragma(connection, "user_version"))
        yield connection


@contextlib.contextmanager
def empty_database(schema: Schema) -> Iterator[sqlite3.Connection]:
    """Return an empty in-memory database with the tables of the newest version."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _migrate(connection, Path(schema.name), schema)
        yield connection


@contextlib.contextmanager
def filling(path: Path, schema: Schema, version: int) -> Iterator[sqlite3.Connection]:
    """Create or continue a file in the format of that version, in one unsynced transaction.

    At the end it is migrated to the newest version. It blocks. Delete a file for which this was interrupted.
    """
    with storage_errors(path), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        _prepare(connection, path, schema)
        connection.execute("PRAGMA synchronous=OFF")
        _migrate(connection, path, Schema(schema.name, schema.application_id, schema.migrations[:version]))
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
        _migrate(connection, path, schema)


def _refuse_older(path: Path, schema: Schema, version: int) -> None:
    if version != len(schema.migrations):
        raise MendedAtStartError(
            f"{path} is at version {version}, this Sprite needs {len(schema.migrations)}. "
            "Start `python -m sprite serve` once: it brings the file up to date."
        )


@asynccontextmanager
async def _connect(path: Path, schema: Schema) -> AsyncIterator[aiosqlite.Connection]:
    _refuse_no_file(path, schema)
    opening = aiosqlite.connect(path, isolation_level=None, cached_statements=256, factory=_Connection)
    async with opening as connection:
        await _run(connection, partial(_prepare, path=path, schema=schema))
        yield connection


def _refuse_no_file(path: Path, schema: Schema) -> None:
    if path.exists() and not path.is_file():
        # SQLite would report that it is "unable to open" it, or block on a pipe.
        what = "a folder" if path.is_dir() else "no file"
        raise DatabaseUnusableError(
            f"{path} is {what}, not Sprite's {schema.name}. It was left untouched: move it away."
        )


def _prepare(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    if isinstance(connection, _Connection) and connection.refused is not None:
        raise connection.refused
    connection.row_factory = sqlite3.Row
    try:
        _refuse_foreign(connection, path, schema)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise DatabaseUnusableError(_damaged(path, str(error))) from error


def _refuse_foreign(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    tables = _value(connection, "SELECT count(*) FROM sqlite_master")
    if tables and _pragma(connection, "application_id") != schema.application_id:
        raise DatabaseUnusableError(
            f"{path} is a SQLite database, but not Sprite's {schema.name}. It was left untouched: "
            "move it away, or choose another --workspace."
        )
    version = _pragma(connection, "user_version")
    if version > len(schema.migrations):
        raise DatabaseUnusableError(
            f"{path} was written by another version of Sprite (its schema is {version}, this one's "
            f"{len(schema.migrations)}). It was left untouched: use the Sprite that wrote it, or move it away."
        )
    if tables and path.stat().st_size <= QUICK_CHECK_BYTES:
        problem = _value(connection, "PRAGMA quick_check(1)")
        if problem != "ok":
            raise DatabaseUnusableError(_damaged(path, problem))


def _damaged(path: Path, problem: str) -> str:
    return (
        f"{path} is damaged or is no SQLite database ({problem.splitlines()[0]}). It was left untouched: "
        "restore it from a backup, or move it away to start anew."
    )


def _migrate(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    version = _pragma(connection, "user_version")
    for number, script in enumerate(schema.migrations[version:], start=version + 1):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; PRAGMA application_id={schema.application_id}; {script}; "
                f"PRAGMA user_version={number}; COMMIT;"
            )
        except sqlite3.OperationalError as error:
            if connection.in_transaction:
                connection.rollback()
            raise type(error)(f"{path}: migration to version {number} failed: {error}") from error


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(_value(connection, f"PRAGMA {name}"))


def _value(connection: sqlite3.Connection, sql: str) -> Any:
    return connection.execute(sql).fetchone()[0]
