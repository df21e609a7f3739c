"""A scan of the workspace: which paths have changed since the last one, by size, inode and change time. Blocks.

Folders are opened by name in their open parent and links are not followed. The contents of some paths are not kept:
folders of build tools and packages, and what `.gitignore` files name.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from sprite.common.sqlite import fitting
from sprite.errors import StorageError

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: The sprite's own folder, at the top of a workspace.
OURS: Final = ".os"
#: Limits of a workspace that can be tracked: paths, and folders in each other.
MOST_PATHS: Final = 100_000
MOST_DEEP: Final = 100


class Entry(NamedTuple):
    """The state of a path at a scan. `mode` includes the type.

    `sha256` is None if the content is not kept, "" for a folder. Of a folder only the mode matters. Of a folder
    that is not searched, `changed_ns` is its time of modification.
    """

    size: int
    mode: int
    changed_ns: int
    inode: int
    sha256: str | None


class Seen(NamedTuple):
    """A path that a scan found new or changed; `keeps`: its content is to be kept for an undo."""

    path: str
    entry: Entry
    keeps: bool


@dataclass(slots=True)
class Found:
    """The result of a scan: changed paths, paths that are gone, and folders whose search began or ended."""

    changed: list[Seen] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    #: Folders that are searched now and were not, or the reverse: the paths below have not changed for that.
    quiet: list[str] = field(default_factory=list)


class Scanner:
    """Scan one workspace for changed paths; remembers the rules of `.gitignore` files between scans."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._rules: dict[str, Rules] = {}

    def scan(self, index: Mapping[str, Entry]) -> Found:
        """Return what changed against `index`, the states of the last scan. Raises StorageError for too many paths."""
        walk = _Walk(index, self._rules)
        folder = os.open(self._workspace, _FOLDER & ~os.O_NOFOLLOW)
        try:
            walk.device = os.fstat(folder).st_dev
            walk.folder(folder, "", (), 0)
        finally:
            os.close(folder)
        if len(walk.same) + sum(seen.path in index for seen in walk.found.changed) != len(index):
            paths = {*walk.same, *(seen.path for seen in walk.found.changed)}
            unread = tuple(walk.unread)
            walk.found.gone = [path for path in index if path not in paths and not path.startswith(unread)]
        self._rules = walk.rules
        return walk.found


class _Walk:
    def __init__(self, index: Mapping[str, Entry], rules: Mapping[str, Rules]) -> None:
        self.index = index
        self.known_rules = rules
        self.rules: dict[str, Rules] = {}
        self.found = Found()
        self.same: list[str] = []
        #: Folders that cannot be read: nothing is known of the paths below.
        self.unread: list[str] = []
        self.device = 0
        self.count = 0

    def folder(self, descriptor: int, prefix: str, above: Rules, depth: int) -> None:
        get, same, changed = self.index.get, self.same, self.found.changed
        with os.scandir(descriptor) as listing:
            entries = list(listing)
        self.count += len(entries)
        if self.count > MOST_PATHS:
            raise StorageError(f"The workspace has more than {MOST_PATHS:,} files: file changes are not tracked.")
        names = {entry.name for entry in entries}
        rules, is_fresh = self._rules_of(descriptor, prefix, above, has_file=".gitignore" in names)
        folders: list[str] = []
        for entry in entries:
            path = prefix + entry.name
            try:
                seen = entry.stat(follow_symlinks=False)
            except OSError:
                # It was deleted at this moment.
                continue
            known = get(path)
            if (
                known is not None
                # Never a folder's, whose change time is not recorded.
                and known[2] == seen.st_ctime_ns
                and known[3] == seen.st_ino
                and known[0] == seen.st_size
                and (known[4] is not None or not is_fresh)
            ):
                same.append(path)
                continue
            mode = seen.st_mode
            kind = stat.S_IFMT(mode)
            if kind == stat.S_IFDIR:
                if path == OURS:
                    continue
                if (
                    depth >= MOST_DEEP
                    or seen.st_dev != self.device
                    or is_made(entry.name, names)
                    or (rules and is_ignored(rules, path, is_folder=True))
                ):
                    self._folder(path, Entry(0, mode, fitting(seen.st_mtime_ns), 0, None))
                else:
                    self._folder(path, Entry(0, mode, 0, 0, ""))
                    folders.append(entry.name)
            elif kind not in {stat.S_IFREG, stat.S_IFLNK}:
                # A pipe, socket or device has no content.
                continue
            else:
                new = Entry(seen.st_size, mode, fitting(seen.st_ctime_ns), fitting(seen.st_ino), None)
                changed.append(Seen(path, new, not is_ignored(rules, path, is_folder=False)))
        for name in folders:
            self._below(descriptor, name, f"{prefix}{name}/", rules, depth + 1)

    def _folder(self, path: str, entry: Entry) -> None:
        known = self.index.get(path)
        if known == entry:
            self.same.append(path)
        else:
            if known and stat.S_ISDIR(known.mode) and (known.sha256 is None) != (entry.sha256 is None):
                self.found.quiet.append(f"{path}/")
            self.found.changed.append(Seen(path, entry, keeps=False))

    def _below(self, parent: int, name: str, prefix: str, rules: Rules, depth: int) -> None:
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=parent)
        except PermissionError:
            self.unread.append(prefix)
            return
        except OSError:
            # It is gone, or no folder any more.
            return
        try:
            self.folder(descriptor, prefix, rules, depth)
        finally:
            os.close(descriptor)

    def _rules_of(self, descriptor: int, prefix: str, above: Rules, *, has_file: bool) -> tuple[Rules, bool]:
        """Return a folder's `.gitignore` rules with those above it, and whether they differ from the last scan's."""
        rules = above
        if has_file:
            # It may be gone, or a link.
            with suppress(OSError):
                file = os.open(".gitignore", _FILE, dir_fd=descriptor)
                with os.fdopen(file, "rb") as stream:
                    if stat.S_ISREG(os.fstat(file).st_mode):
                        rules = (*above, (prefix, read_patterns(stream.read(_MOST_RULE_BYTES))))
        if rules:
            self.rules[prefix] = rules
        return rules, rules != self.known_rules.get(prefix, ())


