"""Probe something that may not answer: with a timeout, and never twice at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")

#: Monitors get their answer within a second, whatever hangs.
PROBE_SECONDS = 0.7


class Probe(Generic[_T]):
    """Ask one question. Callers that come before the answer share it."""

    def __init__(self, ask: Callable[[], Awaitable[_T]]) -> None:
        self._ask = ask
        self._task: asyncio.Task[_T] | None = None

    async def answer(self) -> _T:
        """Return the answer, or raise the error of the question. Raise TimeoutError without an answer in time."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._asked(), name="probe")
            # Retrieve the error of a late answer, so that asyncio does not log it.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        task = self._task
        done, _ = await asyncio.wait({task}, timeout=PROBE_SECONDS)
        if not done:
            raise TimeoutError
        return task.result()

    async def _asked(self) -> _T:
        return await self._ask()
