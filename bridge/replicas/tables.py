"""Storage of the tables: a file for each sprite, or the database that several bridges share.

A file is opened for each piece of work and closed afterwards. So a replaced or deleted file is noticed, ten thousand
sleeping sprites cost nothing, and a command may work beside a bridge.
"""

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from bridge.db.database import Database, DatabaseError, Transaction
from bridge.db.tables import STORE_TABLES
from bridge.providers.provider import NAME
from bridge.replicas.store import DamagedError, StoreError, StoreFullError
from sprite.common.files import sync
from sprite.common.sqlite import RefusedFileError, Schema, migrate, pragma, refuse_foreign
from sprite.common.tasks import Service

_T = TypeVar("_T")
_FILE = "log.db"
#: "Spst": a foreign SQLite file is never mistaken for the store's.
_SCHEMA = Schema(_FILE, 0x53707374, [STORE_TABLES], "the store", "--data")
#: The journal is truncated after each commit and deleted data is overwritten: data exists only in the tables.
_PRAGMAS = ("journal_mode=TRUNCATE", "synchronous=FULL", "secure_delete=ON")
_BUSY_SECONDS = 30.0
#: Sprites handled at a time, fewer than the database has connections; work on one sprite is serialised by SQLite.
_THREADS = 4
#: Time limit of a VACUUM: only the forgetting person waits for it.
_VACUUM_SECONDS = 900.0
#: Inode of a missing file.
_NONE = -1


