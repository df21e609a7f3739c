"""The person's files on their way into a store: which there are, which of them fit, and their content in chunks.

They are shipped as they are, as an export has them: a project comes back with its `.env`, and a store seals what it
keeps. A file is known by the SHA-256 of its path: a forgotten name must not stay below `.os/` in what is noted here. No
link is followed, also none that is put in a folder's place while we look.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sprite.archive.walk import NO_FILES, Found, LeftOut, walk
from sprite.protocol.archive import kept_mode, kept_time
from sprite.protocol.paths import shown
from sprite.protocol.shipping import ShippedChunk
from sprite.shipping.messages import CHUNK_BYTES, MESSAGE_BYTES, size_of
from sprite.userfiles.no_links import folder_of

log = logging.getLogger(__name__)

#: A chunk as it travels, at most; and how long is read at a time, so that rows can go between.
_CHUNK_SIZE = CHUNK_BYTES * 4 // 3 + 200
_LONGEST_SECONDS = 0.3
#: A file that was written to so shortly before it was read may be written to again without another time.
_RACY_NS = 100_000_000
#: JavaScript knows no larger number.
_MOST_SAID = 2**53


class FileFacts(msgspec.Struct, frozen=True):
    """A file as it was when it was shipped; times in nanoseconds, `chunks` by SHA-256 (hex)."""

    size: int
    mode: int
    modified_ns: int
    changed_ns: int
    inode: int
    chunks: list[str]


class FolderFacts(msgspec.Struct, frozen=True):
    """A folder as it is."""

    mode: int
    modified_ns: int


class Omitted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of the person's files is not shipped: how many do not fit, and their bytes; how many nothing can be made of.

    Those are `unkept`, for their names or since they cannot be read; `names` is the SHA-256 of what is said of them.
    """

    over_limit: int = 0
    bytes: int = 0
    unkept: int = 0
    names: str = ""


class _Unkept(LeftOut):
    """What is left out and is a file or folder, in words that may be shown."""

    def add(self, path: str, why: str) -> None:
        """Counts one, and names it if there are few."""
        if why not in NO_FILES:
            super().add(shown(path), why)


@dataclass(frozen=True, slots=True)
class Seen:
    """A file at a look."""

    path: str
    size: int
    mode: int
    modified_ns: int
    changed_ns: int
    inode: int

    def is_as(self, facts: FileFacts | None) -> bool:
        """Whether this is what was shipped."""
        return facts is not None and (
            (self.size, self.mode, self.modified_ns, self.changed_ns, self.inode)
            == (facts.size, facts.mode, facts.modified_ns, facts.changed_ns, facts.inode)
        )


@dataclass(frozen=True, slots=True)
class Look:
    """What is there and is to be shipped, by the names of `name_of`, and what of it is left out."""

    files: dict[str, Seen]
    folders: dict[str, FolderFacts]
    paths: dict[str, str]
    omitted: Omitted
    #: Some of what is unkept, in words.
    unkept: list[str]


def name_of(path: str) -> str:
    """What a file is called where its path must not stand."""
    return hashlib.sha256(path.encode()).hexdigest()


def look(workspace: Path, limit: int) -> Look:
    """Looks at everything but what is ours, and chooses what fits into `limit` bytes. Blocks.

    The newest come first; what does not fit lets smaller ones behind it pass.
    """
    found, folders, paths = list[Seen](), dict[str, FolderFacts](), dict[str, str]()
    unkept = _Unkept()
    for each in walk(workspace, unkept):
        if not isinstance(each, Found):
            folders[name_of(each.path)] = FolderFacts(each.mode, each.modified_ns)
            paths[name_of(each.path)] = each.path
        elif (seen := _seen(each)) is not None:
            found.append(seen)
    chosen, omitted, left = dict[str, Seen](), list[Seen](), limit
    for seen in sorted(found, key=lambda seen: (-seen.modified_ns, seen.size, seen.path)):
        if seen.size > left:
            omitted.append(seen)
            continue
        left -= seen.size
        chosen[name_of(seen.path)] = seen
        paths[name_of(seen.path)] = seen.path
    # A file may be as long as it says without a byte on the disk.
    size = min(sum(seen.size for seen in omitted), _MOST_SAID)
    names = hashlib.sha256("\n".join(unkept.named).encode()).hexdigest() if unkept.count else ""
    return Look(chosen, folders, paths, Omitted(len(omitted), size, unkept.count, names), unkept.named)


