"""The bridge's database: migrations are atomic and reach one schema, and foreign files stay untouched."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from bridge.db.database import ConstraintError, DatabaseError, Transaction
from bridge.db.open import open_database
from bridge.db.sqlite import open_sqlite
from bridge.db.tables import MIGRATIONS
from bridge.errors import OperatorError
from sprite.common.sqlite import Schema
from sprite.storage import connection as sprite_database
from tests.in_thread import PATIENCE


def add(name: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.execute("INSERT INTO people (name, created_at) VALUES (?, 1)", (name,))


def names(db: Transaction) -> list[str]:
    return [row["name"] for row in db.execute("SELECT name FROM people ORDER BY name")]


def schema(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


async def test_older_version_is_migrated_and_keeps_rows(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    async with open_database(path) as db:
        await db.statement("INSERT INTO people (name, created_at) VALUES ('ada', 1)")
    async with open_sqlite(path, (*MIGRATIONS, "ALTER TABLE people ADD COLUMN newer TEXT DEFAULT 'x';")) as db:
        assert await db.read(lambda tx: tx.execute("SELECT name, newer FROM people").fetchone()[:]) == ("ada", "x")


@pytest.mark.parametrize("number", range(5))
async def test_fresh_file_opened_at_once_is_migrated_once(tmp_path: Path, number: int) -> None:
    """`bridge chat` and the bridge that it starts open a new file at the same moment."""
    path = tmp_path / f"{number}.db"

    async def opened() -> list[str]:
        async with open_database(path) as db:
            return await db.read(names)

    assert await asyncio.gather(*(opened() for _ in range(8))) == [[]] * 8


def pragmas(db: Transaction) -> dict[str, object]:
    names = ("busy_timeout", "journal_mode", "synchronous", "foreign_keys", "query_only")
    return {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}


async def test_connection_uses_same_pragmas_as_sprite(tmp_path: Path) -> None:
    notes = Schema("notes.db", 7, ["CREATE TABLE notes (text)"])
    async with (
        open_database(tmp_path / "bridge.db") as db,
        sprite_database.open_database(tmp_path / "n.db", notes) as own,
    ):
        writing = {"busy_timeout": 5000, "journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "query_only": 0}
        assert await db.write(pragmas) == await own.transact(pragmas) == writing
        assert await db.read(pragmas) == await own.read(pragmas) == {**writing, "query_only": 1}


async def test_failed_transaction_rolls_back(database_at: Path | str) -> None:
    async with open_database(database_at) as db:
        await db.write(add("ada"))

        def two(tx: Transaction) -> None:
            add("bob")(tx)
            add("ada")(tx)

        with pytest.raises(ConstraintError):
            await db.write(two)
        assert await db.read(names) == ["ada"]
        await db.write(add("bob"))
        assert await db.read(names) == ["ada", "bob"]


async def test_cancelled_write_completes_and_next_one_works(database_at: Path | str) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        add("ada")(tx)
        started.set()
        go_on.wait(10)
        add("bob")(tx)

    async with open_database(database_at) as db:
        writing = asyncio.create_task(db.write(slow))
        await asyncio.to_thread(started.wait, 10)
        # A reader neither waits for it nor sees half of it.
        assert await db.read(names) == []
        writing.cancel()
        go_on.set()
        await asyncio.gather(writing, return_exceptions=True)
        await db.write(add("cleo"))
        # With concurrent writes, the abandoned one may end after its successor.
        async with asyncio.timeout(PATIENCE):
            while await db.read(names) != ["ada", "bob", "cleo"]:  # noqa: ASYNC110 - another thread writes
                await asyncio.sleep(0.01)


async def test_reader_cannot_write(database_at: Path | str) -> None:
    async with open_database(database_at) as db:
        with pytest.raises(DatabaseError, match=r"read-?only"):
            await db.read(add("ada"))


async def test_values_round_trip_unchanged(database_at: Path | str) -> None:
    values: list[tuple[str, float, int, bytes | None]] = [
        ('it\'s 100% \\ "?" --', 0.1, 2**63 - 1, b"\0\xff'?%"),
        ("\U0001f600\n\u202e", -1e300, -(2**63), b""),
        ("", 5e-324, 0, None),
    ]

    def work(tx: Transaction) -> list[tuple[object, ...]]:
        tx.execute(f"CREATE TABLE kept (text TEXT, number {real}, whole {whole}, bytes {blob})")
        tx.executemany("INSERT INTO kept VALUES (?, ?, ?, ?)", values)
        tx.executemany("INSERT INTO kept VALUES (?, ?, ?, ?)", [])
        return [tuple(row) for row in tx.execute("SELECT * FROM kept ORDER BY number").fetchall()]

    is_postgres = isinstance(database_at, str)
    real, whole, blob = ("DOUBLE PRECISION", "BIGINT", "BYTEA") if is_postgres else ("REAL", "INTEGER", "BLOB")
    async with open_database(database_at) as db:
        assert await db.write(work) == sorted(values, key=lambda row: row[1])
        found = await db.read(
            lambda tx: tx.execute(
                "SELECT count(*), sum(whole), coalesce(sum(number), 0), max(text) FILTER (WHERE whole > ?) FROM kept "
                "WHERE text = coalesce(?, text) AND text NOT LIKE '%?'",
                (True, None),
            ).fetchone()
        )
        assert tuple(found) == (3, -1, -1e300, values[0][0])
        assert [type(value) for value in found] == [int, int, float, str]


async def test_text_with_nul_matches_nothing(database_at: Path | str) -> None:
    async with open_database(database_at) as db:
        await db.write(add("ada"))
        assert await db.statement("SELECT * FROM people WHERE name = ?", ("ada\0",)) == []
        await db.write(add("a\0da"))
        assert len(await db.read(names)) == 2


async def test_database_clock_advances_within_transaction(database_at: Path | str) -> None:
    def look(tx: Transaction) -> list[float]:
        found = []
        for _ in range(2):
            found.append(float(tx.execute("SELECT db_now()").fetchone()[0]))
            time.sleep(0.01)
        return found

    async with open_database(database_at) as db:
        first, second = await db.write(look)
        assert first < second


async def test_newer_file_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    async with open_database(path):
        pass
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    before = path.read_bytes()
    with pytest.raises(OperatorError, match="another version of the bridge"):
        async with open_database(path):
            pass
    assert path.read_bytes() == before


async def test_files_are_private_to_owner(tmp_path: Path) -> None:
    async with open_database(tmp_path / "bridge.db") as db:
        await db.write(add("ada"))
        files = list(tmp_path.iterdir())
        assert len(files) == 4
        assert all(path.stat().st_mode & 0o077 == 0 for path in files)


async def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot be opened"):
        async with open_database(tmp_path / "nowhere" / "bridge.db"):
            pass


async def test_processes_opening_new_file_share_it(tmp_path: Path) -> None:
    """`bridge chat` opens it beside the bridge that it has just started."""
    for attempt in range(3):
        async with AsyncExitStack() as stack:
            opening = (stack.enter_async_context(open_database(tmp_path / f"{attempt}.db")) for _ in range(4))
            await asyncio.gather(*opening)
