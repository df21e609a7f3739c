"""Budgets over many bridges: sums per sprite in a shared Postgres, despite crashes and late settlements."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

import psycopg
import pytest

from bridge.db.database import ConstraintError, Database
from bridge.db.open import open_database
from bridge.proxy.accounts import Accounts
from bridge.proxy.budgets import Bounds, BudgetError, Limits
from bridge.proxy.calls import HELD_SECONDS, ModelCall, Spend, bar, lose, reserve, settle, spend
from tests.accounts import HOUR, NOON, accounts, let_in, set_clock, settled, sums
from tests.in_thread import PATIENCE

LIMITS = Limits(daily_usd=4.0, monthly_usd=6.0)
#: The lock under which a sprite's calls are admitted and settled.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('spending of ada', 0))"


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    async with open_database(postgres_url) as database:
        yield database


async def reserved(database: Database, most: float, least: float = 0.0) -> ModelCall | None:
    """Return an admitted reservation."""
    call = ModelCall("ada", "m", most)
    return call if await reserve(database, call, Bounds(least, most), LIMITS) is None else None


async def until_there(database: Database, sql: str) -> None:
    """Wait until a statement finds a row."""
    async with asyncio.timeout(PATIENCE):
        while not await database.statement(sql):  # noqa: ASYNC110 - a database has no events
            await asyncio.sleep(0.01)


@asynccontextmanager
async def locked(url: str, database: Database, sql: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Take the locks of a statement; the yielded function returns when the given number of others wait for them."""

    async def until_waiting(count: int) -> None:
        waiting = (
            "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        await until_there(database, f"SELECT 1 FROM ({waiting}) AS found WHERE n >= {count}")

    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(sql.encode())
        yield until_waiting


# --- many bridges ---


async def test_concurrent_bridges_overspend_at_most_reservations_in_flight(
    postgres_url: str, database: Database
) -> None:
    """Clients disconnect midway, one bridge abandons calls as if killed, and the true cost is counted separately."""
    rng, limit = random.Random(4711), 5.0  # noqa: S311 - the same in every run
    largest, refused, over = 0.0, 0, []
    spent, left = [], []

    async def one_call(at: Accounts, *, dies: bool) -> None:
        nonlocal largest, refused
        most = rng.randrange(1, 30)
        largest = max(largest, most / 100)
        try:
            call = await at.open("ada", "m", Bounds(0.01, most / 100), 0.0)
        except BudgetError:
            refused += 1
            return
        try:
            ada = await sums(database)
            over.append(ada.day_held + ada.day_spent - limit - largest)
            await asyncio.sleep(rng.random() / 500)
        finally:
            if dies and rng.random() < 0.1:
                left.append(most)
            else:
                spent.append(rng.randrange(most + 1))
                for _ in range(rng.randrange(1, 3)):
                    at.settle(settled(call, spent[-1] / 100))

    async def client(at: Accounts, *, dies: bool) -> None:
        for _ in range(12):
            task = asyncio.create_task(one_call(at, dies=dies))
            if rng.random() < 0.15:
                await asyncio.sleep(rng.random() / 200)
                task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() or task.exception() is None

    async with AsyncExitStack() as stack:
        bridges = []
        for _ in range(3):
            own = await stack.enter_async_context(open_database(postgres_url))
            bridges.append(await stack.enter_async_context(Accounts(own, Limits(daily_usd=limit), shared=True)))
        async with asyncio.timeout(PATIENCE):
            clients = (client(at, dies=at is bridges[0]) for at in bridges for _ in range(4))
            await asyncio.gather(*clients)
        for at in bridges:
            await at.flush()
    assert max(over) <= 1e-9
    assert refused, "the budget was not used up"
    ada = await sums(database)
    held = await database.statement("SELECT held_usd FROM calls WHERE state = 'held'")
    assert sorted(round(call["held_usd"] * 100) for call in held) == sorted(left)
    assert round(ada.day_held * 100) == sum(left)
    (told,) = await database.statement("SELECT sum(spent_usd) AS usd FROM calls WHERE state = 'settled'")
    assert round(told["usd"] * 100) == round(ada.day_spent * 100) == sum(spent)


async def test_cancelled_reservation_is_released_at_any_moment(database: Database) -> None:
    """Reserve and cancel one after the other, in both orders, and then together: nothing stays held."""
    for number in range(62):
        call = ModelCall("ada", "m", 0.5)
        if number == 0:
            await reserve(database, call, Bounds(0.1, 0.5), LIMITS)
            await bar(database, call)
        elif number == 1:
            await bar(database, call)
            with pytest.raises(ConstraintError):
                await reserve(database, call, Bounds(0.1, 0.5), LIMITS)
        else:
            both = [reserve(database, call, Bounds(0.1, 0.5), LIMITS), bar(database, call)]
            if number % 2:
                both.reverse()
            found = await asyncio.gather(*both, return_exceptions=True)
            assert not [one for one in found if isinstance(one, Exception) and not isinstance(one, ConstraintError)]
        call.spent_usd = 0.0
        await settle(database, settled(call, 0.0))
        ada = await sums(database)
        assert (ada.day_held, ada.day_spent) == (0.0, 0.0)


async def test_client_leaving_during_admission_releases_reservation(postgres_url: str, database: Database) -> None:
    async with accounts(postgres_url, LIMITS) as at:
        at.settle(settled(await let_in(at, 0.5), 0.0))
        await at.spend()
        async with locked(postgres_url, database, _TURN) as until_waiting:
            task = asyncio.create_task(let_in(at, 0.5))
            await until_waiting(1)
            task.cancel()
            await asyncio.wait({task})
            # It is released while the statement that admits it is still running.
            await until_there(database, "SELECT 1 FROM calls WHERE outcome = 'refused'")
        await at.spend()
        assert (await let_in(at, 4.0, 4.0)).held_usd == 4.0
        assert (await sums(database)).day_held == 4.0


async def test_settlement_is_written_once_despite_duplicates(postgres_url: str, database: Database) -> None:
    call = await reserved(database, 2.0)
    assert call is not None
    async with locked(postgres_url, database, "SELECT 1 FROM calls FOR UPDATE") as until_waiting:
        several = [asyncio.create_task(settle(database, settled(call, 0.75))) for _ in range(4)]
        await until_waiting(4)
    await asyncio.gather(*several)
    await settle(database, settled(call, 1.5))
    ada = await sums(database)
    assert (ada.day_held, ada.day_spent, ada.month_spent) == (0.0, 0.75, 0.75)
    assert await spend(database) == [Spend("ada", 0.75, 0.75, 0.75, 1, 0)]


# --- dead bridges ---


async def test_dead_bridge_reservations_settle_after_quarter_hour(postgres_url: str, database: Database) -> None:
    """The database's clock decides."""
    await set_clock(database, NOON)
    call = await reserved(database, 2.0)
    assert call is not None
    await set_clock(database, NOON + HELD_SECONDS - 1)
    assert await lose(database) == 0
    await set_clock(database, NOON + HELD_SECONDS + 1)
    async with accounts(postgres_url, LIMITS) as living:
        # Its first heartbeat detects it.
        await until_there(database, "SELECT 1 FROM calls WHERE state = 'lost'")
        ada = await sums(database)
        assert (ada.day_held, ada.day_spent, ada.month_held, ada.month_spent) == (0.0, 2.0, 0.0, 2.0)
        assert await living.spend() == [Spend("ada", 2.0, 2.0, 2.0, 1, 0, 2.0)]
    assert await asyncio.gather(*(lose(database) for _ in range(4))) == [0, 0, 0, 0]
    # The bridge had only been away: the upstream's cost is known after all.
    await settle(database, settled(call, 0.5))
    ada = await sums(database)
    assert (ada.day_held, ada.day_spent, ada.month_spent) == (0.0, 0.5, 0.5)


async def test_dead_bridge_found_concurrently_is_counted_once(database: Database) -> None:
    await set_clock(database, NOON)
    for _ in range(3):
        assert await reserved(database, 0.5) is not None
    await set_clock(database, NOON + HELD_SECONDS + 1)
    assert sum(await asyncio.gather(*(lose(database) for _ in range(6)))) == 3
    ada = await sums(database)
    assert (ada.day_held, ada.day_spent) == (0.0, 1.5)


async def test_long_call_keeps_reservation_while_bridge_lives(database: Database) -> None:
    await set_clock(database, NOON)
    async with Accounts(database, LIMITS, shared=True, beat_seconds=0.01) as at:
        call = await let_in(at, 2.0)

        # Each step is shorter than a reservation's lifetime: a heartbeat from before the step may look for dead bridges
        # after it.
        for minutes in (10, 20, 30, 40):
            await set_clock(database, NOON + 60 * minutes)
            await until_there(database, f"SELECT 1 FROM calls WHERE held_until = {NOON + 60 * minutes + HELD_SECONDS}")
        at.settle(settled(call, 0.25))
        assert await at.spend() == [Spend("ada", 0.25, 0.25, 0.25, 1, 0)]


# --- the calendar ---


async def test_call_over_month_end_counts_at_its_start(database: Database) -> None:
    await set_clock(database, NOON)  # 30 November
    old = await reserved(database, 2.0)
    assert old is not None
    await set_clock(database, NOON + 13 * HOUR)
    assert await reserved(database, 4.0, 4.0) is not None, "December has a separate budget"
    await settle(database, settled(old, 1.5))
    ada = await sums(database)
    assert (ada.day_held, ada.day_spent, ada.month_held, ada.month_spent) == (4.0, 0.0, 4.0, 0.0)
    assert await spend(database) == [Spend("ada", 4.0, 4.0, 5.5, 2, 0)]


async def test_call_over_midnight_counts_in_its_month(database: Database) -> None:
    await set_clock(database, NOON - 24 * HOUR)
    old = await reserved(database, 3.0)
    assert old is not None
    await set_clock(database, NOON)
    assert await reserved(database, 3.5, 3.5) is None, "three of the month's six dollars are reserved"
    await settle(database, settled(old, 2.75))
    ada = await sums(database)
    assert (ada.month_held, ada.month_spent) == (0.0, 2.75)
    assert await reserved(database, 3.25, 3.25) is not None
    ada = await sums(database)
    assert (ada.day_held, ada.day_spent, ada.month_held) == (3.25, 0.0, 3.25)


async def test_clock_set_back_refunds_nothing(database: Database) -> None:
    await set_clock(database, NOON + 24 * HOUR)  # 1 December
    first = await reserved(database, 4.0)
    assert first is not None
    await set_clock(database, NOON)
    assert await reserved(database, 1.0, 1.0) is None
    await settle(database, settled(first, 3.0))
    second = await reserved(database, 1.0, 1.0)
    assert second is not None
    assert datetime.fromtimestamp(second.at, UTC).day == 1, "it counts for the newest day seen"
    await settle(database, settled(second, 0.5))
    ada = await sums(database)
    assert (ada.day_held, ada.day_spent, ada.month_held, ada.month_spent) == (0.0, 3.5, 0.0, 3.5)


async def test_sprite_from_elsewhere_starts_with_its_spending(database: Database) -> None:
    await set_clock(database, NOON)
    for at, usd in ((NOON - 40 * 24 * HOUR, 9.0), (NOON - 24 * HOUR, 1.0), (NOON - HOUR, 2.0)):
        await bar(database, settled(ModelCall("ada", "m", usd, at, state="settled"), usd))
    ada = await sums(database)
    assert (ada.day_spent, ada.month_spent) == (2.0, 3.0)
    assert await reserved(database, 2.5, 2.5) is None
    assert await reserved(database, 2.0, 2.0) is not None
