"""Open a SQLite file: identity, version, pragmas, migrations. A damaged or foreign one is left untouched."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")
BUSY_TIMEOUT_MS = 5000
#: The largest row number; sqlite3 raises for larger ones.
LARGEST_ROW_ID = 2**63 - 1
#: Checking every page of a file up to this size takes less than 0.1 s.
QUICK_CHECK_BYTES = 16 * 1024 * 1024
_PRAGMAS = (
    f"busy_timeout={BUSY_TIMEOUT_MS}",
    "journal_mode=WAL",
    # In WAL mode, a killed process loses no data. A power cut may lose the last moments, but never damages the file
    # (https://sqlite.org/pragma.html#pragma_synchronous).
    "synchronous=NORMAL",
    "foreign_keys=ON",
)


class RefusedFileError(Exception):
    """The file is damaged, or of another program or version. It was left untouched; the text is for people."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The identity and the migration scripts of a kind of database file.

    `application_id` is written into the file's header, so that a foreign file is recognised. `migrations[n]` takes
    a file from version n to n + 1. Error texts name the `program`, and its `option` that chooses the folder.
    """

    name: str
    application_id: int
    migrations: Sequence[str]
    program: str = "Sprite"
    option: str = "--workspace"


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection and its own thread, which runs each function to its end, even if its caller is cancelled."""

    raw: sqlite3.Connection
    thread: ThreadPoolExecutor


@asynccontextmanager
async def connected(connect: Callable[[], sqlite3.Connection], name: str) -> AsyncIterator[Connection]:
    """Yield a Connection, opened by `connect` on a new thread; at the end, wait for its work and close it."""
    # Leaving the block joins the thread.
    with ThreadPoolExecutor(1, name) as thread:
        loop = asyncio.get_running_loop()
        raw = await loop.run_in_executor(thread, connect)
        try:
            yield Connection(raw, thread)
        finally:
            await loop.run_in_executor(thread, raw.close)


def connect(path: Path, schema: Schema, *, is_reader: bool = False) -> sqlite3.Connection:
    """Open or create a database file, and migrate it to the newest version; with `is_reader`, change nothing."""
    refuse_no_file(path, schema)
    with ExitStack() as on_error:
        connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        on_error.callback(connection.close)
        connection.row_factory = sqlite3.Row
        try:
            refuse_foreign(connection, path, schema)
            for each in _PRAGMAS:
                _set(connection, each)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise RefusedFileError(damaged(path, str(error))) from error
        if is_reader:
            connection.execute("PRAGMA query_only=ON")
        else:
            migrate(connection, path, schema)
        on_error.pop_all()
    return connection


def _set(connection: sqlite3.Connection, each: str) -> None:
    """Set a pragma (`NAME=VALUE`). Retry: busy_timeout does not cover two processes that switch a file to WAL."""
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute(f"PRAGMA {each}")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def refuse_no_file(path: Path, schema: Schema) -> None:
    """Raise RefusedFileError for a folder, a pipe or a device: SQLite would block, or say "unable to open"."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise RefusedFileError(f"{path} is {what}, not {_whose(schema)}. It was left untouched: move it away.")


def refuse_foreign(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    """Raise RefusedFileError for a file of another program or a newer version, or a small damaged one."""
    tables = value(connection, "SELECT count(*) FROM sqlite_master")
    if tables and pragma(connection, "application_id") != schema.application_id:
        raise RefusedFileError(
            f"{path} is a SQLite database, but not {_whose(schema)}. It was left untouched: "
            f"move it away, or choose another {schema.option}."
        )
    version = pragma(connection, "user_version")
    if version > len(schema.migrations):
        raise RefusedFileError(
            f"{path} was written by another version of {schema.program} (its schema is {version}, this one's "
            f"{len(schema.migrations)}). It was left untouched: use the version that wrote it, or move it away."
        )
    if tables and path.stat().st_size <= QUICK_CHECK_BYTES:
        problem = value(connection, "PRAGMA quick_check(1)")
        if problem != "ok":
            raise RefusedFileError(damaged(path, problem))


def _whose(schema: Schema) -> str:
    return f"{schema.program}'s {schema.name}"


def damaged(path: Path, problem: str) -> str:
    """Return the text for people about a damaged file."""
    return (
        f"{path} is damaged or not a SQLite database ({problem.splitlines()[0]}). It was left untouched: "
        "restore it from a backup, or move it away to start with an empty one."
    )


def migrate(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    """Migrate a file to the newest version, each step in one transaction. Other processes may do so at once."""
    for number, script in enumerate(schema.migrations, start=1):
        if pragma(connection, "user_version") < number:
            try:
                all_or_nothing(connection, partial(_migrate_to, number=number, script=script, schema=schema))
            except sqlite3.OperationalError as error:
                error.args = (f"{path}: migration to version {number} failed: {error}",)
                raise


def _migrate_to(tx: sqlite3.Connection, number: int, script: str, schema: Schema) -> None:
    # Check again in the transaction: another process may open the same new file.
    if pragma(tx, "user_version") >= number:
        return
    for statement in _statements(script):
        tx.execute(statement)
    tx.execute(f"PRAGMA application_id={schema.application_id}")
    tx.execute(f"PRAGMA user_version={number}")


def _statements(script: str) -> Iterator[str]:
    """Yield the single statements of an SQL script, because `executescript` would end the open transaction."""
    statement = ""
    for part in script.split(";"):
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def all_or_nothing(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], _T]) -> _T:
    """Run a function in one transaction; return its value. Roll back if it fails."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        return work(connection)


def fitting(number: int) -> int:
    """Return a number limited to what SQLite can store: some file systems have times and inodes beyond that."""
    return max(-LARGEST_ROW_ID, min(number, LARGEST_ROW_ID))


def delete(path: Path) -> None:
    """Delete a database and its journal."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return the value of a pragma, a number."""
    return int(value(connection, f"PRAGMA {name}"))


def value(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any] = ()) -> Any:
    """Return the first column of the first row of a query."""
    return connection.execute(sql, parameters).fetchone()[0]
