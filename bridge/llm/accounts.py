"""What model calls are paid from: a call is opened before it goes out and settled once it is over.

Two ways to keep the accounts, which a call does not tell apart. A bridge alone (`LocalAccounts`) decides in memory and
writes behind the call's back: nobody else spends, so a call never waits for a disk. Bridges that share a database
(`SharedAccounts`) have it decide, since only it knows what the others let in; that costs a round trip to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bridge.database import DatabaseError
from bridge.llm.raised_limits import Warnings, raise_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.database import Database
    from bridge.llm.budgets import Budgets, Hold, Limits
    from bridge.llm.calls import ModelCall, Spend
    from bridge.llm.ledger import Ledger


class UnavailableError(Exception):
    """What is spent cannot be written down now, in words a person understands; later it can."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one call costs at least and at most, in US dollars."""

    least: float
    most: float


class Accounts(Protocol):
    """Lets calls in and settles them."""

    @property
    def limits(self) -> Limits:
        """What each sprite may spend."""
        ...

    @property
    def warnings(self) -> Warnings:
        """What says that a part of a day's budget is spent."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether what was spent could not be written down for so long that no more should be."""
        ...

    async def open(self, sprite: str, model: str, bounds: Bounds | None, patience: float) -> ModelCall:
        """Lets a call in, with the most it may cost held; `bounds` is None where its price is not known.

        Where calls in flight hold what is left, waits up to `patience` seconds for them. BudgetError, UnavailableError;
        then nothing is held, and neither where the caller is cancelled.
        """
        ...

    def settle(self, call: ModelCall) -> None:
        """Has `spent_usd` take the place of what was held, and the call written as it is; once, and never waits."""
        ...

    async def raise_today(self, sprite: str) -> float | None:
        """Let a sprite spend one more daily budget today; return what it may spend then, None without a limit.

        DatabaseError where that cannot be written down.
        """
        ...

    async def spend(self) -> list[Spend]:
        """See `calls.spend`."""
        ...

    async def spent_today(self) -> Mapping[str, float]:
        """US dollars since the UTC day began, by sprite, without calls in flight. UnavailableError."""
        ...

    async def estimated_today(self) -> Mapping[str, float]:
        """The part of `spent_today` that the API did not say, where there is any. UnavailableError."""
        ...


class LocalAccounts:
    """Of a bridge alone; see Accounts. All parts are open."""

    def __init__(self, budgets: Budgets, ledger: Ledger, database: Database) -> None:
        self._budgets = budgets
        self._database = database
        self._ledger = ledger
        self._holds: dict[str, Hold] = {}  # by call

    @property
    def limits(self) -> Limits:
        """See Accounts."""
        return self._budgets.limits

    @property
    def warnings(self) -> Warnings:
        """See Accounts."""
        return self._budgets.warnings

    @property
    def is_behind(self) -> bool:
        """See Accounts."""
        return self._ledger.is_behind

    async def open(self, sprite: str, model: str, bounds: Bounds | None, patience: float) -> ModelCall:
        """See Accounts."""
        if self.is_behind:
            raise UnavailableError("The bridge cannot write down what is spent; its disk refuses.")
        if bounds is None:
            return self._ledger.open(sprite, model, None)
        hold = await self._budgets.room(sprite, bounds.least, bounds.most, patience)
        call = self._ledger.open(sprite, model, hold.usd)
        self._holds[call.id] = hold
        return call

    def settle(self, call: ModelCall) -> None:
        """See Accounts."""
        if (hold := self._holds.pop(call.id, None)) is not None:
            self._budgets.settle(hold, call.spent_usd or 0.0)
        call.state = "settled"
        self._ledger.note(call)

    async def raise_today(self, sprite: str) -> float | None:
        """See Accounts."""
        if (daily := self.limits.daily_usd) is None:
            return None
        await raise_on(self._database, sprite, self._budgets.day, daily)
        self._budgets.raise_today(sprite, daily)
        return self._budgets.daily_usd(sprite)

    async def spend(self) -> list[Spend]:
        """See Accounts."""
        return await self._ledger.spend()

    async def spent_today(self) -> Mapping[str, float]:
        """See Accounts."""
        return self._budgets.spent_today()

    async def estimated_today(self) -> Mapping[str, float]:
        """See Accounts."""
        try:
            return await self._ledger.estimated_today()
        except DatabaseError as error:
            raise UnavailableError("The bridge cannot read what was spent.") from error
