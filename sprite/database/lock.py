"""The single-owner lock of a workspace: one process writes its databases, a second one is refused.

Two locks, both held. The one on the folder of the databases cannot be lost: whoever deletes the lock file, or restores
a database beside its owner, still finds that folder held. The lock file names the owner, and refuses a Sprite from
before the folder was locked.

Both are flock(2), which belongs to the open file. The databases themselves are not locked: SQLite has POSIX locks on
them, and those are dropped when the process closes any other descriptor of the same file (https://sqlite.org/howtocorrupt.html,
2.2).
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

#: Behind the process id of an owner that gives the workspace back at once.
_BRIEFLY = "briefly"
#: Such an owner writes a batch of turns.
_BRIEF_SECONDS = 10.0
_POLL_SECONDS = 0.02


@contextmanager
def workspace_lock(path: Path, databases: Path, *, briefly: bool = False) -> Iterator[None]:
    """Holds the lock file and the folder of the databases; `briefly` tells others that it is worth waiting.

    WorkspaceLockedError with the owner's process id if another process does, OperatorError if they cannot be opened.
    The kernel drops both with the process, so a killed owner leaves nothing to clean up.
    """
    with contextlib.ExitStack() as stack:
        try:
            for folder in (path.parent, databases):
                # A workspace that was restored from a backup may have nothing but its memory.
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
    """Takes both locks; returns the owner where somebody else has them, and has them for longer than a moment."""
    until = time.monotonic() + _BRIEF_SECONDS
    # An owner says who it is a moment after it has the locks.
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
