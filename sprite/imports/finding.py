"""Find session logs below paths: each file once, recognised by its content."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from sprite.imports.claude_code import is_session_log
from sprite.imports.tally import Tally

#: Suffix of session logs, and of the files examined below a folder.
_SUFFIX = ".jsonl"
#: Bytes read to recognise a session log.
_OPENING_BYTES = 4 * 1024 * 1024
#: Third-party code, with its own data.
_PASSED_FOLDERS = frozenset({".git", "node_modules", ".venv", "venv", "site-packages", "__pycache__", "vendor"})
_NOT_KNOWN = "is nothing that import knows: no session log of Claude Code, and no archive"


class Finder:
    """Collect the session logs at paths in `logs`; problems go to the tally."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._known: set[tuple[int, int]] = set()
        self.logs: list[Path] = []

    def size(self) -> int:
        """Return the total size in bytes."""
        return sum(path.stat().st_size for path in self.logs if path.exists())

    def find(self, path: Path) -> None:
        """Add a file, or all session logs below a folder."""
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            self._tally.refuse(path, error)
            return
        if not is_folder:
            self._take(path)
            return
        files = sorted(self._below(path))
        for file in files:
            self._take(file)
        if not files:
            self._tally.refuse(path, "there is nothing in this folder that import knows")

    def _below(self, folder: Path) -> Iterator[Path]:
        visited: set[tuple[int, int]] = set()

        def unreadable(error: OSError) -> None:
            self._tally.refuse(Path(error.filename), error)

        for name, folders, files in os.walk(folder, followlinks=True, onerror=unreadable):
            here = os.stat(name)  # noqa: PTH116 - os.walk gives names
            if (here.st_dev, here.st_ino) in visited:
                # A link to a parent folder, which was visited.
                folders.clear()
                continue
            visited.add((here.st_dev, here.st_ino))
            folders[:] = [inner for inner in folders if inner not in _PASSED_FOLDERS]
            yield from (Path(name, file) for file in files if file.endswith(_SUFFIX))

    def _take(self, path: Path) -> None:
        try:
            about = path.stat()
            if (about.st_dev, about.st_ino) in self._known:
                return
            if not stat.S_ISREG(about.st_mode):
                self._tally.refuse(path, "is no file")
                return
            with path.open("rb") as stream:
                opening = stream.read(_OPENING_BYTES)
        except OSError as error:
            self._tally.refuse(path, error)
            return
        if path.suffix != _SUFFIX or not is_session_log(opening):
            self._tally.refuse(path, _NOT_KNOWN)
            return
        self._known.add((about.st_dev, about.st_ino))
        self.logs.append(path)
