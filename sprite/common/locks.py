"""Lock files: one owner, and a second one is refused.

Two locks (flock(2), which ends with the process) are taken: the file, which names the owner, and a folder, which cannot
be deleted under the owner. SQLite's own locks end when the process closes any other descriptor of the same file.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

#: Follows the process id of an owner that releases the lock at once.
_BRIEFLY = "briefly"
#: Such an owner writes a batch of turns.
_BRIEF_SECONDS = 10.0
_POLL_SECONDS = 0.02


class LockHeldError(Exception):
    """Another process holds the lock; `owner` is its id, or "unknown"."""

    def __init__(self, owner: str) -> None:
        super().__init__(f"held by process {owner}")
        self.owner = owner


@contextmanager
def held(path: Path, folder: Path, *, briefly: bool = False) -> Iterator[None]:
    """Hold the locks of a file and of a folder while the block runs.

    With `briefly`, other processes wait for the release instead of failing. Raises LockHeldError if another process
    holds them, OSError if they cannot be opened.
    """
    with ExitStack() as stack:
        locks = []
        for each, flags in ((folder, os.O_RDONLY | os.O_DIRECTORY), (path, os.O_RDWR | os.O_CREAT)):
            locks.append(os.open(each, flags | os.O_CLOEXEC, 0o600))
            stack.callback(os.close, locks[-1])
        folder_lock, file_lock = locks
        _take(folder_lock, file_lock)
        os.ftruncate(file_lock, 0)
        os.write(file_lock, f"{os.getpid()}{' ' + _BRIEFLY if briefly else ''}\n".encode())
        yield


def _take(folder_lock: int, file_lock: int) -> None:
    """Lock the folder and the file; wait if their owner holds them only briefly. Raises LockHeldError otherwise."""
    until = time.monotonic() + _BRIEF_SECONDS
    # An owner writes its process id a moment after it has the locks.
    is_new = True
    while True:
        try:
            for lock in (folder_lock, file_lock):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            fcntl.flock(folder_lock, fcntl.LOCK_UN)
            owner, _, how = os.pread(file_lock, 64, 0).decode(errors="replace").strip().partition(" ")
            if (how != _BRIEFLY and not is_new) or time.monotonic() > until:
                raise LockHeldError(owner or "unknown") from error
            is_new = False
            time.sleep(_POLL_SECONDS)
        else:
            return


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock right now. A lock that cannot be opened counts as free."""
    return _is_held(path.parent) or _is_held(path)


def _is_held(path: Path) -> bool:
    try:
        # Non-blocking, because an agent may have put a named pipe there, and opening one waits for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
