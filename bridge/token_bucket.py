"""Token bucket for rate limits. Pure: the caller waits or refuses."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Holds at most `burst` tokens, starts full, and refills `per_second`. `clock` returns monotonic seconds."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._level = burst
        self._at = clock()

    def wait(self, amount: float) -> float:
        """Return the seconds until `amount` can be taken without overdraft; 0 if it can be taken now."""
        self._refill()
        return max(0.0, (amount - self._level) / self._per_second)

    def take(self, amount: float) -> float:
        """Take `amount`, overdrawing if necessary. Return the seconds until the overdraft is gone."""
        self._refill()
        self._level -= amount
        return max(0.0, -self._level / self._per_second)

    def _refill(self) -> None:
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._per_second)
        self._at = now
