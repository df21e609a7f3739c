"""bridge.db: people, their sessions and tokens, sprite tokens and spend. Opened once, by one bridge.

Owns the file, its pragmas and the one list of migrations; knows no meaning of a table: each module keeps its
own SQL beside its verb and runs it through `Database.write` and `Database.read`. No token is ever in here, only its
SHA-256 (tokens are random, so nothing slower is needed). The keys that sign cookies, push messages and webhooks are,
and open nothing by themselves.

Times are Unix seconds (REAL), money is US dollars (REAL).

The file is opened by the lines that open the sprite's, in `sprite/database/connection.py`: the same pragmas, the same
refusals, migrations and transactions. They stand twice on purpose. Bridge and sprite are deployed apart and share only
what they must agree on (the protocol, the prices), which how each keeps its own files is not. A test compares them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterator

_T = TypeVar("_T")
#: "Spbr": a foreign SQLite file is never taken for ours.
APPLICATION_ID = 0x53706272
BUSY_TIMEOUT_MS = 5000
_PRAGMAS = (
    f"busy_timeout={BUSY_TIMEOUT_MS}",
    "journal_mode=WAL",
    # In WAL mode: a killed process loses nothing; a power cut may lose the last moments, and never damages the file
    # (https://sqlite.org/pragma.html#pragma_synchronous).
    "synchronous=NORMAL",
    "foreign_keys=ON",
)

_PEOPLE = """
CREATE TABLE people (
    name TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    last_seen_at REAL,
    revoked_at REAL
) STRICT;
CREATE TABLE login_links (
    token_sha256 BLOB PRIMARY KEY,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    expires_at REAL NOT NULL,
    used_at REAL
) STRICT;
CREATE TABLE sessions (
    id_sha256 BLOB PRIMARY KEY,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL
) STRICT;
CREATE TABLE person_tokens (
    token_sha256 BLOB PRIMARY KEY,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    created_at REAL NOT NULL
) STRICT;
CREATE TABLE cookie_key (key BLOB NOT NULL) STRICT;
"""

_SPEND = """
CREATE TABLE sprite_tokens (
    sprite TEXT PRIMARY KEY,
    token_sha256 BLOB NOT NULL UNIQUE,
    created_at REAL NOT NULL
) STRICT;
CREATE TABLE model_calls (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    sprite TEXT NOT NULL,
    model TEXT NOT NULL,
    outcome TEXT NOT NULL,
    status INTEGER,
    request_id TEXT,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    cache_write_1h_tokens INTEGER NOT NULL,
    web_searches INTEGER NOT NULL,
    usd REAL,
    is_estimate INTEGER NOT NULL,
    duration_ms REAL
) STRICT;
CREATE INDEX model_calls_at ON model_calls(at);
"""

_NOTIFY_SETTINGS = """
CREATE TABLE notify_settings (
    person TEXT PRIMARY KEY REFERENCES people(name) ON DELETE CASCADE,
    words INTEGER NOT NULL
) STRICT;
"""

_WAKING = """
CREATE TABLE waking (
    sprite TEXT PRIMARY KEY,
    next_due REAL,
    action_id INTEGER,
    seen_at REAL NOT NULL,
    is_open INTEGER NOT NULL
) STRICT;
"""

_PUSH = """
CREATE TABLE push_key (private_der BLOB NOT NULL) STRICT;
CREATE TABLE push_subscriptions (
    endpoint TEXT PRIMARY KEY,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    session_sha256 BLOB NOT NULL REFERENCES sessions(id_sha256) ON DELETE CASCADE,
    p256dh TEXT NOT NULL,
    auth TEXT NOT NULL,
    seen_at REAL NOT NULL
) STRICT;
CREATE INDEX push_subscriptions_person ON push_subscriptions(person);
CREATE INDEX push_subscriptions_session ON push_subscriptions(session_sha256);
"""

_NOTICES = """
CREATE TABLE notices (
    sprite TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    request_id TEXT,
    at REAL NOT NULL,
    is_told INTEGER NOT NULL,
    PRIMARY KEY (sprite, key)
) STRICT;
CREATE TABLE told_until (
    sprite TEXT PRIMARY KEY,
    at REAL NOT NULL
) STRICT;
CREATE TABLE webhook_key (key BLOB NOT NULL) STRICT;
CREATE TABLE webhook_outbox (
    id TEXT PRIMARY KEY,
    body BLOB NOT NULL,
    tries INTEGER NOT NULL,
    next_at REAL NOT NULL
) STRICT;
"""

#: `scopes` are names with spaces between; null: the token is full (see bridge/door/tokens.py).
_SCOPES = """
ALTER TABLE person_tokens ADD COLUMN label TEXT NOT NULL DEFAULT 'full';
ALTER TABLE person_tokens ADD COLUMN scopes TEXT;
ALTER TABLE person_tokens ADD COLUMN used_at REAL;
CREATE UNIQUE INDEX person_tokens_label ON person_tokens(person, label);
"""

#: `MIGRATIONS[n]` takes a file from version n to n + 1; one that has been released is never edited.
MIGRATIONS: tuple[str, ...] = (_PEOPLE, _SPEND, _NOTIFY_SETTINGS, _WAKING, _PUSH, _NOTICES, _SCOPES)


class Database:
    """One file, one writer connection and one reader connection, each on a thread of its own.

    The reader never waits for the writer, and sees only what is committed.
    """

    def __init__(
        self,
        writer: tuple[sqlite3.Connection, ThreadPoolExecutor],
        reader: tuple[sqlite3.Connection, ThreadPoolExecutor],
    ) -> None:
        self._writer, self._writer_thread = writer
        self._reader, self._reader_thread = reader

    async def write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Runs a short function in one transaction: all of it or nothing; returns its value.

        One hop to the thread and back, however many statements. Once begun it runs to its end, also where the
        caller is cancelled. sqlite3.Error when the disk refuses.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer_thread, _all_or_nothing, self._writer, work)

    async def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Runs a function that only reads; returns its value."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader_thread, work, self._reader)


@asynccontextmanager
async def open_database(path: Path) -> AsyncIterator[Database]:
    """Opens (or make) bridge.db, readable by its owner only, at the newest version.

    OperatorError when the file is damaged, foreign, from a newer bridge, or cannot be written.
    """
    with ExitStack() as stack:
        with _explained(path):
            writer = stack.enter_context(closing(await asyncio.to_thread(_open, path)))
            reader = stack.enter_context(closing(await asyncio.to_thread(_connect, path)))
        reader.execute("PRAGMA query_only=ON")
        # Entered after the connections: work that a cancelled caller left in a thread ends before its connection.
        writer_thread = stack.enter_context(ThreadPoolExecutor(1, "bridge-db-writer"))
        reader_thread = stack.enter_context(ThreadPoolExecutor(1, "bridge-db-reader"))
        yield Database((writer, writer_thread), (reader, reader_thread))


def _open(path: Path) -> sqlite3.Connection:
    # SQLite would make the file readable for the group; its -wal and -shm take the mode of the file.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = _connect(path)
    try:
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    # Each connection is used from one thread at a time: its own, or none any more when it is closed.
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256, check_same_thread=False)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.row_factory = sqlite3.Row
    _refuse_foreign(connection, path)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    tables = _value(connection, "SELECT count(*) FROM sqlite_master")
    if tables and _pragma(connection, "application_id") != APPLICATION_ID:
        raise OperatorError(
            f"{path} is a SQLite database, but not the bridge's. It was left untouched: move it away, or choose "
            "another --data."
        )
    version = _pragma(connection, "user_version")
    if version > len(MIGRATIONS):
        raise OperatorError(
            f"{path} was written by a newer bridge (version {version}, this one knows {len(MIGRATIONS)}). "
            "Update Sprite; the file was left untouched."
        )


def _migrate(connection: sqlite3.Connection) -> None:
    version = _pragma(connection, "user_version")
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; PRAGMA application_id={APPLICATION_ID}; {script}; "
                f"PRAGMA user_version={number}; COMMIT;"
            )
        except sqlite3.Error:
            if connection.in_transaction:
                connection.rollback()
            raise


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(_value(connection, f"PRAGMA {name}"))


def _value(connection: sqlite3.Connection, sql: str) -> Any:
    return connection.execute(sql).fetchone()[0]


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


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Says what SQLite or the disk says at the start as what the operator can do."""
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


def token_sha256(token: str) -> bytes:
    """What is stored of a token, and what it is found by; any text may be given for one."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
