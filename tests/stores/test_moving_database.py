"""Moving bridge.db into a Postgres: completely, once, and only into an unused database."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.auth.people import People, Session
from bridge.db.open import Database, Transaction, continue_numbers, copy, open_database
from bridge.db.postgres import open_postgres
from bridge.db.sqlite import open_sqlite
from bridge.errors import OperatorError
from bridge.notify.webhook import Outbox

THINGS = (
    "CREATE TABLE boxes (name TEXT PRIMARY KEY) STRICT;",
    "CREATE TABLE things (id INTEGER PRIMARY KEY, box TEXT REFERENCES boxes(name), size REAL, data BLOB) STRICT;",
)


async def everything(database: Database, tables: list[str]) -> dict[str, list[tuple[object, ...]]]:
    rows = {table: await database.statement(f"SELECT * FROM {table}") for table in tables}
    return {table: sorted((tuple(row) for row in found), key=repr) for table, found in rows.items()}


async def test_people_sessions_tokens_and_keys_are_moved(tmp_path: Path, postgres_url: str) -> None:
    path = tmp_path / "bridge.db"
    async with open_database(path) as file:
        people = People(file)
        await people.prepare()
        await people.add("ada")
        await people.add("bob")
        await people.revoke("bob")
        session = await people.redeem(await people.link("ada"))
        assert isinstance(session, Session)
        key = await people.cookie_key()
        await Outbox(file).add("m1", b"\0\xff")
        tables = [row[0] for row in await file.statement("SELECT name FROM sqlite_master WHERE type = 'table'")]
        before = await everything(file, tables)
    async with open_database(postgres_url) as database:
        counts = await database.write(lambda tx: copy(tx, path))
        assert await everything(database, tables) == before
        assert counts == {table: len(rows) for table, rows in before.items()}
        assert counts["people"] == 3
        people = People(database)
        assert await people.of_session(session.id) == "ada"
        assert await people.cookie_key() == key
        assert not await people.may_come("bob")
        with pytest.raises(OperatorError, match="Nothing was changed"):
            await database.write(lambda tx: copy(tx, path))
        assert await everything(database, tables) == before


async def test_many_rows_keep_order_and_sequences_continue(tmp_path: Path, bare_postgres_url: str) -> None:
    async with open_sqlite(tmp_path / "a.db", THINGS) as file:
        await file.statement("INSERT INTO boxes VALUES ('small')")
        things = [(number, "small", number / 3, bytes([number % 256])) for number in range(1, 5001)]
        await file.write(lambda tx: tx.executemany("INSERT INTO things VALUES (?, ?, ?, ?)", things))
    async with open_postgres(bare_postgres_url, THINGS) as database:

        def move(tx: Transaction) -> dict[str, int]:
            counts = copy(tx, tmp_path / "a.db")
            continue_numbers(tx)
            return counts

        assert await database.write(move) == {"boxes": 1, "things": 5000}
        found = await database.statement("SELECT * FROM things ORDER BY id")
        assert [tuple(row) for row in found] == things
        (row,) = await database.statement("INSERT INTO things (box) VALUES ('small') RETURNING id")
        assert row["id"] == 5001
