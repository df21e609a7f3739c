"""Rate and concurrency limits of each sprite's model calls. In memory, on one event loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bridge.token_bucket import TokenBucket

#: An agent with ten busy subagents makes about a hundred calls a minute.
DEFAULT_PER_MINUTE = 300
DEFAULT_AT_ONCE = 32
_MINUTE = 60.0
#: Most calls end within seconds.
_BUSY_SECONDS = 1


class TooOftenError(Exception):
    """A call exceeds a limit. The message is written for users."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(slots=True)
class _Use:
    """A sprite's bucket and the start times of its calls in flight (Unix seconds), oldest first."""

    bucket: TokenBucket
    open: dict[object, float] = field(default_factory=dict)


class RateLimits:
    """Count each sprite's calls. `clock` returns monotonic seconds."""

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
        """Count a call while the block runs. Raise TooOftenError if it exceeds a limit."""
        use = self._take(sprite)
        call = object()
        use.open[call] = time.time()
        try:
            yield
        finally:
            del use.open[call]

    def in_flight(self) -> dict[str, float]:
        """Return the number of calls in flight, by sprite."""
        return {sprite: len(use.open) for sprite, use in self._uses.items()}

    def oldest(self) -> dict[str, float]:
        """Return the start of the oldest call in flight (Unix seconds), by sprite."""
        return {sprite: next(iter(use.open.values())) for sprite, use in self._uses.items() if use.open}

    def _take(self, sprite: str) -> _Use:
        use = self._uses.get(sprite)
        if use is None:
            bucket = TokenBucket(self._per_minute / _MINUTE, self._per_minute, self._clock)
            use = self._uses[sprite] = _Use(bucket)
        if len(use.open) >= self._at_once:
            raise TooOftenError(f"This sprite has {self._at_once} calls in flight, as many as it may.", _BUSY_SECONDS)
        if wait := use.bucket.wait(1):
            raise TooOftenError(f"This sprite has made its {self._per_minute} calls of this minute.", math.ceil(wait))
        use.bucket.take(1)
        return use
