"""Leases this bridge can safely assume it still holds, by its local clock (pure).

A lease counts from before the database was asked, and ends here slightly earlier than in the database. So the next
owner never acts at the same time as this bridge. A bridge that was suspended finds its leases expired before it acts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

#: Interval of renewals, and the duration of a lease without renewal.
BEAT_SECONDS: Final = 2.0
LEASE_SECONDS: Final = 6.0
#: Allows for clocks that run at slightly different rates.
_MARGIN_SECONDS: Final = 0.25
#: An unused lease is kept this long, because a caller that took it is about to use it.
UNUSED_SECONDS: Final = 4.0


@dataclass(slots=True)
class _Entry:
    epoch: int
    #: Times by this bridge's clock.
    ends_at: float
    used_at: float


def since_boot() -> float:
    """Return monotonic seconds, including time in suspend where the system counts it."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class LeaseBook:
    """The leases of one bridge. Times are seconds of `clock`, which must be monotonic."""

    def __init__(self, clock: Callable[[], float] = since_boot) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._users: Counter[str] = Counter()

    def now(self) -> float:
        """Return the time. Take it before the database is asked."""
        return self._clock()

    def granted(self, sprite: str, epoch: int, asked_at: float) -> None:
        """Record a lease that the database granted; it was asked no earlier than `asked_at`."""
        ends_at = asked_at + LEASE_SECONDS - _MARGIN_SECONDS
        entry = self._entries.get(sprite)
        if entry is None or entry.epoch != epoch:
            self._entries[sprite] = _Entry(epoch, ends_at, self._clock())
        else:
            entry.ends_at = max(entry.ends_at, ends_at)

    def drop(self, sprite: str) -> bool:
        """Remove a lease. Return whether there was one."""
        return self._entries.pop(sprite, None) is not None

    def epoch(self, sprite: str) -> int | None:
        """Return the epoch of a valid lease, or None."""
        entry = self._entries.get(sprite)
        return None if entry is None or entry.ends_at <= self._clock() else entry.epoch

    def sprites(self) -> Collection[str]:
        """Return all recorded leases, including expired ones that were not taken out yet."""
        return tuple(self._entries)

    def take_ended(self) -> list[str]:
        """Remove the expired leases and return their sprites."""
        now = self._clock()
        ended = [sprite for sprite, entry in self._entries.items() if entry.ends_at <= now]
        for sprite in ended:
            del self._entries[sprite]
        return ended

    def next_end(self) -> float | None:
        """Return the seconds until the first lease expires, or None without leases."""
        ends = min((entry.ends_at for entry in self._entries.values()), default=None)
        return None if ends is None else max(0.0, ends - self._clock())

    # --- who needs them ---

    def touch(self, sprite: str) -> None:
        """Mark a lease as used now."""
        if (entry := self._entries.get(sprite)) is not None:
            entry.used_at = self._clock()

    @contextmanager
    def using(self, sprite: str) -> Iterator[None]:
        """Keep the sprite's lease, if there is one, in use while the block runs."""
        self._users[sprite] += 1
        try:
            yield
        finally:
            self._users[sprite] -= 1
            if not self._users[sprite]:
                del self._users[sprite]
            self.touch(sprite)

    def unused(self) -> dict[str, int]:
        """Return the leases that were not used for a while, with their epochs."""
        limit = self._clock() - UNUSED_SECONDS
        return {
            sprite: entry.epoch
            for sprite, entry in self._entries.items()
            if not self._users[sprite] and entry.used_at <= limit
        }
