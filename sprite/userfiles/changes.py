"""Changes between two scans of the person's folders, as lines (pure). Names are untrusted and escaped."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sprite.database.user_files import Entry
from sprite.protocol.paths import shown

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
