"""How much may be done: so much at once, so much a second. Pure: the caller does the waiting, or refuses."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Holds `burst` tokens at first and at most, and fills with `per_second`; `clock` gives monotonic seconds."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._level = burst
        self._at = clock()

    def wait(self, amount: float) -> float:
        """Returns in how many seconds that much can be taken without overdrawing; 0 if it can be now."""
        self._refill()
        return max(0.0, (amount - self._level) / self._per_second)

    def take(self, amount: float) -> float:
        """Takes it, and returns for how many seconds to pause until the bucket is not overdrawn any more."""
        self._refill()
        self._level -= amount
        return max(0.0, -self._level / self._per_second)

    def _refill(self) -> None:
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._per_second)
        self._at = now
