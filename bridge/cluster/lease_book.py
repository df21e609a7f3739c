"""What this bridge surely owns at this moment, by its own clock (pure).

A lease is counted from before it was asked for, and ends here a little earlier than in the database: so whoever takes
it next never acts at the same time as this bridge. A bridge that was stopped for a while finds its leases ended before
it does anything.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

#: Every lease is renewed so often, and one that was not renewed so long is whoever's wants it.
BEAT_SECONDS: Final = 2.0
LEASE_SECONDS: Final = 6.0
#: The two clocks may run a little differently.
_MARGIN_SECONDS: Final = 0.25
#: What nobody uses is kept so long: who has just asked for it is about to.
UNUSED_SECONDS: Final = 4.0


@dataclass(slots=True)
class _Entry:
    epoch: int
    #: By this bridge's clock.
    ends_at: float
    used_at: float


def since_boot() -> float:
    """Seconds that no one sets, those included in which this machine was suspended, where the system counts them."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class LeaseBook:
    """The leases of one bridge. Times are seconds of `clock`, which only goes forward."""

    def __init__(self, clock: Callable[[], float] = since_boot) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._users: Counter[str] = Counter()

    def now(self) -> float:
        """The time, to be taken before the database is asked."""
        return self._clock()

    def granted(self, sprite: str, epoch: int, asked_at: float) -> None:
        """The database said that this bridge has it, when asked no earlier than `asked_at`."""
        ends_at = asked_at + LEASE_SECONDS - _MARGIN_SECONDS
        entry = self._entries.get(sprite)
        if entry is None or entry.epoch != epoch:
            self._entries[sprite] = _Entry(epoch, ends_at, self._clock())
        else:
            entry.ends_at = max(entry.ends_at, ends_at)

    def drop(self, sprite: str) -> bool:
        """Forgets a lease; whether there was one."""
        return self._entries.pop(sprite, None) is not None

    def epoch(self, sprite: str) -> int | None:
        """The number of a lease that surely holds; None where none does."""
        entry = self._entries.get(sprite)
        return None if entry is None or entry.ends_at <= self._clock() else entry.epoch

    def sprites(self) -> Collection[str]:
        """All that were granted and neither dropped nor found ended."""
        return tuple(self._entries)

    def take_ended(self) -> list[str]:
        """Drops those that hold no longer, and names them."""
        now = self._clock()
        ended = [sprite for sprite, entry in self._entries.items() if entry.ends_at <= now]
        for sprite in ended:
            del self._entries[sprite]
        return ended

    def next_end(self) -> float | None:
        """Seconds until the first one ends; None where there is none."""
        ends = min((entry.ends_at for entry in self._entries.values()), default=None)
        return None if ends is None else max(0.0, ends - self._clock())

    # --- who needs them ---

    def touch(self, sprite: str) -> None:
        """Somebody has just asked for it."""
        if (entry := self._entries.get(sprite)) is not None:
            entry.used_at = self._clock()

    @contextmanager
    def using(self, sprite: str) -> Iterator[None]:
        """Somebody needs it while the block runs, if there is a lease."""
        self._users[sprite] += 1
        try:
            yield
        finally:
            self._users[sprite] -= 1
            if not self._users[sprite]:
                del self._users[sprite]
            self.touch(sprite)

    def unused(self) -> dict[str, int]:
        """Those that nobody has needed for a while, with their epochs."""
        limit = self._clock() - UNUSED_SECONDS
        return {
            sprite: entry.epoch
            for sprite, entry in self._entries.items()
            if not self._users[sprite] and entry.used_at <= limit
        }
