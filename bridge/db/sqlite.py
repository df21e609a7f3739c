"""The database as a file of this bridge: bridge.db, with one writer and one reader thread."""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bridge.db.database import ConstraintError, DatabaseError, Transaction
from bridge.errors import OperatorError
from sprite import __version__
from sprite.common.files import sync
from sprite.common.sqlite import Connection, RefusedFileError, Schema, all_or_nothing, connect, connected
from sprite.common.versions import back_up_before

_T = TypeVar("_T")
#: "Spbr": a foreign SQLite file is never mistaken for the bridge's.
APPLICATION_ID = 0x53706272


class SqliteDatabase:
    """One file with a writer and a reader connection, each on its own thread; see Database.

    The reader never waits for the writer, and sees only committed changes.
    """

    def __init__(self, path: Path, writer: Connection, reader: Connection) -> None:
        self._log = path.with_name(f"{path.name}-wal")
        self._writer = writer
        self._reader = reader

    async def write(self, work: Callable[[Transaction], _T]) -> _T:
        """See Database. One round trip to the thread, however many statements."""
        return await _run(self._writer, partial(all_or_nothing, work=work))

    async def write_in_turn(self, _key: str, work: Callable[[Transaction], _T]) -> _T:
        """See Database. There is one writer, so all writes are serialised."""
        return await self.write(work)

    async def read(self, work: Callable[[Transaction], _T]) -> _T:
        """See Database."""
        return await _run(self._reader, work)

    async def statement(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """See Database. There is one writer, so no other write interferes."""
        return await _run(self._writer, lambda connection: connection.execute(sql, parameters).fetchall())

    async def upkeep(self, sql: str, _seconds: float) -> None:
        """See Database. Blocks other writers, without a time limit."""
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


async def _run(connection: Connection, work: Callable[[sqlite3.Connection], _T]) -> _T:
    try:
        return await asyncio.get_running_loop().run_in_executor(connection.thread, work, connection.raw)
    except sqlite3.Error as error:
        # Errors of the module itself (too few parameters) have no SQLite code.
        code = getattr(error, "sqlite_errorname", None) or "SQLITE_MISUSE"
        kind = ConstraintError if isinstance(error, sqlite3.IntegrityError) else DatabaseError
        raise kind(code, str(error)) from error


@asynccontextmanager
async def open_sqlite(path: Path, migrations: Sequence[str]) -> AsyncIterator[SqliteDatabase]:
    """Open (or create) the file, readable only by its owner, back it up before a new version, and migrate it.

    Raise OperatorError if the file is damaged, foreign, from a newer bridge, or not writable.
    """
    schema = Schema(path.name, APPLICATION_ID, migrations, "the bridge", "--data")
    async with AsyncExitStack() as stack:
        with _explained(path):
            # SQLite would create the file readable for the group; its -wal and -shm take the mode of the file.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            # A forget does not reach the backup: it has no texts of people.
            backup, stamp = path.with_name("backup"), path.with_name("data-version")
            back_up_before(__version__, stamp, [path], backup, emptied=("notices",))
            writer, reader = [
                await stack.enter_async_context(connected(partial(_opened, path, schema, is_reader=is_reader), name))
                for name, is_reader in (("bridge-db-writer", False), ("bridge-db-reader", True))
            ]
        yield SqliteDatabase(path, writer, reader)


def _opened(path: Path, schema: Schema, *, is_reader: bool) -> sqlite3.Connection:
    connection = connect(path, schema, is_reader=is_reader)
    connection.create_function("db_now", 0, time.time)
    # No other program has this file open.
    connection.create_function("db_notify", 2, lambda _channel, _text: None)
    return connection


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite and disk errors at the start into advice for operators."""
    try:
        yield
    except OSError as error:
        raise OperatorError(f"{path} cannot be opened ({error.strerror}). Choose another --data.") from error
    except sqlite3.Error as error:
        raise OperatorError(f"{path} cannot be used ({error}). Choose another --data.") from error
    except RefusedFileError as error:
        raise OperatorError(str(error)) from error
