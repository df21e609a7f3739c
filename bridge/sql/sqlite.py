"""The database as a file of this bridge: bridge.db. Owns the file, its pragmas and how it is opened.

The code equals that for the sprite's file in `sprite/database/connection.py`: the same pragmas, checks, migrations
and transactions. The duplication is deliberate. Bridge and sprite are deployed separately and share only their common
contracts (the protocol, the prices), not how each stores its files. A test compares both.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.errors import OperatorError
from bridge.sql.interface import ConstraintError, DatabaseError, Transaction
from sprite.protocol.whole_file import sync

if TYPE_CHECKING:
    from collections.abc import Iterator

_T = TypeVar("_T")
#: "Spbr": a foreign SQLite file is never mistaken for the bridge's.
APPLICATION_ID = 0x53706272
BUSY_TIMEOUT_MS = 5000
_PRAGMAS = (
    f"busy_timeout={BUSY_TIMEOUT_MS}",
    "journal_mode=WAL",
    # In WAL mode a killed process loses no commit. A power cut may lose the last moments, but never damages the file
    # (https://sqlite.org/pragma.html#pragma_synchronous).
    "synchronous=NORMAL",
    "foreign_keys=ON",
)


class SqliteDatabase:
    """One file with a writer and a reader connection, each on its own thread; see Database.

    The reader never waits for the writer, and sees only committed changes.
    """

    def __init__(
        self,
        path: Path,
        writer: tuple[sqlite3.Connection, ThreadPoolExecutor],
        reader: tuple[sqlite3.Connection, ThreadPoolExecutor],
    ) -> None:
        self._log = path.with_name(f"{path.name}-wal")
        self._writer, self._writer_thread = writer
        self._reader, self._reader_thread = reader

    async def write(self, work: Callable[[Transaction], _T]) -> _T:
        """See Database. One round trip to the thread, however many statements."""
        return await self._run(self._writer_thread, _all_or_nothing, self._writer, work)

    async def write_in_turn(self, key: str, work: Callable[[Transaction], _T]) -> _T:
        """See Database. There is one writer, so all writes are serialised."""
        del key
        return await self.write(work)

    async def read(self, work: Callable[[Transaction], _T]) -> _T:
        """See Database."""
        return await self._run(self._reader_thread, work, self._reader)

    async def statement(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """See Database. There is one writer, so no other write interferes."""
        return await self._run(self._writer_thread, _statement, self._writer, sql, parameters)

    async def upkeep(self, sql: str, seconds: float) -> None:
        """See Database. Blocks other writers, without a time limit."""
        del seconds
        await self.statement(sql)

    async def listen(self, channel: str) -> AsyncGenerator[str, None]:
        """See Database."""
        await asyncio.Event().wait()
        yield channel

    async def sync(self) -> None:
        """See Database. Flushes the write-ahead log to the disk."""
        # A disk that fails here also fails the next write, which reports it.
        with suppress(OSError):
            await asyncio.to_thread(sync, self._log)

    async def ping(self) -> None:
        """See Database. A file is always available."""

    async def _run(self, thread: ThreadPoolExecutor, work: Callable[..., _T], *arguments: object) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work, *arguments)
        except sqlite3.IntegrityError as error:
            raise ConstraintError(_code(error), str(error)) from error
        except sqlite3.Error as error:
            raise DatabaseError(_code(error), str(error)) from error


@asynccontextmanager
async def open_sqlite(path: Path, migrations: Sequence[str]) -> AsyncIterator[SqliteDatabase]:
    """Open (or create) the file, readable only by its owner, and migrate it to the newest version.

    Raise OperatorError if the file is damaged, foreign, from a newer bridge, or not writable.
    """
    with ExitStack() as stack:
        with _explained(path):
            writer = stack.enter_context(closing(await asyncio.to_thread(_open, path, migrations)))
            reader = stack.enter_context(closing(await asyncio.to_thread(_connect, path, len(migrations))))
        reader.execute("PRAGMA query_only=ON")
        # Entered after the connections: work that a cancelled caller left in a thread ends before its connection.
        writer_thread = stack.enter_context(ThreadPoolExecutor(1, "bridge-db-writer"))
        reader_thread = stack.enter_context(ThreadPoolExecutor(1, "bridge-db-reader"))
        yield SqliteDatabase(path, (writer, writer_thread), (reader, reader_thread))


def _open(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    # SQLite would create the file readable for the group; its -wal and -shm take the mode of the file.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = _connect(path, len(migrations))
    try:
        _migrate(connection, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, version: int) -> sqlite3.Connection:
    # One thread at a time uses a connection: its own, or none when it is closed.
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256, check_same_thread=False)
    try:
        _prepare(connection, path, version)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, version: int) -> None:
    connection.row_factory = sqlite3.Row
    connection.create_function("db_now", 0, time.time)
    # No other program has this file open.
    connection.create_function("db_notify", 2, lambda _channel, _text: None)
    _refuse_foreign(connection, path, version)
    for pragma in _PRAGMAS:
        _set(connection, pragma)


def _set(connection: sqlite3.Connection, pragma: str) -> None:
    """Set a pragma. Retry, because busy_timeout does not cover two processes that switch a new file to WAL at once."""
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute(f"PRAGMA {pragma}")
        except sqlite3.OperationalError as error:
            if not _code(error).startswith("SQLITE_BUSY") or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _refuse_foreign(connection: sqlite3.Connection, path: Path, known: int) -> None:
    tables = _value(connection, "SELECT count(*) FROM sqlite_master")
    if tables and _pragma(connection, "application_id") != APPLICATION_ID:
        raise OperatorError(
            f"{path} is a SQLite database, but not the bridge's. It was left untouched: move it away, or choose "
            "another --data."
        )
    version = _pragma(connection, "user_version")
    if version > known:
        raise OperatorError(
            f"{path} was written by another version of the bridge "
            f"(schema {version}, this one knows {known}). Use that version; the file was left untouched."
        )


def _migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    for number, script in enumerate(migrations, start=1):
        if _pragma(connection, "user_version") < number:
            _all_or_nothing(connection, partial(_migrate_to, number, script))


def _migrate_to(number: int, script: str, tx: Transaction) -> None:
    # Check again in the transaction: another process may open the same new file.
    if tx.execute("PRAGMA user_version").fetchone()[0] >= number:
        return
    for statement in _statements(script):
        tx.execute(statement)
    tx.execute(f"PRAGMA application_id={APPLICATION_ID}")
    tx.execute(f"PRAGMA user_version={number}")


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script: `executescript` would end the transaction."""
    statement = ""
    for part in script.split(";"):
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(_value(connection, f"PRAGMA {name}"))


def _value(connection: sqlite3.Connection, sql: str) -> Any:
    return connection.execute(sql).fetchone()[0]


def _all_or_nothing(connection: sqlite3.Connection, work: Callable[[Transaction], _T]) -> _T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        value = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return value


def _statement(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[Any]:
    return connection.execute(sql, parameters).fetchall()


def _code(error: sqlite3.Error) -> str:
    # Errors of the module itself (too few parameters) have no SQLite code.
    return getattr(error, "sqlite_errorname", None) or "SQLITE_MISUSE"


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite and disk errors at the start into advice for operators."""
    try:
        yield
    except OSError as error:
        raise OperatorError(f"{path} cannot be opened ({error.strerror}). Choose another --data.") from error
    except sqlite3.OperationalError as error:
        raise OperatorError(f"{path} cannot be used ({error}). Choose another --data.") from error
    except sqlite3.DatabaseError as error:
        raise OperatorError(
            f"{path} is damaged or is no SQLite database ({error}). It was left untouched: restore it from a backup, "
            "or move it away to start anew."
        ) from error
