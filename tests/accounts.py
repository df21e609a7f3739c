"""Budget accounts of a single bridge, and of bridges that share a Postgres whose clock a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bridge.db.open import Database, open_database
from bridge.proxy.accounts import Bounds, Ledger, LocalAccounts
from bridge.proxy.budgets import Budgets, Limits
from bridge.proxy.calls import ModelCall, raised_on
from bridge.proxy.shared_accounts import Accounts, SharedAccounts, Spending

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0


@asynccontextmanager
async def accounts(where: Path | str, limits: Limits) -> AsyncIterator[Accounts]:
    """Open the accounts of a bridge that has just started on this database."""
    async with open_database(where) as database:
        if isinstance(where, str):
            async with SharedAccounts(database, Spending(database, limits)) as shared:
                yield shared
            return
        async with Ledger(database) as ledger:
            budgets = Budgets(limits)
            budgets.load(await ledger.spent())
            for sprite, usd in (await raised_on(database, budgets.day)).items():
                budgets.raise_today(sprite, usd)
            yield LocalAccounts(budgets, ledger, database)


def settled(call: ModelCall, usd: float | None) -> ModelCall:
    """Return the settled call, with the cost that the upstream reported."""
    call.spent_usd, call.outcome, call.status, call.is_estimate = usd, "complete", 200, False
    return call


async def let_in(accounts: Accounts, most: float, least: float | None = None, sprite: str = "ada") -> ModelCall:
    """Reserve a call without waiting."""
    return await accounts.open(sprite, "m", Bounds(most if least is None else least, most), 0.0)


async def set_clock(database: Database, now: float) -> None:
    """Freeze the database's clock at a time that the following statements see.

    One statement does it: a concurrent transaction sees one time or the other.
    """
    await database.statement(
        f"CREATE OR REPLACE FUNCTION db_now() RETURNS DOUBLE PRECISION LANGUAGE sql STABLE AS "
        f"$$ SELECT {now!r}::DOUBLE PRECISION $$"
    )


async def sums(database: Database) -> dict[str, Any]:
    """Return the only row of `spending`."""
    (row,) = await database.statement("SELECT * FROM spending")
    return dict(row)
