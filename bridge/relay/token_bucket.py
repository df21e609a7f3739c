"""How much somebody may send: so much at once, so much a second. Pure: whoever asks does the waiting."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Holds `burst` and fills with `per_second`, in whatever is counted."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._level = burst
        self._at = clock()

    def take(self, amount: float) -> float:
        """Takes it, and returns for how many seconds to pause until the bucket is not overdrawn any more."""
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._per_second) - amount
        self._at = now
        return max(0.0, -self._level / self._per_second)
