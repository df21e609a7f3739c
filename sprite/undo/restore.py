"""Restore paths to earlier states. Blocks, so run it in a thread.

A path's file is moved to `.os/undo/aside/` and checked there before the earlier content is linked under the free name.
So a change at the same moment survives, and a killed process can continue. No link is followed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from sprite.common.sqlite import fitting
from sprite.undo.contents import Contents
from sprite.undo.scan import Entry
from sprite.workspace.file_changes import FileChange
from sprite.workspace.user_files import folder_of

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER: Final = _READ | os.O_DIRECTORY
#: Errors that say that a path leads through something that is no folder.
_NO_WAY: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class Now(NamedTuple):
    """The present state of a path on disk: mode and SHA-256, None if nothing is there; SHA-256 None if unreadable."""

    mode: int | None
    sha256: str | None


NOTHING: Final = Now(None, None)


def state_of(workspace: Path, path: str) -> Now:
    """Return what is at a path on disk now."""
    try:
        with folder_of(workspace, path) as (at, name):
            return _state_in(at, name)
    except OSError as error:
        return NOTHING if error.errno in _NO_WAY else Now(0, None)


def _state_in(at: int, name: str) -> Now:
    mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    if stat.S_ISDIR(mode):
        return Now(mode, "")
    if stat.S_ISLNK(mode):
        return Now(mode, hashlib.sha256(os.fsencode(os.readlink(name, dir_fd=at))).hexdigest())
    if not stat.S_ISREG(mode):
        return Now(mode, None)
    try:
        descriptor = os.open(name, _READ, dir_fd=at)
    except PermissionError:
        return Now(mode, None)
    with os.fdopen(descriptor, "rb") as stream:
        return Now(os.fstat(descriptor).st_mode, hashlib.file_digest(stream, "sha256").hexdigest())


class Restorer:
    """Restore files for one undo, `turn`; the field `after` of each change is the state to restore."""

    def __init__(self, workspace: Path, contents: Contents, turn: str) -> None:
        self._workspace = workspace
        self._contents = contents
        self._turn = turn
        self._failed: dict[str, str] = {}

    def run(self, changes: Sequence[FileChange]) -> dict[str, str]:
        """Restore the files, or go on after a kill; return the paths that could not be restored, with the reasons."""
        ordered = sorted(changes, key=lambda each: each.path.count("/"))
        folders = [each for each in ordered if _is_folder(each.mode_before) and _is_folder(each.mode)]
        # A folder may have become read-only: open it first, and give it its mode at the end.
        for each in folders:
            self._step(each, lambda each: self._set_mode(each.path, stat.S_IMODE(each.mode or 0) | stat.S_IRWXU))
        for each in reversed(ordered):
            if each.mode is None or (
                each.mode_before is not None and _is_folder(each.mode) != _is_folder(each.mode_before)
            ):
                self._step(each, self._remove)
        for each in ordered:
            if each.mode is not None and each not in folders:
                self._step(each, self._put)
        for each in reversed(ordered):
            if _is_folder(each.mode):
                self._step(each, lambda each: self._set_mode(each.path, stat.S_IMODE(each.mode or 0)))
        return self._failed

    def _step(self, change: FileChange, work: Callable[[FileChange], None]) -> None:
        if change.path in self._failed:
            return
        try:
            work(change)
        except OSError as error:
            self._failed[change.path] = error.strerror or str(error)

    def _set_mode(self, path: str, mode: int) -> None:
        with folder_of(self._workspace, path) as (at, name):
            descriptor = os.open(name, _FOLDER, dir_fd=at)
            try:
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)

    def _remove(self, change: FileChange) -> None:
        with suppress(FileNotFoundError), folder_of(self._workspace, change.path) as (at, name):
            if not os.path.lexists(self._old(change)) and _has(change, self._there(at, name)):
                return
            if _is_folder(change.mode_before):
                # Refused if the person has put something into it.
                os.rmdir(name, dir_fd=at)
            elif self._move_aside(change, at, name):
                self._drop_aside(change)

    def _put(self, change: FileChange) -> None:
        with self._made_folder(change.path) as (at, name):
            if _is_folder(change.mode):
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=at)
                return
            if _has(change, self._there(at, name)):
                self._drop_aside(change)
                return
            new = self._make(change)
            was_there = change.mode_before is not None and not _is_folder(change.mode_before)
            if was_there and not self._move_aside(change, at, name):
                return
            try:
                _link(new, at, name)
            except FileExistsError:
                # Somebody wrote it at this moment. The earlier content is in the store.
                self._failed[change.path] = "it was written at the same moment"
            os.fsync(at)
            self._drop_aside(change)

    def _there(self, at: int, name: str) -> Now:
        try:
            return _state_in(at, name)
        except FileNotFoundError:
            return NOTHING

    def _move_aside(self, change: FileChange, at: int, name: str) -> bool:
        """Move a path's present file to the folder `aside`, if it is as expected, and return True.

        Otherwise leave the file, record why the path failed, and return False.
        """
        old = self._old(change)
        if not os.path.lexists(old):
            if not _is(change.mode_before, change.before, self._there(at, name)):
                self._failed[change.path] = "it was changed at the same moment"
                return False
            os.rename(name, old, src_dir_fd=at)
        with folder_of(self._contents.aside, old.name) as (aside, inside):
            found = _state_in(aside, inside)
        if _is(change.mode_before, change.before, found):
            return True
        self._failed[change.path] = "it was changed at the same moment"
        try:
            _link(old, at, name)
        except FileExistsError:
            _link(old, at, f"{name}.before-undo")
        old.unlink()
        return False

    def _make(self, change: FileChange) -> Path:
        """Write the content that a change restores to a temporary file, to be linked under the path later."""
        new = self._aside(change, "new")
        new.unlink(missing_ok=True)
        with self._contents.reading(change.after or "") as content:
            if stat.S_ISLNK(change.mode or 0):
                new.symlink_to(os.fsdecode(content.read()))
                return new
            with new.open("xb") as stream:
                shutil.copyfileobj(content, stream, 2**20)
                os.fchmod(stream.fileno(), stat.S_IMODE(change.mode or 0))
                stream.flush()
                os.fsync(stream.fileno())
        return new

    @contextmanager
    def _made_folder(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield the open folder of a path and its name, and create missing folders."""
        names = path.split("/")[:-1]
        for depth in range(1, len(names) + 1):
            with folder_of(self._workspace, "/".join(names[:depth])) as (at, name), suppress(FileExistsError):
                os.mkdir(name, dir_fd=at)
        with folder_of(self._workspace, path) as found:
            yield found

    def _drop_aside(self, change: FileChange) -> None:
        for path in (self._aside(change, "new"), self._old(change)):
            path.unlink(missing_ok=True)

    def _old(self, change: FileChange) -> Path:
        return self._aside(change, "old")

    def _aside(self, change: FileChange, what: str) -> Path:
        key = hashlib.sha256(f"{self._turn}\0".encode() + os.fsencode(change.path)).hexdigest()
        return self._contents.aside / f"{key}.{what}"


