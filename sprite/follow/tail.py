"""Read data appended to one file in bounded pieces, and detect a replaced file.

Only the open file is trusted, not its path: a link, a pipe, a device or another user's file is refused.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sprite.follow.lines import Lines
from sprite.follow.marks import Mark

CHUNK_BYTES = 1 << 20
#: Length of the checked parts: the file's beginning, and the bytes before the read position.
_LOOK_BYTES = 256


class NotOursError(Exception):
    """A path cannot be followed; the message says why."""


def open_log(path: Path) -> tuple[BinaryIO, os.stat_result]:
    """Open a regular file of this user. Raises NotOursError for anything else; OSError if it cannot be opened."""
    # Nonblocking, because opening a named pipe would wait for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    stream = os.fdopen(descriptor, "rb")
    about = os.fstat(descriptor)
    problem = problem_of(about)
    if problem is not None:
        stream.close()
        raise NotOursError(problem)
    return stream, about


def problem_of(about: os.stat_result) -> str | None:
    """Return why a file is not read, or None."""
    if not stat.S_ISREG(about.st_mode):
        return "is no file"
    return None if about.st_uid == os.geteuid() else "belongs to somebody else"


class Tail:
    """Read one growing file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = Lines()
        self._identity: tuple[int, int] | None = None
        self._check = _hash(b"", b"")
        #: Size and modification time when it was read.
        self.size = 0
        self.changed_ns = 0

    def read(self, upto: int | None = None) -> Iterator[tuple[int, bytes | None] | None]:
        """Yield the appended lines, and None after each piece read.

        Raises ReplacedError, before any line, if the data read before has changed.
        """
        stream, about = open_log(self.path)
        with stream:
            here = (about.st_dev, about.st_ino)
            fed = self.lines.fed
            if self._identity is not None and (
                here != self._identity or about.st_size < fed or _check(stream, fed) != self._check
            ):
                raise ReplacedError
            self._identity = here
            end = about.st_size if upto is None else min(about.st_size, upto)
            while fed < end and (data := os.pread(stream.fileno(), min(CHUNK_BYTES, end - fed), fed)):
                fed += len(data)
                yield from self.lines.feed(data)
                yield None
            self._check = _check(stream, self.lines.fed)
            self.size, self.changed_ns = self.lines.fed, about.st_mtime_ns

    def mark(self, done: int, *, is_open: bool) -> Mark:
        """Return the mark to store. The file must have been read."""
        device, inode = self._identity or (0, 0)
        return Mark(device, inode, self.size, self.changed_ns, self._check, done, is_open)


class ReplacedError(Exception):
    """A file was truncated, rewritten or replaced."""


def is_same(path: Path, mark: Mark) -> bool:
    """Return whether a mark still matches a file. Raises OSError or NotOursError like `open_log`."""
    stream, about = open_log(path)
    with stream:
        return (
            (about.st_dev, about.st_ino) == (mark.device, mark.inode)
            and about.st_size >= mark.size
            and _check(stream, mark.size) == mark.check
        )


def _check(stream: BinaryIO, upto: int) -> str:
    head = os.pread(stream.fileno(), min(_LOOK_BYTES, upto), 0)
    seam = os.pread(stream.fileno(), min(_LOOK_BYTES, upto), max(0, upto - _LOOK_BYTES))
    return _hash(head, seam)


def _hash(head: bytes, seam: bytes) -> str:
    return hashlib.sha256(head + b"\0" + seam).hexdigest()[:32]
