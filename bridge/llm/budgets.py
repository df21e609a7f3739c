"""What each sprite may still spend: reserved before a call, settled after it. In memory, on one event loop.

Knows no HTTP, no models and no database: the ledger gives what was spent before, the caller what a call may cost.

A call holds its worst cost: the longest prompt its body can be, written to the dearest cache, answered at full length.
It is let in while anything is left of what is neither spent nor held, and its least cost is in that. So
- what is spent and held together never passes a budget by more than the largest single hold, and what is spent neither,
  since no call costs more than it holds;
- the last cents can be spent, by one call at a time;
- a call that fits into what is left once others are settled is told to wait, not that the money is gone.

Days and months are UTC's. A call counts for the day it began on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from bridge.llm.calls import DAY_SECONDS
from bridge.llm.raised_limits import Warnings

#: Calls in flight settle within seconds, most of them.
_HELD_SECONDS = 2


class BudgetError(Exception):
    """A call that the budget does not allow, in words a person understands."""

    def __init__(self, words: str, retry_after: int | None) -> None:
        super().__init__(words)
        #: Seconds; None where waiting a moment does not help.
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Limits:
    """US dollars for each sprite; None for no limit."""

    daily_usd: float | None = None
    monthly_usd: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self.daily_usd is not None or self.monthly_usd is not None


@dataclass(frozen=True, slots=True)
class Spent:
    """US dollars since the UTC day and month began."""

    today: float = 0.0
    month: float = 0.0


@dataclass(slots=True)
class Hold:
    """What one call has reserved, in US dollars; given back to `Budgets.settle` once."""

    sprite: str
    usd: float
    day: int
    month: int


@dataclass(slots=True)
class _Window:
    """One day's or month's money of a sprite; `held` is reserved by calls in flight."""

    number: int
    spent: float = 0.0
    held: float = 0.0

    def at(self, number: int) -> _Window:
        """Itself, begun anew when the calendar has turned; a clock that was set back turns nothing."""
        if number > self.number:
            self.number, self.spent, self.held = number, 0.0, 0.0
        return self


class Budgets:
    """Reservations and what is spent, by sprite. `clock` gives Unix seconds.

    `on_used_up` is called with the sprite and the words whenever a call is refused since the money is gone.
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
        self._settled: dict[str, asyncio.Event] = {}  # by sprite, where somebody waits

    def load(self, spent: Mapping[str, Spent]) -> None:
        """Begins with what the ledger knows."""
        self._turn()
        for sprite, known in spent.items():
            self._windows[sprite] = (_Window(self._day, known.today), _Window(self._month, known.month))

    @property
    def day(self) -> int:
        """The UTC day, in days since 1970."""
        self._turn()
        return self._day

    def daily_usd(self, sprite: str) -> float | None:
        """What a sprite may spend today."""
        day, usd = self._raised.get(sprite, (-1, 0.0))
        return None if self.limits.daily_usd is None else self.limits.daily_usd + (usd if day == self.day else 0.0)

    def raise_today(self, sprite: str, usd: float) -> None:
        """Let a sprite spend that much more today."""
        day, before = self._raised.get(sprite, (-1, 0.0))
        self._raised[sprite] = (self.day, usd + (before if day == self.day else 0.0))

    def reserve(self, sprite: str, least: float, most: float) -> Hold:
        """Holds the `most` a call may cost, where the `least` is left. BudgetError when that is not there."""
        day, month = self._at_now(sprite)
        bounds: tuple[tuple[_Window, float | None, Literal["day", "month"]], ...] = (
            (day, self.daily_usd(sprite), "day"),
            (month, self.limits.monthly_usd, "month"),
        )
        for window, limit, name in bounds:
            if limit is not None:
                left = limit - window.spent - window.held
                # What costs nothing is never refused.
                if most > 0 and (left <= 0 or left < least):
                    error = refusal(name, limit, window.spent, least, self._day)
                    if error.retry_after is None:
                        self._on_used_up(sprite, str(error))
                    raise error
        day.held += most
        month.held += most
        return Hold(sprite, most, day.number, month.number)

    async def room(self, sprite: str, least: float, most: float, patience: float) -> Hold:
        """As `reserve`, but where calls in flight hold what is left, waits up to `patience` seconds for them."""
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
        """Replaces what was held by what the call did cost."""
        for window, number in zip(self._at_now(hold.sprite), (hold.day, hold.month), strict=True):
            if window.number == number:
                window.held = max(window.held - hold.usd, 0.0)
                window.spent += usd
        if (settled := self._settled.pop(hold.sprite, None)) is not None:
            settled.set()
        self.warnings.spent(hold.sprite, self._day, self.spent(hold.sprite).today, self.daily_usd(hold.sprite))

    def spent(self, sprite: str) -> Spent:
        """What is spent, calls in flight not counted."""
        day, month = self._at_now(sprite)
        return Spent(day.spent, month.spent)

    def spent_today(self) -> dict[str, float]:
        """What each sprite has spent since the day began, calls in flight not counted."""
        return {sprite: self.spent(sprite).today for sprite in tuple(self._windows)}

    def held(self, sprite: str) -> float:
        """What calls in flight that began today hold, in US dollars."""
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
    """Why a call that costs the `least` was not let in: calls in flight hold what is left, or it is used up.

    `day`: which it is, in days since 1970.
    """
    if spent + least <= limit and spent < limit:
        return BudgetError(
            f"Calls in flight hold the rest of the {name}'s budget of {_dollars(limit)}. "
            "Try again when they are done.",
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
