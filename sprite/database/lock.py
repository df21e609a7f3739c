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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sprite.errors import OperatorError, WorkspaceLockedError


@contextmanager
def workspace_lock(path: Path, databases: Path) -> Iterator[None]:
    """Holds the lock file and the folder of the databases.

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
        try:
            for lock in (folder_lock, file_lock):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(file_lock, 32).decode(errors="replace").strip() or "unknown"
            raise WorkspaceLockedError(
                f"Another sprite (process {owner}) already owns {path.parent.parent.parent}. "
                "Stop it first, or choose another --workspace."
            ) from error
        os.ftruncate(file_lock, 0)
        os.write(file_lock, f"{os.getpid()}\n".encode())
        yield
