"""A wall clock that a test may set, for forked processes. The monotonic clock is not changed."""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

#: Environment variable with the path of the clock, for tests/forking.py.
CLOCK = "TESTS_CLOCK"
_SECONDS = struct.Struct("d")


class ShiftedClock:
    """A clock `ahead` of this machine's by some seconds, in every forked process that gets its `environment`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "clock"
        self.path.write_bytes(_SECONDS.pack(0.0))
        self._memory = _memory(self.path)
        self.environment = {CLOCK: str(self.path)}

    def now(self) -> float:
        """Return its time in Unix seconds."""
        ahead: float = _SECONDS.unpack_from(self._memory)[0]
        return time.time() + ahead

    def jump_to(self, moment: float) -> None:
        """Set it to a time in Unix seconds, for all processes at once."""
        _SECONDS.pack_into(self._memory, 0, moment - time.time())


class _Following:
    """The clock that this process follows, if any."""

    memory: mmap.mmap | None = None


def replace_time() -> None:
    """Replace `time.time` and `time.time_ns`, before anything is imported that keeps them as a default."""
    real_time, real_time_ns = time.time, time.time_ns

    def ahead() -> float:
        memory = _Following.memory
        return 0.0 if memory is None else float(_SECONDS.unpack_from(memory)[0])

    time.time = lambda: real_time() + ahead()
    time.time_ns = lambda: real_time_ns() + round(ahead() * 1e9)


def follow_clock() -> None:
    """Follow the clock that the environment names, if any."""
    if CLOCK in os.environ:
        _Following.memory = _memory(Path(os.environ[CLOCK]))


def _memory(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _SECONDS.size)