def entry_of(workspace: Path, path: str, sha256: str | None) -> Entry | None:
    """Return the state of a restored path for the index of the next scan, which checks the content again."""
    try:
        with folder_of(workspace, path) as (at, name):
            seen = os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError:
        return None
    if stat.S_ISDIR(seen.st_mode):
        return Entry(0, seen.st_mode, 0, 0, "")
    return Entry(seen.st_size, seen.st_mode, -1, fitting(seen.st_ino), sha256)


def _is(mode: int | None, sha256: str | None, now: Now) -> bool:
    return mode == now.mode and (mode is None or (sha256 is not None and sha256 == now.sha256))


def _has(change: FileChange, now: Now) -> bool:
    """Return whether a path is already in the state to restore; a folder's mode is ignored, as it is set last."""
    return _is_folder(now.mode) if _is_folder(change.mode) else _is(change.mode, change.after, now)


def _is_folder(mode: int | None) -> bool:
    return mode is not None and stat.S_ISDIR(mode)


def _link(source: Path, at: int, name: str) -> None:
    """Give a file its name in an open folder. Raises FileExistsError if the name is taken."""
    try:
        os.link(source, name, dst_dir_fd=at, follow_symlinks=False)
    except (PermissionError, NotImplementedError):
        # A file system without hard links.
        try:
            os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(source, name, dst_dir_fd=at)
        else:
            raise FileExistsError(name) from None
