"""Health of a process under attack: it lives, its log has no traceback, and its memory and files stay bounded."""

from __future__ import annotations

import os
from pathlib import Path

from tests.inspection import eventually, runs

#: Log text that only a bug produces.
FAULTS = ("Traceback (most recent call last)", "CRITICAL", '"level":"critical"', "was never retrieved", "never awaited")
#: Allowed growth since warm-up: caches, and memory that the allocator does not return.
MAX_GROWN_BYTES = 200 * 2**20
MAX_MORE_FILES = 8


class Health:
    """A process and its log, observed since warm-up."""

    def __init__(self, pid: int, log: Path) -> None:
        self._pid = pid
        self._log = log
        self._read = log.stat().st_size
        self._bytes, self._files = _resident_bytes(pid), _open_files(pid)

    def check(self) -> None:
        """Raise AssertionError if the process is not healthy."""
        assert runs(self._pid), self._log.read_text(errors="replace")[-3000:]
        with self._log.open("rb") as stream:
            stream.seek(self._read)
            said = stream.read().decode(errors="replace")
        self._read += len(said.encode(errors="replace"))
        assert not any(fault in said for fault in FAULTS), said[-6000:]

    async def check_size(self) -> None:
        """Raise AssertionError on a leak; call it when all clients have disconnected."""
        pid, most = self._pid, self._files + MAX_MORE_FILES
        await eventually(lambda: _open_files(pid) <= most, f"more files are open than the {self._files} at the start")
        grown = _resident_bytes(pid) - self._bytes
        assert grown < MAX_GROWN_BYTES, f"it has grown by {grown >> 20} MiB"


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
