"""bridge.db: every version reaches the same schema, a transaction is all or nothing, and nothing foreign is touched."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bridge.database import APPLICATION_ID, MIGRATIONS, open_database
from bridge.errors import OperatorError
from sprite.database import connection as sprite_database


def add(name: str) -> Callable[[sqlite3.Connection], object]:
    return lambda tx: tx.execute("INSERT INTO people (name, created_at) VALUES (?, 1)", (name,))


def names(db: sqlite3.Connection) -> list[str]:
    return [row["name"] for row in db.execute("SELECT name FROM people ORDER BY name")]


def schema(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


async def test_every_version_reaches_the_same_schema_and_keeps_its_rows(tmp_path: Path) -> None:
    async with open_database(tmp_path / "fresh.db"):
        pass
    for version in range(1, len(MIGRATIONS) + 1):
        path = tmp_path / f"from-{version}.db"
        with closing(sqlite3.connect(path)) as old:
            old.executescript(";".join(MIGRATIONS[:version]))
            old.execute(f"PRAGMA application_id={APPLICATION_ID}")
            old.execute(f"PRAGMA user_version={version}")
            old.execute("INSERT INTO people (name, created_at) VALUES ('ada', 1)")
            old.commit()
        async with open_database(path) as db:
            assert await db.read(names) == ["ada"]
        assert schema(path) == schema(tmp_path / "fresh.db")


def pragmas(db: sqlite3.Connection) -> dict[str, object]:
    names = ("busy_timeout", "journal_mode", "synchronous", "foreign_keys", "query_only")
    return {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}


async def test_it_is_opened_as_the_sprite_opens_its_own(tmp_path: Path) -> None:
    notes = sprite_database.Schema("notes.db", 7, ["CREATE TABLE notes (text)"])
    async with (
        open_database(tmp_path / "bridge.db") as db,
        sprite_database.open_database(tmp_path / "n.db", notes) as own,
    ):
        writing = {"busy_timeout": 5000, "journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "query_only": 0}
        assert await db.write(pragmas) == await own.transact(pragmas) == writing
        assert await db.read(pragmas) == await own.read(pragmas) == {**writing, "query_only": 1}


async def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    async with open_database(tmp_path / "bridge.db") as db:
        await db.write(add("ada"))

        def two(tx: sqlite3.Connection) -> None:
            add("bob")(tx)
            add("ada")(tx)

        with pytest.raises(sqlite3.IntegrityError):
            await db.write(two)
        assert await db.read(names) == ["ada"]
        await db.write(add("bob"))
        assert await db.read(names) == ["ada", "bob"]


async def test_a_write_whose_caller_is_cancelled_is_whole_and_the_next_one_works(tmp_path: Path) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(tx: sqlite3.Connection) -> None:
        add("ada")(tx)
        started.set()
        go_on.wait(10)
        add("bob")(tx)

    async with open_database(tmp_path / "bridge.db") as db:
        writing = asyncio.create_task(db.write(slow))
        await asyncio.to_thread(started.wait, 10)
        # A reader does not wait for it, and does not see half of it.
        assert await db.read(names) == []
        writing.cancel()
        go_on.set()
        await asyncio.gather(writing, return_exceptions=True)
        await db.write(add("cleo"))
        assert await db.read(names) == ["ada", "bob", "cleo"]


async def test_the_reader_cannot_write(tmp_path: Path) -> None:
    async with open_database(tmp_path / "bridge.db") as db:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await db.read(add("ada"))


async def test_a_file_of_a_newer_bridge_is_refused_and_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    async with open_database(path):
        pass
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    before = path.read_bytes()
    with pytest.raises(OperatorError, match="newer bridge"):
        async with open_database(path):
            pass
    assert path.read_bytes() == before


async def test_the_files_are_their_owners_alone(tmp_path: Path) -> None:
    async with open_database(tmp_path / "bridge.db") as db:
        await db.write(add("ada"))
        files = list(tmp_path.iterdir())
        assert len(files) == 3
        assert all(path.stat().st_mode & 0o077 == 0 for path in files)


async def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot be opened"):
        async with open_database(tmp_path / "nowhere" / "bridge.db"):
            pass
