"""The single-owner lock of a workspace: one process writes its databases, a second one is refused."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sprite.errors import WorkspaceLockedError


@contextmanager
def workspace_lock(path: Path) -> Iterator[None]:
    """Holds the lock file, or raises WorkspaceLockedError with the owner's process id.

    The kernel drops the lock with the process, so a killed owner leaves nothing to clean up.
    """
    # A workspace that was restored from a backup may have nothing but its memory.
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise WorkspaceLockedError(
                f"Another sprite (process {owner}) already owns {path.parent.parent.parent}. "
                "Stop it first, or choose another --workspace."
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)
