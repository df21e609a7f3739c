"""What every reader of another program's files offers, and what it tells of what it could not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sprite.database.transcript import ImportedTurn
from sprite.memory.claude_code.log_files import Refusal

#: The most places that are listed one by one; the rest are counted.
MAX_NAMED = 50
#: A file can be made of things that have a name each; so many names are told.
MAX_KINDS = 100
OTHER_KINDS = "things of other names"


@dataclass(frozen=True, slots=True)
class Note:
    """What a person wrote down for an agent, to be proposed as a part of a memory file.

    `origin` says where it comes from, `project` whose it is (None: the person's own).
    """

    origin: str
    name: str
    project: str | None
    text: str


@dataclass(slots=True)
class Tally:
    """What readers saw beside the turns they returned: nothing that was passed over is silent."""

    refusals: list[Refusal] = field(default_factory=list)
    #: How many files were read.
    files: int = 0
    #: Turns that are still under way, and left for the next import.
    open: int = 0
    #: Sessions of this sprite's own agent, which its log already holds.
    own: set[str] = field(default_factory=set)
    damaged: int = 0
    named: list[tuple[Path, int, str]] = field(default_factory=list)
    #: What was passed over whole, by what it is in words.
    not_understood: Counter[str] = field(default_factory=Counter)

    def damage(self, path: Path, place: int, problem: str) -> None:
        """Counts a line, or an entry by its number, that was skipped."""
        self.damaged += 1
        if len(self.named) < MAX_NAMED:
            self.named.append((path, place, problem))

    def passed_over(self, what: str, number: int = 1) -> None:
        """Counts what is known to be there and is not taken."""
        if what not in self.not_understood and len(self.not_understood) >= MAX_KINDS:
            what = OTHER_KINDS
        self.not_understood[what] += number

    def refuse(self, path: Path, reason: str | OSError) -> None:
        """Notes that a file cannot be read, or not to its end."""
        if isinstance(reason, OSError):
            reason = f"cannot be read: {reason.strerror or reason}"
        self.refusals.append(Refusal(path, reason))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What readers are told of where they read: `project_of` names the project of a folder as a log has it.

    `own_sessions` are the ids under which Claude Code keeps this sprite's conversations, `own_folder` is where it does;
    `has_session` says whether a session is in the log. Times are Unix seconds.
    """

    now: float
    project_of: Callable[[Any], str | None]
    on_bytes: Callable[[int], object] = lambda _bytes: None
    own_sessions: frozenset[str] = frozenset()
    own_folder: Path | None = None
    has_session: Callable[[str], bool] = lambda _session: False


class Reader(Protocol):
    """Reads the files of one program. `kind` is what `--as` calls it, `name` what people do."""

    kind: str
    name: str

    def recognises(self, path: Path, opening: bytes) -> bool:
        """Returns whether this is a file of the program's, by its first bytes (all of them if there are no more)."""
        ...

    def read(self, paths: list[Path], around: Surroundings, tally: Tally) -> Iterator[ImportedTurn | Note]:
        """Yields what the files have: turns that have ended, in the order in which they were said, or notes."""
        ...
