"""The folder of a file of the person's, reached through no link, also through none that is put there meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def folder_of(workspace: Path, path: str) -> Iterator[tuple[int, str]]:
    """The open folder (a descriptor, for the block) and the name in it of `path`, which is relative with slashes.

    Each folder on the way is opened by its own name alone, so that none can be a link; OSError for one that is.
    """
    *folders, name = path.split("/")
    with ExitStack() as stack:
        at = os.open(workspace, _FOLDER)
        stack.callback(os.close, at)
        for folder in folders:
            at = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            stack.callback(os.close, at)
        yield at, name
