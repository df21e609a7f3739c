"""Budgets over many bridges: sums per sprite in a shared Postgres, despite crashes and late settlements."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st

from bridge.db.open import ConstraintError, Database, open_database
from bridge.proxy.accounts import Bounds
from bridge.proxy.budgets import BudgetError, Budgets, Hold, Limits
from bridge.proxy.calls import ModelCall, Spend, spend
from bridge.proxy.shared_accounts import HELD_SECONDS, SharedAccounts, Spending
from tests.accounts import HOUR, NOON, accounts, let_in, set_clock, settled, sums
from tests.in_thread import PATIENCE
from tests.postgres import Server

LIMITS = Limits(daily_usd=4.0, monthly_usd=6.0)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    async with open_database(postgres_url) as database:
        yield database


async def reserved(spending: Spending, most: float, least: float = 0.0) -> ModelCall | None:
    """Return an admitted reservation."""
    call = ModelCall("ada", "m", most)
    if await spending.standing("ada") is None:
        await spending.begin("ada")
    at = await spending.reserve(call, Bounds(least, most))
    if at is None:
        return None
    call.at = at
    return call


async def until_there(database: Database, sql: str) -> None:
    """Wait until a statement finds a row."""
    async with asyncio.timeout(PATIENCE):
        while not await database.statement(sql):  # noqa: ASYNC110 - a database has no events
            await asyncio.sleep(0.01)


@asynccontextmanager
async def locked(url: str, database: Database, sql: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Lock the rows of a statement; the yielded function returns when the given number of others wait for them."""

    async def until_waiting(count: int) -> None:
        waiting = (
            "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        await until_there(database, f"SELECT 1 FROM ({waiting}) AS found WHERE n >= {count}")

    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(f"{sql} FOR UPDATE".encode())
        yield until_waiting


# --- many bridges ---


async def test_concurrent_bridges_overspend_at_most_reservations_in_flight(
    postgres_url: str, database: Database
) -> None:
    """Clients disconnect midway, one bridge abandons calls as if killed, and the true cost is counted separately."""
    rng, limit = random.Random(4711), 5.0  # noqa: S311 - the same in every run
    largest, refused, over = 0.0, 0, []
    spent, left = [], []

    async def one_call(at: SharedAccounts, *, dies: bool) -> None:
        nonlocal largest, refused
        most = rng.randrange(1, 30)
        largest = max(largest, most / 100)
        try:
            call = await at.open("ada", "m", Bounds(0.01, most / 100), 0.0)
        except BudgetError:
            refused += 1
            return
        try:
            row = await sums(database)
            over.append(row["day_held"] + row["day_spent"] - limit - largest)
            await asyncio.sleep(rng.random() / 500)
        finally:
            if dies and rng.random() < 0.1:
                left.append(most)
            else:
                spent.append(rng.randrange(most + 1))
                for _ in range(rng.randrange(1, 3)):
                    at.settle(settled(call, spent[-1] / 100))

    async def client(at: SharedAccounts, *, dies: bool) -> None:
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
            spending = Spending(own, Limits(daily_usd=limit))
            bridges.append(await stack.enter_async_context(SharedAccounts(own, spending)))
        async with asyncio.timeout(PATIENCE):
            clients = (client(at, dies=at is bridges[0]) for at in bridges for _ in range(4))
            await asyncio.gather(*clients)
        for at in bridges:
            await at.flush()
    assert max(over) <= 1e-9
    assert refused, "the budget was not used up"
    row = await sums(database)
    held = await database.statement("SELECT held_usd FROM calls WHERE state = 'held'")
    assert sorted(round(call["held_usd"] * 100) for call in held) == sorted(left)
    assert round(row["day_held"] * 100) == sum(left)
    (told,) = await database.statement("SELECT sum(spent_usd) AS usd FROM calls WHERE state = 'settled'")
    assert round(told["usd"] * 100) == round(row["day_spent"] * 100) == sum(spent)


async def test_cancelled_reservation_is_released_at_any_moment(database: Database) -> None:
    """Reserve and cancel meet in every order: the first one to use the id decides."""
    spending = Spending(database, LIMITS)
    await spending.begin("ada")
    outcomes = set()
    for number in range(60):
        call = ModelCall("ada", "m", 0.5)
        both = [spending.reserve(call, Bounds(0.1, 0.5)), spending.bar(call)]
        if number % 2:
            both.reverse()
        found = await asyncio.gather(*both, return_exceptions=True)
        outcomes.add(ConstraintError if any(isinstance(one, ConstraintError) for one in found) else float)
        assert not [one for one in found if isinstance(one, Exception) and not isinstance(one, ConstraintError)]
        call.spent_usd = 0.0
        await spending.settle(settled(call, 0.0))
        row = await sums(database)
        assert (row["day_held"], row["day_spent"]) == (0.0, 0.0)
    assert outcomes == {ConstraintError, float}


async def test_client_leaving_during_admission_releases_reservation(postgres_url: str, database: Database) -> None:
    async with accounts(postgres_url, LIMITS) as at:
        at.settle(settled(await let_in(at, 0.5), 0.0))
        await at.spend()
        async with locked(postgres_url, database, "SELECT 1 FROM spending") as until_waiting:
            task = asyncio.create_task(let_in(at, 0.5))
            await until_waiting(1)
            task.cancel()
            await asyncio.wait({task})
            # It is released while the statement that admits it is still running.
            await until_there(database, "SELECT 1 FROM calls WHERE outcome = 'refused'")
        await at.spend()
        assert (await let_in(at, 4.0, 4.0)).held_usd == 4.0
        assert (await sums(database))["day_held"] == 4.0


async def test_settlement_is_written_once_despite_duplicates(postgres_url: str, database: Database) -> None:
    spending = Spending(database, LIMITS)
    call = await reserved(spending, 2.0)
    assert call is not None
    async with locked(postgres_url, database, "SELECT 1 FROM calls") as until_waiting:
        several = [asyncio.create_task(spending.settle(settled(call, 0.75))) for _ in range(4)]
        await until_waiting(4)
    await asyncio.gather(*several)
    await spending.settle(settled(call, 1.5))
    row = await sums(database)
    assert (row["day_held"], row["day_spent"], row["month_spent"]) == (0.0, 0.75, 0.75)
    assert await spend(database) == [Spend("ada", 0.75, 0.75, 0.75, 1, 0)]


# --- dead bridges ---


async def test_dead_bridge_reservations_settle_after_quarter_hour(postgres_url: str, database: Database) -> None:
    """The database's clock decides."""
    await set_clock(database, NOON)
    dead = Spending(database, LIMITS)
    call = await reserved(dead, 2.0)
    assert call is not None
    await set_clock(database, NOON + HELD_SECONDS - 1)
    assert await dead.lose() == 0
    await set_clock(database, NOON + HELD_SECONDS + 1)
    async with accounts(postgres_url, LIMITS) as living:
        # Its first heartbeat detects it.
        await until_there(database, "SELECT 1 FROM calls WHERE state = 'lost'")
        row = await sums(database)
        assert (row["day_held"], row["day_spent"], row["month_held"], row["month_spent"]) == (0.0, 2.0, 0.0, 2.0)
        assert await living.spend() == [Spend("ada", 2.0, 2.0, 2.0, 1, 0, 2.0)]
    assert await asyncio.gather(*(dead.lose() for _ in range(4))) == [0, 0, 0, 0]
    # The bridge had only been away: the upstream's cost is known after all.
    await dead.settle(settled(call, 0.5))
    row = await sums(database)
    assert (row["day_held"], row["day_spent"], row["month_spent"]) == (0.0, 0.5, 0.5)


async def test_dead_bridge_found_concurrently_is_counted_once(database: Database) -> None:
    spending = Spending(database, LIMITS)
    await set_clock(database, NOON)
    for _ in range(3):
        assert await reserved(spending, 0.5) is not None
    await set_clock(database, NOON + HELD_SECONDS + 1)
    assert sum(await asyncio.gather(*(spending.lose() for _ in range(6)))) == 3
    row = await sums(database)
    assert (row["day_held"], row["day_spent"]) == (0.0, 1.5)


async def test_long_call_keeps_reservation_while_bridge_lives(database: Database) -> None:
    await set_clock(database, NOON)
    async with SharedAccounts(database, Spending(database, LIMITS), beat_seconds=0.01) as at:
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
    spending = Spending(database, LIMITS)
    await set_clock(database, NOON)  # 30 November
    old = await reserved(spending, 2.0)
    assert old is not None
    await set_clock(database, NOON + 13 * HOUR)
    assert await reserved(spending, 4.0, 4.0) is not None, "December has a separate budget"
    await spending.settle(settled(old, 1.5))
    row = await sums(database)
    assert (row["day_held"], row["day_spent"], row["month_held"], row["month_spent"]) == (4.0, 0.0, 4.0, 0.0)
    assert await spend(database) == [Spend("ada", 4.0, 4.0, 5.5, 2, 0)]
    assert await spend(database, NOON) == [Spend("ada", 5.5, 5.5, 5.5, 2, 0)]


async def test_call_over_midnight_counts_in_its_month(database: Database) -> None:
    spending = Spending(database, LIMITS)
    await set_clock(database, NOON - 24 * HOUR)
    old = await reserved(spending, 3.0)
    assert old is not None
    await set_clock(database, NOON)
    assert await reserved(spending, 3.5, 3.5) is None, "three of the month's six dollars are reserved"
    await spending.settle(settled(old, 2.75))
    row = await sums(database)
    assert (row["month_held"], row["month_spent"]) == (0.0, 2.75)
    assert await reserved(spending, 3.25, 3.25) is not None
    row = await sums(database)
    assert (row["day_held"], row["day_spent"], row["month_held"]) == (3.25, 0.0, 3.25)


async def test_clock_set_back_refunds_nothing(database: Database) -> None:
    spending = Spending(database, LIMITS)
    await set_clock(database, NOON + 24 * HOUR)  # 1 December
    first = await reserved(spending, 4.0)
    assert first is not None
    await set_clock(database, NOON)
    assert await reserved(spending, 1.0, 1.0) is None
    await spending.settle(settled(first, 3.0))
    second = await reserved(spending, 1.0, 1.0)
    assert second is not None
    assert datetime.fromtimestamp(second.at, UTC).day == 1, "it counts for the newest day seen"
    await spending.settle(settled(second, 0.5))
    row = await sums(database)
    assert (row["day_held"], row["day_spent"], row["month_held"], row["month_spent"]) == (0.0, 3.5, 0.0, 3.5)


async def test_sprite_from_elsewhere_starts_with_its_spending(database: Database) -> None:
    spending = Spending(database, LIMITS)
    await set_clock(database, NOON)
    for at, usd in ((NOON - 40 * 24 * HOUR, 9.0), (NOON - 24 * HOUR, 1.0), (NOON - HOUR, 2.0)):
        await spending.bar(settled(ModelCall("ada", "m", usd, at, state="settled"), usd))
    await spending.begin("ada")
    await spending.begin("ada")
    row = await sums(database)
    assert (row["day_spent"], row["month_spent"]) == (2.0, 3.0)
    assert await reserved(spending, 2.5, 2.5) is None
    assert await reserved(spending, 2.0, 2.0) is not None


# --- against a simple model ---


class ManyBridges(stateful.RuleBasedStateMachine):
    """The database admits the same calls as a single bridge; its sums match the calls at every moment."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.now = NOON
        self.open: list[tuple[ModelCall, Hold]] = []
        self.over: list[ModelCall] = []
        self.largest = 0.0
        self.stands_until: dict[str, float] = {}
        # Times without requests are not observed.
        self.asked_at = NOON
        self.model = Budgets(LIMITS, lambda: self.asked_at)
        self.floor = 0.0
        self.database = self.runner.run(self.stack.enter_async_context(open_database(self.url)))
        self.bridges = [Spending(self.database, LIMITS) for _ in range(2)]
        self.run("DELETE FROM calls")
        self.run("DELETE FROM spending")
        self.tick(0)

    def run(self, sql: str) -> list[Any]:
        return self.runner.run(self.database.statement(sql))

    @stateful.rule(hours=st.sampled_from([-30, -1, 1, 7, 13, 300]))
    def tick(self, hours: int) -> None:
        self.now = max(self.now + hours * HOUR, self.floor)
        self.runner.run(set_clock(self.database, self.now))

    @stateful.rule(bridge=st.integers(0, 1), least=st.integers(0, 64), more=st.integers(0, 128))
    def reserve(self, bridge: int, least: int, more: int) -> None:
        # Multiples of 1/64: sums of them are exact.
        low, high = least / 64, (least + more) / 64
        self.asked_at = self.now
        try:
            expected: Hold | None = self.model.reserve("ada", low, high)
        except BudgetError:
            # The model starts a new day when asked, the database when it admits a call.
            expected, self.floor = None, self.now
        call = self.runner.run(reserved(self.bridges[bridge], high, low))
        assert (call is None) == (expected is None)
        if call is not None and expected is not None:
            self.open.append((call, expected))
            self.stands_until[call.id] = self.now + HELD_SECONDS
            self.largest = max(self.largest, high)

    @stateful.precondition(lambda self: self.open)
    @stateful.rule(data=st.data(), bridge=st.integers(0, 1), share=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    def settle(self, data: st.DataObject, bridge: int, share: float) -> None:
        call, hold = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.model.settle(hold, hold.usd * share)
        self.runner.run(self.bridges[bridge].settle(settled(call, hold.usd * share)))
        self.over.append(call)

    @stateful.precondition(lambda self: self.over)
    @stateful.rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.over))
        self.runner.run(self.bridges[0].settle(settled(call, 3.0)))

    @stateful.rule()
    def lose(self) -> None:
        late = [pair for pair in self.open if self.stands_until[pair[0].id] < self.now]
        assert self.runner.run(self.bridges[0].lose()) == len(late)
        for call, hold in late:
            self.model.settle(hold, hold.usd)
            self.open.remove((call, hold))
            self.over.append(settled(call, hold.usd))
            # It counts with its full reservation first, and then with its true cost.
            self.runner.run(self.bridges[1].settle(settled(call, hold.usd)))

    @stateful.invariant()
    def sums_are_those_of_the_calls(self) -> None:
        for row in self.run("SELECT * FROM spending"):
            assert row["day_held"] + row["day_spent"] <= 4.0 + self.largest
            assert row["month_held"] + row["month_spent"] <= 6.0 + self.largest
            (told,) = self.run(
                f"SELECT coalesce(sum(held_usd) FILTER (WHERE state = 'held'), 0) AS held, "
                f"coalesce(sum(spent_usd), 0) AS spent FROM calls WHERE floor(at / 86400) = {row['day']}"
            )
            assert (row["day_held"], row["day_spent"]) == (told["held"], told["spent"])
            if row["day"] == int(self.asked_at // 86400):
                held, spent = self.model.held("ada"), self.model.spent("ada")
                found = (row["day_held"], row["day_spent"], row["month_spent"])
                assert found == (held, spent.today, spent.month)

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()


@pytest.fixture
def empty_database(postgres: Server) -> Iterator[str]:
    url = postgres.create()
    yield url
    postgres.drop(url)


def test_database_admits_like_single_bridge(empty_database: str) -> None:
    machine = type("ManyBridgesOnOneServer", (ManyBridges,), {"url": empty_database})
    stateful.run_state_machine_as_test(
        machine, settings=settings(max_examples=settings().max_examples // 4, stateful_step_count=20)
    )
