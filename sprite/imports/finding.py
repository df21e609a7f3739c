"""Find the files at paths that may be session logs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sprite.imports.tally import Tally

#: Third-party code, with its own data.
_PASSED_FOLDERS = frozenset({".git", "node_modules", ".venv", "venv", "site-packages", "__pycache__", "vendor"})


def files_at(path: Path, tally: Tally) -> list[Path]:
    """Return a file, or the `*.jsonl` below a folder. A folder without any, and unreadable ones, go to the tally."""
    if not path.is_dir():
        return [path]
    files = sorted(_below(path, tally))
    if not files:
        tally.refuse(path, "there is nothing in this folder that import knows")
    return files


def _below(folder: Path, tally: Tally) -> Iterator[Path]:
    visited: set[tuple[int, int]] = set()

    def unreadable(error: OSError) -> None:
        tally.refuse(Path(error.filename), error)

    for name, folders, files in os.walk(folder, followlinks=True, onerror=unreadable):
        here = os.stat(name)  # noqa: PTH116 - os.walk gives names
        if (here.st_dev, here.st_ino) in visited:
            # A link to a parent folder, which was visited.
            folders.clear()
            continue
        visited.add((here.st_dev, here.st_ino))
        folders[:] = [inner for inner in folders if inner not in _PASSED_FOLDERS]
        yield from (Path(name, file) for file in files if file.endswith(".jsonl"))
