"""The longest time for which an event loop did nothing else, and what it did then."""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio.events import Handle
from typing import Any

TICK_SECONDS = 0.002


class StallMeter:
    """Measures the loops of other threads of this process, by the threads' names. `reset` before each input."""

    def __init__(self) -> None:
        self._worst: dict[str, tuple[float, str]] = {}
        self._late: dict[str, float] = {}
        self._loops: dict[str, Any] = {}
        self._run = Handle._run  # noqa: SLF001 - nothing else sees each callback

    def install(self) -> None:
        """Measure each callback of every loop from here on."""
        meter, run = self, self._run

        def measured(handle: Handle) -> None:
            began = time.perf_counter()
            run(handle)
            meter._note(time.perf_counter() - began, handle)

        Handle._run = measured  # type: ignore[assignment,method-assign]  # noqa: SLF001 - as above

    def _note(self, seconds: float, handle: Handle) -> None:
        name = threading.current_thread().name
        loop = asyncio.get_running_loop()
        if self._loops.get(name) is not loop:
            self._loops[name] = loop
            self._tick(name, loop, time.perf_counter())
        if seconds > self._worst.get(name, (0.0, ""))[0]:
            callback = getattr(handle, "_callback", None)
            task = getattr(callback, "__self__", None)
            words = task.get_name() if isinstance(task, asyncio.Task) else getattr(callback, "__qualname__", "?")
            self._worst[name] = seconds, words

    def _tick(self, name: str, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = time.perf_counter()
        self._late[name] = max(self._late.get(name, 0.0), now - due)
        if not loop.is_closed():
            loop.call_later(TICK_SECONDS, self._tick, name, loop, now + TICK_SECONDS)

    def reset(self) -> None:
        """Forget what was measured."""
        self._worst.clear()
        self._late.clear()

    def longest(self, thread: str) -> tuple[float, str]:
        """Return the longest stall of a thread's loop in milliseconds, and the callback that took longest."""
        return self._late.get(thread, 0.0) * 1000, self._worst.get(thread, (0.0, "-"))[1]
