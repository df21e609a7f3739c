"""Paths whose contents are not kept: folders of build tools and packages, and what `.gitignore` files name (pure).

A pattern is matched name by name in linear time: the agent writes these files and must not be able to stall the sprite.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

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
MOST_BYTES: Final = 64 * 1024
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
    """Return whether a folder is a program's, by its name and the names beside it."""
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
