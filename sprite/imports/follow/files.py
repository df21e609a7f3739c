"""Session logs that grow: find them, read what was appended, and store how far each is read."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from sprite.common.files import replace_file
from sprite.imports.claude_code import SUBAGENTS
from sprite.imports.claude_code_entries import MAX_LINE_BYTES


class Lines:
    """Split bytes into lines. `feed` yields the completed lines; None stands for one that is too long."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0
        #: Offset of the incomplete line.
        self.at = 0
        #: Offset of the end of the fed bytes.
        self.fed = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Add the next bytes of the file; yield (offset of its first byte, line without its newline)."""
        begin = 0
        while (end := data.find(b"\n", begin)) >= 0:
            self._hold(data[begin:end])
            self.fed += end + 1 - begin
            begin = end + 1
            line = None if self._held > self._limit else b"".join(self._parts)
            at, self.at = self.at, self.fed
            self._parts, self._held = [], 0
            yield at, line
        self._hold(data[begin:])
        self.fed += len(data) - begin

    def _hold(self, part: bytes) -> None:
        self._held += len(part)
        if self._held > self._limit:
            self._parts = []
        elif part:
            self._parts.append(part)


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


class Marks(dict[str, Mark]):
    """The marks of all logs by path; `save` writes them atomically."""

    def __init__(self, path: Path) -> None:
        super().__init__(_read(path))
        self._path = path
        self._saved = dict(self)

    def save(self) -> None:
        """Write changed marks. A full disk is no reason to stop: it only costs time later."""
        if self == self._saved:
            return
        try:
            replace_file(self._path, msgspec.json.encode(dict(self)), is_synced=False)
        except OSError as error:
            log.warning("how far the logs were read cannot be kept (%s); a restart reads them anew", error.strerror)
        self._saved = dict(self)


def _read(path: Path) -> dict[str, Mark]:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return {}
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Mark])
    except (OSError, ValueError, RecursionError):
        return {}


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


#: Claude Code's folders are two levels deep; a deeper one is an unrelated tree.
MOST_DEPTH = 8

OnRefusal = Callable[[Path, str], object]


@dataclass(frozen=True, slots=True)
class Found:
    """A log's current state on disk; `changed_ns` in ns of Unix time."""

    path: Path
    device: int
    inode: int
    size: int
    changed_ns: int


def _found(path: Path, about: os.stat_result) -> Found:
    return Found(path, about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)


def scan(roots: list[Path], own: Path, refuse: OnRefusal) -> Iterator[Found]:
    """Yield every `*.jsonl` of this user below the roots.

    Skips logs of subagents, which their session finds, and those below `own`, because the sprite records its agent
    itself.
    """
    for root in roots:
        try:
            about = root.stat()
        except FileNotFoundError:
            # Keep waiting for it: Claude Code creates its folder at first use.
            continue
        except OSError as error:
            refuse(root, f"cannot be read: {error.strerror}")
            continue
        if stat.S_ISDIR(about.st_mode):
            yield from _below(root, own, refuse)
        elif (problem := problem_of(about)) is not None:
            refuse(root, problem)
        else:
            yield _found(root.resolve(), about)


def _below(root: Path, own: Path, refuse: OnRefusal) -> Iterator[Found]:
    waiting = [(root.resolve(), 0)]
    while waiting:
        folder, depth = waiting.pop()
        if folder == own:
            continue
        try:
            if folder.stat().st_uid != os.geteuid():
                refuse(folder, "belongs to somebody else")
                continue
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MOST_DEPTH and entry.name != SUBAGENTS:
                            waiting.append((folder / entry.name, depth + 1))
                    elif entry.name.endswith(".jsonl"):
                        yield from _taken(entry, refuse)
        except FileNotFoundError:
            continue
        except OSError as error:
            refuse(folder, f"cannot be read: {error.strerror}")


def _taken(entry: os.DirEntry[str], refuse: OnRefusal) -> Iterator[Found]:
    path = Path(entry.path)
    if entry.is_symlink():
        refuse(path, "is a link, and none is followed")
        return
    try:
        about = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    if (problem := problem_of(about)) is not None:
        refuse(path, problem)
    else:
        yield _found(path, about)
