"""Delete one of the person's files: no folder, and not through a link."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sprite.userfiles.no_links import folder_of


def remove(workspace: Path, path: str) -> int:
    """Delete the file; return its size in bytes. Raises IsADirectoryError for a folder, another OSError if missing."""
    with folder_of(workspace, path) as (at, name):
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(path)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(path)
        os.unlink(name, dir_fd=at)
        return found.st_size
