"""Find importable files below paths: each file once, matched to a reader by its content."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from sprite.imports.claude_code import ClaudeCodeReader
from sprite.imports.claude_mem import ClaudeMemReader
from sprite.imports.notes import KIND as NOTES
from sprite.imports.notes import NotesReader
from sprite.imports.reader import Reader, Tally

#: In reading order: claude-mem's notes add little to a session's own log.
READERS: tuple[Reader, ...] = (ClaudeCodeReader(), ClaudeMemReader(), NotesReader())
#: Bytes read to recognise a file's format.
_OPENING_BYTES = 4 * 1024 * 1024
#: Suffixes examined below a folder, which can contain anything.
_SUFFIXES = frozenset({".jsonl", ".db", ".sqlite", ".md"})
#: Third-party code, with its own notes and data.
_PASSED_FOLDERS = frozenset({".git", "node_modules", ".venv", "venv", "site-packages", "__pycache__", "vendor"})
_NOT_KNOWN = (
    "is nothing that import knows: no session log of Claude Code, no claude-mem database, no AGENTS.md or the like"
)


class Finder:
    """Collect files for each reader. `left` are folders to skip: this sprite's own memory."""

    def __init__(self, tally: Tally, left: Sequence[Path] = ()) -> None:
        self._tally = tally
        self._left = [path.resolve() for path in left]
        self._known: set[tuple[int, int]] = set()
        self._found: dict[str, list[Path]] = {}

    def found(self) -> list[tuple[Reader, list[Path]]]:
        """Return the readers with files to read, and these files."""
        return [(reader, self._found[reader.kind]) for reader in READERS if reader.kind in self._found]

    def size(self) -> int:
        """Return the total size in bytes."""
        return sum(path.stat().st_size for paths in self._found.values() for path in paths if path.exists())

    def find(self, path: Path) -> None:
        """Add a file, or all recognised files below a folder."""
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            self._tally.refuse(path, error)
            return
        if not is_folder:
            self._take(path, None)
            return
        before = len(self._known)
        found = False
        for file in sorted(self._below(path)):
            found = self._take(file, path.resolve()) or found
        if not found and len(self._known) == before:
            self._tally.refuse(path, "there is nothing in this folder that import knows")

    def _below(self, folder: Path) -> Iterator[Path]:
        visited: set[tuple[int, int]] = set()

        def unreadable(error: OSError) -> None:
            self._tally.refuse(Path(error.filename), error)

        for name, folders, files in os.walk(folder, followlinks=True, onerror=unreadable):
            here = os.stat(name)  # noqa: PTH116 - os.walk gives names
            if (here.st_dev, here.st_ino) in visited or Path(name).resolve() in self._left:
                # A link to a parent folder, which was visited.
                folders.clear()
                continue
            visited.add((here.st_dev, here.st_ino))
            folders[:] = [inner for inner in folders if inner not in _PASSED_FOLDERS]
            yield from (Path(name, file) for file in files if Path(file).suffix in _SUFFIXES)

    def _take(self, path: Path, below: Path | None) -> bool:
        """Assign a file to its reader; return whether it was handled. `below` is the folder it was found in."""
        # Files that were not named and do not look like logs are skipped silently.
        is_expected = below is None or path.suffix == ".jsonl"
        try:
            about = path.stat()
            if (about.st_dev, about.st_ino) in self._known:
                return True
            if not stat.S_ISREG(about.st_mode):
                if is_expected:
                    self._tally.refuse(path, "is no file")
                return is_expected
            reader = self._reader(path)
        except OSError as error:
            if is_expected:
                self._tally.refuse(path, error)
            return is_expected
        if reader is None:
            if is_expected:
                self._tally.refuse(path, _NOT_KNOWN)
            return is_expected
        # A repository is untrusted: a link in it could propose a person's own files as its notes.
        if reader.kind == NOTES and below is not None and not path.resolve().is_relative_to(below):
            self._tally.refuse(path, "is a link out of the folder; name it by itself if it is meant")
            return True
        self._known.add((about.st_dev, about.st_ino))
        self._found.setdefault(reader.kind, []).append(path)
        return True

    def _reader(self, path: Path) -> Reader | None:
        with path.open("rb") as stream:
            opening = stream.read(_OPENING_BYTES)
        return next((reader for reader in READERS if reader.recognises(path, opening)), None)
