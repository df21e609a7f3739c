"""The bridge's database on Postgres: access, isolation of concurrent bridges, and lost connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial

import psycopg
import pytest

from bridge.db.database import Database, DatabaseAwayError, DatabaseError, Transaction
from bridge.db.open import open_database
from bridge.db.postgres import Patience, open_postgres
from bridge.db.tables import MIGRATIONS
from bridge.errors import OperatorError
from tests.in_thread import PATIENCE
from tests.looks import eventually
from tests.postgres import Server


def run(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def tables(url: str) -> list[tuple[object, ...]]:
    return run(
        url, "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
    )


async def refused(url: str) -> str:
    with pytest.raises(OperatorError) as error:
        async with open_database(url):
            pass
    return str(error.value)


def count(tx: Transaction) -> None:
    """Read, sleep and write: two concurrent calls lose an update unless they are isolated."""
    (seen,) = tx.execute("SELECT created_at FROM people WHERE name = 'ada'").fetchone()
    tx.execute("UPDATE people SET created_at = ? WHERE name = 'ada'", (seen + 1,))


async def add_ada(database: Database) -> None:
    await database.statement("INSERT INTO people (name, created_at) VALUES ('ada', 0)")


async def counted(database: Database) -> float:
    (row,) = await database.statement("SELECT created_at FROM people WHERE name = 'ada'")
    return float(row["created_at"])


# --- start ---


async def test_bridges_starting_together_create_tables_once(bare_postgres_url: str) -> None:
    async def start() -> None:
        async with open_database(bare_postgres_url) as database:
            await database.statement("SELECT * FROM people")

    await asyncio.gather(*(start() for _ in range(5)))
    assert run(bare_postgres_url, "SELECT version FROM bridge_version") == [(len(MIGRATIONS),)]


async def test_older_version_is_migrated_and_keeps_rows(postgres_url: str) -> None:
    async with open_database(postgres_url) as database:
        await add_ada(database)
    async with open_postgres(
        postgres_url, (*MIGRATIONS, "ALTER TABLE people ADD COLUMN newer TEXT DEFAULT 'x';")
    ) as newer:
        (row,) = await newer.statement("SELECT name, newer FROM people")
        assert row[:] == ("ada", "x")


async def test_newer_database_is_refused_and_untouched(postgres_url: str) -> None:
    async with open_postgres(postgres_url, (*MIGRATIONS, "CREATE TABLE newer (x TEXT) STRICT;")):
        pass
    assert "another version of the bridge" in await refused(postgres_url)
    assert run(postgres_url, "SELECT version FROM bridge_version") == [(len(MIGRATIONS) + 1,)]


async def test_foreign_database_is_refused_and_untouched(bare_postgres_url: str) -> None:
    run(bare_postgres_url, "CREATE TABLE somebody_elses (x int)")
    before = tables(bare_postgres_url)
    assert "somebody_elses" in await refused(bare_postgres_url)
    assert tables(bare_postgres_url) == before


async def test_failed_migration_keeps_previous_version(postgres_url: str) -> None:
    async with open_database(postgres_url):
        pass
    before = tables(postgres_url)
    with pytest.raises(OperatorError, match="cannot be used"):
        async with open_postgres(postgres_url, (*MIGRATIONS, "CREATE TABLE half (x TEXT); SELECT 1 / 0;")):
            pass
    assert tables(postgres_url) == before
    assert run(postgres_url, "SELECT version FROM bridge_version") == [(len(MIGRATIONS),)]


async def test_user_without_create_permission_is_reported(postgres: Server, bare_postgres_url: str) -> None:
    name = bare_postgres_url.rpartition("/")[2]
    run(bare_postgres_url, f"CREATE ROLE guest_{name} LOGIN")
    words = await refused(postgres.url(name, user=f"guest_{name}"))
    assert "OWNER" in words
    run(bare_postgres_url, f"DROP ROLE guest_{name}")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("postgresql://guarded:planted-password@127.0.0.1:{port}/postgres", "password authentication failed"),
        ("postgresql://guarded@127.0.0.1:{port}/postgres", "no password supplied"),
        ("postgresql://nobody:planted-password@127.0.0.1:{port}/postgres", "does not exist"),
        ("postgresql://sprite:planted-password@127.0.0.1:{port}/nowhere", "does not exist"),
        ("postgresql://sprite:planted-password@127.0.0.1:1/postgres", "Does the server run"),
        ("postgresql://sprite:planted-password@no-such-host.invalid/postgres", "Does the server run"),
        ("postgresql://sprite:planted-password%zz@127.0.0.1:{port}/postgres", "is invalid"),
        ("postgresql://sprite:planted-password@127.0.0.1:planted-password/postgres", "Does the server run"),
        ("postgresql://sprite:1/planted-password@127.0.0.1:{port}/postgres", "Does the server run"),
        ("postgresql://sprite:x@planted-password@127.0.0.1:{port}/postgres", "Does the server run"),
        ("postgresql://sprite@127.0.0.1:1/postgres?password=planted-password", "Does the server run"),
        ("postgresql://sprite:planted-password@127.0.0.1:{port}/postgres?planted-password=1", "is invalid"),
        ("postgresql://sprite:planted-password@127.0.0.1:{port}/latin", "UTF8"),
    ],
)
async def test_unreachable_address_is_reported_without_password(postgres: Server, address: str, words: str) -> None:
    for statement in (
        "CREATE ROLE guarded LOGIN PASSWORD 'another'",
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0",
    ):
        make_once(postgres, statement)
    said = await refused(address.format(port=postgres.port))
    assert words in said
    assert "planted-password" not in said
    assert "\n" not in said


def make_once(postgres: Server, statement: str) -> None:
    """Create the role unless another test or worker has already created it."""
    with suppress(psycopg.errors.DuplicateObject, psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
        postgres.run(statement)


# --- concurrent bridges ---


async def test_transactions_of_two_bridges_are_serializable(postgres_url: str) -> None:
    async with open_database(postgres_url) as one, open_database(postgres_url) as other:
        await add_ada(one)
        await asyncio.gather(*(database.write(count) for database in (one, other) for _ in range(40)))
        assert await counted(one) == 80


async def test_keyed_work_is_serialized(postgres_url: str) -> None:
    async with open_database(postgres_url) as one, open_database(postgres_url) as other:
        await add_ada(one)
        await asyncio.gather(*(database.write_in_turn("ada", count) for database in (one, other) for _ in range(40)))
        assert await counted(one) == 80


async def test_keyed_work_ignores_writes_under_other_keys(postgres_url: str) -> None:
    """Work under one key is not repeated for writes under another."""
    meet, runs = threading.Barrier(2), []

    def keep(tx: Transaction, sprite: str) -> None:
        runs.append(sprite)
        assert tx.execute("SELECT path FROM homes WHERE sprite = ?", (sprite,)).fetchone() is None
        # Both use the same table, and have not written yet.
        meet.wait(PATIENCE)
        tx.execute("INSERT INTO homes (sprite, machine, path) VALUES (?, 'here', '/')", (sprite,))

    async with open_database(postgres_url) as one, open_database(postgres_url) as other:
        await asyncio.gather(
            one.write_in_turn("ada", partial(keep, sprite="ada")),
            other.write_in_turn("bob", partial(keep, sprite="bob")),
        )
    assert sorted(runs) == ["ada", "bob"]


async def test_statement_waits_for_row_lock_and_sees_result(postgres_url: str) -> None:
    async with open_database(postgres_url) as one, open_database(postgres_url) as other:
        await add_ada(one)
        added = "UPDATE people SET created_at = created_at + 1 WHERE name = ? AND created_at < ? RETURNING created_at"
        results = await asyncio.gather(
            *(database.statement(added, ("ada", 25)) for database in (one, other) for _ in range(40))
        )
        assert sorted(row["created_at"] for rows in results for row in rows) == list(range(1, 26))


async def test_notification_is_delivered_after_commit(postgres_url: str) -> None:
    async with open_database(postgres_url) as one, open_database(postgres_url) as other, heard(other, "owner") as texts:

        def fail(tx: Transaction) -> None:
            tx.execute("SELECT db_notify(?, ?)", ("owner", "of a transaction that failed"))
            raise RuntimeError

        async def tell(channel: str, text: str) -> None:
            await one.write(lambda tx: tx.execute("SELECT db_notify(?, ?)", (channel, text)))

        await told(one, texts, "ready")
        with pytest.raises(RuntimeError):
            await one.write(fail)
        await tell("another", "somebody else's")
        await tell("owner", "ada:1")
        await eventually(lambda: "ada:1" in texts, "no notification arrived")
        assert [text for text in texts if text != "ready"] == ["ada:1"]
        # A lost connection is reopened.
        run(postgres_url, CUT_ALL)
        await told(one, texts, "again")


@asynccontextmanager
async def heard(database: Database, channel: str) -> AsyncIterator[list[str]]:
    texts: list[str] = []

    async def listen() -> None:
        async with aclosing(database.listen(channel)) as told:
            async for text in told:
                texts.append(text)  # noqa: PERF401 - it never ends

    task = asyncio.create_task(listen())
    yield texts
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def told(database: Database, texts: list[str], text: str) -> None:
    """Notify until it is received: the listener may not have started."""
    async with asyncio.timeout(PATIENCE):
        while text not in texts:
            try:
                await database.statement("SELECT db_notify(?, ?)", ("owner", text))
            except DatabaseAwayError:
                continue
            await asyncio.sleep(0.05)


# --- lost connections ---

CUT_ALL = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def test_idle_lost_connection_is_reopened_silently(postgres_url: str) -> None:
    async with open_database(postgres_url) as database:
        await add_ada(database)
        for ask in (lambda: database.write(count), lambda: counted(database), lambda: database.read(count_people)):
            run(postgres_url, CUT_ALL)
            await ask()
        assert await counted(database) == 1


def count_people(db: Transaction) -> int:
    return int(db.execute("SELECT count(*) FROM people").fetchone()[0])


def cutting(url: str, times: int) -> Callable[[Transaction], None]:
    """Add one and cut the connection before the commit, the given number of times."""
    left = iter(range(times))

    def work(tx: Transaction) -> None:
        count(tx)
        if next(left, None) is not None:
            run(url, CUT_ALL)

    return work


async def test_connection_lost_before_commit_retries_once(postgres_url: str) -> None:
    async with open_database(postgres_url) as database:
        await add_ada(database)
        await database.write(cutting(postgres_url, 0))
        assert await counted(database) == 1

        def cut(tx: Transaction) -> None:
            count(tx)
            if cuts:
                run(postgres_url, cuts.pop())
                tx.execute("SELECT 1")

        cuts = [CUT_ALL]
        await database.write(cut)
        assert await counted(database) == 2
        cuts = [CUT_ALL, CUT_ALL]
        with pytest.raises(DatabaseAwayError):
            await database.write(cut)
        assert await counted(database) == 2


async def test_connection_lost_at_commit_is_not_retried(postgres_url: str) -> None:
    async with open_database(postgres_url) as database:
        await add_ada(database)
        with pytest.raises(DatabaseAwayError, match="not known") as error:
            await database.write(cutting(postgres_url, 1))
        assert error.value.code == "08007"
        assert await counted(database) == 0


async def test_slow_statement_is_cancelled_and_next_one_works(postgres_url: str) -> None:
    async with open_postgres(postgres_url, MIGRATIONS, Patience(statement=1.0)) as database:
        with pytest.raises(DatabaseError) as error:
            await database.statement("SELECT pg_sleep(600)")
        assert error.value.code == "57014"
        with pytest.raises(DatabaseError):
            await database.write(lambda tx: tx.execute("SELECT pg_sleep(600)"))
        await database.statement("SELECT 1")


async def test_bridge_stopped_mid_transaction_releases_locks_soon(postgres_url: str) -> None:
    stopped, go_on = threading.Event(), threading.Event()

    def stop(tx: Transaction) -> None:
        count(tx)
        stopped.set()
        go_on.wait(PATIENCE)
        tx.execute("SELECT 1")

    async with (
        open_postgres(postgres_url, MIGRATIONS, Patience(statement=1.0)) as one,
        open_database(postgres_url) as other,
    ):
        await add_ada(one)
        writing = asyncio.create_task(one.write(stop))
        await asyncio.to_thread(stopped.wait, PATIENCE)
        await other.write(count)
        assert await counted(other) == 1
        go_on.set()
        await writing
        assert await counted(other) == 2, "the stopped transaction was rolled back and is retried"


async def test_transaction_after_failed_statement_reports_no_commit(postgres_url: str) -> None:
    def careless(tx: Transaction) -> None:
        count(tx)
        with suppress(psycopg.Error):
            tx.execute("INSERT INTO people (name, created_at) VALUES ('ada', 0)")

    async with open_database(postgres_url) as database:
        await add_ada(database)
        with pytest.raises(DatabaseError, match="not written"):
            await database.write(careless)
        assert await counted(database) == 0


# --- mixed versions ---


async def test_altered_table_stays_readable(postgres_url: str) -> None:
    async with open_database(postgres_url) as older:
        await add_ada(older)
        for _ in range(20):
            await older.statement("SELECT * FROM people")
            await older.read(lambda tx: tx.execute("SELECT * FROM people").fetchall())
        async with open_postgres(postgres_url, (*MIGRATIONS, "ALTER TABLE people ADD COLUMN newer TEXT;")):
            for _ in range(20):
                (row,) = await older.statement("SELECT * FROM people")
                assert row["name"] == "ada"
                assert await older.read(lambda tx: len(tx.execute("SELECT * FROM people").fetchall())) == 1
