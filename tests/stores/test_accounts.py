"""Budget accounting of model calls, with the same results on SQLite and on a shared Postgres."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bridge.db.open import open_database
from bridge.proxy.accounts import Accounts, UnavailableError
from bridge.proxy.budgets import Bounds, BudgetError, Limits
from bridge.proxy.calls import Spend
from sprite.common.tasks import TaskDiedError
from tests.accounts import accounts, let_in, settled
from tests.in_thread import PATIENCE
from tests.looks import eventually
from tests.new_databases import put_bridge


async def test_dead_ledger_writer_stops_calls(tmp_path: Path) -> None:
    put_bridge(tmp_path / "bridge.db")
    is_behind = False
    async with open_database(tmp_path / "bridge.db") as database:
        with suppress(TaskDiedError):
            async with Accounts(database, Limits()) as at:
                call = await let_in(at, 0.5)
                call.status = 2**63
                at.settle(call)
                await eventually(lambda: at.is_behind, "the end of the writer was not noticed")
                with pytest.raises(UnavailableError):
                    await let_in(at, 0.5)
                is_behind, call.status = True, 200
    assert is_behind


async def refused(at: Accounts, most: float, least: float | None = None) -> BudgetError:
    with pytest.raises(BudgetError) as caught:
        await let_in(at, most, least)
    return caught.value


async def test_call_reserves_worst_cost_until_settled(database_at: Path | str) -> None:
    async with accounts(database_at, Limits(daily_usd=1.0)) as at:
        call = await let_in(at, 1.25, 0.125)
        assert (call.held_usd, call.state) == (1.25, "held")
        assert await at.spend() == [Spend("ada", 1.25, 1.25, 1.25, 1, 0)], "in flight it counts with what it holds"
        assert await at.spent_today() == {}
        waits = await refused(at, 0.5, 0.125)
        assert waits.retry_after, "once it is settled there is room"
        assert "Calls in flight reserve" in str(waits)
        other = await let_in(at, 1.25, 0.125, sprite="bob")
        at.settle(settled(other, 1.0))
        at.settle(settled(call, 0.25))
        assert await at.spend() == [Spend("ada", 0.25, 0.25, 0.25, 1, 0), Spend("bob", 1.0, 1.0, 1.0, 1, 0)]
        assert (await at.spent_today())["ada"] == 0.25
        assert (await let_in(at, 0.5)).held_usd == 0.5


async def test_call_spends_last_cents_then_gets_reset_time(database_at: Path | str) -> None:
    """The refusal names the time at which the budget resets."""
    async with accounts(database_at, Limits(daily_usd=5.0, monthly_usd=1.0)) as at:
        at.settle(settled(await let_in(at, 1.0), 0.75))
        await at.spend()
        assert (await refused(at, 2.0, 0.5)).retry_after is None, "only the remainder is left after settlement"
        at.settle(settled(await let_in(at, 2.0, 0.25), 0.25))
        await at.spend()
        words = await refused(at, 0.125, 0.0)
        assert words.retry_after is None
        assert "The month's budget of $1.00 is used up ($1.00 spent)" in str(words)
        assert (await let_in(at, 0.0)).held_usd == 0.0, "a free call is never refused"


async def test_call_waits_for_reservation_up_to_timeout(database_at: Path | str) -> None:
    async with accounts(database_at, Limits(daily_usd=1.0)) as at:
        first = await let_in(at, 1.5, 0.125)
        waiting = asyncio.create_task(at.open("ada", "m", Bounds(0.125, 1.5), PATIENCE))
        assert (await refused(at, 1.5, 0.125)).retry_after
        at.settle(settled(first, 0.25))
        second = await asyncio.wait_for(waiting, PATIENCE)
        last = asyncio.create_task(at.open("ada", "m", Bounds(0.125, 1.5), PATIENCE))
        at.settle(settled(second, 0.75))
        with pytest.raises(BudgetError) as caught:
            await asyncio.wait_for(last, PATIENCE)
        assert caught.value.retry_after is None, "an exhausted budget is refused at once"


async def test_cancelled_waiter_holds_no_reservation(database_at: Path | str) -> None:
    async with accounts(database_at, Limits(daily_usd=1.0)) as at:
        call = await let_in(at, 1.0)
        waiting = [asyncio.create_task(at.open("ada", "m", Bounds(0.5, 1.0), PATIENCE)) for _ in range(5)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        at.settle(settled(call, 0.0))
        await at.spend()
        assert (await let_in(at, 1.0)).held_usd == 1.0


async def test_settlement_twice_counts_once_without_unknown_price(database_at: Path | str) -> None:
    """A call of unknown price is in no sum."""
    async with accounts(database_at, Limits()) as at:
        call = await let_in(at, 1.0)
        unknown = await at.open("ada", "other", None, 0.0)
        assert unknown.held_usd is None
        for _ in range(3):
            at.settle(settled(call, 0.5))
            at.settle(settled(unknown, None))
            assert await at.spend() == [Spend("ada", 0.5, 0.5, 0.5, 2, 1)]
        assert await at.spent_today() == {"ada": 0.5}
    async with accounts(database_at, Limits(daily_usd=0.75)) as at:
        assert await at.spent_today() == {"ada": 0.5}, "known after a restart"
        assert (await refused(at, 0.5)).retry_after is None


async def test_estimated_spend_is_reported_separately(database_at: Path | str) -> None:
    async with accounts(database_at, Limits()) as at:
        said, cut = await let_in(at, 1.0), await let_in(at, 1.0)
        await let_in(at, 1.0)
        assert await at.spent_today(only_estimates=True) == {}, "a reservation is no estimate"
        at.settle(settled(said, 0.5))
        settled(cut, 0.25).is_estimate = True
        at.settle(cut)
        assert await at.spent_today(only_estimates=True) == {"ada": 0.25}
        assert await at.spent_today() == {"ada": 0.75}


async def test_daily_limit_raised_admits_more_calls(database_at: Path | str) -> None:
    async with accounts(database_at, Limits(daily_usd=1.0)) as at:
        at.settle(settled(await let_in(at, 1.0), 1.0))
        await at.spend()
        assert "you can raise it for today" in str(await refused(at, 0.5))
        assert [await at.raise_today("ada"), await at.raise_today("ada")] == [2.0, 3.0]
        at.settle(settled(await let_in(at, 1.5), 1.5))
        await at.spend()
    async with accounts(database_at, Limits(daily_usd=1.0)) as at:
        assert (await let_in(at, 0.5)).held_usd == 0.5, "known after a restart"
        assert (await refused(at, 0.5)).retry_after
        at.settle(settled(await let_in(at, 1.0, sprite="bob"), 1.0))
        await at.spend()
        with pytest.raises(BudgetError, match=r"1\.00 is used up"):
            await let_in(at, 0.5, sprite="bob")


async def test_daily_limit_raised_leaves_monthly_limit(database_at: Path | str) -> None:
    async with accounts(database_at, Limits(daily_usd=1.0, monthly_usd=1.0)) as at:
        at.settle(settled(await let_in(at, 1.0), 1.0))
        await at.spend()
        await at.raise_today("ada")
        assert "The month's budget" in str(await refused(at, 0.5))


async def test_daily_limit_unset_cannot_be_raised(database_at: Path | str) -> None:
    async with accounts(database_at, Limits()) as at:
        assert await at.raise_today("ada") is None


async def test_budget_warns_once_at_half_and_four_fifths(database_at: Path | str) -> None:
    warned: list[tuple[str, str]] = []
    async with accounts(database_at, Limits(daily_usd=1.0)) as at:
        at.warnings.listeners.append(lambda sprite, words: warned.append((sprite, words)))
        for usd in (0.25, 0.25, 0.25, 0.125, 0.0625):
            at.settle(settled(await let_in(at, usd), usd))
            await at.spend()
        await at.raise_today("ada")
        at.settle(settled(await let_in(at, 0.0625), 0.0625))
        await at.spend()
    assert [(sprite, words.split(" (")[0]) for sprite, words in warned] == [
        ("ada", "At least 50% of the day's budget of $1.00 is spent"),
        ("ada", "At least 80% of the day's budget of $1.00 is spent"),
        ("ada", "At least 50% of the day's budget of $2.00 is spent"),
    ]
