"""The database as a Postgres that several bridges share.

It uses psycopg's blocking connections, one for each of a few threads, and no SQLAlchemy. A transaction is a short
plain function that also runs on SQLite's thread, and its SQL is sent as written. A second query language or
asynchronous drivers would add a layer that neither database needs.

Every wait has a timeout, after which DatabaseError is raised: connecting, statements, locks and a silent server. A
lost connection is reopened by the next use.
"""

from __future__ import annotations

import asyncio
import logging
import re
import select
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import psycopg
import psycopg.conninfo
from psycopg import sql as quoted
from psycopg.adapt import Loader
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper

from bridge.sql.interface import ConstraintError, DatabaseAwayError, DatabaseError, Rows, Transaction
from bridge.sql.postgres_schema import MIGRATION_SECONDS, advice, explained, migrate
from sprite.common.retry import backoff

if TYPE_CHECKING:
    from psycopg._cursor_base import BaseCursor
    from psycopg.abc import AdaptContext, Buffer, PQGen

log = logging.getLogger(__name__)

_T = TypeVar("_T")
#: Most connections of a bridge, beside one for each channel that it listens to.
CONNECTIONS = 8
#: After a failed connect all work is refused for this long, without another try.
_REFUSED_SECONDS = 0.5
_LISTEN_AGAIN_SECONDS = 1.0
#: Retries of a transaction after conflicts, with growing pauses up to the longest.
_TRIES, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 20, 0.002, 0.2

