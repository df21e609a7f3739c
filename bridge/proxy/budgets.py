"""Budgets of sprites: whether a call is admitted, and the words of a refusal (pure). Days and months are in UTC.

A call holds its maximum cost, and is admitted while its minimum cost fits into the budget that is neither spent nor
held. So spent plus held money exceeds a budget by at most the largest single hold, and one call at a time can spend
the last cents. A call counts for the day on which it began.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

DAY_SECONDS = 86400
#: Most calls in flight settle within seconds.
_HELD_SECONDS = 2


class BudgetError(Exception):
    """The budget does not allow a call. The message is written for users."""

    def __init__(self, words: str, retry_after: int | None, *, can_raise: bool = False) -> None:
        super().__init__(words)
        #: Whether the person can raise the limit for today.
        self.can_raise = can_raise
        #: Seconds, or None where a retry soon would not help.
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Bounds:
    """The minimum and maximum cost of one call, in US dollars.

    `whole` is the cost with a cached prompt and the longest answer. The answer can be shortened by up to `spare`
    tokens, each of which costs `token_usd`.
    """

    least: float
    most: float
    whole: float = 0.0
    token_usd: float = 0.0
    spare: int = 0

    def cut(self, left: float | None) -> int:
        """Return the number of tokens to cut off the answer, so that it fits into `left` US dollars."""
        if left is None or self.whole <= left or self.token_usd <= 0:
            return 0
        return min(self.spare, math.ceil((self.whole - left) / self.token_usd))


@dataclass(frozen=True, slots=True)
class Standing:
    """A sprite's spending so far, in US dollars; `raised` is added to that day's budget. `at` is in Unix seconds."""

    at: float
    day_spent: float
    day_held: float
    month_spent: float
    month_held: float
    raised: float

    @property
    def day(self) -> int:
        """Return the UTC day of the spending, in days since 1970."""
        return int(self.at // DAY_SECONDS)


@dataclass(frozen=True, slots=True)
class Limits:
    """Budget of each sprite in US dollars, or None for no limit."""

    daily_usd: float | None = None
    monthly_usd: float | None = None

    @property
    def any(self) -> bool:
        """Return whether any budget is limited."""
        return self.daily_usd is not None or self.monthly_usd is not None

    def today(self, standing: Standing) -> float | None:
        """Return a sprite's spending limit for its day, or None for no limit."""
        return None if self.daily_usd is None else self.daily_usd + standing.raised

    def left(self, standing: Standing) -> float | None:
        """Return the budget's unspent US dollars, or None for no limit.

        Amounts that running calls hold count as unspent, because most of them are not spent in the end.
        """
        day, month = self.today(standing), self.monthly_usd
        left = [] if day is None else [day - standing.day_spent]
        return min(left + ([] if month is None else [month - standing.month_spent]), default=None)

    def refusal(self, standing: Standing, bounds: Bounds) -> BudgetError | None:
        """Return the error for a call that the budget does not allow, or None. A free call is always allowed."""
        windows: tuple[tuple[Literal["day", "month"], float | None, float, float], ...] = (
            ("day", self.today(standing), standing.day_spent, standing.day_held),
            ("month", self.monthly_usd, standing.month_spent, standing.month_held),
        )
        for name, limit, spent, held in windows:
            if limit is not None and bounds.most > 0:
                left = limit - spent - held
                if left <= 0 or left < bounds.least:
                    return _refusal(name, limit, spent, bounds.least, standing.day)
        return None


def _refusal(name: Literal["day", "month"], limit: float, spent: float, least: float, day: int) -> BudgetError:
    """Return the error for a call of at least `least` US dollars in the period `name`; `day` is in days since 1970."""
    if spent + least <= limit and spent < limit:
        words = f"Calls in flight reserve the rest of the {name}'s budget of {_dollars(limit)}."
        return BudgetError(f"{words} Try again when they have ended.", _HELD_SECONDS)
    return BudgetError(
        f"The {name}'s budget of {_dollars(limit)} is used up ({_dollars(spent)} spent). "
        f"It resets on {_next(name, day):%Y-%m-%d} at 00:00 UTC; "
        f"{'you can raise it for today' if name == 'day' else 'whoever runs this bridge can raise it'}.",
        None,
        can_raise=name == "day",
    )


def _next(name: str, day: int) -> datetime:
    date = datetime.fromtimestamp(day * DAY_SECONDS, UTC) + timedelta(days=1)
    if name == "month":
        while date.day != 1:
            date += timedelta(days=1)
    return date


def _dollars(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4f}"  # noqa: PLR2004 - a cent
