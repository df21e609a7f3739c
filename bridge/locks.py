"""Lock files.

The kernel releases a lock with its process, so a killed owner leaves nothing to clean up. Two locks are taken: the
file, which names the owner, and its folder. The file can be deleted under the owner, the folder cannot.

`sprite/database/lock.py` repeats the first half, because it is deployed to VMs without the bridge. The bridge imports
only the protocol and the prices from the sprite.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


class LockHeldError(Exception):
    """Another process holds the lock; `owner` is its id, or "unknown"."""

    def __init__(self, owner: str) -> None:
        super().__init__(f"held by process {owner}")
        self.owner = owner


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock while the block runs. Raises LockHeldError if it is taken, OSError if it cannot be opened."""
    with ExitStack() as stack:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, folder)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, file)
        try:
            for lock in (folder, file):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(file, 32).decode(errors="replace").strip() or "unknown"
            raise LockHeldError(owner) from error
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        yield


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