# --- paths whose contents are not kept ---
# A pattern is matched name by name in linear time: the agent writes these files, and must not stall the sprite.

#: Filled by programs, which can make them again.
_ALWAYS: Final = frozenset(
    "node_modules .venv venv __pycache__ site-packages .tox .nox .mypy_cache .ruff_cache .pytest_cache .gradle".split()
)
#: Build folders, if a project's file is beside them. Otherwise a person may have named a folder so.
_BUILDS: Final = frozenset({"build", "dist", "target", "out", ".next", ".cache"})
_PROJECT_FILES: Final = frozenset(
    "package.json pyproject.toml setup.py Cargo.toml CMakeLists.txt Makefile pom.xml build.gradle go.mod".split()
)
#: Limits for one `.gitignore`; the rest of a longer one is not read.
_MOST_RULE_BYTES: Final = 64 * 1024
_MOST_PATTERNS: Final = 500
#: Parsed files that are kept for the next scan.
_MOST_CACHED: Final = 256


class Pattern(NamedTuple):
    """One line of a `.gitignore`; None in `names` stands for any number of folders."""

    is_negated: bool
    only_folders: bool
    names: tuple[re.Pattern[str] | None, ...]


#: The files that apply to a folder, outermost first: each one's own folder (with a slash at its end) and patterns.
Rules = tuple[tuple[str, tuple[Pattern, ...]], ...]


def is_made(name: str, beside: Collection[str]) -> bool:
    """Return whether build tools or package managers fill a folder, by its name and the files `beside` it."""
    return name in _ALWAYS or (name in _BUILDS and not _PROJECT_FILES.isdisjoint(beside))


@functools.lru_cache(_MOST_CACHED)
def read_patterns(content: bytes) -> tuple[Pattern, ...]:
    """Return the patterns of a `.gitignore`, in order."""
    text = content.decode("utf-8", "surrogateescape")
    found = [pattern for line in text.splitlines() if (pattern := _pattern(line.rstrip())) is not None]
    return tuple(found[:_MOST_PATTERNS])


def _pattern(line: str) -> Pattern | None:
    is_negated = line.startswith("!")
    path = line.removeprefix("!").removeprefix("\\")
    if not path.strip("/") or line.startswith("#"):
        return None
    only_folders = path.endswith("/")
    path = path.rstrip("/")
    names = [None if name == "**" else re.compile(fnmatch.translate(name)) for name in path.strip("/").split("/")]
    return Pattern(is_negated, only_folders, (*names,) if "/" in path else (None, *names))


def is_ignored(rules: Rules, path: str, *, is_folder: bool) -> bool:
    """Return whether the rules of a path's folder exclude it. The last matching pattern of the innermost file wins."""
    for base, patterns in reversed(rules):
        names = path[len(base) :].split("/")
        for pattern in reversed(patterns):
            if (is_folder or not pattern.only_folders) and _matches(pattern.names, names):
                return not pattern.is_negated
    return False


def _matches(wanted: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    at = name = mark = 0
    star = -1
    while name < len(names):
        expected = wanted[at] if at < len(wanted) else None
        if expected is not None and expected.match(names[name]):
            at, name = at + 1, name + 1
        elif at < len(wanted) and expected is None:
            star, mark, at = at, name, at + 1
        elif star >= 0:
            # Only the last `**` has to take one folder more: an earlier one cannot do better.
            mark += 1
            at, name = star + 1, mark
        else:
            return False
    return all(each is None for each in wanted[at:])
