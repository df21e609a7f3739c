"""Rate limit for wrong login links, by address. Pure, except for the clock.

Links cannot be guessed, so the count only reduces noise. It never affects a valid link.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

#: Failures of one address within a minute that get individual answers.
WRONG_LINKS = 10
_SECONDS = 60.0
_ADDRESSES = 1000


class WrongLinks:
    """Remembers recent failures of the newest `addresses`; `clock` returns monotonic seconds."""

    def __init__(self, addresses: int = _ADDRESSES, clock: Callable[[], float] = time.monotonic) -> None:
        self._addresses = addresses
        self._clock = clock
        self._at: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Return the seconds until a failure from this address gets an individual answer; 0 if it does now."""
        at = self._at.get(address)
        if at is None or len(at) < WRONG_LINKS:
            return 0.0
        return max(0.0, at[0] + _SECONDS - self._clock())

    def count(self, address: str) -> None:
        """Count a failure."""
        self._at.setdefault(address, deque(maxlen=WRONG_LINKS)).append(self._clock())
        self._at.move_to_end(address)
        if len(self._at) > self._addresses:
            self._at.popitem(last=False)
