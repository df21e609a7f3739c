"""Whether a process under attack is well: it lives, its log holds no traceback, its memory and files stay bounded."""

from __future__ import annotations

import os
from pathlib import Path

from tests.inspection import eventually, runs

#: What a log holds only after a fault of ours.
FAULTS = ("Traceback (most recent call last)", "CRITICAL", '"level":"critical"', "was never retrieved", "never awaited")
#: What a program may have grown by since it was warm: its caches, and what the allocator does not give back.
MAX_GROWN_BYTES = 200 * 2**20
MAX_MORE_FILES = 8


class Health:
    """One process and its log, from when it is warm."""

    def __init__(self, pid: int, log: Path) -> None:
        self._pid = pid
        self._log = log
        self._read = log.stat().st_size
        self._bytes, self._files = _resident_bytes(pid), _open_files(pid)

    def check(self) -> None:
        """AssertionError where it is not well."""
        assert runs(self._pid), self._log.read_text(errors="replace")[-3000:]
        with self._log.open("rb") as stream:
            stream.seek(self._read)
            said = stream.read().decode(errors="replace")
        self._read += len(said.encode(errors="replace"))
        assert not any(fault in said for fault in FAULTS), said[-6000:]

    async def check_size(self) -> None:
        """AssertionError where it has kept what it should have let go; once nobody is connected any more."""
        pid, most = self._pid, self._files + MAX_MORE_FILES
        await eventually(lambda: _open_files(pid) <= most, f"more files are open than the {self._files} at the start")
        grown = _resident_bytes(pid) - self._bytes
        assert grown < MAX_GROWN_BYTES, f"it has grown by {grown >> 20} MiB"


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
