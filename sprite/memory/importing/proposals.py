"""Convert notes from elsewhere into proposed changes of the memory files (pure).

Notes are added in whole lines, under a heading with their origin. Existing lines are left out, and lines without room
are counted. A note's own headings are made deeper, so that none ends the surrounding part.
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
#: Headings that end a part of a file.
_PARTS = ("# ", "## ")


@dataclass(slots=True)
class Proposed:
    """The result for all notes: new file contents, and the outcome of each note by its origin."""

    contents: dict[str, str] = field(default_factory=dict)
    #: New lines per note: (origin, file, lines).
    added: list[tuple[str, str, int]] = field(default_factory=list)
    #: Lines without room: (origin, file, lines, reason).
    left: list[tuple[str, str, int, str]] = field(default_factory=list)
    #: Number of notes without new lines.
    known: int = 0
    #: The digests of the notes that each file contains completely.
    digests: dict[str, list[str]] = field(default_factory=dict)


def digest(note: Note) -> str:
    """Return the id of a note, by which repeated proposals are recognised."""
    return hashlib.sha256("\0".join([note.origin, note.name, note.project or "", note.text]).encode()).hexdigest()


def propose(notes: Iterable[Note], files: Mapping[str, str]) -> Proposed:
    """Return the curated files with the notes added; `files` are the four current contents."""
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
    """Return the lines of a note that the file lacks, without repeated empty ones; none if only headings are new."""
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
    """Return how many lines fit into the file, and why the rest does not (None if all fit)."""

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
    """Return the file with the lines under a separate heading in their part."""
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
