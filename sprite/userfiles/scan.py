"""Scan the person's folders: names, sizes and times, no contents. Entries, time and depth are limited.

Symbolic links are neither followed nor listed: the agent creates them freely. Their targets are listed at their own
place, or are not in the person's folders. A folder that belongs to a program is one entry.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sprite.database.user_files import Entry
from sprite.protocol.paths import FILE_FOLDERS

#: Newest entries to keep; the others are only counted.
MOST_ENTRIES = 2_000
#: Limit for counting; a result at the limit is reported as "at least".
MOST_VISITED = 100_000
MOST_DEEP = 32
#: Filled by programs with thousands of files that no person asks for by name, like hidden folders.
_PROGRAMS = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Scan:
    """The newest entries, newest first, and the number of others: a lower bound unless `complete`."""

    entries: Sequence[Entry]
    more: int
    complete: bool


def scan(workspace: Path, folders: Sequence[str] = FILE_FOLDERS, *, seconds: float) -> Scan:
    """Scan the folders; after `seconds`, return what was seen so far. Blocks, so run it in a thread."""
    newest: list[tuple[int, str, Entry]] = []
    count = 0
    complete = True
    until = time.monotonic() + seconds
    for entry in _walk(workspace, folders):
        if entry is not None:
            count += 1
            item = (entry.modified_ns, entry.path, entry)
            if len(newest) < MOST_ENTRIES:
                heapq.heappush(newest, item)
            else:
                heapq.heappushpop(newest, item)
        if count >= MOST_VISITED or time.monotonic() > until:
            complete = False
            break
    newest.sort(reverse=True)
    return Scan([entry for _, _, entry in newest], count - len(newest), complete)


def is_there(workspace: Path, path: str) -> bool:
    """Return whether an entry still exists, even if a scan had no room for it."""
    try:
        (workspace / path).lstat()
    except (OSError, ValueError):
        return False
    return True


def _walk(workspace: Path, folders: Sequence[str]) -> Iterator[Entry | None]:
    """Yield every entry; None for skipped ones, so that the caller can check its clock."""
    waiting = [(folder, 1) for folder in reversed(folders) if not (workspace / folder).is_symlink()]
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(workspace / folder) as found:
                for item in found:
                    path = f"{folder}/{item.name}"
                    try:
                        if item.is_dir(follow_symlinks=False):
                            if depth < MOST_DEEP and not _is_a_programs(item.name):
                                waiting.append((path, depth + 1))
                                yield None
                            else:
                                yield _entry(f"{path}/", item.stat(follow_symlinks=False), size=0)
                        elif item.is_file(follow_symlinks=False):
                            yield _entry(path, item.stat(follow_symlinks=False))
                        else:
                            yield None
                    except OSError:
                        # It was deleted at this moment, or its size is not readable.
                        yield None
        except OSError:
            # The folder is gone, not readable, or deeper than a path can name.
            yield None


def _is_a_programs(name: str) -> bool:
    return name.startswith(".") or name in _PROGRAMS


def _entry(path: str, found: os.stat_result, *, size: int | None = None) -> Entry:
    known = found.st_size if size is None else size
    return Entry(path, *(_kept(number) for number in (known, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)))


def _kept(number: int) -> int:
    """Return a number limited to a database integer: some file systems have times beyond it, and 64-bit inodes."""
    return max(-_LARGEST, min(number, _LARGEST))
