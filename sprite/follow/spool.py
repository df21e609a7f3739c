"""Turns for a remote bridge, stored on disk until the bridge acknowledges them: one file per call, oldest first.

Each file is the body of one call as sent. It is written atomically, and only its owner may read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sprite.common.files import PART, replace_file

#: Limit for the spool; later turns stay in the session logs and are read from there.
MOST_BYTES = 256 * 1024 * 1024
_SUFFIX = ".json"


class Spool:
    """A folder of bodies; a new one is queued behind all others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f".*{PART}"):
            # Left by a process killed while writing; its turns will be read again.
            left.unlink(missing_ok=True)
        self._sizes = {path: path.stat().st_size for path in sorted(folder.glob(f"*{_SUFFIX}"))}
        self._next = max((int(path.stem) for path in self._sizes if path.stem.isdecimal()), default=0) + 1

    def __len__(self) -> int:
        return len(self._sizes)

    def has_room(self, size: int) -> bool:
        """Return whether a body of this size fits; a single one always does."""
        return not self._sizes or sum(self._sizes.values()) + size <= MOST_BYTES

    def add(self, body: bytes) -> None:
        """Add a body; it is on disk when this returns. Raises OSError if the disk fails."""
        path = self._folder / f"{self._next:012d}{_SUFFIX}"
        replace_file(path, body)
        self._next += 1
        self._sizes[path] = len(body)

    def oldest(self) -> tuple[Path, bytes] | None:
        """Return the next body, or None."""
        for path in tuple(self._sizes):
            try:
                return path, path.read_bytes()
            except FileNotFoundError:
                # Another process or person deleted it.
                del self._sizes[path]
        return None

    def remove(self, path: Path) -> None:
        """Delete an acknowledged body."""
        path.unlink(missing_ok=True)
        self._sizes.pop(path, None)

    def __iter__(self) -> Iterator[Path]:
        return iter(tuple(self._sizes))
