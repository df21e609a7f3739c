"""The longest time for which an event loop did nothing else, without the time in which other programs ran instead."""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio.events import Handle
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TICK_SECONDS = 0.005
_THREADS = Path("/proc/self/task")


@dataclass(frozen=True, order=True, slots=True)
class Stall:
    """A stall in milliseconds, and the longest callback.

    `ms` leaves out the longest time that a thread waited for a processor meanwhile, if Linux tells it: any of them may
    have had the interpreter's lock. It is at least `cpu_ms`, the processor time of the longest callback. `wall_ms` is
    the whole stall, on this machine with its other programs.
    """

    ms: float
    wall_ms: float
    callback: str
    cpu_ms: float


class StallMeter:
    """Measures the loops of other threads of this process, by the threads' names. `reset` before each input."""

    def __init__(self) -> None:
        self._worst: dict[str, tuple[float, str]] = {}
        self._late: dict[str, tuple[float, float]] = {}
        self._loops: dict[str, Any] = {}
        self._run = Handle._run  # noqa: SLF001 - nothing else sees each callback

    def install(self) -> None:
        """Measure each callback of every loop from here on."""
        meter, run = self, self._run

        def measured(handle: Handle) -> None:
            began = time.thread_time()
            run(handle)
            meter._note(time.thread_time() - began, handle)

        Handle._run = measured  # type: ignore[assignment,method-assign]  # noqa: SLF001 - as above

    def _note(self, cpu: float, handle: Handle) -> None:
        name = threading.current_thread().name
        loop = asyncio.get_running_loop()
        if self._loops.get(name) is not loop:
            self._loops[name] = loop
            self._tick(name, loop, time.perf_counter(), _waited())
        if cpu > self._worst.get(name, (0.0, ""))[0]:
            callback = getattr(handle, "_callback", None)
            task = getattr(callback, "__self__", None)
            words = task.get_name() if isinstance(task, asyncio.Task) else getattr(callback, "__qualname__", "?")
            self._worst[name] = cpu, words

    def _tick(self, name: str, loop: asyncio.AbstractEventLoop, due: float, before: dict[str, float]) -> None:
        now, waits = time.perf_counter(), _waited()
        waited = max((seconds - before.get(thread, 0.0) for thread, seconds in waits.items()), default=0.0)
        self._late[name] = max(self._late.get(name, (0.0, 0.0)), (max(0.0, now - due - waited), now - due))
        if not loop.is_closed():
            loop.call_later(TICK_SECONDS, self._tick, name, loop, time.perf_counter() + TICK_SECONDS, waits)

    def reset(self) -> None:
        """Forget what was measured."""
        self._worst.clear()
        self._late.clear()

    def longest(self, thread: str) -> Stall:
        """Return the longest stall of a thread's loop."""
        own, wall = self._late.get(thread, (0.0, 0.0))
        cpu, callback = self._worst.get(thread, (0.0, "-"))
        return Stall(max(own, cpu) * 1000, wall * 1000, callback, cpu * 1000)


def _waited() -> dict[str, float]:
    """Return for how many seconds each thread has waited for a processor; nothing where that is not known."""
    found = {}
    for thread in _THREADS.iterdir() if _THREADS.exists() else ():
        with suppress(OSError):  # it has ended
            found[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found
