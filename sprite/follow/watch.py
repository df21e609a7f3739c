"""Find the session logs below the followed paths, with their current state.

Links below a path are not followed, and another user's files are skipped with a message.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sprite.follow.tail import problem_of
from sprite.memory.claude_code.log_files import SUBAGENTS

#: Claude Code's folders are two levels deep; a deeper one is an unrelated tree.
MOST_DEPTH = 8

OnRefusal = Callable[[Path, str], object]


@dataclass(frozen=True, slots=True)
class Found:
    """A log's current state on disk; `changed_ns` in ns of Unix time."""

    path: Path
    device: int
    inode: int
    size: int
    changed_ns: int


def found_at(path: Path) -> Found:
    """Return the state of one file. Raises OSError if it is missing."""
    return _found(path, path.stat(follow_symlinks=False))


def _found(path: Path, about: os.stat_result) -> Found:
    return Found(path, about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)


def scan(roots: list[Path], own: Path, refuse: OnRefusal) -> Iterator[Found]:
    """Yield every `*.jsonl` of this user below the roots.

    Skips logs of subagents, which their session finds, and those below `own`, because the sprite records its agent
    itself.
    """
    for root in roots:
        try:
            about = root.stat()
        except FileNotFoundError:
            # Keep waiting for it: Claude Code creates its folder at first use.
            continue
        except OSError as error:
            refuse(root, f"cannot be read: {error.strerror}")
            continue
        if stat.S_ISDIR(about.st_mode):
            yield from _below(root, own, refuse)
        elif (problem := problem_of(about)) is not None:
            refuse(root, problem)
        else:
            yield _found(root.resolve(), about)


def _below(root: Path, own: Path, refuse: OnRefusal) -> Iterator[Found]:
    waiting = [(root.resolve(), 0)]
    while waiting:
        folder, depth = waiting.pop()
        if folder == own:
            continue
        try:
            if folder.stat().st_uid != os.geteuid():
                refuse(folder, "belongs to somebody else")
                continue
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MOST_DEPTH and entry.name != SUBAGENTS:
                            waiting.append((folder / entry.name, depth + 1))
                    elif entry.name.endswith(".jsonl"):
                        yield from _taken(entry, refuse)
        except FileNotFoundError:
            continue
        except OSError as error:
            refuse(folder, f"cannot be read: {error.strerror}")


def _taken(entry: os.DirEntry[str], refuse: OnRefusal) -> Iterator[Found]:
    path = Path(entry.path)
    if entry.is_symlink():
        refuse(path, "is a link, and none is followed")
        return
    try:
        about = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    if (problem := problem_of(about)) is not None:
        refuse(path, problem)
    else:
        yield _found(path, about)
