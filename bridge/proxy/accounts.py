"""Accounts for model calls: a call is opened before it is forwarded and settled when it ends.

There are two implementations with the same interface. `LocalAccounts` is for a single bridge: it decides in memory
and writes in the background, so a call never waits for a disk. `SharedAccounts` is for bridges that share a database.
The database decides, because only it knows the calls of the other bridges; each call costs a round trip to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.db.open import DatabaseError
from bridge.proxy.calls import Warnings, raise_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.db.open import Database
    from bridge.proxy.budgets import Budgets, Hold, Limits
    from bridge.proxy.calls import ModelCall, Spend
    from bridge.proxy.ledger import Ledger


class UnavailableError(Exception):
    """Spending cannot be recorded at the moment; a later call may succeed. The message is written for users."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The minimum and maximum cost of one call, in US dollars."""

    least: float
    most: float


class LocalAccounts:
    """Accounts of a single bridge: admit calls and settle them. All collaborators are already open."""

    def __init__(self, budgets: Budgets, ledger: Ledger, database: Database) -> None:
        self._budgets = budgets
        self._database = database
        self._ledger = ledger
        self._holds: dict[str, Hold] = {}  # by call id

    @property
    def limits(self) -> Limits:
        """Return the budget of each sprite."""
        return self._budgets.limits

    @property
    def warnings(self) -> Warnings:
        """Return the object that warns when a part of a day's budget is spent."""
        return self._budgets.warnings

    @property
    def is_behind(self) -> bool:
        """Return whether writes have failed for so long that no more calls may be admitted."""
        return self._ledger.is_behind

    async def open(self, sprite: str, model: str, bounds: Bounds | None, patience: float) -> ModelCall:
        """Admit a call and hold its maximum cost; `bounds` is None for a model without a known price.

        Where other calls hold the remaining budget, wait for them for up to `patience` seconds. Raise BudgetError or
        UnavailableError if the call is refused. A refused or cancelled call holds nothing.
        """
        if self.is_behind:
            raise UnavailableError("The bridge cannot write down what is spent; its disk refuses.")
        if bounds is None:
            return self._ledger.open(sprite, model, None)
        hold = await self._budgets.room(sprite, bounds.least, bounds.most, patience)
        call = self._ledger.open(sprite, model, hold.usd)
        self._holds[call.id] = hold
        return call

    def settle(self, call: ModelCall) -> None:
        """Replace the hold by `spent_usd` and write the call. Call it once; it never waits."""
        if (hold := self._holds.pop(call.id, None)) is not None:
            self._budgets.settle(hold, call.spent_usd or 0.0)
        call.state = "settled"
        self._ledger.note(call)

    async def raise_today(self, sprite: str) -> float | None:
        """Let a sprite spend one more daily budget today; return its new limit for today, None without a limit.

        DatabaseError if that cannot be written.
        """
        if (daily := self.limits.daily_usd) is None:
            return None
        await raise_on(self._database, sprite, self._budgets.day, daily)
        self._budgets.raise_today(sprite, daily)
        return self._budgets.daily_usd(sprite)

    async def spend(self) -> list[Spend]:
        """See `calls.spend`."""
        return await self._ledger.spend()

    async def spent_today(self) -> Mapping[str, float]:
        """Return the US dollars spent since the UTC day began, by sprite, without calls in flight."""
        return self._budgets.spent_today()

    async def estimated_today(self) -> Mapping[str, float]:
        """Return the estimated part of `spent_today`, by sprite, where there is any."""
        try:
            return await self._ledger.estimated_today()
        except DatabaseError as error:
            raise UnavailableError("The bridge cannot read what was spent.") from error
