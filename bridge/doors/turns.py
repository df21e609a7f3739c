"""One large request per person at a time, to bound the memory that a person's requests take."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class Turns:
    """Locks of people: `async with turns.of(person):` around a large request, before its body is read."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, person: str) -> asyncio.Lock:
        """Return the person's lock, which exists while a request holds it or waits for it."""
        lock = self._locks.get(person)
        if lock is None:
            lock = self._locks[person] = asyncio.Lock()
        return lock
