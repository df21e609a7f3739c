"""The database of one or more bridges: a file (bridge.db) or Postgres, with one interface.

Each module keeps its own SQL and runs it with `Database.write` and `Database.read`.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from bridge.errors import BridgeError
from sprite.common.tasks import Service, owned_task

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Self = TypeVar("_Self", bound="_Owner")
_AGAIN_SECONDS = 1.0


class DatabaseError(BridgeError):
    """The database refuses or fails: for example a full disk, or an unreachable server.

    `code` says what it is in the database's own terms (SQLITE_FULL, or a SQLSTATE such as 53100), without a path, an
    address or a value.
    """

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class ConstraintError(DatabaseError):
    """A row breaks a rule of its table: its key exists, or a row that it refers to does not exist."""


class DatabaseAwayError(DatabaseError):
    """The database is unreachable: nothing was read or written, and a retry may work a moment later."""


class Rows(Protocol):
    """The result of a statement: rows with access to columns by name or index."""

    @property
    def rowcount(self) -> int:
        """Return the number of changed rows."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""


class Transaction(Protocol):
    """Runs statements in the SQL that SQLite and Postgres share, with `?` for each parameter.

    `db_now()` is the database's time in Unix seconds. `db_notify(channel, text)` notifies all listeners of the same
    database once the transaction is committed.

    Types are TEXT, INTEGER (64 bits, also for booleans: 0 and 1), REAL and BLOB. Where a parameter may be NULL,
    Postgres must be able to infer its type: `sprite = coalesce(?, sprite)`, not `? IS NULL OR sprite = ?`. Also not
    shared: bare numbers as conditions (write `is_told = 1`, not `is_told`), `max` and `min` of several values, `IS
    ?`, and the order and `LIKE` matches of text outside ASCII.
    """

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        """Run one statement."""

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Run one statement for each set of parameters."""


class Database(Protocol):
    """An open database. Every method may raise DatabaseError."""

    async def write(self, work: Callable[[Transaction], _T]) -> _T:
        """Run a short function in one atomic transaction; return its value.

        Once begun it runs to its end, even if the caller is cancelled. It may run more than once after conflicting
        writes, so its only side effects must be those of `tx`.
        """

    async def write_in_turn(self, key: str, work: Callable[[Transaction], _T]) -> _T:
        """Like `write`, for rows that are only written under this key, by one writer of the key at a time."""

    async def read(self, work: Callable[[Transaction], _T]) -> _T:
        """Run a function that only reads, on one snapshot of the database; return its value."""

    async def statement(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run one statement as its own transaction, and return all its rows (of RETURNING, if it writes).

        Concurrent statements on the same rows wait for it and then see its changes (READ COMMITTED).
        """

    async def upkeep(self, sql: str, seconds: float) -> None:
        """Run a maintenance statement with its own time limit, beside other work. DatabaseError if it is canceled."""

    def listen(self, channel: str) -> AsyncGenerator[str, None]:
        """Yield the texts that others send with `db_notify`, from the first step on; never ends.

        Notifications are lost while the connection is down, so a listener must also poll. An SQLite database has no
        other user, so it yields none.
        """

    async def sync(self) -> None:
        """Make earlier writes survive a power cut, if they do not already."""


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
    """Make a method run in one transaction (`Database.write`), which it gets as its first argument."""

    @wraps(method)
    async def write(self: _Self, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return await self._database.write(lambda tx: method(self, tx, *arguments, **named))

    return write


def in_snapshot(
    method: Callable[Concatenate[_Self, Transaction, _P], _T],
) -> Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]:
    """Make a method that only reads run on one snapshot (`Database.read`), which it gets as its first argument."""

    @wraps(method)
    async def read(self: _Self, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return await self._database.read(lambda tx: method(self, tx, *arguments, **named))

    return read


def token_sha256(token: str) -> bytes:
    """Return the hash under which a token is stored and looked up. Accepts any text."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


async def kept_secret(database: Database, table: str, make: Callable[[], bytes]) -> bytes:
    """Return the secret in a table's only row. At the first use, create it with `make`. Raise DatabaseError."""

    def take(tx: Transaction) -> bytes:
        row = tx.execute(f"SELECT * FROM {table}").fetchone()  # noqa: S608 - our own table names
        if row is not None:
            return bytes(row[0])
        made = make()
        tx.execute(f"INSERT INTO {table} VALUES (?)", (made,))  # noqa: S608 - our own table names
        return made

    return await database.write(take)


log = logging.getLogger(__name__)

#: Pause between two writes, and after a failed one. A killed process loses the changes of that time.
_PAUSE_SECONDS, _RETRY_SECONDS = 0.25, 1.0


class WriteBehind(Service):
    """Write-behind buffer: `async with WriteBehind(database, statement, what, on_death) as rows:`, then `note` rows.

    `statement` writes one row, whose first column is its key. Only the newest row of each key is written. The rest is
    flushed at the end. `what` names the rows in the log.
    """

    def __init__(self, database: Database, statement: str, what: str, on_death: Callable[[], None]) -> None:
        self._database = database
        self._statement = statement
        self._what = what
        self._on_death = on_death
        self._unwritten: dict[str, tuple[Any, ...]] = {}
        self._noted = asyncio.Event()
        self._turn = asyncio.Lock()
        self._is_failing = False

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self.flush)
        await stack.enter_async_context(owned_task(self._write_on(), name="write behind", on_death=self._on_death))

    @property
    def is_behind(self) -> bool:
        """Return whether a row is not on disk yet."""
        return bool(self._unwritten)

    def note(self, key: str, *columns: object) -> None:
        """Schedule a row (its key and other columns) for writing. Return at once."""
        self._unwritten[key] = (key, *columns)
        self._noted.set()

    def forget(self, key: str) -> None:
        """Drop the pending write of a row; its stored state stays."""
        self._unwritten.pop(key, None)

    async def flush(self) -> None:
        """Write all pending rows now. A failed write is retried later."""
        async with self._turn:
            rows = dict(self._unwritten)
            if not rows:
                return
            try:
                await self._database.write(lambda tx: tx.executemany(self._statement, list(rows.values())))
            except DatabaseError as error:
                if not self._is_failing:
                    # The error's text may contain a path, so only its code is logged.
                    log.warning("%s cannot be written (%s)", self._what, error.code, extra={"count": len(rows)})
                self._is_failing = True
            else:
                self._is_failing = False
                self._unwritten = {key: row for key, row in self._unwritten.items() if rows.get(key) is not row}

    async def _write_on(self) -> None:
        while True:
            await self._noted.wait()
            self._noted.clear()
            await self.flush()
            if self._unwritten:
                self._noted.set()
            await asyncio.sleep(_RETRY_SECONDS if self._is_failing else _PAUSE_SECONDS)
