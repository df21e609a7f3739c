"""Spending limit for schedules: a share of the daily limit, counted by their missions (UTC days, US dollars)."""

from __future__ import annotations

import time
from collections.abc import Callable

from sprite.config import Settings
from sprite.database.curations import SECONDS_PER_DAY
from sprite.database.workspace import WorkspaceDB

#: The share of the daily limit that schedules may use.
_SHARE = 0.25


class Allowance:
    """Check the budget before each firing; `clock` returns Unix seconds."""

    def __init__(self, settings: Settings, workspace: WorkspaceDB, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._workspace = workspace
        self._clock = clock

    async def refusal(self) -> str | None:
        """Return why no more actions may fire today, as text; None if they may."""
        cap = self._settings.daily_usd
        if cap is None or self._settings.is_offline:
            return None
        share = cap * _SHARE
        spent = await self._workspace.spent_by_schedules(self._day_began())
        if spent < share:
            return None
        return (
            f"schedules have used their part of the day's budget (${spent:.2f} of ${share:.2f}, "
            f"{_SHARE:.0%} of SPRITE_DAILY_USD)"
        )

    def next_day(self) -> float:
        """Return the time of the next budget."""
        return self._day_began() + SECONDS_PER_DAY

    def _day_began(self) -> float:
        now = self._clock()
        return now - now % SECONDS_PER_DAY
