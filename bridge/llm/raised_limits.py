"""Today's limits that people have raised, and when they are warned: the table `raised_limits`. Days are UTC's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.database import Database, Transaction

#: A person is warned when so much of the day's limit is spent.
WARNED_AT = (0.5, 0.8)

_RAISE = """
INSERT INTO raised_limits VALUES (?, ?, ?)
ON CONFLICT (sprite, day) DO UPDATE SET usd = raised_limits.usd + excluded.usd
"""


async def raised_on(database: Database, day: int) -> Mapping[str, float]:
    """By how much each limit is raised on a day, in US dollars."""
    rows = await database.statement("SELECT sprite, usd FROM raised_limits WHERE day = ?", (day,))
    return {row["sprite"]: row["usd"] for row in rows}


async def raise_on(database: Database, sprite: str, day: int, usd: float) -> None:
    """Raise a sprite's limit of one day; raises of earlier days are dropped."""

    def write(tx: Transaction) -> None:
        tx.execute(_RAISE, (sprite, day, usd))
        tx.execute("DELETE FROM raised_limits WHERE sprite = ? AND day < ?", (sprite, day))

    await database.write(write)


class Warnings:
    """Calls each of `listeners` with the sprite and words when a part of its day's limit is spent, once for each."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[str, str], None]] = []
        self._told: dict[str, tuple[int, float, float]] = {}

    def spent(self, sprite: str, day: int, usd: float, limit: float | None) -> None:
        """Look at what is spent on a day, in US dollars; `limit` is None where there is none."""
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
