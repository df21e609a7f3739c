"""Reader for notes to agents: AGENTS.md, CLAUDE.md, MEMORY.md and similar, and OpenClaw's workspace.

Any author may have written such a file, and it is full of instructions. It is treated as data: redacted, and proposed
as a part of a memory file, which the person accepts or rejects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sprite.imports.claude_code_entries import UnreadableError, read_line
from sprite.imports.reader import Note, Surroundings, Tally, plain_text
from sprite.memory.files import LARGEST_FILE_BYTES, over_limit, over_together
from sprite.memory.sections import heading as part_heading
from sprite.memory.sections import project_of
from sprite.memory.words import without_memory
from sprite.privacy.private_text import PrivateText

KIND = "notes"
#: Either of these files marks a folder as OpenClaw's workspace.
_OPENCLAW = ("SOUL.md", "IDENTITY.md")
_OF_PROJECTS = frozenset({"AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md"})
#: Folders of programs with the user's own settings, outside of projects.
_HOMES = frozenset({".claude", ".codex", ".gemini"})
_NOT_TAKEN = {
    "SOUL.md": "OpenClaw's SOUL.md: what the agent is like is said in this sprite's own soul.md",
    "IDENTITY.md": "OpenClaw's IDENTITY.md: this sprite has its own name",
    "HEARTBEAT.md": "OpenClaw's HEARTBEAT.md: what is to be done at times is an action, see `actions add`",
    "BOOTSTRAP.md": "OpenClaw's BOOTSTRAP.md: how its agent begins is of no use here",
    "BOOT.md": "OpenClaw's BOOT.md: how its agent begins is of no use here",
}
#: Limits for reading the logs beside a note, which name their sessions' folder.
_MOST_LOGS, _MOST_LINES, _MOST_BYTES = 20, 50, 1024 * 1024
_MOST_ORIGIN = 200


@dataclass(frozen=True, slots=True)
class _Place:
    """The target of a note: the memory file and the note's folder (None: the user's own)."""

    name: str
    folder: str | None = None


class NotesReader:
    """Read notes, each to be proposed as a part of one memory file."""

    kind = KIND

    def recognises(self, path: Path, opening: bytes) -> bool:
        """Return whether the file's name and location mark it as a note; its text does not matter."""
        return path.suffix == ".md" and b"\0\0\0" not in opening and (_place(path) is not None or _is_left(path))

    def read(self, paths: list[Path], around: Surroundings, tally: Tally) -> Iterator[Note]:
        """Yield the notes; skipped files are counted in the tally."""
        for path in paths:
            if _is_left(path):
                tally.passed_over(_NOT_TAKEN[path.name])
                continue
            try:
                with path.open("rb") as stream:
                    data = stream.read(LARGEST_FILE_BYTES + 1)
            except OSError as error:
                tally.refuse(path, error)
                continue
            tally.files += 1
            around.on_bytes(len(data))
            if len(data) > LARGEST_FILE_BYTES:
                tally.refuse(path, f"is longer than {LARGEST_FILE_BYTES // 1024} KiB, and a memory file far shorter")
                continue
            text = PrivateText().person(without_memory(plain_text(data))).strip()
            if not text:
                tally.passed_over("notes without a word in them")
                continue
            place = _place(path) or _Place("context.md", str(path.parent))
            origin = "".join(sign if sign.isprintable() else "?" for sign in str(path))[-_MOST_ORIGIN:]
            yield Note(origin, place.name, around.project_of(place.folder), text)


def _is_left(path: Path) -> bool:
    return path.name in _NOT_TAKEN and _is_openclaw(path.parent)


def _place(path: Path) -> _Place | None:
    """Return the target of a file by its name and location, or None."""
    folder = path.parent
    in_memory = folder.name == "memory"
    if in_memory and folder.parent.parent.name == "projects":
        return _Place("context.md", _folder_of_logs(folder.parent))
    if _is_openclaw(folder.parent if in_memory else folder):
        known = {"USER.md": "user.md", "TOOLS.md": "tools.md", "MEMORY.md": "context.md", "AGENTS.md": "context.md"}
        name = "context.md" if in_memory else known.get(path.name)
        return None if name is None else _Place(name)
    if path.name in _OF_PROJECTS:
        return _Place("user.md") if folder.name in _HOMES and not _is_of_project(folder) else _of(folder)
    if path.name == "USER.md":
        return _Place("user.md")
    return _of(folder) if path.name == "MEMORY.md" else None


def _of(folder: Path) -> _Place:
    return _Place("context.md", str(folder.absolute()))


def _is_openclaw(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _OPENCLAW)


def _is_of_project(folder: Path) -> bool:
    """Return whether a program's folder lies in a repository and so belongs to its project."""
    return any((parent / ".git").exists() for parent in folder.absolute().parents)


def _folder_of_logs(folder: Path) -> str | None:
    """Return the folder of the sessions whose logs are here. The logs' folder name is ambiguous."""
    for log in sorted(folder.glob("*.jsonl"))[:_MOST_LOGS]:
        try:
            if not log.is_file():
                continue
            with log.open("rb") as stream:
                start = stream.read(_MOST_BYTES)
        except OSError:
            continue
        for line in start.split(b"\n")[:_MOST_LINES]:
            try:
                entry = read_line(line)
            except UnreadableError:
                continue
            if entry is not None and isinstance(entry.cwd, str):
                return entry.cwd
    return None


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
