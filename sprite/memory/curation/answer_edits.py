"""File edits in the curator's answer: one change per line below a `*_MD_EDIT:` header, by line number.

    CONTEXT_MD_EDIT:
    DELETE 5 | done: Ana sent the invoices on 2026-11-20
    REPLACE 8 | - Amounts in reports are shown in SEK, not EUR.
    ADD Reminders | - 2026-11-21: call the kiln supplier.
    ADD Projects > shop | - Tests: make test

A person's edit or a replayed forget invalidates the numbers. So the logged answer contains the lines that each edit
refers to, marked `< ` (`with_lines_meant`), and edits are applied by these lines. The parser is lenient and never
raises; lines that are no edit are reported.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sprite.memory.curation.answer_files import CURATED_NAMES, Header, is_placeholder, read_header

#: One edit names no more lines than a file may have.
MAX_LINES = 200
MEANT = "< "

_NUMBERS = r"L?[0-9]{1,4}(?:[ \t]{0,4}(?:,|;|-|\u2013|to|and)[ \t]{0,4}L?[0-9]{1,4}){0,200}"
_CHANGE = re.compile(
    r"[ \t]{0,16}(?:[-*+][ \t])?(?:\*\*|`)?(?P<verb>DELETE|REMOVE|REPLACE)(?:\*\*|`)?(?:[ \t]{1,4}lines?)?"
    rf"[ \t]{{1,4}}(?P<lines>{_NUMBERS})[ \t]{{0,4}}(?:[|:]|\Z)[ \t]?(?P<rest>.*)",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
_ADD = re.compile(
    r"[ \t]{0,16}(?:[-*+][ \t])?(?:\*\*|`)?ADD(?:\*\*|`)?[ \t]{1,4}(?P<heading>[^|]{1,200}?)[ \t]{0,4}(?:\||\Z)"
    r"[ \t]?(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_NUMBER = re.compile(r"[0-9]+")
_SHOWN_NUMBER = re.compile(r"[0-9]{1,4}\| ?", re.ASCII)
_RANGE = re.compile(r"([0-9]+)[ \tL]{0,8}(?:-|\u2013|to)[ \tL]{0,8}([0-9]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a file: `lines` by number from 1, and `meant`, their text when the model was asked.

    `path` is the heading to add under, and optionally a subheading; `content` the new lines. The reason for a deletion
    stays in the answer, for people.
    """

    verb: Literal["delete", "replace", "add"]
    lines: tuple[int, ...] = ()
    meant: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    edit: Edit
    content: list[str] = field(default_factory=list)
    meant: list[str] = field(default_factory=list)

    def done(self) -> Edit:
        lines = tuple(_as_listed(line) for line in self.content) if self.edit.verb == "add" else tuple(self.content)
        return replace(self.edit, content=lines, meant=tuple(self.meant))


def read_edits(body: Sequence[str], unparsed: list[str]) -> tuple[Edit, ...]:
    """Parse the edits below one header; append other lines to `unparsed`."""
    drafts: list[_Draft] = []
    for line in body:
        if not line.strip() or is_placeholder(line):
            continue
        if (edit := _read(line)) is not None:
            drafts.append(_Draft(edit, list(edit.content)))
        elif drafts and line.startswith(MEANT.rstrip()) and drafts[-1].edit.verb != "add":
            drafts[-1].meant.append(line.removeprefix("<").removeprefix(" "))
        elif drafts and drafts[-1].edit.verb != "delete" and line.lstrip().startswith(("- ", "* ")):
            drafts[-1].content.append(line)
        else:
            unparsed.append(line)
    edits = [draft.done() for draft in drafts]
    return tuple(edit for edit in edits if edit.verb == "delete" or edit.content)


def _read(line: str) -> Edit | None:
    if (found := _CHANGE.match(line)) and (numbers := _numbers(found["lines"])):
        rest = found["rest"].strip()
        if found["verb"].upper() == "REPLACE":
            return Edit("replace", numbers, content=(rest,) if rest else ())
        return Edit("delete", numbers)
    if found := _ADD.match(line):
        path = tuple(name for part in found["heading"].split(">") if (name := heading_name(part)))
        rest = found["rest"].strip()
        return Edit("add", path=path[:2], content=(rest,) if rest else ()) if path else None
    return None


