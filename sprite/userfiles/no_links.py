"""Open a user file's folder without following links, including one created meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def folder_of(workspace: Path, path: str) -> Iterator[tuple[int, str]]:
    """Yield the open folder (a descriptor, for the block) of `path` and the file's name; `path` is relative.

    Each folder on the way is opened by its name alone, so that none can be a link. Raises OSError for a link.
    """
    *folders, name = path.split("/")
    with ExitStack() as stack:
        at = os.open(workspace, _FOLDER)
        stack.callback(os.close, at)
        for folder in folders:
            at = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            stack.callback(os.close, at)
        yield at, name
