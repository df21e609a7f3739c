"""Scan the person's folders: names, sizes and times, no contents. Entries, time and depth are limited.

Symbolic links are neither followed nor listed: the agent creates them freely. Their targets are listed at their own
place, or are not in the person's folders. A folder that belongs to a program is one entry.
"""

from __future__ import annotations

import heapq
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sprite.log.file_table import Entry
from sprite.protocol.files import shown
from sprite.protocol.shapes import FILE_FOLDERS

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


#: From this many files of one folder on, they share one line.
MANY_OF_A_FOLDER = 9
_UNIT = 1024


@dataclass(frozen=True, slots=True)
class Changes:
    """Deleted, moved (from, to) and added entries; each newest first."""

    deleted: Sequence[Entry]
    moved: Sequence[tuple[Entry, Entry]]
    added: Sequence[Entry]

    def __bool__(self) -> bool:
        return bool(self.deleted or self.moved or self.added)


def changes_between(gone: Sequence[Entry], came: Sequence[Entry]) -> Changes:
    """Detect moves among deleted and added entries: by inode, or by a unique size and exact time."""
    by_inode = {(entry.inode, entry.size, entry.modified_ns): entry for entry in gone}
    by_looks: dict[tuple[int, int], list[Entry]] = {}
    for entry in gone:
        by_looks.setdefault((entry.size, entry.modified_ns), []).append(entry)
    moved: list[tuple[Entry, Entry]] = []
    used: set[str] = set()
    for entry in came:
        before = by_inode.get((entry.inode, entry.size, entry.modified_ns))
        if before is None and entry.size:
            alike = by_looks.get((entry.size, entry.modified_ns), [])
            before = alike[0] if len(alike) == 1 else None
        if before is not None and before.path not in used:
            used.add(before.path)
            moved.append((before, entry))
    arrived = {after.path for _, after in moved}
    return Changes(
        [entry for entry in gone if entry.path not in used],
        moved,
        [entry for entry in came if entry.path not in arrived],
    )


def lines(changes: Changes, named: str = "") -> list[str]:
    """Return the changes, one line each; those that invalidate a line of files.md (`named`) come first."""
    told = [
        *_deleted(changes.deleted, named),
        *_moved(changes.moved, named),
        *_added(changes.added),
    ]
    untrue = [line for line in told if line.endswith(_NAMED)]
    return untrue + [line for line in told if not line.endswith(_NAMED)]


def within(told: Sequence[str], chars: int) -> str:
    """Return as many lines as fit, and the number of the rest."""
    kept: list[str] = []
    left = chars - len("And 10,000 more changes.")
    for line in told:
        left -= len(line) + 1
        if left < 0:
            kept.append(f"And {len(told) - len(kept):,} more changes.")
            break
        kept.append(line)
    return "\n".join(kept)


def size_in_words(size: int) -> str:
    """Return a size as text: 12 bytes, 3 kB, 1.2 MB, in units of 1024."""
    if size < _UNIT:
        return f"{size} byte{'' if size == 1 else 's'}"
    value = float(size)
    for unit in ("kB", "MB", "GB"):
        value /= _UNIT
        if value < _UNIT or unit == "GB":
            break
    return f"{value:.1f} {unit}" if value < 10 and unit != "kB" else f"{value:.0f} {unit}"  # noqa: PLR2004 - one digit


_NAMED = " (files.md names it)"


def _is_named(entry: Entry, named: str) -> bool:
    """Return whether a text names this file, and not one whose longer name begins with it."""
    return entry.path in named and re.search(rf"{re.escape(entry.path)}(?![\w.-]*\w)", named) is not None


def _deleted(entries: Sequence[Entry], named: str) -> Iterable[str]:
    missed = [entry for entry in entries if _is_named(entry, named)]
    many, few = _crowds([entry for entry in entries if entry not in missed])
    yield from (f"deleted: {shown(entry.path)}{_NAMED}" for entry in missed)
    yield from (f"deleted: {shown(entry.path)}" for entry in few)
    yield from (f"deleted: {len(crowd)} files of {shown(folder)}/" for folder, crowd in many.items())


def _moved(pairs: Sequence[tuple[Entry, Entry]], named: str) -> Iterable[str]:
    crowds: dict[tuple[str, str], list[tuple[Entry, Entry]]] = {}
    for before, after in pairs:
        crowds.setdefault((_folder(before.path), _folder(after.path)), []).append((before, after))
    for (source, target), crowd in crowds.items():
        single = [pair for pair in crowd if len(crowd) < MANY_OF_A_FOLDER or _is_named(pair[0], named)]
        for before, after in single:
            mark = _NAMED if _is_named(before, named) else ""
            yield f"moved: {shown(before.path)} -> {shown(after.path)}{mark}"
        if len(crowd) > len(single):
            yield f"moved: {len(crowd) - len(single)} files of {shown(source)}/ -> {shown(target)}/"


def _added(entries: Sequence[Entry]) -> Iterable[str]:
    many, few = _crowds(entries)
    for entry in few:
        if entry.path.endswith("/"):
            yield f"added: {shown(entry.path)} (a folder of a program's)"
        else:
            yield f"added: {shown(entry.path)} ({size_in_words(entry.size)}, {_day(entry)})"
    for folder, crowd in many.items():
        newest = ", ".join(shown(entry.path.rpartition("/")[2]) for entry in crowd[:2])
        yield f"added: {len(crowd)} files in {shown(folder)}/, such as {newest}"


def _crowds(entries: Sequence[Entry]) -> tuple[dict[str, list[Entry]], list[Entry]]:
    """Return entries of folders with many of them, by folder, and the others."""
    by_folder: dict[str, list[Entry]] = {}
    for entry in entries:
        by_folder.setdefault(_folder(entry.path), []).append(entry)
    many = {folder: crowd for folder, crowd in by_folder.items() if len(crowd) >= MANY_OF_A_FOLDER}
    return many, [entry for entry in entries if _folder(entry.path) not in many]


def _folder(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0]


def _day(entry: Entry) -> str:
    try:
        return datetime.fromtimestamp(entry.modified_ns / 1e9, UTC).strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):
        return "no day that a calendar has"


def not_said_in(entries: Iterable[Entry], texts: Collection[str]) -> list[Entry]:
    """Return the entries whose names are in none of the texts."""
    return [entry for entry in entries if not any(entry.path.rstrip("/").rpartition("/")[2] in text for text in texts)]
