"""The single-owner lock of a workspace: one process writes its databases, a second one is refused.

Two locks are held. The lock on the databases' folder cannot be lost: it holds even if the lock file is deleted or a
database is restored beside its owner. The lock file names the owner, and refuses a Sprite that does not yet lock
the folder.

Both are flock(2), which belongs to the open file. The databases themselves are not locked: SQLite has POSIX locks
on them, which are dropped when the process closes any other descriptor of the same file
(https://sqlite.org/howtocorrupt.html, 2.2).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sprite.errors import OperatorError, WorkspaceLockedError

#: Follows the process id of an owner that releases the workspace at once.
_BRIEFLY = "briefly"
#: Such an owner writes a batch of turns.
_BRIEF_SECONDS = 10.0
_POLL_SECONDS = 0.02


@contextmanager
def workspace_lock(path: Path, databases: Path, *, briefly: bool = False) -> Iterator[None]:
    """Hold the lock file and the databases' folder; `briefly` tells others to wait.

    Raises WorkspaceLockedError with the owner's process id if another process holds them, OperatorError if they
    cannot be opened. The kernel releases both with the process, so a killed owner leaves nothing to clean up.
    """
    with contextlib.ExitStack() as stack:
        try:
            for folder in (path.parent, databases):
                # A workspace that was restored from a backup may contain only its memory.
                folder.mkdir(parents=True, exist_ok=True)
            folder_lock = os.open(databases, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, folder_lock)
            file_lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, file_lock)
        except OSError as error:
            raise OperatorError(
                f"The workspace cannot be locked: {error.filename or path}: {error.strerror}. "
                "Move away what stands in the way, or change its owner."
            ) from error
        owner = _taken(folder_lock, file_lock)
        if owner is not None:
            raise WorkspaceLockedError(
                f"Another sprite (process {owner or 'unknown'}) already owns {path.parent.parent.parent}. "
                "Stop it first, or choose another --workspace."
            )
        os.ftruncate(file_lock, 0)
        os.write(file_lock, f"{os.getpid()}{' ' + _BRIEFLY if briefly else ''}\n".encode())
        yield


def _taken(folder_lock: int, file_lock: int) -> str | None:
    """Take both locks. If another process holds them for more than a moment, return its process id."""
    until = time.monotonic() + _BRIEF_SECONDS
    # An owner writes its process id a moment after it has the locks.
    is_new = True
    while True:
        try:
            for lock in (folder_lock, file_lock):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(folder_lock, fcntl.LOCK_UN)
            process, _, how = os.pread(file_lock, 64, 0).decode(errors="replace").strip().partition(" ")
            if (how != _BRIEFLY and not is_new) or time.monotonic() > until:
                return process
            is_new = False
            time.sleep(_POLL_SECONDS)
        else:
            return None
