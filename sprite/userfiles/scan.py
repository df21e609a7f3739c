"""A look at the person's folders: names, sizes and times, no contents. Bounded in entries, in time and in depth.

No symbolic link is followed or listed: the agent makes them as it likes, and what one leads to is listed where it is,
or is none of the person's folders. A folder that is a program's rather than a person's is one entry.
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

#: The newest entries that are kept; of the others there is only the count.
MOST_ENTRIES = 2_000
#: So many are counted; behind them stands "at least".
MOST_VISITED = 100_000
MOST_DEEP = 32
#: Filled by programs, with thousands of files that no person asks for by name; hidden folders are others of the kind.
_PROGRAMS = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Scan:
    """The newest entries, newest first, and how many more there are: at least so many where it is not `complete`."""

    entries: Sequence[Entry]
    more: int
    complete: bool


def scan(workspace: Path, folders: Sequence[str] = FILE_FOLDERS, *, seconds: float) -> Scan:
    """Looks at the folders; after so many seconds with what was seen until then. Blocks, so it belongs in a thread."""
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
    """Whether an entry still exists, whether or not a scan had room for it."""
    try:
        (workspace / path).lstat()
    except (OSError, ValueError):
        return False
    return True


def _walk(workspace: Path, folders: Sequence[str]) -> Iterator[Entry | None]:
    """Every entry; None for what is passed over, so that the caller can look at its clock."""
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
                        # It went in this moment, or nobody may ask for its size.
                        yield None
        except OSError:
            # The folder is gone, closed to us, or deeper than a path can name.
            yield None


def _is_a_programs(name: str) -> bool:
    return name.startswith(".") or name in _PROGRAMS


def _entry(path: str, found: os.stat_result, *, size: int | None = None) -> Entry:
    known = found.st_size if size is None else size
    return Entry(path, *(_kept(number) for number in (known, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)))


def _kept(number: int) -> int:
    """What a database can hold: some file systems have times of the year 2400, and inodes of 64 bits."""
    return max(-_LARGEST, min(number, _LARGEST))
