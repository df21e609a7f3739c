"""One large request of a person's at a time: what all of them together hold in memory is bounded by the largest."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class Turns:
    """`async with turns.of(person):` around a large request, from before its body is read."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, person: str) -> asyncio.Lock:
        """The person's lock, which is there as long as anybody holds it or waits for it."""
        lock = self._locks.get(person)
        if lock is None:
            lock = self._locks[person] = asyncio.Lock()
        return lock
