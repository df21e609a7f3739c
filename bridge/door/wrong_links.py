"""How many wrong login links came from where, lately. Pure, but for the clock.

A link cannot be guessed: counting keeps the noise down, and decides nothing about a right one.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

#: So many from one address within so long are answered one by one.
WRONG_LINKS = 10
_SECONDS = 60.0
_ADDRESSES = 1000


class WrongLinks:
    """Remembers the newest of the `addresses` that sent one last; `clock` gives monotonic seconds."""

    def __init__(self, addresses: int = _ADDRESSES, clock: Callable[[], float] = time.monotonic) -> None:
        self._addresses = addresses
        self._clock = clock
        self._at: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds until a wrong link from there is one of few again; 0 while it is."""
        at = self._at.get(address)
        if at is None or len(at) < WRONG_LINKS:
            return 0.0
        return max(0.0, at[0] + _SECONDS - self._clock())

    def count(self, address: str) -> None:
        """One more from there."""
        self._at.setdefault(address, deque(maxlen=WRONG_LINKS)).append(self._clock())
        self._at.move_to_end(address)
        if len(self._at) > self._addresses:
            self._at.popitem(last=False)
