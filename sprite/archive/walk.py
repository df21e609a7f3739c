"""Walk the person's files of a workspace in an order that depends only on names. No symbolic link is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sprite.folders import USER_FOLDERS
from sprite.protocol.archive import MOST_DEEP, OURS, Folder, kept_mode, kept_time, why_not_kept

#: Created at each start.
_ALWAYS_THERE: Final = frozenset({"documents", *USER_FOLDERS})
#: Reasons for leaving out something that is no file.
NO_FILES: Final = frozenset({"a link", "no file"})
#: Limit for the names of left-out entries.
_MOST_NAMED = 20


@dataclass(slots=True)
class LeftOut:
    """Entries without a place in an archive: links, sockets, undecodable names, unreadable files."""

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, path: str, why: str) -> None:
        """Count one, and name it if there are few."""
        self.count += 1
        if len(self.named) < _MOST_NAMED:
            self.named.append(f"{path}: {why}")


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file: its path from the workspace, and its name in an open folder."""

    path: str
    folder: int
    name: str


def walk(workspace: Path, left_out: LeftOut) -> Iterator[Found | Folder]:
    """Yield every file and folder except the sprite's own; unusable ones are added to `left_out`."""

    def cannot(error: OSError) -> None:
        # Known by its name only, because it was looked up in an open folder.
        left_out.add(os.fsdecode(error.filename or ""), error.strerror or "cannot be read")

    for top, folders, names, descriptor in os.fwalk(workspace, onerror=cannot):
        below = os.path.relpath(top, workspace)
        prefix = "" if below == "." else f"{below}/"
        for name in sorted(folders):
            path = f"{prefix}{name}"
            why = None if path == OURS else _why_not(path, prefix, name, descriptor)
            if why is not None or path == OURS:
                folders.remove(name)
                if why is not None:
                    left_out.add(path, why)
        folders.sort()
        if prefix and below not in _ALWAYS_THERE:
            seen = os.fstat(descriptor)
            yield Folder(below, kept_mode(seen.st_mode), kept_time(seen.st_mtime_ns))
        for name in sorted(names):
            path = f"{prefix}{name}"
            why = _why_not(path, prefix, name, descriptor)
            if why is None:
                yield Found(path, descriptor, name)
            else:
                left_out.add(path, why)


def _why_not(path: str, prefix: str, name: str, folder: int) -> str | None:
    if (why := why_not_kept(path)) is not None:
        return why
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError as error:
        return error.strerror
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_ISDIR(mode):
        return "too deep" if prefix.count("/") >= MOST_DEEP else None
    return None if stat.S_ISREG(mode) else "no file"
