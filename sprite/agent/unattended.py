"""How far the agent may go by itself: so many turns and dollars since the last word of the person's, or a schedule's.

Only counts. Times are Unix seconds, money is in US dollars.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from sprite.protocol.shapes import Paused

#: Turns in a row that the agent begins by itself.
MOST_TURNS = 5
#: What these, and its background work, may cost together.
MOST_USD = 1.0
#: A turn of its own has at least so long, also where the bound on background work has nearly passed.
_LEAST_TURN_SECONDS = 300.0
_WHY = {
    "turns": f"Sprite went on by itself for {MOST_TURNS} turns in a row, and waits for your word before the next one.",
    "cost": f"What Sprite did by itself has cost ${MOST_USD:.2f}, and it waits for your word before it goes on.",
}


class Unattended:
    """Counts what the agent does by itself. `seconds` bound how long background work keeps a machine awake."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._turns = 0
        self._usd = 0.0
        self._heard_at = clock()
        #: Why the session waits for the person's word, None while it does not.
        self.paused: Paused | None = None

    @property
    def held_until(self) -> float:
        """Until when background work keeps a machine awake."""
        return self._heard_at + self._seconds

    @property
    def turn_seconds(self) -> float:
        """How long a turn of its own that begins now may take."""
        return max(self.held_until - self._clock(), min(_LEAST_TURN_SECONDS, self._seconds))

    def heard(self) -> bool:
        """Begin anew: the person has spoken, or a schedule has come due. Return whether a pause ended."""
        self._turns, self._usd, self._heard_at = 0, 0.0, self._clock()
        was_paused, self.paused = self.paused is not None, None
        return was_paused

    def may_begin(self) -> bool:
        """Count one more turn of the agent's own, unless it may begin none; then it is paused."""
        if self.paused is None and self._turns >= MOST_TURNS:
            self.pause("turns")
        if self.paused is not None:
            return False
        self._turns += 1
        return True

    def paid(self, usd: float) -> bool:
        """Count what was spent by itself; return whether that pauses it."""
        self._usd += usd
        if self._usd < MOST_USD or self.paused is not None:
            return False
        self.pause("cost")
        return True

    def pause(self, by: Literal["turns", "cost", "budget"], why: str = "") -> None:
        """Pause until the person's word; `why` in words where the reason alone does not say it."""
        self.paused = Paused(why or _WHY[by], by, self._clock())
