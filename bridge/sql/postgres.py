"""The database as a Postgres that several bridges share.

Psycopg's blocking connections, one to each of a few threads, and no SQLAlchemy: a transaction is a short plain function
that runs on SQLite's thread as well, and its SQL can be read as it is sent. A second query language and drivers of the
event loop's own would have both databases go through a layer that neither needs.

Nothing waits for ever: connecting, a statement, a lock and a server that does not answer have their seconds, after
which DatabaseError is raised. A connection that was lost is made again by whoever needs it next.
"""

from __future__ import annotations

import asyncio
import logging
import select
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import psycopg.conninfo
from psycopg import sql as quoted
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.pq import TransactionStatus

from bridge.sql.interface import ConstraintError, DatabaseAwayError, DatabaseError, Transaction
from bridge.sql.postgres_schema import MIGRATION_SECONDS, advice, explained, migrate
from bridge.sql.postgres_values import adapt, rows, statement
from sprite.common.retry import backoff

if TYPE_CHECKING:
    from psycopg.abc import PQGen

    from bridge.sql.interface import Rows

log = logging.getLogger(__name__)

_T = TypeVar("_T")
#: Connections of a bridge at most, beside one for each channel that it listens to.
CONNECTIONS = 8
#: After a try to connect in vain everybody is refused for so long, without a try of their own.
_REFUSED_SECONDS = 0.5
_LISTEN_AGAIN_SECONDS = 1.0
#: A transaction that others get in the way of is repeated so often, after pauses that grow to the longest.
_TRIES, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 20, 0.002, 0.2

