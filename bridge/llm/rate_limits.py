"""How often and how much at once a sprite may ask the model. In memory, on one event loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bridge.token_bucket import TokenBucket

#: An agent with ten subagents at work makes some hundred calls a minute.
DEFAULT_PER_MINUTE = 300
DEFAULT_AT_ONCE = 32
_MINUTE = 60.0
#: A call ends within seconds, most of them.
_BUSY_SECONDS = 1


class TooOftenError(Exception):
    """A call over the limits, in words a person understands."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(slots=True)
class _Use:
    """A sprite's bucket, and when its calls in flight began (Unix seconds), oldest first."""

    bucket: TokenBucket
    open: dict[object, float] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        return len(self.open)


class RateLimits:
    """Counts each sprite's calls. `clock` gives seconds that only go forward."""

    def __init__(
        self,
        per_minute: int = DEFAULT_PER_MINUTE,
        at_once: int = DEFAULT_AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_minute = per_minute
        self._at_once = at_once
        self._clock = clock
        self._uses: dict[str, _Use] = {}

    @contextmanager
    def counted(self, sprite: str) -> Iterator[None]:
        """Counts a call while the block runs. TooOftenError when it is one too many."""
        use = self._take(sprite)
        call = object()
        use.open[call] = time.time()
        try:
            yield
        finally:
            del use.open[call]

    def in_flight(self) -> dict[str, float]:
        """Calls going on, by sprite."""
        return {sprite: use.in_flight for sprite, use in self._uses.items()}

    def oldest(self) -> dict[str, float]:
        """When the oldest call going on began (Unix seconds), by sprite."""
        return {sprite: next(iter(use.open.values())) for sprite, use in self._uses.items() if use.open}

    def _take(self, sprite: str) -> _Use:
        use = self._uses.get(sprite)
        if use is None:
            bucket = TokenBucket(self._per_minute / _MINUTE, self._per_minute, self._clock)
            use = self._uses[sprite] = _Use(bucket)
        if use.in_flight >= self._at_once:
            raise TooOftenError(f"This sprite has {self._at_once} calls in flight, as many as it may.", _BUSY_SECONDS)
        if wait := use.bucket.wait(1):
            raise TooOftenError(f"This sprite has made its {self._per_minute} calls of this minute.", math.ceil(wait))
        use.bucket.take(1)
        return use
