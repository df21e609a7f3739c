"""Notes from elsewhere as changes of the memory files, for a person to accept (pure).

A note is added whole lines at a time, under a heading that says where it comes from: lines that stand there already
are left out, and what has no room is counted. Its own headings are made deeper, so that none ends the part it is in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sprite.memory.files import over_limit, over_together
from sprite.memory.importing.reader import Note
from sprite.memory.sections import heading as part_heading
from sprite.memory.sections import project_of

_HEADING = re.compile(r"(#{1,6})(?=[ \t]|$)")
_DEEPEST = 6
#: What ends a part of a file.
_PARTS = ("# ", "## ")


@dataclass(slots=True)
class Proposed:
    """What came of notes: the new contents of files, and what was done with each note, by its origin."""

    contents: dict[str, str] = field(default_factory=dict)
    #: How many lines of each note are new in a file: (origin, file, lines).
    added: list[tuple[str, str, int]] = field(default_factory=list)
    #: How many lines found no room: (origin, file, lines, why).
    left: list[tuple[str, str, int, str]] = field(default_factory=list)
    #: Those of which nothing is new.
    known: int = 0
    #: The digests of the notes that each file has whole now.
    digests: dict[str, list[str]] = field(default_factory=dict)


def digest(note: Note) -> str:
    """Returns by what a note is known that was proposed before, whatever the person said to it."""
    return hashlib.sha256("\0".join([note.origin, note.name, note.project or "", note.text]).encode()).hexdigest()


def propose(notes: Iterable[Note], files: Mapping[str, str]) -> Proposed:
    """Returns what the curated files would be with the notes in them; `files` are all four as they are."""
    proposed = Proposed()
    current = dict(files)
    for note in notes:
        content = current[note.name]
        new = _new_lines(note, content)
        words = sum(1 for line in new if line.strip())
        if not words:
            proposed.known += 1
            continue
        kept, why = _fitting(note, new, current)
        added = sum(1 for line in new[:kept] if line.strip())
        if added:
            current[note.name] = proposed.contents[note.name] = _with(content, note, new[:kept])
            proposed.added.append((note.origin, note.name, added))
        if why is None:
            proposed.digests.setdefault(note.name, []).append(digest(note))
        else:
            proposed.left.append((note.origin, note.name, words - added, why))
    return proposed


def _new_lines(note: Note, content: str) -> list[str]:
    """The lines of a note that do not stand in the file, without empty ones in a row; none if only headings are new."""
    there = {_same(line) for line in content.split("\n")}
    depth = 2 if note.project is None else 3
    lines: list[str] = []
    for line in note.text.split("\n"):
        deeper = (
            _HEADING.sub(lambda marks: "#" * min(_DEEPEST, len(marks[1]) + depth), line.rstrip(), count=1)
            if (_HEADING.match(line))
            else line.rstrip()
        )
        if (deeper.strip() and _same(deeper) not in there) or (not deeper.strip() and lines and lines[-1]):
            lines.append(deeper)
            if deeper.strip():
                there.add(_same(deeper))
    while lines and not lines[-1]:
        lines.pop()
    return lines if any(line.strip() and not _HEADING.match(line) for line in lines) else []


def _same(line: str) -> str:
    return " ".join(line.casefold().split())


def _fitting(note: Note, lines: list[str], files: Mapping[str, str]) -> tuple[int, str | None]:
    """How many of the lines have room in the file, and why there is none for the rest; None if there is for all."""

    def lacks(number: int) -> str | None:
        content = _with(files[note.name], note, lines[:number])
        return over_limit(note.name, content) or over_together(note.name, content, files)

    if (why := lacks(len(lines))) is None:
        return len(lines), None
    low, high = 0, len(lines)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if lacks(middle) is None else (low, middle)
    return low, why


def _with(content: str, note: Note, lines: list[str]) -> str:
    """The file with the lines in the part that they belong to, under a heading of their own."""
    rows = content.rstrip("\n").split("\n")
    if note.project is None:
        heading = f"## From {note.origin}"
        place = next((at for at, row in enumerate(rows) if project_of(row) is not None), len(rows))
        section = []
    else:
        heading = f"### From {note.origin}"
        start = next((at for at, row in enumerate(rows) if project_of(row) == note.project), None)
        section = [part_heading(note.project), ""] if start is None else []
        begin = len(rows) if start is None else start + 1
        place = next((at for at in range(begin, len(rows)) if rows[at].startswith(_PARTS)), len(rows))
    before, after = "\n".join(rows[:place]).rstrip("\n"), "\n".join(rows[place:])
    block = "\n".join([*section, heading, "", *lines])
    return "\n\n".join(part for part in (before, block, after) if part.strip()) + "\n"