#: What the address may say otherwise.
_PARAMETERS: dict[str, Any] = {
    "application_name": "sprite-bridge",
    "client_encoding": "UTF8",
    "connect_timeout": 5,
    # A machine or a network that is gone without a word is noticed after about as long as a statement may take.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
#: A bridge that is stopped in mid-transaction must not hold others up for longer than a statement may.
_SESSION = """
SET statement_timeout = {0};
SET idle_in_transaction_session_timeout = {0};
SET default_transaction_isolation = 'read committed';
"""
#: Until the transaction's end. Each statement after it sees what was committed until then.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))"
#: Of an error at the end of a transaction: whether it was written is not known.
_UNKNOWN = "08007"
#: What a server says that is being stopped, or that has not begun.
_STOPPING = {"57P01", "57P02", "57P03"}
_AWAY = "The database is away."


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds: what a statement may take (a wait for a lock is part of it), and how long the server may be silent.

    The second is also how long work may wait for its turn.
    """

    statement: float = 10.0
    silence: float = 15.0


PATIENCE = Patience()


class _Connection(psycopg.Connection[Any]):
    """A connection whose every wait for the server ends."""

    silence = PATIENCE.silence

    def wait(self, gen: PQGen[_T], interval: float = 0.1, timeout: float | None = None) -> _T:
        return super().wait(gen, interval, self.silence if timeout is None else timeout)


class _Apart(psycopg.AsyncConnection[Any]):
    """The same for one that listens, or on which something takes long: none of those that others wait for."""

    silence = PATIENCE.silence

    async def wait(
        self,
        gen: PQGen[_T],
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's own
    ) -> _T:
        return await super().wait(gen, interval, self.silence if timeout is None else timeout)


class _LostError(Exception):
    """The connection was lost, and it is certain that nothing was written."""


class _Statements:
    """A Transaction on a connection that is in one."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        return self._connection.execute(statement(sql), parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        self._connection.cursor().executemany(statement(sql), parameters)
        return None


class PostgresDatabase:
    """A few connections, each made and used by a thread of its own; see Database."""

    def __init__(self, parameters: dict[str, Any], patience: Patience, threads: ThreadPoolExecutor, level: int) -> None:
        #: At which absences are logged.
        self._level = level
        self._parameters = parameters
        self._patience = patience
        self._threads = threads
        self._own = threading.local()
        self._open: set[_Connection] = set()
        self._noting = threading.Lock()
        #: When the server could not be reached last, while it is away.
        self._refused_at: float | None = None

    async def write(self, work: Callable[[Transaction], _T]) -> _T:
        """See Database. SERIALIZABLE, and repeated where it collides with others'."""
        begin = "BEGIN ISOLATION LEVEL SERIALIZABLE"
        return await self._run(self._repeated, lambda: self._safely(lambda: self._transact(begin, work)))

    async def write_in_turn(self, key: str, work: Callable[[Transaction], _T]) -> _T:
        """See Database. Ordered by a lock: nothing is repeated for what SERIALIZABLE takes for a collision."""

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
        """See Database. Over a connection of its own, which is made again when it is lost."""
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
                        # A way there that leads nowhere any more is as silent as one where nothing is said.
                        await connection.execute("SELECT 1")
                finally:
                    await connection.close()
            if not is_lost:
                is_lost = True
                log.warning("the database's channel %s cannot be listened to: it is away", channel)
            await asyncio.sleep(_LISTEN_AGAIN_SECONDS)

    async def upkeep(self, sql: str, seconds: float) -> None:
        """See Database. Over a connection of its own."""
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
        """A new connection, on which a first statement was run. psycopg.Error, TimeoutError."""
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
        """See Database: what is committed is on the server's disk, unless its operator chose otherwise."""

    async def ping(self) -> None:
        """See Database."""
        await self.statement("SELECT 1")

    def close(self) -> None:
        """Ends all connections, of threads that have ended."""
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
        """Again where others got in its way: it is certain then that nothing was written."""
        for attempt in range(_TRIES - 1):
            try:
                return errand()
            except (SerializationFailure, DeadlockDetected):
                time.sleep(backoff(attempt, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))
        return errand()

    def _safely(self, errand: Callable[[], _T]) -> _T:
        """Once more on a new connection, where the old one was lost before anything was written."""
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
            # A statement failed, and whoever ran it went on.
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
        """Has the connection be in no transaction, or closed."""
        if isinstance(error, psycopg.Error) and error.sqlstate in _STOPPING:
            self._drop(connection)
            return
        if connection.info.transaction_status in {TransactionStatus.INTRANS, TransactionStatus.INERROR}:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
        if connection.info.transaction_status is not TransactionStatus.IDLE:
            self._drop(connection)

    def _connection(self) -> _Connection:
        """This thread's, made where there is none or where it was ended. DatabaseAwayError when it cannot be."""
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
        """Notes that the server is away now, or None; what was noted before. Of several threads one is the first."""
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
    """Opens a database of Postgres at the newest version. `level` is that at which its absences are logged.

    OperatorError, which never shows the password, when the server cannot be reached or does not let us in, or when the
    database is foreign, from a newer bridge, or may not be written.
    """
    with ExitStack() as stack:
        with explained(url):
            parameters = {**_PARAMETERS, **psycopg.conninfo.conninfo_to_dict(url)}
            await asyncio.to_thread(_migrate, parameters, migrations, patience)
        # Left in this order: threads end, then nobody uses their connections any more.
        threads = ThreadPoolExecutor(CONNECTIONS, "bridge-db")
        database = PostgresDatabase(parameters, patience, threads, level)
        stack.callback(database.close)
        stack.enter_context(threads)
        yield database


def connected(parameters: dict[str, Any], patience: Patience) -> _Connection:
    """A new connection in autocommit mode. psycopg.Error where it cannot be."""
    # Nothing is prepared: another bridge may change a table that a prepared `SELECT *` reads.
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
        # So long others' migrations may take.
        connection.silence = MIGRATION_SECONDS
        migrate(connection, migrations)


def _has_ended(connection: _Connection) -> bool:
    """Whether the server has said something unasked: its last words, or the connection's end."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _code(error: psycopg.Error) -> str:
    # What the library itself says (too few parameters) has no code of Postgres'.
    return error.sqlstate or "HY000"


def _words(error: psycopg.Error) -> str:
    # Its details show the row.
    return error.diag.message_primary or type(error).__name__
