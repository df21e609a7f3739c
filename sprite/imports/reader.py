"""The interface of all import readers, and their report of skipped content."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sprite.log.transcript import ImportedTurn

#: Damaged places listed one by one; the rest are counted.
MAX_NAMED = 50
#: Limit of distinct names of skipped things: a hostile file could have many.
MAX_KINDS = 100
OTHER_KINDS = "things of other names"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A path that cannot be imported, and the reason."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A person's note for an agent, to propose as a part of a memory file.

    `origin` is its path; `project` is its project, None for the user's own.
    """

    origin: str
    name: str
    project: str | None
    text: str


@dataclass(slots=True)
class Tally:
    """The readers' report beside the turns: all skipped content is counted."""

    refusals: list[Refusal] = field(default_factory=list)
    #: Files read.
    files: int = 0
    #: Unfinished turns, left for the next import.
    open: int = 0
    #: Sessions of this sprite's agent, which the log already has.
    own: set[str] = field(default_factory=set)
    damaged: int = 0
    named: list[tuple[Path, int, str]] = field(default_factory=list)
    #: Skipped things, by description.
    not_understood: Counter[str] = field(default_factory=Counter)

    def damage(self, path: Path, place: int, problem: str) -> None:
        """Count a skipped line, or entry, by its number."""
        self.damaged += 1
        if len(self.named) < MAX_NAMED:
            self.named.append((path, place, problem))

    def passed_over(self, what: str, number: int = 1) -> None:
        """Count known content that is not imported."""
        if what not in self.not_understood and len(self.not_understood) >= MAX_KINDS:
            what = OTHER_KINDS
        self.not_understood[what] += number

    def refuse(self, path: Path, reason: str | OSError) -> None:
        """Record a file that cannot be read to its end."""
        if isinstance(reason, OSError):
            reason = f"cannot be read: {reason.strerror or reason}"
        self.refusals.append(Refusal(path, reason))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The readers' environment: `project_of` maps a folder in a log to its project.

    `own_sessions` are Claude Code's ids for this sprite's conversations, stored in `own_folder`. `has_session` returns
    whether a session is in the log. Times are Unix seconds.
    """

    now: float
    project_of: Callable[[Any], str | None]
    on_bytes: Callable[[int], object] = lambda _bytes: None
    own_sessions: frozenset[str] = frozenset()
    own_folder: Path | None = None
    has_session: Callable[[str], bool] = lambda _session: False


class Reader(Protocol):
    """Read the files of one program. `kind` is its name in the report."""

    kind: str

    def recognises(self, path: Path, opening: bytes) -> bool:
        """Return whether the file belongs to the program, by its first bytes (or all, if there are no more)."""

    def read(self, paths: list[Path], around: Surroundings, tally: Tally) -> Iterator[ImportedTurn | Note]:
        """Yield the ended turns in order, or the notes."""


_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def plain_text(data: bytes) -> str:
    """Return the text of a UTF-8 or UTF-16 file, with or without a BOM; damaged bytes are replaced."""
    if data.startswith(_UTF16):
        text = data.decode("utf-16", errors="replace")
    else:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
