"""The database interface for the bridge's modules, independent of SQLite and Postgres."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from bridge.errors import BridgeError

_T = TypeVar("_T")


class DatabaseError(BridgeError):
    """The database cannot do what was asked: a disk that refuses, a server that is away.

    `code` says what it is in the database's own terms (SQLITE_FULL, or a SQLSTATE such as 53100), without a path, an
    address or a value.
    """

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class ConstraintError(DatabaseError):
    """A row breaks a rule of its table: its key is taken, or what it refers to is not there (any more)."""


class DatabaseAwayError(DatabaseError):
    """The database is away: nothing was read or written, and the same may work a moment later."""


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
        """Like `write`, for rows that are only written under this key, by one writer at a time.

        Work for other keys is not blocked.
        """

    async def read(self, work: Callable[[Transaction], _T]) -> _T:
        """Run a function that only reads, on one snapshot of the database; return its value."""

    async def statement(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run one statement as its own transaction, and return all its rows (of RETURNING, if it writes).

        Concurrent statements on the same rows wait for it and then see its changes (READ COMMITTED).
        """

    async def upkeep(self, sql: str, seconds: float) -> None:
        """Run a maintenance statement of the database, with its own time limit.

        It blocks no other work and may take longer than any other statement. DatabaseError also if the server cancels
        it.
        """

    def listen(self, channel: str) -> AsyncGenerator[str, None]:
        """Yield the texts that others send with `db_notify`, from the first step on; never ends.

        Notifications are lost while the connection is down, so a listener must also poll. An SQLite database has no
        other user, so it yields none.
        """

    async def sync(self) -> None:
        """Make earlier writes survive a power cut, if they do not already."""

    async def ping(self) -> None:
        """Check that the database answers. Raise DatabaseAwayError within seconds if it does not."""
