"""The report of an import beside its turns, and its environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Damaged places listed one by one; the rest are counted.
MAX_NAMED = 50


@dataclass(frozen=True, slots=True)
class Refusal:
    """A path that cannot be imported, and the reason."""

    path: Path
    reason: str


@dataclass(slots=True)
class Tally:
    """All content that an import skipped, and the number of files it read."""

    refusals: list[Refusal] = field(default_factory=list)
    #: Files read.
    files: int = 0
    #: Unfinished turns, left for the next import.
    open: int = 0
    #: Sessions of this sprite's agent, which the log already has.
    own: set[str] = field(default_factory=set)
    damaged: int = 0
    named: list[tuple[Path, int, str]] = field(default_factory=list)

    def damage(self, path: Path, place: int, problem: str) -> None:
        """Count a skipped line, by its number."""
        self.damaged += 1
        if len(self.named) < MAX_NAMED:
            self.named.append((path, place, problem))

    def refuse(self, path: Path, reason: str | OSError) -> None:
        """Record a file that cannot be read to its end."""
        if isinstance(reason, OSError):
            reason = f"cannot be read: {reason.strerror or reason}"
        self.refusals.append(Refusal(path, reason))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment of an import: `project_of` maps a folder in a log to its project.

    `own_sessions` are Claude Code's ids for this sprite's conversations. `now` is in Unix seconds; `silence` are the
    seconds since a log grew, if it is watched.
    """

    now: float
    project_of: Callable[[Any], str | None]
    on_bytes: Callable[[int], object] = lambda _bytes: None
    own_sessions: frozenset[str] = frozenset()
    silence: float | None = None