def _numbers(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for start, end in _RANGE.findall(text):
        numbers += range(int(start), min(int(end), int(start) + MAX_LINES) + 1)
    numbers += map(int, _NUMBER.findall(_RANGE.sub(" ", text)))
    return tuple(number for number in dict.fromkeys(numbers) if number > 0)[:MAX_LINES]


def _as_listed(line: str) -> str:
    """Return a new line with a list mark, if it has no mark yet."""
    return line if line.lstrip().startswith(("- ", "* ", "#", "<!--")) else f"- {line.strip()}"


def heading_name(line: str) -> str:
    """Return the text of a heading without its marks."""
    return line.strip().strip("#`*\"'").strip()


# --- lines behind the numbers ---


def with_lines_meant(answer: str, files: Mapping[str, str]) -> str:
    """Return the answer with the referenced lines below each edit, so that it holds without the numbers.

    `files` are those in the prompt. Line numbers that a model copied into a complete file are removed.
    """
    out: list[str] = []
    header, body = None, list[str]()
    for line in answer.split("\n"):
        if (found := read_header(line.rstrip("\r"))) is None:
            body.append(line)
            continue
        out += [*_meant(header, body, files), line]
        header, body = found, []
    return "\n".join([*out, *_meant(header, body, files)])


def _meant(header: Header | None, body: Sequence[str], files: Mapping[str, str]) -> Iterator[str]:
    name = CURATED_NAMES.get(header.word, "") if header is not None else ""
    if header is None or name not in files:
        yield from body
        return
    if header.kind == "UPDATE":
        filled = [line for line in body if line.strip()]
        numbered = sum(_SHOWN_NUMBER.match(line) is not None for line in filled) * 2 > len(filled)
        yield from (_SHOWN_NUMBER.sub("", line) if numbered else line for line in body)
        return
    shown = files[name].split("\n")
    for line in body:
        # The model must not supply these lines.
        if not line.startswith(MEANT.rstrip()):
            yield line
            edit = _read(line.rstrip("\r"))
            lines = edit.lines if edit is not None else ()
            yield from (f"{MEANT}{shown[number - 1]}" for number in lines if number <= len(shown))


@dataclass(frozen=True, slots=True)
class Edited:
    """An edited file: the deleted lines, the replaced lines, and the edits that matched no line."""

    content: str
    deleted: frozenset[str]
    #: Old lines with their replacements.
    replaced: tuple[tuple[str, tuple[str, ...]], ...]
    missed: tuple[str, ...]

    def explained(self, not_taken: Collection[str]) -> frozenset[str]:
        """Return the removed lines with an accepted reason: not those whose replacement was refused."""
        lost = frozenset(map(str.strip, not_taken))
        return self.deleted | {old for old, new in self.replaced if not lost.issuperset(map(str.strip, new))}


def apply_edits(old: str, edits: Sequence[Edit]) -> Edited:
    """Apply edits to a file. Title and main headings stay; a subheading goes with its last line."""
    file = _File(old)
    missed = [words for edit in edits if edit.verb != "add" for words in file.change(edit)]
    lines = file.lines()
    # Additions come last: a line added below another must not be deleted with it.
    for edit in edits:
        if edit.verb == "add":
            _add(lines, edit)
    content = "\n".join(lines).rstrip("\n") + "\n"
    return Edited(content, frozenset(file.deleted), tuple(file.replaced), tuple(missed))


def _add(lines: list[str], edit: Edit) -> None:
    """Add lines at the end of their section; create a missing heading."""
    top, *below = edit.path
    start = _heading(lines, top, range(len(lines)), depth=2)
    if start is None and not below:
        start = _heading(lines, top, range(len(lines)), depth=3)
    if start is None:
        lines += ["", f"## {top}"]
        start = len(lines) - 1
    end = _end_of_section(lines, start)
    if below:
        inner = _heading(lines, below[0], range(start + 1, end), depth=3)
        if inner is None:
            inner = _last_filled(lines, start, end) + 1
            lines.insert(inner, f"### {below[0]}")
            end += 1
        start, end = inner, min(_end_of_section(lines, inner), end)
    else:
        end = next((at for at in range(start + 1, end) if _depth(lines[at])), end)
    at = _last_filled(lines, start, end) + 1
    lines[at:at] = edit.content


def _heading(lines: Sequence[str], name: str, places: Iterable[int], *, depth: int) -> int | None:
    wanted = name.casefold()
    alike = (at for at in places if _depth(lines[at]) == depth and heading_name(lines[at]).casefold() == wanted)
    return next(alike, None)


def _end_of_section(lines: Sequence[str], start: int) -> int:
    depth = _depth(lines[start])
    return next((at for at in range(start + 1, len(lines)) if 0 < _depth(lines[at]) <= depth), len(lines))


def _last_filled(lines: Sequence[str], start: int, end: int) -> int:
    return next(at for at in range(end - 1, start - 1, -1) if lines[at].strip())


class _File:
    """A file during deletions and replacements: line positions stay valid until the end."""

    def __init__(self, text: str) -> None:
        self._lines = text.rstrip("\n").split("\n")
        #: Current lines at each old position: the same, others, or none.
        self._now: list[list[str]] = [[line] for line in self._lines]
        self._taken: set[int] = set()
        self.deleted: list[str] = []
        self.replaced: list[tuple[str, tuple[str, ...]]] = []

    def lines(self) -> list[str]:
        lines = [line for now in self._now for line in now]
        return _without_empty(lines, frozenset(map(str.strip, self._emptied())))

    def change(self, edit: Edit) -> Iterator[str]:
        if not edit.meant:
            yield f"{edit.verb} {', '.join(map(str, edit.lines))}: there is no such line"
        places = []
        for number, meant in self._named(edit):
            if not meant.strip():
                continue
            place = self._place(number, meant)
            if place is None:
                yield f"{edit.verb} {number}: the line is not there any more"
            elif place < 1 or self._lines[place].lstrip().startswith(("# ", "## ")) or _is_motto(place, self._lines):
                yield f"{edit.verb} {number}: titles and main headings stay"
            else:
                places.append(place)
        for place in places:
            self._taken.add(place)
            self._now[place] = []
            line = self._lines[place].strip()
            if edit.verb == "replace":
                self.replaced.append((line, edit.content))
            else:
                self.deleted.append(line)
        if edit.verb == "replace":
            self._replace(places, edit)

    def _replace(self, places: Sequence[int], edit: Edit) -> None:
        if places:
            first = min(places)
            listed = self._lines[first].lstrip().startswith("- ")
            self._now[first] = [_as_listed(line) if listed else line for line in edit.content]
        else:
            # The replaced line is gone, but the new line is as true without it.
            near = min(max(edit.lines[0] - 1, 1), len(self._lines) - 1)
            self._now[near] += map(_as_listed, edit.content)

    @staticmethod
    def _named(edit: Edit) -> Iterator[tuple[int, str]]:
        if len(edit.meant) == len(edit.lines):
            yield from zip(edit.lines, edit.meant, strict=True)
        else:
            # A forget has removed some of the lines.
            yield from ((edit.lines[0] + at, meant) for at, meant in enumerate(edit.meant))

    def _place(self, number: int, meant: str) -> int | None:
        wanted = meant.strip()
        like = [at for at, line in enumerate(self._lines) if line.strip() == wanted and at not in self._taken]
        return min(like, key=lambda at: abs(at - (number - 1)), default=None)

    def _emptied(self) -> Iterator[str]:
        """Yield the subheadings under which lines were removed."""
        heading: str | None = None
        for at, line in enumerate(self._lines):
            if depth := _depth(line):
                heading = line if depth > 2 else None  # noqa: PLR2004 - title and main headings
            elif heading is not None and at in self._taken:
                yield heading


def _without_empty(lines: Sequence[str], emptied: frozenset[str]) -> list[str]:
    kept: list[str] = []
    for at, line in enumerate(lines):
        if line.strip() in emptied:
            rest = next((other for other in lines[at + 1 :] if other.strip()), "#")
            if rest.lstrip().startswith("#"):
                continue
        kept.append(line)
    return kept


def _depth(line: str) -> int:
    """Return the depth of a heading, 0 for any other line."""
    marks = len(line) - len(line.lstrip("#"))
    return marks if marks and line[marks : marks + 1] == " " else 0


def _is_motto(place: int, lines: Sequence[str]) -> bool:
    """Return whether this is the line in italics under the title that describes the file."""
    return place == 1 and lines[1].strip().startswith("*") and lines[1].strip().endswith("*")
