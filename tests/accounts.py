"""Budget accounts of a single bridge, and of bridges that share a Postgres whose clock a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.proxy.accounts import Accounts
from bridge.proxy.budgets import Bounds, Limits, Standing
from bridge.proxy.calls import ModelCall, standing

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0


@asynccontextmanager
async def accounts(where: Path | str, limits: Limits) -> AsyncIterator[Accounts]:
    """Open the accounts of a bridge that has just started on this database."""
    async with (
        open_database(where) as database,
        Accounts(database, limits, shared=isinstance(where, str)) as opened,
    ):
        yield opened


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


async def sums(database: Database) -> Standing:
    """Return what `ada` has spent and holds."""
    return await database.read(lambda db: standing(db, "ada"))
