"""Limits for the number of open connections, and token buckets that limit rates."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Generic, NoReturn, TypeVar

log = logging.getLogger(__name__)
_T = TypeVar("_T")

#: Part of the descriptors for connections; files, databases and other processes have the rest.
_PART_OF_DESCRIPTORS = 1 / 2
_PART_OF_STRANGERS = 1 / 4
#: Pause after a failed accept; the connection waits in the kernel's queue.
_AGAIN_SECONDS = 0.1
#: Minimum interval of this warning, because the condition can persist.
_COMPLAINT_SECONDS = 60.0


def room(most: int) -> tuple[int, int]:
    """Return how many connections may be open (at most `most`), and how many of them may be unauthenticated."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = most if soft == resource.RLIM_INFINITY else min(most, int(soft * _PART_OF_DESCRIPTORS))
    return connections, max(1, int(connections * _PART_OF_STRANGERS))


class ConnectionLimiter(Generic[_T]):
    """Track open connections, and choose which to close. A *stranger* is not authenticated yet, a *known* one is."""

    def __init__(
        self,
        most: int,
        most_strangers: int,
        is_busy: Callable[[_T], bool] = lambda _: False,
        *,
        most_each: int | None = None,
    ) -> None:
        self._most = most
        self._most_strangers = most_strangers
        #: Limit for one name.
        self._most_each = most if most_each is None else most_each
        self._is_busy = is_busy
        #: Oldest first.
        self._strangers: dict[_T, None] = {}
        self._known: dict[_T, str] = {}

    def enter(self, stranger: _T) -> _T | None:
        """Add a new stranger. Return the connection to close for it, if any: a stranger, or itself if all are known."""
        gone = None
        if len(self._strangers) >= self._most_strangers or len(self._strangers) + len(self._known) >= self._most:
            gone = self.give_way()
            if gone is None:
                return stranger
        self._strangers[stranger] = None
        return gone

    def welcome(self, one: _T, name: str) -> _T | None:
        """Mark a stranger as known, so that it is not closed for others. One that has left stays removed.

        Return the connection to close if the client `name` has too many: its oldest idle one, else the new one.
        """
        if one not in self._strangers:
            return None
        del self._strangers[one]
        own = [other for other, owner in self._known.items() if owner == name]
        gone = None
        if len(own) >= self._most_each:
            gone = next((other for other in own if not self._is_busy(other)), one)
        if gone is not one:
            self._known[one] = name
        if gone is not None:
            self.leave(gone)
        return gone

    def leave(self, one: _T) -> None:
        """Remove a connection that was closed; calling it again does nothing."""
        self._strangers.pop(one, None)
        self._known.pop(one, None)

    def give_way(self) -> _T | None:
        """Remove and return the stranger to close next: the oldest idle one, else the oldest, or None without one."""
        oldest = next(iter(self._strangers), None)
        gone = next((one for one in self._strangers if not self._is_busy(one)), oldest)
        if gone is not None:
            del self._strangers[gone]
        return gone


async def accept_for_ever(
    listener: socket.socket, take: Callable[[socket.socket], Awaitable[None]], make_room: Callable[[], None]
) -> NoReturn:
    """Pass each new connection to `take`, for ever. Raises OSError if the listener itself is closed.

    If no file descriptor is left, call `make_room` and retry soon. asyncio's own loop would retry at once.
    """
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    failures, said_at = 0, float("-inf")
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError as error:
            if listener.fileno() < 0:
                raise
            failures += 1
            if time.monotonic() - said_at > _COMPLAINT_SECONDS:
                log.warning("connections cannot be taken: %s (%d times)", error.strerror, failures)
                failures, said_at = 0, time.monotonic()
            make_room()
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        try:
            await take(connection)
        except OSError:
            # It was closed before it was accepted.
            connection.close()


class TokenBucket:
    """Limit a rate: the bucket holds at most `burst` tokens, starts full, and refills `per_second`."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._level = burst
        self._at = clock()

    def wait(self, amount: float) -> float:
        """Return the seconds until the bucket has `amount` tokens; 0 if it has them now. Takes none."""
        self._refill()
        return max(0.0, (amount - self._level) / self._per_second)

    def take(self, amount: float) -> float:
        """Take `amount` tokens, overdrawing if necessary. Return the seconds until the overdraft is refilled."""
        self._refill()
        self._level -= amount
        return max(0.0, -self._level / self._per_second)

    def _refill(self) -> None:
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._per_second)
        self._at = now
