"""Contents of files by SHA-256, below `.os/undo/`: the states that an undo can restore. Blocks, so use a thread.

Each is renamed into place whole, and checked when it is read. Above the limit, those that no file has any more go, the
first replaced first; if that is not enough, new contents are not kept.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from sprite.common.files import PART, sync
from sprite.common.sqlite import fitting
from sprite.undo.scan import Entry
from sprite.workspace.user_files import folder_of

#: A larger file is listed and not kept.
LARGEST_FILE: Final = 64 * 2**20
#: Limit for all contents, in bytes.
MOST_BYTES: Final = 2 * 2**30
_PIECE: Final = 2**20
#: A file that was written this shortly before reading may be written again without a new change time.
_RACY_NS: Final = 100_000_000
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Contents:
    """Keep the earlier contents of a workspace's changed files. Only one thread at a time may use it."""

    def __init__(self, folder: Path, workspace: Path, limit: int = MOST_BYTES) -> None:
        #: The replaced files of an undo, until it has ended.
        self.aside = folder / "aside"
        self._folder = folder
        self._workspace = workspace
        self._limit = limit
        self._size = 0
        self._unsynced: list[Path] = []
        #: Taken since the last flush, new or not.
        self._taken: set[str] = set()
        #: Contents that may be deleted, the oldest last, or None until the limit is reached after a flush.
        self._evictable: list[tuple[Path, int]] | None = None

    def holds(self, sha256: str | None) -> bool:
        """Return whether a file's content is kept."""
        return bool(sha256) and self._path(sha256 or "").is_file()

    @contextmanager
    def reading(self, sha256: str) -> Iterator[BinaryIO]:
        """Open a kept content. Raise FileNotFoundError if it is missing or damaged."""
        with self._path(sha256).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != sha256:
                raise FileNotFoundError(sha256)
            stream.seek(0)
            yield stream

    def take(self, path: str, entry: Entry, pinned: Collection[str]) -> Entry:
        """Keep the present content of a file or link; return its state, without `sha256` if there is no room.

        `pinned` contents are not deleted to make room. Raises FileNotFoundError if the path is gone.
        """
        try:
            with folder_of(self._workspace, path) as (at, name):
                if stat.S_ISLNK(entry.mode):
                    target = os.fsencode(os.readlink(name, dir_fd=at))
                    seen = os.stat(name, dir_fd=at, follow_symlinks=False)
                    return _entry(seen, self._keep(io.BytesIO(target), len(target), pinned)[0])
                with os.fdopen(os.open(name, _READ, dir_fd=at), "rb") as stream:
                    before = os.fstat(stream.fileno())
                    if stat.S_ISREG(before.st_mode):
                        sha256, size = self._keep(stream, before.st_size, pinned)
                        return _entry(os.fstat(stream.fileno()), sha256, size=size, before=before)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(path) from error
        except OSError:
            (self._folder / f"{os.getpid()}{PART}").unlink(missing_ok=True)
        # It is unreadable, became a link or a pipe, or the disk is full: the path is listed and not kept.
        return entry._replace(sha256=None)

    def touch(self, sha256: str | None) -> None:
        """Record that a file had this content until now, so that it is deleted later than older ones."""
        if sha256:
            with suppress(OSError):
                os.utime(self._path(sha256))

    def flush(self, *, is_synced: bool = True) -> None:
        """With `is_synced`, make all contents kept since the last call survive a power cut."""
        for path in self._unsynced if is_synced else ():
            with suppress(FileNotFoundError):
                sync(path)
        for folder in {path.parent for path in self._unsynced} if is_synced else ():
            sync(folder)
        self._unsynced.clear()
        self._taken.clear()
        self._evictable = None

    def sweep(self, wanted: Collection[str]) -> None:
        """Delete unfinished files and all contents that are not in `wanted`; add up the sizes of the others."""
        for path in self._folder.glob(f"*{PART}"):
            path.unlink()
        found = list(self._all())
        self._size = sum(size for _, size, _ in found)
        for path, size, _ in found:
            if path.name not in wanted:
                self._delete(path, size)

    # --- inside ---

    def _path(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256

    def _all(self) -> Iterator[tuple[Path, int, float]]:
        for folder in self._folder.glob("??"):
            for entry in os.scandir(folder):
                seen = entry.stat()
                yield Path(entry.path), seen.st_size, seen.st_mtime

    def _delete(self, path: Path, size: int) -> None:
        path.unlink(missing_ok=True)
        self._size -= size

    def _keep(self, stream: BinaryIO, expected: int, pinned: Collection[str]) -> tuple[str | None, int]:
        """Copy a stream into the store. Return its SHA-256 and length; None for the SHA-256 if there is no room."""
        if expected > LARGEST_FILE or not self._has_room(expected, pinned):
            return None, expected
        unfinished = self._folder / f"{os.getpid()}{PART}"
        digest, size = hashlib.sha256(), 0
        with os.fdopen(os.open(unfinished, _WRITE, 0o600), "wb") as copy:
            while size <= LARGEST_FILE and (piece := stream.read(_PIECE)):
                digest.update(piece)
                copy.write(piece)
                size += len(piece)
        sha256 = digest.hexdigest() if size <= LARGEST_FILE else None
        if sha256 is None or self._is_there(sha256, size):
            unfinished.unlink()
            return sha256, size
        path = self._path(sha256)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        unfinished.replace(path)
        self._unsynced.append(path)
        self._size += size
        return sha256, size

    def _is_there(self, sha256: str, size: int) -> bool:
        self._taken.add(sha256)
        path = self._path(sha256)
        try:
            if path.stat().st_size != size:
                return False
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def _has_room(self, size: int, pinned: Collection[str]) -> bool:
        if self._size + size <= self._limit:
            return True
        if self._evictable is None:
            found = sorted(self._all(), key=lambda each: each[2], reverse=True)
            self._size = sum(length for _, length, _ in found)
            self._evictable = [(path, length) for path, length, _ in found if path.name not in pinned]
        self._evictable = [each for each in self._evictable if each[0].name not in self._taken]
        if self._size + size - sum(length for _, length in self._evictable) > self._limit:
            return False
        while self._size + size > self._limit:
            self._delete(*self._evictable.pop())
        return True


def _entry(seen: os.stat_result, sha256: str | None, *, size: int = -1, before: os.stat_result | None = None) -> Entry:
    """Return a path's state. If the file may have changed while it was read, the next scan reads it again."""
    is_torn = before is not None and (size != seen.st_size or before.st_ctime_ns != seen.st_ctime_ns)
    is_racy = sha256 is not None and (is_torn or time.time_ns() - seen.st_ctime_ns < _RACY_NS)
    changed_ns = -1 if is_racy else fitting(seen.st_ctime_ns)
    return Entry(seen.st_size, seen.st_mode, changed_ns, fitting(seen.st_ino), sha256)
