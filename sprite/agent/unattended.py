"""Limits for unattended work: turns and dollars since the person's last message or a schedule's start.

Only counts. Times are Unix seconds, money is in US dollars.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from sprite.protocol.shapes import Paused

#: Consecutive turns that the agent may begin by itself.
MOST_TURNS = 5
#: Limit for the cost of these turns and of background work together.
MOST_USD = 1.0
#: Minimum time for a turn that the agent begins, even if the limit on background work is nearly reached.
_LEAST_TURN_SECONDS = 300.0
_WHY = {
    "turns": f"Sprite went on by itself for {MOST_TURNS} turns in a row, and waits for your word before the next one.",
    "cost": f"What Sprite did by itself has cost ${MOST_USD:.2f}, and it waits for your word before it goes on.",
}


class Unattended:
    """Count the agent's unattended work. `seconds` limits how long background work keeps a machine awake."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._turns = 0
        self._usd = 0.0
        self._heard_at = clock()
        #: Why the session waits for the person; None if it does not.
        self.paused: Paused | None = None

    @property
    def held_until(self) -> float:
        """Unix time until which background work keeps a machine awake."""
        return self._heard_at + self._seconds

    @property
    def turn_seconds(self) -> float:
        """Seconds that an own turn beginning now may take."""
        return max(self.held_until - self._clock(), min(_LEAST_TURN_SECONDS, self._seconds))

    def heard(self) -> bool:
        """Reset the counts: a person sent a message or a schedule came due. Return whether a pause ended."""
        self._turns, self._usd, self._heard_at = 0, 0.0, self._clock()
        was_paused, self.paused = self.paused is not None, None
        return was_paused

    def may_begin(self) -> bool:
        """Count one more turn that the agent begins. If the limit is reached, pause and return False."""
        if self.paused is None and self._turns >= MOST_TURNS:
            self.pause("turns")
        if self.paused is not None:
            return False
        self._turns += 1
        return True

    def paid(self, usd: float) -> bool:
        """Count unattended spending; return whether that pauses the agent."""
        self._usd += usd
        if self._usd < MOST_USD or self.paused is not None:
            return False
        self.pause("cost")
        return True

    def pause(self, by: Literal["turns", "cost", "budget"], why: str = "") -> None:
        """Pause until the person answers. Pass `why` if the standard text for `by` does not fit."""
        self.paused = Paused(why or _WHY[by], by, self._clock())