#: Defaults; the URL may override them.
_PARAMETERS: dict[str, Any] = {
    "application_name": "sprite-bridge",
    "client_encoding": "UTF8",
    "connect_timeout": 5,
    # A machine or network that vanished is noticed after about the statement timeout.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
#: A bridge that is suspended in mid-transaction must not block others for longer than a statement may.
_SESSION = """
SET statement_timeout = {0};
SET idle_in_transaction_session_timeout = {0};
SET default_transaction_isolation = 'read committed';
"""
#: Lock until the transaction's end. Each later statement sees everything that was committed before.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))"
#: Code of an error during commit: whether the transaction was written is unknown.
_UNKNOWN = "08007"
#: Codes of a server that is stopping or starting.
_STOPPING = {"57P01", "57P02", "57P03"}
_AWAY = "The database is away."


#: Texts, quoted names and comments, in which `?` is no parameter; and the characters to replace elsewhere.
_PARTS = re.compile(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/)|([?%])", re.DOTALL)


@lru_cache(maxsize=1024)
def statement(sql: str) -> str:
    """Return a statement with `?` parameters in the form of psycopg."""
    return _PARTS.sub(lambda part: part[1].replace("%", "%%") if part[1] else {"?": "%s", "%": "%%"}[part[2]], sql)


class Row(tuple[Any, ...]):
    """A row with access to columns by name or index; `dict(row)` and `**row` work as with sqlite3.Row."""

    __slots__ = ()
    _places: ClassVar[dict[str, int]]

    def __getitem__(self, place: Any) -> Any:
        """Return a column by name or index."""
        return super().__getitem__(self._places[place] if isinstance(place, str) else place)

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return list(self._places)


def rows(cursor: BaseCursor[Any, Any]) -> Callable[[Sequence[Any]], Row]:
    """Build rows; psycopg's `row_factory`."""
    return row_of(tuple(column.name for column in cursor.description or ()))


@lru_cache(maxsize=1024)
def row_of(columns: tuple[str, ...]) -> type[Row]:
    """Return the row class for these columns."""
    # Of duplicate names the first one counts, as in SQLite.
    places = {name: columns.index(name) for name in columns}
    return type("Row", (Row,), {"__slots__": (), "_places": places})


class _Text(StrDumper):
    """Send text as TEXT, whatever it looks like. Postgres text has no NUL, which untrusted text may contain."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\0", "\ufffd"))


class _Numeric(Loader):
    """Load NUMERIC, the type of sums of INTEGER in Postgres."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


def adapt(context: AdaptContext) -> None:
    """Let a connection accept and return values like SQLite: 64-bit integers, 0 and 1 for booleans."""
    context.adapters.register_dumper(str, _Text)
    context.adapters.register_dumper(int, Int8Dumper)
    context.adapters.register_dumper(bool, Int8Dumper)
    context.adapters.register_loader("numeric", _Numeric)


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts in seconds: of a statement (including lock waits), and of a silent server.

    The second also limits how long work waits for a thread.
    """

    statement: float = 10.0
    silence: float = 15.0


PATIENCE = Patience()


class _Connection(psycopg.Connection[Any]):
    """A connection with a timeout on every wait for the server."""

    silence = PATIENCE.silence

    def wait(self, gen: PQGen[_T], interval: float = 0.1, timeout: float | None = None) -> _T:
        return super().wait(gen, interval, self.silence if timeout is None else timeout)


class _Apart(psycopg.AsyncConnection[Any]):
    """A separate connection with the same timeouts, for listening and for long statements."""

    silence = PATIENCE.silence

    async def wait(
        self,
        gen: PQGen[_T],
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's own
    ) -> _T:
        return await super().wait(gen, interval, self.silence if timeout is None else timeout)


class _LostError(Exception):
    """The connection was lost, and certainly no change was written."""


class _Statements:
    """A Transaction on a connection with an open transaction."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        return self._connection.execute(statement(sql), parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        self._connection.cursor().executemany(statement(sql), parameters)
        return None


class PostgresDatabase:
    """A few connections, each opened and used by its own thread; see Database."""

    def __init__(self, parameters: dict[str, Any], patience: Patience, threads: ThreadPoolExecutor, level: int) -> None:
        #: Log level for outages.
        self._level = level
        self._parameters = parameters
        self._patience = patience
        self._threads = threads
        self._own = threading.local()
        self._open: set[_Connection] = set()
        self._noting = threading.Lock()
        #: Time of the last failed connect, while the server is away.
        self._refused_at: float | None = None

    async def write(self, work: Callable[[Transaction], _T]) -> _T:
        """See Database. Uses SERIALIZABLE, and repeats after conflicts."""
        begin = "BEGIN ISOLATION LEVEL SERIALIZABLE"
        return await self._run(self._repeated, lambda: self._safely(lambda: self._transact(begin, work)))

    async def write_in_turn(self, key: str, work: Callable[[Transaction], _T]) -> _T:
        """See Database. Uses a lock instead of SERIALIZABLE, so it is not repeated for false conflicts."""

        def in_turn(tx: Transaction) -> _T:
            tx.execute(_TURN, (key,))
            return work(tx)

        begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
        return await self._run(self._repeated, lambda: self._safely(lambda: self._transact(begin, in_turn)))

    async def read(self, work: Callable[[Transaction], _T]) -> _T:
        """See Database."""
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        return await self._run(self._safely, lambda: self._transact(begin, work))

    async def statement(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """See Database."""
        return await self._run(self._repeated, lambda: self._statement(statement(sql), parameters))

    async def listen(self, channel: str) -> AsyncGenerator[str, None]:
        """See Database. Uses a separate connection, which is reopened when it is lost."""
        is_lost = False
        while True:
            with suppress(psycopg.OperationalError, TimeoutError):
                connection = await self._apart(quoted.SQL("LISTEN {}").format(quoted.Identifier(channel)))
                try:
                    if is_lost:
                        log.info("the database's channel %s is listened to again", channel)
                    is_lost = False
                    while True:
                        async with aclosing(connection.notifies(timeout=self._patience.silence)) as told:
                            async for each in told:
                                yield each.payload
                        # A dead network path is as silent as a quiet channel, so check it.
                        await connection.execute("SELECT 1")
                finally:
                    await connection.close()
            if not is_lost:
                is_lost = True
                log.warning("the database's channel %s cannot be listened to: it is away", channel)
            await asyncio.sleep(_LISTEN_AGAIN_SECONDS)

    async def upkeep(self, sql: str, seconds: float) -> None:
        """See Database. Uses a separate connection."""
        try:
            within = quoted.SQL("SET statement_timeout = {}").format(quoted.Literal(round(seconds * 1000)))
            connection = await self._apart(within)
            try:
                connection.silence = seconds + self._patience.silence
                await connection.execute(sql.encode())
            finally:
                await connection.close()
        except psycopg.Error as error:
            raise DatabaseError(_code(error), _words(error)) from error
        except TimeoutError as error:
            raise DatabaseAwayError("08001", _AWAY) from error

    async def _apart(self, first: quoted.Composed) -> _Apart:
        """Open a new connection and run a first statement on it. Raise psycopg.Error or TimeoutError."""
        async with asyncio.timeout(self._patience.silence):
            connection = await _Apart.connect(**self._parameters, autocommit=True)
            connection.silence = self._patience.silence
            try:
                await connection.execute(first)
            except BaseException:
                await connection.close()
                raise
            return connection

    async def sync(self) -> None:
        """See Database. Committed data is already on the server's disk, unless its operator chose otherwise."""

    async def ping(self) -> None:
        """See Database."""
        await self.statement("SELECT 1")

    def close(self) -> None:
        """Close all connections; their threads must have ended."""
        while self._open:
            self._open.pop().close()

    async def _run(self, work: Callable[..., _T], *arguments: object) -> _T:
        latest = time.monotonic() + self._patience.silence

        def errand() -> _T:
            if time.monotonic() > latest:
                raise DatabaseAwayError("57014", f"{_AWAY} Too much waits for it.")
            return work(*arguments)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, errand)
        except psycopg.IntegrityError as error:
            raise ConstraintError(_code(error), _words(error)) from error
        except psycopg.Error as error:
            raise DatabaseError(_code(error), _words(error)) from error
        except _LostError as error:
            raise DatabaseAwayError("08006", f"{_AWAY} The connection was lost.") from error

    # --- in a thread ---

    def _repeated(self, errand: Callable[[], _T]) -> _T:
        """Run the work and repeat it after conflicts, in which certainly no change was written."""
        for attempt in range(_TRIES - 1):
            try:
                return errand()
            except (SerializationFailure, DeadlockDetected):
                time.sleep(backoff(attempt, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))
        return errand()

    def _safely(self, errand: Callable[[], _T]) -> _T:
        """Run the work, once more on a new connection if the old one was lost before any change was written."""
        try:
            return errand()
        except _LostError:
            return errand()

    def _transact(self, begin: str, work: Callable[[Transaction], _T]) -> _T:
        connection = self._connection()
        try:
            connection.execute(begin)
            value = work(_Statements(connection))
        except BaseException as error:
            self._roll_back(connection, error)
            if connection.closed and isinstance(error, psycopg.Error):
                raise _LostError from error
            raise
        self._commit(connection)
        return value

    def _commit(self, connection: _Connection) -> None:
        try:
            ended = connection.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            self._roll_back(connection, error)
            if connection.closed:
                raise DatabaseAwayError(_UNKNOWN, f"{_AWAY} Whether this was written is not known.") from error
            raise
        if ended != "COMMIT":
            # A statement failed and its caller continued.
            raise DatabaseError("25P02", "A transaction of which a statement failed was not written.")

    def _statement(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        connection = self._connection()
        try:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            self._roll_back(connection, error)
            if connection.closed:
                raise DatabaseAwayError(_UNKNOWN, f"{_AWAY} Whether this was written is not known.") from error
            raise

    def _roll_back(self, connection: _Connection, error: BaseException) -> None:
        """Return the connection to the idle state, or close it."""
        if isinstance(error, psycopg.Error) and error.sqlstate in _STOPPING:
            self._drop(connection)
            return
        if connection.info.transaction_status in {TransactionStatus.INTRANS, TransactionStatus.INERROR}:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
        if connection.info.transaction_status is not TransactionStatus.IDLE:
            self._drop(connection)

    def _connection(self) -> _Connection:
        """Return this thread's connection, opened if needed. Raise DatabaseAwayError."""
        connection: _Connection | None = getattr(self._own, "connection", None)
        if connection is not None and _has_ended(connection):
            self._drop(connection)
            connection = None
        if connection is None:
            connection = self._connect()
        return connection

    def _connect(self) -> _Connection:
        refused_at = self._refused_at
        if refused_at is not None and time.monotonic() - refused_at < _REFUSED_SECONDS:
            raise DatabaseAwayError("08001", _AWAY)
        try:
            connection = connected(self._parameters, self._patience)
        except psycopg.Error as error:
            if self._was_away(now=time.monotonic()) is None:
                log.log(self._level, "the database is away. %s", advice(error))
            raise DatabaseAwayError(error.sqlstate or "08001", _AWAY) from error
        if self._was_away(now=None) is not None:
            log.log(self._level, "the database is back")
        self._open.add(connection)
        self._own.connection = connection
        return connection

    def _was_away(self, *, now: float | None) -> float | None:
        """Note whether the server is away now; return the former note. Atomic, so that one thread is the first."""
        with self._noting:
            before, self._refused_at = self._refused_at, now
            return before

    def _drop(self, connection: _Connection) -> None:
        self._own.connection = None
        self._open.discard(connection)
        connection.close()


@asynccontextmanager
async def open_postgres(
    url: str, migrations: Sequence[str], patience: Patience = PATIENCE, *, level: int = logging.WARNING
) -> AsyncIterator[PostgresDatabase]:
    """Open a Postgres database and migrate it to the newest version. `level` is the log level for outages.

    Raise OperatorError, without the password, if the server cannot be reached or refuses, or if the database is
    foreign, from a newer bridge, or not writable.
    """
    with ExitStack() as stack:
        with explained(url):
            parameters = {**_PARAMETERS, **psycopg.conninfo.conninfo_to_dict(url)}
            await asyncio.to_thread(_migrate, parameters, migrations, patience)
        # Left in this order: the threads end first, then their connections.
        threads = ThreadPoolExecutor(CONNECTIONS, "bridge-db")
        database = PostgresDatabase(parameters, patience, threads, level)
        stack.callback(database.close)
        stack.enter_context(threads)
        yield database


def connected(parameters: dict[str, Any], patience: Patience) -> _Connection:
    """Open a connection in autocommit mode. Raise psycopg.Error."""
    # No prepared statements: another bridge may change a table that a prepared `SELECT *` reads.
    connection = _Connection.connect(**parameters, autocommit=True, prepare_threshold=None, row_factory=rows)
    try:
        connection.silence = patience.silence
        adapt(connection)
        connection.execute(_SESSION.format(round(patience.statement * 1000)).encode())
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(parameters: dict[str, Any], migrations: Sequence[str], patience: Patience) -> None:
    with connected(parameters, patience) as connection:
        # Migrations of other bridges may take this long.
        connection.silence = MIGRATION_SECONDS
        migrate(connection, migrations)


def _has_ended(connection: _Connection) -> bool:
    """Return whether the server has sent something unasked: its last message, or the end of the connection."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _code(error: psycopg.Error) -> str:
    # Errors of the library itself (too few parameters) have no Postgres code.
    return error.sqlstate or "HY000"


def _words(error: psycopg.Error) -> str:
    # The details would show the row.
    return error.diag.message_primary or type(error).__name__
