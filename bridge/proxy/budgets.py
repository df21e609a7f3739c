"""Budgets of sprites: reserve before a call, settle after it. In memory, on one event loop.

This module knows no HTTP, models or database. The ledger supplies earlier spending, the caller the cost of a call.

A call holds its maximum cost: the longest prompt that its body can be, written to the most expensive cache, and a
full-length answer. It is admitted while its minimum cost fits into the budget that is neither spent nor held.
Therefore:

- Spent plus held money exceeds a budget by at most the largest single hold. Spent money alone has the same bound,
  because no call costs more than it holds.
- One call at a time can spend the last cents.
- A call that will fit after others settle is asked to retry; it is not told that the budget is used up.

Days and months are in UTC. A call counts for the day on which it began.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from bridge.proxy.calls import DAY_SECONDS, Warnings

#: Most calls in flight settle within seconds.
_HELD_SECONDS = 2


class BudgetError(Exception):
    """The budget does not allow a call. The message is written for users."""

    def __init__(self, words: str, retry_after: int | None) -> None:
        super().__init__(words)
        #: Seconds; None where a retry soon would not help.
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Limits:
    """Budget of each sprite in US dollars; None for no limit."""

    daily_usd: float | None = None
    monthly_usd: float | None = None

    @property
    def any(self) -> bool:
        """Return whether there is a limit."""
        return self.daily_usd is not None or self.monthly_usd is not None


@dataclass(frozen=True, slots=True)
class Spent:
    """US dollars spent since the UTC day and month began."""

    today: float = 0.0
    month: float = 0.0


@dataclass(slots=True)
class Hold:
    """A reservation of one call in US dollars; returned to `Budgets.settle` once."""

    sprite: str
    usd: float
    day: int
    month: int


@dataclass(slots=True)
class _Window:
    """Spending of a sprite in one day or month; `held` is reserved by calls in flight."""

    number: int
    spent: float = 0.0
    held: float = 0.0

    def at(self, number: int) -> _Window:
        """Return this window, reset if `number` is a later day or month. A clock set back resets nothing."""
        if number > self.number:
            self.number, self.spent, self.held = number, 0.0, 0.0
        return self


class Budgets:
    """Reservations and spending by sprite. `clock` returns Unix seconds.

    `on_used_up` is called with the sprite and the message whenever a call is refused because the budget is used up.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.time,
        on_used_up: Callable[[str, str], None] = lambda _sprite, _words: None,
    ) -> None:
        self.limits = limits
        self.warnings = Warnings()
        self._raised: dict[str, tuple[int, float]] = {}
        self._on_used_up = on_used_up
        self._clock = clock
        self._day = -1
        self._month = -1
        self._windows: dict[str, tuple[_Window, _Window]] = {}
        self._settled: dict[str, asyncio.Event] = {}  # by sprite, where a call waits

    def load(self, spent: Mapping[str, Spent]) -> None:
        """Start with the spending in the ledger."""
        self._turn()
        for sprite, known in spent.items():
            self._windows[sprite] = (_Window(self._day, known.today), _Window(self._month, known.month))

    @property
    def day(self) -> int:
        """Return the UTC day, in days since 1970."""
        self._turn()
        return self._day

    def daily_usd(self, sprite: str) -> float | None:
        """Return the limit of a sprite for today; None for no limit."""
        day, usd = self._raised.get(sprite, (-1, 0.0))
        return None if self.limits.daily_usd is None else self.limits.daily_usd + (usd if day == self.day else 0.0)

    def raise_today(self, sprite: str, usd: float) -> None:
        """Let a sprite spend `usd` more today."""
        day, before = self._raised.get(sprite, (-1, 0.0))
        self._raised[sprite] = (self.day, usd + (before if day == self.day else 0.0))

    def reserve(self, sprite: str, least: float, most: float) -> Hold:
        """Hold the maximum cost of a call if its minimum cost is left. Raise BudgetError otherwise."""
        day, month = self._at_now(sprite)
        bounds: tuple[tuple[_Window, float | None, Literal["day", "month"]], ...] = (
            (day, self.daily_usd(sprite), "day"),
            (month, self.limits.monthly_usd, "month"),
        )
        for window, limit, name in bounds:
            if limit is not None:
                left = limit - window.spent - window.held
                # A free call is never refused.
                if most > 0 and (left <= 0 or left < least):
                    error = refusal(name, limit, window.spent, least, self._day)
                    if error.retry_after is None:
                        self._on_used_up(sprite, str(error))
                    raise error
        day.held += most
        month.held += most
        return Hold(sprite, most, day.number, month.number)

    async def room(self, sprite: str, least: float, most: float, patience: float) -> Hold:
        """Reserve like `reserve`, but wait up to `patience` seconds for other calls to settle."""
        until = asyncio.get_running_loop().time() + patience
        while True:
            try:
                return self.reserve(sprite, least, most)
            except BudgetError as error:
                if error.retry_after is None or asyncio.get_running_loop().time() >= until:
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._settled.setdefault(sprite, asyncio.Event()).wait()

    def settle(self, hold: Hold, usd: float) -> None:
        """Replace a hold by the actual cost of its call."""
        for window, number in zip(self._at_now(hold.sprite), (hold.day, hold.month), strict=True):
            if window.number == number:
                window.held = max(window.held - hold.usd, 0.0)
                window.spent += usd
        if (settled := self._settled.pop(hold.sprite, None)) is not None:
            settled.set()
        self.warnings.spent(hold.sprite, self._day, self.spent(hold.sprite).today, self.daily_usd(hold.sprite))

    def spent(self, sprite: str) -> Spent:
        """Return the spending of a sprite without calls in flight."""
        day, month = self._at_now(sprite)
        return Spent(day.spent, month.spent)

    def spent_today(self) -> dict[str, float]:
        """Return the spending of each sprite since the day began, without calls in flight."""
        return {sprite: self.spent(sprite).today for sprite in tuple(self._windows)}

    def held(self, sprite: str) -> float:
        """Return the US dollars held by calls in flight that began today."""
        return self._at_now(sprite)[0].held

    def _at_now(self, sprite: str) -> tuple[_Window, _Window]:
        self._turn()
        windows = self._windows.get(sprite)
        if windows is None:
            windows = self._windows[sprite] = (_Window(self._day), _Window(self._month))
        return windows[0].at(self._day), windows[1].at(self._month)

    def _turn(self) -> None:
        day = int(self._clock() // DAY_SECONDS)
        if day > self._day:
            self._day = day
            at = datetime.fromtimestamp(day * DAY_SECONDS, UTC)
            self._month = at.year * 12 + at.month


def refusal(name: Literal["day", "month"], limit: float, spent: float, least: float, day: int) -> BudgetError:
    """Return the error for a call of at least `least` US dollars.

    Either calls in flight hold the rest of the budget, or it is used up. `day` is in days since 1970.
    """
    if spent + least <= limit and spent < limit:
        return BudgetError(
            f"Calls in flight hold the rest of the {name}'s budget of {_dollars(limit)}. Try again when they are done.",
            _HELD_SECONDS,
        )
    return BudgetError(
        f"The {name}'s budget of {_dollars(limit)} is used up ({_dollars(spent)} spent). "
        f"It resets on {_next(name, day):%Y-%m-%d} at 00:00 UTC; "
        f"{'you can raise it for today' if name == 'day' else 'whoever runs this bridge can raise it'}.",
        None,
    )


def _next(name: str, day: int) -> datetime:
    date = datetime.fromtimestamp(day * DAY_SECONDS, UTC) + timedelta(days=1)
    if name == "month":
        while date.day != 1:
            date += timedelta(days=1)
    return date


def _dollars(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4f}"  # noqa: PLR2004 - a cent
