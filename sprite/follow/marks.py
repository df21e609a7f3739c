"""Read positions of the logs, stored so that a restarted follower need not read everything again.

They are only an optimisation: turns have keys, so a lost or damaged file costs time and creates no duplicates.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from sprite.common.files import replace_file

log = logging.getLogger(__name__)

#: Larger than for any number of logs; a larger file is not ours.
_MAX_BYTES = 64 * 1024 * 1024


class Mark(msgspec.Struct, frozen=True):
    """The read position in one log file.

    `check` hashes its beginning and the bytes before `size`. Turns that begin before `done` were delivered.
    `is_open`: a turn was open, or may still be reported. `changed_ns` is in ns of Unix time.
    """

    device: int
    inode: int
    size: int
    changed_ns: int
    check: str
    done: int
    is_open: bool


class Marks:
    """The marks of all logs by path; `save` writes them atomically."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marks = _read(path)
        self._saved = dict(self._marks)

    def of(self, log_path: Path) -> Mark | None:
        """Return the read position of a log, if known."""
        return self._marks.get(str(log_path))

    def set(self, log_path: Path, mark: Mark) -> None:
        """Set the read position of a log; durable after the next `save`."""
        self._marks[str(log_path)] = mark

    def save(self) -> None:
        """Write changed marks. A full disk is no reason to stop: it only costs time later."""
        if self._marks == self._saved:
            return
        try:
            replace_file(self._path, msgspec.json.encode(self._marks), is_synced=False)
        except OSError as error:
            log.warning("how far the logs were read cannot be kept (%s); a restart reads them anew", error.strerror)
        self._saved = dict(self._marks)

    def forget(self, log_path: Path) -> None:
        """Delete the mark of a log that no longer exists."""
        self._marks.pop(str(log_path), None)


def _read(path: Path) -> dict[str, Mark]:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return {}
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Mark])
    except (OSError, ValueError, RecursionError):
        return {}
