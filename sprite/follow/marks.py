"""How far each log was read, kept on disk so that a follower that starts again need not read everything anew.

Nothing depends on it: turns have keys, so that a lost or damaged file costs time and doubles nothing.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

log = logging.getLogger(__name__)

#: More than any number of logs takes; a larger file is none of ours.
_MAX_BYTES = 64 * 1024 * 1024


class Mark(msgspec.Struct, frozen=True):
    """Of one log: which file it was, and how far it is done.

    `check` hashes its beginning and what stands before `size`. Turns that begin before `done` were handed over;
    `is_open`: one went on, or may still be reported. `changed_ns` is in ns of Unix time.
    """

    device: int
    inode: int
    size: int
    changed_ns: int
    check: str
    done: int
    is_open: bool


class Marks:
    """The marks of all logs, by path; `save` writes them, all or nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marks = _read(path)
        self._saved = dict(self._marks)

    def of(self, log_path: Path) -> Mark | None:
        """Returns how far a log was read, if it is known."""
        return self._marks.get(str(log_path))

    def set(self, log_path: Path, mark: Mark) -> None:
        """Notes how far a log was read; durable after the next `save`."""
        self._marks[str(log_path)] = mark

    def save(self) -> None:
        """Writes what has changed. A disk that is full is no reason to stop: it only costs time later."""
        if self._marks == self._saved:
            return
        fresh = self._path.with_suffix(".new")
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(msgspec.json.encode(self._marks))
            fresh.replace(self._path)
        except OSError as error:
            log.warning("how far the logs were read cannot be kept (%s); a restart reads them anew", error.strerror)
        self._saved = dict(self._marks)

    def forget(self, log_path: Path) -> None:
        """Drops the mark of a log that is there no more."""
        self._marks.pop(str(log_path), None)


def _read(path: Path) -> dict[str, Mark]:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return {}
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Mark])
    except (OSError, ValueError, RecursionError):
        return {}
