"""The three database files: columns, triggers, migrations, transactions, and unusable files.

The file is long because each database is held to the same contract.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sprite.common.sqlite import Schema
from sprite.config import Settings
from sprite.errors import DatabaseUnusableError, StorageError, WorkspaceLockedError
from sprite.log import transcript
from sprite.memory import database as memory
from sprite.memory.folders import workspace_lock
from sprite.storage.connection import Database, open_database, open_reader
from sprite.workspace import database as workspace
from tests.in_thread import PATIENCE
from tests.looks import rows
from tests.memory_stores import SESSION, open_stores

SCHEMAS = [transcript.SCHEMA, memory.SCHEMA, workspace.SCHEMA]
OPENERS: list[Callable[[Path], AbstractAsyncContextManager[Any]]] = [
    transcript.open_transcript,
    memory.open_memory,
    workspace.open_workspace,
]
#: The contract in storage.md, which other programs may rely on.
CONTRACT = {
    ("transcript.db", "sessions"): "id started_at ended_at message_count observation_count",
    ("transcript.db", "observations"): (
        "id timestamp session_id sequence_num user_message tool_calls_json agent_response processed outcome"
    ),
    ("transcript.db", "curations"): (
        "id created_at kind first_observation_id last_observation_id model prompt_sha256 response usage_json cost_usd"
    ),
    ("memory.db", "learnings"): (
        "id created_at session_id type content source_observation_id confidence "
        "curation_id origin evidence superseded_by"
    ),
    ("memory.db", "pending_actions"): "id created_at content priority status source_learning_id",
    ("memory.db", "learnings_fts"): "content type",
}
NOTES = Schema("notes.db", 0x4E4F5431, ["CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT UNIQUE)"])


def by_name(name: str) -> Schema:
    return next(schema for schema in SCHEMAS if schema.name == name)


async def make(folder: Path, schema: Schema) -> Path:
    path = folder / schema.name
    async with open_database(path, schema):
        pass
    return path


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def structure(path: Path) -> list[tuple[Any, ...]]:
    """Return everything in a file except its rows, and the text of each CREATE without its spacing."""
    connection = connect(path)
    try:
        found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
        columns = [
            (name, *column)
            for kind, name, *_ in found
            if kind == "table"
            for column in connection.execute(f'PRAGMA table_info("{name}")')
        ]
    finally:
        connection.close()
    return sorted([(k, n, t, " ".join((sql or "").split())) for k, n, t, sql in found], key=repr) + sorted(
        columns, key=repr
    )


# Schema


@pytest.mark.parametrize(("name", "table"), CONTRACT)
async def test_table_columns_match_contract(name: str, table: str, tmp_path: Path) -> None:
    path = await make(tmp_path, by_name(name))
    columns = {row["name"] for row in rows(path, f'PRAGMA table_info("{table}")')}
    assert set(CONTRACT[name, table].split()) <= columns


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: s.name)
async def test_new_file_header_names_its_type(schema: Schema, tmp_path: Path) -> None:
    connection = connect(await make(tmp_path, schema))
    try:
        assert connection.execute("PRAGMA application_id").fetchone() == (schema.application_id,)
        assert connection.execute("PRAGMA user_version").fetchone() == (len(schema.migrations),)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    finally:
        connection.close()


def test_database_types_are_distinguishable() -> None:
    assert len({schema.application_id for schema in SCHEMAS}) == len(SCHEMAS)


async def test_failed_migration_keeps_old_version(tmp_path: Path) -> None:
    path = await make(tmp_path, NOTES)
    broken = Schema(NOTES.name, NOTES.application_id, [*NOTES.migrations, "CREATE TABLE more (x); SELECT nonsense()"])
    before = structure(path)
    with pytest.raises(sqlite3.OperationalError, match=r"notes\.db: migration to version 2"):
        await make(tmp_path, broken)
    assert structure(path) == before
    await make(tmp_path, NOTES)


async def test_migration_keeps_rows(tmp_path: Path) -> None:
    path = await make(tmp_path, NOTES)
    async with open_database(path, NOTES) as database:
        await database.execute("INSERT INTO notes VALUES (1, 'kept')")
    newer = Schema(NOTES.name, NOTES.application_id, [*NOTES.migrations, "ALTER TABLE notes ADD COLUMN at REAL"])
    async with open_database(path, newer) as database:
        assert tuple(await database.fetch_one("SELECT * FROM notes") or ()) == (1, "kept", None)


# The log is append-only


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    """transcript.db with three turns, the first two of them curated."""
    async with open_stores(tmp_path) as stores:
        for number in range(3):
            await stores.turn(f"turn {number}", mission_id=f"m{number}")
        await stores.batch("NONE", 1, 2)
    return tmp_path / "transcript.db"


FORBIDDEN = [
    "DELETE FROM observations",
    "DELETE FROM observations WHERE id = 3",
    *(
        f"UPDATE observations SET {change} WHERE id = 1"
        for change in (
            "id = 9",
            "timestamp = 0",
            "session_id = 'x'",
            "sequence_num = 9",
            "user_message = 'never said'",
            "tool_calls_json = '[1]'",
            "agent_response = 'x'",
            "outcome = 'error'",
            "mission_id = 'x'",
            "mission_id = NULL",
            "trigger = 'task'",
            "by_schedule = 1",
            "project = '/x'",
            "source = 'x'",
            "asked_by = 'x'",
            "pasted_json = '[[0, 1]]'",
            "notice = 'x'",
            "import_key = 'x'",
            "processed = 1, user_message = 'x'",
        )
    ),
    (
        "INSERT OR REPLACE INTO observations SELECT id, timestamp, session_id, sequence_num, 'never said', "
        "tool_calls_json, agent_response, processed, outcome, mission_id, trigger, notice, import_key, "
        "by_schedule, project, source, asked_by, pasted_json FROM observations"
    ),
    (
        "INSERT OR REPLACE INTO observations SELECT 77, timestamp, session_id, 77, 'never said', "
        "tool_calls_json, agent_response, processed, outcome, mission_id, trigger, notice, import_key, "
        "by_schedule, project, source, asked_by, pasted_json FROM observations WHERE id = 1"
    ),
    "UPDATE OR REPLACE observations SET id = 2 WHERE id = 1",
    "DELETE FROM curations",
    "UPDATE curations SET response = 'FACT: invented'",
    "UPDATE curations SET cost_usd = 0",
    "INSERT OR REPLACE INTO curations (id, created_at, kind, response) VALUES (1, 0, 'batch', 'FACT: invented')",
]


async def test_log_refuses_deletion_and_update(log: Path) -> None:
    before = rows(log, "SELECT * FROM observations"), rows(log, "SELECT * FROM curations")
    connection = connect(log)
    try:
        for statement in FORBIDDEN:
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                connection.execute(statement)
    finally:
        connection.close()
    assert (rows(log, "SELECT * FROM observations"), rows(log, "SELECT * FROM curations")) == before


async def test_log_allows_marking_turn_curated(log: Path) -> None:
    connection = connect(log)
    try:
        connection.execute("UPDATE observations SET processed = 1 WHERE id = 3")
    finally:
        connection.close()
    assert [row["processed"] for row in rows(log, "SELECT processed FROM observations")] == [1, 1, 1]


async def test_turn_is_curated_once(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        for _ in range(4):
            await stores.turn()
        await stores.batch("FACT: x", 1, 2)
        for span in ((1, 2), (2, 3), (1, 4)):
            with pytest.raises(ValueError, match="already curated"):
                await stores.batch("FACT: again", *span)
        assert [turn.id for turn in await stores.transcript.waiting(10)] == [3, 4]
    assert len(rows(tmp_path / "transcript.db", "SELECT * FROM curations")) == 1


async def test_mission_has_one_turn(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.turn(mission_id="m")
        with pytest.raises(sqlite3.IntegrityError):
            await stores.turn(mission_id="m")
        await stores.turn("the log goes on")
        assert len(await stores.observations()) == 2


async def test_session_counts_its_turns(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.turn(at=100.0)
        await stores.turn(trigger="task", at=9e9)
        session = await stores.transcript.open_session()
        assert session is not None
        assert (session.id, session.message_count, session.observation_count) == (SESSION, 1, 2)
        assert session.last_active_at == 9e9
        assert [turn.sequence_num for turn in await stores.observations()] == [1, 2]


# Unusable files


def foreign(path: Path) -> None:
    connection = connect(path)
    connection.execute("CREATE TABLE songs (title TEXT)")
    connection.execute("INSERT INTO songs VALUES ('Blackbird')")
    connection.close()


def of_another_kind(path: Path) -> None:
    connection = connect(path)
    connection.executescript("PRAGMA application_id=99; CREATE TABLE observations (id INTEGER PRIMARY KEY)")
    connection.close()


def from_the_future(path: Path) -> None:
    schema = by_name(path.name)
    connection = connect(path)
    connection.executescript(
        f"PRAGMA application_id={schema.application_id}; CREATE TABLE t (x); PRAGMA user_version=9999"
    )
    connection.close()


def no_database(path: Path) -> None:
    path.write_text("These are my notes, please do not overwrite them.\n" * 50)


def cut_off(path: Path) -> None:
    asyncio.run(make(path.parent, by_name(path.name)))
    path.write_bytes(path.read_bytes()[:-6000])


def scribbled_over(path: Path) -> None:
    asyncio.run(make(path.parent, by_name(path.name)))
    data = bytearray(path.read_bytes())
    data[200:4096] = b"\xaa" * 3896
    path.write_bytes(data)


def scribbled_over_behind_the_schema(path: Path) -> None:
    asyncio.run(make(path.parent, by_name(path.name)))
    data = bytearray(path.read_bytes())
    data[8192:12288] = b"\xaa" * 4096
    path.write_bytes(data)


@pytest.mark.parametrize("opener", OPENERS, ids=lambda o: o.__name__)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (foreign, "not Sprite's"),
        (of_another_kind, "not Sprite's"),
        (from_the_future, "another version of Sprite"),
        (no_database, "not a SQLite database"),
        (cut_off, "damaged"),
        (scribbled_over, "damaged"),
        (scribbled_over_behind_the_schema, "damaged"),
    ],
)
def test_unusable_file_is_reported_and_untouched(
    damage: Callable[[Path], None],
    words: str,
    opener: Callable[[Path], AbstractAsyncContextManager[Any]],
    tmp_path: Path,
) -> None:
    path = tmp_path / f"{opener.__name__.removeprefix('open_')}.db"
    damage(path)
    before = path.read_bytes()

    async def open_it() -> None:
        async with opener(path):
            pass

    with pytest.raises(DatabaseUnusableError, match=words) as refused:
        asyncio.run(open_it())
    assert str(path) in str(refused.value)
    assert path.read_bytes() == before


async def test_reader_creates_and_migrates_no_file(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusableError, match="no sprite has run"):
        async with open_reader(tmp_path / "transcript.db", transcript.SCHEMA):
            pass
    assert not list(tmp_path.iterdir())
    path = await make(tmp_path, NOTES)
    newer = Schema(NOTES.name, NOTES.application_id, [*NOTES.migrations, "CREATE TABLE more (x)"])
    with pytest.raises(DatabaseUnusableError, match="version 1, this Sprite needs 2"):
        async with open_reader(path, newer):
            pass


async def test_reader_cannot_write(tmp_path: Path) -> None:
    path = await make(tmp_path, NOTES)
    async with open_reader(path, NOTES) as database:
        with pytest.raises((sqlite3.OperationalError, StorageError)):
            await database.execute("INSERT INTO notes VALUES (1, 'x')")


# Transactions


@pytest.fixture
def notes(tmp_path: Path) -> AbstractAsyncContextManager[Database]:
    return open_database(tmp_path / "notes.db", NOTES)


async def texts(database: Database) -> list[str]:
    return [row["text"] for row in await database.fetch_all("SELECT text FROM notes ORDER BY id")]


INSERT = "INSERT INTO notes (text) VALUES (?)"


async def add_all(database: Database, *texts_: object) -> None:
    def write(tx: sqlite3.Connection) -> None:
        for text in texts_:
            if not isinstance(text, str):
                raise TypeError("a note is text")
            tx.execute(INSERT, (text,))

    await database.transact(write)


async def test_concurrent_transactions_are_serialized(notes: AbstractAsyncContextManager[Database]) -> None:
    async with notes as database:

        def add(text: str, tx: sqlite3.Connection) -> None:
            tx.execute("INSERT INTO notes (text) VALUES (?)", (text,))
            time.sleep(0.01)
            tx.execute("UPDATE notes SET text = text || '!' WHERE text = ?", (text,))

        adding = [database.transact(partial(add, f"n{i}")) for i in range(5)]
        await asyncio.gather(*adding, database.execute("INSERT INTO notes VALUES (99, 'x')"))
        assert sorted(await texts(database)) == ["n0!", "n1!", "n2!", "n3!", "n4!", "x"]


async def test_failed_transaction_rolls_back_and_next_works(notes: AbstractAsyncContextManager[Database]) -> None:
    async with notes as database:
        with pytest.raises(TypeError):
            await add_all(database, "half", object())
        with pytest.raises(sqlite3.IntegrityError):
            await add_all(database, "half", "half")
        with pytest.raises(sqlite3.IntegrityError):
            await database.transact(lambda tx: tx.executemany(INSERT, [("half",), ("half",)]))
        await add_all(database, "whole")
        await database.transact(lambda tx: tx.execute(INSERT, ("as well",)))
        assert await texts(database) == ["whole", "as well"]


async def test_rehearsal_returns_its_value_and_writes_nothing(notes: AbstractAsyncContextManager[Database]) -> None:
    async with notes as database:
        await add_all(database, "before")
        tried = await database.transact(
            lambda tx: tx.execute(f"{INSERT} RETURNING text", ("tried",)).fetchall(), is_kept=False
        )
        assert [row[0] for row in tried] == ["tried"]
        await add_all(database, "after")
        assert await texts(database) == ["before", "after"]


async def test_reader_sees_only_committed_rows(notes: AbstractAsyncContextManager[Database]) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: sqlite3.Connection) -> None:
        tx.execute("INSERT INTO notes (text) VALUES ('new')")
        begun.set()
        go_on.wait(30)

    async with notes as database:
        writing = asyncio.create_task(database.transact(slow))
        await asyncio.to_thread(begun.wait, 30)
        assert await texts(database) == []
        go_on.set()
        await writing
        assert await texts(database) == ["new"]


@pytest.mark.parametrize("steps", range(8))
async def test_cancelled_transaction_is_atomic_and_connection_usable(
    steps: int, notes: AbstractAsyncContextManager[Database]
) -> None:
    """Cancel after a number of loop turns: before it starts, or while its thread runs it."""
    async with notes as database:
        for _ in range(10):
            task = asyncio.create_task(add_all(database, "one", "two"))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with asyncio.timeout(PATIENCE):
                await add_all(database, "after")
                assert await texts(database) in (["after"], ["one", "two", "after"])
                await database.execute("DELETE FROM notes")


@pytest.mark.parametrize("way", ["transact", "execute"])
async def test_transaction_cancelled_while_locked_frees_connection(
    way: str, notes: AbstractAsyncContextManager[Database]
) -> None:
    async with notes as database:

        async def add() -> None:
            if way == "transact":
                await database.transact(lambda tx: tx.execute("INSERT INTO notes (text) VALUES ('cancelled')"))
            else:
                await database.execute("INSERT INTO notes (text) VALUES ('cancelled')")

        other = connect(database.path)
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(add())
        await asyncio.sleep(0.05)  # its BEGIN now waits inside SQLite, where no cancellation reaches it
        task.cancel()
        other.execute("ROLLBACK")
        other.close()
        with pytest.raises(asyncio.CancelledError):
            await task
        await add_all(database, "after")
        assert "after" in await texts(database)


@pytest.mark.parametrize("steps", range(4))
async def test_cancelled_statement_leaves_connection_usable(
    steps: int, notes: AbstractAsyncContextManager[Database]
) -> None:
    async with notes as database:
        for _ in range(10):
            task = asyncio.create_task(database.execute("INSERT OR IGNORE INTO notes (text) VALUES ('one')"))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with asyncio.timeout(PATIENCE):
                await database.transact(lambda tx: tx.execute("INSERT OR IGNORE INTO notes (text) VALUES ('after')"))
        assert set(await texts(database)) <= {"one", "after"}


# The disk


async def test_full_disk_raises_storage_error_without_partial_write(
    notes: AbstractAsyncContextManager[Database],
) -> None:
    async with notes as database:
        await database.execute("INSERT INTO notes (text) VALUES ('before')")
        await database.execute("PRAGMA max_page_count = 8")
        with pytest.raises(StorageError, match="full"):
            await add_all(database, "small", "x" * 100_000)
        with pytest.raises(StorageError):
            await database.execute("INSERT INTO notes (text) VALUES (?)", ("x" * 100_000,))
        assert await texts(database) == ["before"]
        await database.execute("PRAGMA max_page_count = 1000")
        await database.execute("INSERT INTO notes (text) VALUES (?)", ("room again",))
        assert await texts(database) == ["before", "room again"]


async def test_damage_found_on_access_names_file(notes: AbstractAsyncContextManager[Database]) -> None:
    async with notes as database:
        await add_all(database, *(f"{number} {'x' * 3000}" for number in range(2000)))
        await database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with database.path.open("r+b") as stream:
            stream.seek(50 * 4096)
            stream.write(b"\xaa" * 4_000_000)
        with pytest.raises(DatabaseUnusableError, match=r"notes\.db is damaged"):
            await database.fetch_all("SELECT id, text FROM notes ORDER BY id DESC")
        with pytest.raises(DatabaseUnusableError, match=r"notes\.db is damaged"):
            await database.transact(lambda tx: tx.execute("DELETE FROM notes"))


async def test_missing_folder_raises_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="unable to open"):
        await make(tmp_path / "unmounted", NOTES)
    await make(tmp_path, NOTES)  # the folder exists now


# One owner


def test_workspace_has_one_owner_named_to_second(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "home")
    lock = settings.lock
    with workspace_lock(settings):
        with (
            pytest.raises(WorkspaceLockedError, match=rf"process {os.getpid()}\) already owns {tmp_path / 'home'}"),
            workspace_lock(settings),
        ):
            pass
        assert lock.read_text() == f"{os.getpid()}\n", "the refused process leaves the owner's mark unchanged"
        lock.unlink()
        lock.parent.rmdir()
        with pytest.raises(WorkspaceLockedError, match="already owns"), workspace_lock(settings):
            pass
    with workspace_lock(settings):
        pass
