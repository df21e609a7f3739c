"""What the bridge's modules know of a database, whichever it is. Knows neither SQLite nor Postgres."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bridge.errors import BridgeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    """What a statement gave: rows whose columns are found by name or by place."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """One row after the other."""
        ...

    def fetchone(self) -> Any:
        """The next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """All that are left."""
        ...


class Transaction(Protocol):
    """What work is handed: statements of the SQL that SQLite and Postgres share, with `?` for each parameter.

    `db_now()` is the time by the database's clock, in Unix seconds; `db_notify(channel, text)` tells everybody who
    listens to the same database, once the transaction is committed.

    Types are TEXT, INTEGER (64 bits, also for booleans: 0 and 1), REAL and BLOB. Where NULL may be given, Postgres has
    to see of which type it is: `sprite = coalesce(?, sprite)`, not `? IS NULL OR sprite = ?`. Not shared are, too:
    conditions that are numbers (`is_told = 1`, not `is_told`), `max` and `min` of several values, `IS ?`, and what text
    `LIKE` finds and how it is ordered where it is not ASCII.
    """

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        """Runs one statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Runs one statement for each set of parameters."""
        ...


class Database(Protocol):
    """An open database. Every method raises DatabaseError when it cannot do what was asked."""

    async def write(self, work: Callable[[Transaction], _T]) -> _T:
        """Runs a short function in one transaction: all of it or nothing; returns its value.

        Once begun it runs to its end, also where the caller is cancelled. It may be run more than once, where others
        wrote the same meanwhile: it must change nothing but what `tx` changes.
        """
        ...

    async def write_in_turn(self, key: str, work: Callable[[Transaction], _T]) -> _T:
        """As `write`, for rows that nobody writes but in turn for this key: work for other keys is never in its way."""
        ...

    async def read(self, work: Callable[[Transaction], _T]) -> _T:
        """Runs a function that only reads, on one state of the database; returns its value."""
        ...

    async def statement(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Runs one statement that is a transaction by itself, and returns all its rows (of RETURNING, if it writes).

        Others' statements on the same rows wait for it and then see what it wrote (READ COMMITTED).
        """
        ...

    async def upkeep(self, sql: str, seconds: float) -> None:
        """Runs a statement by which the database puts itself in order, for so long at most.

        It is in nobody's way, and takes longer than any other may. DatabaseError also where the server ends it: for its
        time, or since somebody said so.
        """
        ...

    def listen(self, channel: str) -> AsyncGenerator[str, None]:
        """What others tell by `db_notify`, from the first step on; never ends.

        Told while the connection was lost is told to nobody: who listens looks from time to time as well. Nobody else
        has a database of SQLite open, so nothing is heard there.
        """
        ...

    async def sync(self) -> None:
        """Has what was written outlive a power cut, where that is not so already."""
        ...

    async def ping(self) -> None:
        """Asks for nothing. DatabaseAwayError within seconds, where the database does not answer."""
        ...
