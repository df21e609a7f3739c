"""Budgets that users raised for today, and budget warnings: the table `raised_limits`. Days are in UTC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.database import Database, Transaction

#: A user is warned when these shares of the day's budget are spent.
WARNED_AT = (0.5, 0.8)

_RAISE = """
INSERT INTO raised_limits VALUES (?, ?, ?)
ON CONFLICT (sprite, day) DO UPDATE SET usd = raised_limits.usd + excluded.usd
"""


async def raised_on(database: Database, day: int) -> Mapping[str, float]:
    """Return the raise of each sprite's budget on a day, in US dollars."""
    rows = await database.statement("SELECT sprite, usd FROM raised_limits WHERE day = ?", (day,))
    return {row["sprite"]: row["usd"] for row in rows}


async def raise_on(database: Database, sprite: str, day: int, usd: float) -> None:
    """Raise a sprite's budget for one day, and delete its raises of earlier days."""

    def write(tx: Transaction) -> None:
        tx.execute(_RAISE, (sprite, day, usd))
        tx.execute("DELETE FROM raised_limits WHERE sprite = ? AND day < ?", (sprite, day))

    await database.write(write)


class Warnings:
    """Call each of `listeners` with the sprite and a message when a share of its day's budget is spent.

    Each share is announced once per day and limit.
    """

    def __init__(self) -> None:
        self.listeners: list[Callable[[str, str], None]] = []
        self._told: dict[str, tuple[int, float, float]] = {}

    def spent(self, sprite: str, day: int, usd: float, limit: float | None) -> None:
        """Check the spending of a day, in US dollars, against `limit`; None means no limit."""
        if not limit:
            return
        part = max((part for part in WARNED_AT if usd >= part * limit), default=0.0)
        known_day, known_limit, known_part = self._told.get(sprite, (day, limit, 0.0))
        is_new = part > 0 and ((day, limit) != (known_day, known_limit) or part > known_part)
        self._told[sprite] = (day, limit, part)
        if is_new:
            words = f"At least {part:.0%} of the day's budget of ${limit:.2f} is spent (${usd:.2f} so far)."
            for listener in self.listeners:
                listener(sprite, words)