class FolderShelf(Service):
    """Keep each replica in a file `FOLDER/SPRITE/log.db`, readable only by the owner; `async with`, for its threads.

    Work on one sprite touches only its rows. Methods raise StoreError or DatabaseError.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = ThreadPoolExecutor(_THREADS, "store")

    async def _open(self, stack: AsyncExitStack) -> None:
        # Running work is short, so wait for it.
        stack.push_async_callback(asyncio.to_thread, self._threads.shutdown)

    async def write(self, sprite: str, work: Callable[[Transaction], _T]) -> _T:
        """Run a function in one durable, atomic transaction. It may run more than once."""
        return await self._run(self._write, sprite, work)

    async def read(self, sprite: str, work: Callable[[Transaction], _T]) -> _T:
        """Run a function that only reads, in one transaction. It may run more than once."""
        return await self._run(self._read, sprite, work)

    async def sprites(self) -> list[str]:
        """Return the names of all stored sprites."""
        return await asyncio.to_thread(self._found)

    async def wipe(self, sprite: str) -> None:
        """Do nothing: SQLite's `secure_delete` overwrites data when it is deleted."""

    async def remove(self, sprite: str) -> None:
        """Remove the rest of a sprite whose rows were all deleted."""
        await self._run(self._remove, sprite)

    async def _run(self, function: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _path(self, sprite: str) -> Path:
        if NAME.fullmatch(sprite) is None:
            raise StoreError(f"{sprite!r} is not a valid name of a sprite.")
        return self._folder / sprite / _FILE

    def _found(self) -> list[str]:
        return sorted(path.parent.name for path in self._folder.glob(f"*/{_FILE}") if NAME.fullmatch(path.parent.name))

    def _write(self, sprite: str, work: Callable[[Transaction], _T]) -> _T:
        path = self._path(sprite)
        with _explained(path):
            while True:
                with _opened(path) as (connection, inode):
                    connection.execute("BEGIN IMMEDIATE")
                    # If the file was removed between opening and locking, a write would be lost.
                    if _inode(path) == inode:
                        with connection:
                            return work(connection)

    def _read(self, sprite: str, work: Callable[[Transaction], _T]) -> _T:
        path = self._path(sprite)
        with _explained(path), _opened(path) if path.exists() else _empty() as (connection, _):
            connection.execute("BEGIN")
            return work(connection)

    def _remove(self, sprite: str) -> None:
        path = self._path(sprite)
        if not path.exists():
            return
        # A process that waits for the lock finds the file gone and creates a new one.
        with _explained(path), _opened(path) as (connection, inode):
            connection.execute("BEGIN IMMEDIATE")
            is_empty = connection.execute("SELECT 1 FROM stored_sprites").fetchone() is None
            if is_empty and _inode(path) == inode:
                shutil.rmtree(path.parent)


class DatabaseShelf:
    """Keep replicas in the database that all bridges share; see FolderShelf."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Limit replication, so that leases and logins find free connections.
        self._room = asyncio.Semaphore(_THREADS)
        # One VACUUM at a time; it serves everyone who waited for its start.
        self._upkeep = asyncio.Lock()
        self._wiped_from = float("-inf")

    async def write(self, sprite: str, work: Callable[[Transaction], _T]) -> _T:
        """See FolderShelf. Work on one sprite waits for its turn."""
        async with self._room:
            return await self._database.write_in_turn(f"store of {sprite}", work)

    async def read(self, _sprite: str, work: Callable[[Transaction], _T]) -> _T:
        """See FolderShelf."""
        async with self._room:
            return await self._database.read(work)

    async def sprites(self) -> list[str]:
        """Return the names of all stored sprites."""
        rows = await self._database.statement("SELECT sprite FROM stored_sprites ORDER BY sprite")
        return [row["sprite"] for row in rows]

    async def wipe(self, _sprite: str) -> None:
        """Let the server overwrite deleted data; it decides when. If it raises, the data may still be readable."""
        asked = time.monotonic()
        async with self._upkeep:
            if self._wiped_from >= asked:
                return
            began = time.monotonic()
            for table in ("stored_rows", "stored_chunks", "stored_references"):
                await self._database.upkeep(f"VACUUM (INDEX_CLEANUP OFF, TRUNCATE OFF) {table}", _VACUUM_SECONDS)
            self._wiped_from = began

    async def remove(self, sprite: str) -> None:
        """See FolderShelf. StoreError if the sprite is unreadable now, but its bytes may still be on the disk."""
        try:
            await self.wipe(sprite)
        except DatabaseError as error:
            raise StoreError(
                f"The replica of {sprite} is deleted and cannot be read any more. But the database did not clean "
                f"up its tables ({error}). It still has the encrypted bytes until VACUUM is run there."
            ) from error


Shelf = FolderShelf | DatabaseShelf


@contextmanager
def _opened(path: Path) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Yield a connection to the file, created if needed, and its inode.

    Only SQLite opens the file: closing it elsewhere would drop the locks of this process.
    """
    if (before := _inode(path)) == _NONE:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=_BUSY_SECONDS)) as connection:
        # The journal takes the mode of the file.
        path.chmod(0o600)
        inode = _inode(path)
        _prepare(connection, path)
        if before == _NONE:
            sync(path.parent)
            sync(path.parent.parent)
        yield connection, inode if before in {inode, _NONE} else _NONE


@contextmanager
def _empty() -> Iterator[tuple[sqlite3.Connection, int]]:
    """Yield an empty database in place of a missing file, so that reading does not create it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(_empty_tables())
        _prepare(connection, Path(":memory:"))
        yield connection, _NONE


@cache
def _empty_tables() -> bytes:
    """Return the tables without rows, made once: the status of many people reads many missing files."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _prepare(connection, Path(":memory:"))
        return connection.serialize()


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.row_factory = sqlite3.Row
    connection.create_function("db_now", 0, time.time)
    for each in _PRAGMAS:
        connection.execute(f"PRAGMA {each}")
    if pragma(connection, "user_version") != len(_SCHEMA.migrations):
        refuse_foreign(connection, path, _SCHEMA)
        migrate(connection, path, _SCHEMA)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return _NONE


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite and disk errors into messages for operators."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path} cannot be used ({error.strerror}).") from error
    except RefusedFileError as error:
        raise StoreError(str(error)) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            raise DamagedError(
                f"{path} is damaged ({error}). Make a copy and move the file away: the sprite then ships all its "
                "data into a new one."
            ) from error
        if code == sqlite3.SQLITE_FULL:
            raise StoreFullError(
                f"The disk of {path} is full. Free some space; the data is then sent again."
            ) from error
        raise StoreError(f"{path} cannot be used ({error}).") from error