def _seen(found: Found) -> Seen | None:
    try:
        entry = os.stat(found.name, dir_fd=found.folder, follow_symlinks=False)
    except OSError:
        return None
    return _of(found.path, entry) if stat.S_ISREG(entry.st_mode) else None


def _of(path: str, entry: os.stat_result) -> Seen:
    mode, modified_ns = kept_mode(entry.st_mode), kept_time(entry.st_mtime_ns)
    return Seen(path, entry.st_size, mode, modified_ns, entry.st_ctime_ns, entry.st_ino)


class Reading:
    """A file being read, chunk by chunk; afterwards `facts` are what was read, or None where it changed meanwhile.

    OSError where it cannot be read, or is none any more. Blocks.
    """

    def __init__(self, workspace: Path, path: str) -> None:
        self.facts: FileFacts | None = None
        self._path = path
        self._names: list[str] = []
        self._descriptor = _opened(workspace, path)
        self._before = _of(path, os.fstat(self._descriptor))
        self._read = 0

    def next(self) -> tuple[str, bytes] | None:
        """The next chunk with its SHA-256, None at the end."""
        data = os.read(self._descriptor, min(CHUNK_BYTES, self._before.size - self._read))
        if data:
            self._read += len(data)
            self._names.append(hashlib.sha256(data).hexdigest())
            return self._names[-1], data
        now = _of(self._path, os.fstat(self._descriptor))
        if now == self._before and self._read == now.size:
            # One that may be changed without a trace is read once more at the next look.
            changed = -1 if time.time_ns() - now.modified_ns < _RACY_NS else now.changed_ns
            self.facts = FileFacts(now.size, now.mode, now.modified_ns, changed, now.inode, self._names)
        return None

    def close(self) -> None:
        """Lets go of it."""
        os.close(self._descriptor)


class Contents:
    """The contents of files, as much as a message holds at a time. Blocks.

    Chunks in `known` are passed over, and what is given is known from then on.
    """

    def __init__(self, workspace: Path, files: Sequence[tuple[str, str]], known: set[str]) -> None:
        self._workspace = workspace
        self._files = deque(files)
        self._known = known
        self._reading: tuple[str, Reading] | None = None
        self._in_use = threading.Lock()
        self._is_closed = False

    def next(self) -> tuple[list[ShippedChunk], dict[str, FileFacts]] | None:
        """Some chunks, and the files of which the last was given; None at the end."""
        with self._in_use:
            read = self._some() if self._reading or self._files else None
        if self._is_closed:
            self.close()
        return read

    def _some(self) -> tuple[list[ShippedChunk], dict[str, FileFacts]]:
        chunks, size, facts = list[ShippedChunk](), 0, dict[str, FileFacts]()
        until = time.monotonic() + _LONGEST_SECONDS
        while (self._reading or self._files) and size + _CHUNK_SIZE <= MESSAGE_BYTES:
            if self._is_closed or time.monotonic() > until:
                break
            if (chunk := self._step(facts)) is not None:
                chunks.append(chunk)
                size += size_of(chunk)
        return chunks, facts

    def _step(self, facts: dict[str, FileFacts]) -> ShippedChunk | None:
        try:
            if self._reading is None:
                name, path = self._files.popleft()
                self._reading = name, Reading(self._workspace, path)
            name, reading = self._reading
            read = reading.next()
        except OSError as error:
            # It went meanwhile, or nobody may read it.
            log.debug("a file is not shipped: %s", error.strerror)
            self._let_go()
            return None
        if read is None:
            if reading.facts is not None:
                facts[name] = reading.facts
            self._let_go()
            return None
        sha256, data = read
        if sha256 in self._known:
            return None
        self._known.add(sha256)
        return ShippedChunk(sha256, base64.b64encode(data).decode())

    def close(self) -> None:
        """Lets go of the file under way, at once or when a `next` in another thread has ended. Does not block."""
        self._is_closed = True
        if self._in_use.acquire(blocking=False):
            self._let_go()
            self._in_use.release()

    def _let_go(self) -> None:
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None


def _opened(workspace: Path, path: str) -> int:
    with folder_of(workspace, path) as (at, name):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return descriptor


def known_chunks(facts: Iterable[FileFacts]) -> Iterator[str]:
    """Every chunk that these files are made of."""
    for each in facts:
        yield from each.chunks
