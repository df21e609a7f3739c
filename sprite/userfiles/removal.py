"""Deleting one file of the person's: through no link, and nothing but a file."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(workspace: Path, path: str) -> int:
    """Deletes the file; returns its size in bytes. IsADirectoryError for a folder, another OSError if there is none.

    Each folder on the way is opened by its own name alone, so that none can be a link, also one put there meanwhile.
    """
    *folders, name = path.split("/")
    with ExitStack() as stack:
        at = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, at)
        for folder in folders:
            at = os.open(folder, _FOLDER, dir_fd=at)
            stack.callback(os.close, at)
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(path)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(path)
        os.unlink(name, dir_fd=at)
        return found.st_size
