"""A look at something that may not answer: bounded for whoever asks, and never begun twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")

#: Probes of monitors are answered within a second, whatever hangs.
PROBE_SECONDS = 0.7


class Probe(Generic[_T]):
    """Asks one thing. While it is not answered, the next who want to know wait for the same answer."""

    def __init__(self, ask: Callable[[], Awaitable[_T]], seconds: float = PROBE_SECONDS) -> None:
        self._ask = ask
        self._seconds = seconds
        self._task: asyncio.Task[_T] | None = None

    async def answer(self) -> _T:
        """Return the answer, or raise what asking raised. TimeoutError where none comes in time."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._asked(), name="probe")
            # Of an answer that comes too late nobody hears.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        task = self._task
        done, _ = await asyncio.wait({task}, timeout=self._seconds)
        if not done:
            raise TimeoutError
        return task.result()

    async def _asked(self) -> _T:
        return await self._ask()
