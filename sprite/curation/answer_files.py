"""The files in the curator's answer: whole contents, and changes line by line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from sprite.memory.files import CURATED
from sprite.memory.sections import PIN, UNPIN
from sprite.memory.words import content_words, share

# Four files, perhaps repeated. The bound keeps the work linear in the answer's length.
MAX_UPDATES = 16

Lines = Sequence[str]

# A fence of any other language is part of the file.
WRAPPERS = frozenset({"", "md", "markdown", "text", "txt"})

#: File names by the word in their headers.
CURATED_NAMES = {name.removesuffix(".md").upper(): name for name in CURATED}
_HEADER = re.compile(
    r"(?:#{1,6}[ \t]{1,4})?(?:\*\*|__|`)?([A-Z]{1,20})_MD_(UPDATE|EDIT)S?(?:\*\*|__|`)?[ \t]{0,4}:(?:\*\*|__|`)?",
    re.IGNORECASE | re.ASCII,
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
#: Text that only states that there is no content.
PLACEHOLDER = re.compile(
    r"\W{0,8}(?:none|no (?:changes?|updates?)(?: (?:needed|required))?|unchanged)\W{0,8}", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Header:
    """A `*_MD_UPDATE:` or `*_MD_EDIT:` line: word and kind in upper case, and the text after the colon."""

    word: str
    kind: str
    rest: str

    def __str__(self) -> str:
        return f"{self.word}_MD_{self.kind}: {self.rest}".rstrip()


@dataclass(frozen=True, slots=True)
class Fence:
    """A code fence line; one without an info string can close a block."""

    mark: str
    length: int
    info: str

    def closes(self, opening: Fence) -> bool:
        """Return whether this line can end the block that `opening` began."""
        return not self.info and self.mark == opening.mark and self.length >= opening.length


def read_header(line: str) -> Header | None:
    """Parse a header line, which must begin in the first column, or return None."""
    found = _HEADER.match(line)
    return Header(found[1].upper(), found[2].upper(), line[found.end() :].strip()) if found else None


def read_fence(line: str) -> Fence | None:
    """Parse a code fence line, or return None."""
    found = _FENCE.match(line)
    if found is None:
        return None
    return Fence(found[1][0], len(found[1]), line[found.end() :].strip())


def read_bodies(lines: Lines, unparsed: list[str]) -> tuple[dict[str, str], dict[str, tuple[Edit, ...]], list[str]]:
    """Return (complete contents by file, edits by file, lines below an edit header that are no edit).

    `lines` begins with a header. Contents end in one newline. The last update of a file wins, also over its edits.
    Edits of the same file are joined. Refused, replaced or leftover lines are appended to `unparsed`.
    """
    files: dict[str, str] = {}
    changes: dict[str, list[str]] = {}
    places = _headers(lines)
    ends = [*(at for at, _ in places), len(lines)][1:]
    for (at, header), end in islice(zip(places, ends, strict=True), MAX_UPDATES):
        body, left_over = _body(header, lines[at + 1 : end])
        unparsed.extend(line for line in left_over if line.strip())
        content = "\n".join(body).strip("\n")
        name = CURATED_NAMES.get(header.word)
        if name is None:
            unparsed.append(f"{header} names no file of the curator")
        elif not content.strip() or PLACEHOLDER.fullmatch(content.strip()):
            unparsed.append(f"{header} came without content")
        elif header.kind == "EDIT":
            changes.setdefault(name, []).extend(body)
        else:
            if name in files:
                unparsed.append(f"{header} replaced an earlier update of the same file")
            files[name] = content + "\n"
    if len(places) > MAX_UPDATES:
        unparsed.append(f"({len(lines) - places[MAX_UPDATES][0]} lines behind update {MAX_UPDATES} were not read)")
    for name in files.keys() & changes.keys():
        unparsed.append(f"the edits of {name} came beside a complete update")
        del changes[name]
    left: list[str] = []
    edits = {name: found for name, body in changes.items() if (found := read_edits(body, left))}
    return files, edits, left


def _headers(lines: Lines) -> list[tuple[int, Header]]:
    """Return the headers with their line numbers, without those inside a closed code block, which are content."""
    found: list[tuple[int, Header]] = []
    inside: list[tuple[int, Header]] = []
    blocks: list[Fence] = []
    for at, line in enumerate(lines):
        header = read_header(line)
        fence = read_fence(line if header is None else header.rest)
        if header is not None:
            (inside if blocks else found).append((at, header))
        if fence is not None and blocks and fence.closes(blocks[-1]):
            blocks.pop()
            if not blocks:
                inside.clear()
        elif fence is not None:
            blocks.append(fence)
    return found + inside


def _body(header: Header, below: Lines) -> tuple[Lines, Lines]:
    """Return the content under a header without the fence around it, and the text behind that fence."""
    if header.rest and (header.kind == "EDIT" or header.rest.startswith(("#", "<!--"))):
        return [header.rest, *below], ()
    fence = read_fence(header.rest)
    if header.rest and fence is None:
        # `USER_MD_UPDATE: no change, since ...` is talk: neither it nor the text below may become the file.
        return (), below
    filled = [at for at, line in enumerate(below) if line.strip()]
    start = 0
    if fence is None and filled:
        fence, start = read_fence(below[filled[0]]), filled[0] + 1
    if fence is None or fence.info.lower() not in WRAPPERS:
        return below, ()
    ends = [at for at in filled if at >= start and (end := read_fence(below[at])) is not None and end.closes(fence)]
    is_wrapper = fence.info or "".join(below[start : start + 1]).startswith("# ") or (ends and ends[-1] == filled[-1])
    if not is_wrapper:
        return below, ()  # a file that begins with a code block
    return (below[start : ends[-1]], below[ends[-1] + 1 :]) if ends else (below[start:], ())


_CITED = re.compile(
    r"\[(?:[ \t]{0,4}(?:turn[ \t]?|t)?(?P<turn>[0-9]{1,15})[^\]]{0,80}|L(?P<learning>[0-9]{1,15}))\][ \t:]{0,4}",
    re.IGNORECASE,
)
#: The quote begins at the last `| "`: commands and tables have bars in them.
_QUOTE = re.compile(r"\|[ \t]{0,4}[\"“](?P<quote>(?:[^|]|\|(?![ \t]{0,4}[\"“]))*)[\"”][ \t.*`]*\Z")
#: A line by its number, its first words, or both: `9 "- Corrects on"`.
_NUMBER = r"(?:lines?[ \t]{1,4})?L?(?P<number>[0-9]{1,4})?[ \t]{0,4}"
_NAMED = rf"{_NUMBER}(?:[\"“](?P<words>(?:[^\"”|]|[\"”](?![ \t]*[|:]))*)[\"”])?"
_CHANGE = re.compile(
    r"[ \t]{0,16}(?:[-*+][ \t])?(?:\*\*|`)?(?P<verb>DELETE|REMOVE|REPLACE)(?:\*\*|`)?[ \t]{1,4}"
    rf"{_NAMED}[ \t]{{0,4}}(?:[|:]|\Z)[ \t]?(?P<rest>.*)",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
_ADD = re.compile(
    r"[ \t]{0,16}(?:[-*+][ \t])?(?:\*\*|`)?ADD(?:\*\*|`)?[ \t]{1,4}(?P<heading>[^|]{1,200}?)[ \t]{0,4}(?:\||\Z)"
    r"[ \t]?(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SHOWN_NUMBER = re.compile(r"[0-9]{1,4}\| ?", re.ASCII)
#: A line that has this part of an old line's words is its new wording.
_LIVES_ON = 0.6


@dataclass(frozen=True, slots=True)
class Line:
    """Text that an edit adds, with its evidence: a turn and a quote, or a learning."""

    text: str
    turn_id: int | None = None
    learning_id: int | None = None
    quote: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a file. `number` (from 1) and `words`, its first words, name the line to delete or replace.

    `path` is the heading to add under, and optionally a subheading. `lines` are the new lines. `why` is the reason of a
    deletion with its evidence.
    """

    verb: Literal["delete", "replace", "add"]
    number: int | None = None
    words: str = ""
    path: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    why: Line = Line("")

    @property
    def cited(self) -> int | None:
        """Return the id of the turn that the edit cites, or None."""
        return next((line.turn_id for line in (self.why, *self.lines) if line.turn_id is not None), None)

    def __str__(self) -> str:
        named = " > ".join(self.path) or f"{self.number or ''} {self.words!r}".strip()
        return f"{self.verb} {named}"


def read_line(text: str) -> Line:
    """Parse `[t31] text | "quote"`; citation and quote may be missing."""
    text = text.strip()
    found = _QUOTE.search(text)
    quote = " ".join(found["quote"].split()) if found else None
    text = text[: found.start()].rstrip() if found else text
    mark = "- " if text.startswith(("- ", "* ")) else ""
    cited = _CITED.match(text.removeprefix("* ").removeprefix("- "))
    if cited is None:
        return Line(text, quote=quote or None)
    rest = text.removeprefix("* ").removeprefix("- ")[cited.end() :].lstrip()
    turn, learning = cited["turn"], cited["learning"]
    return Line(
        rest if rest.startswith("- ") else f"{mark}{rest}",
        int(turn) if turn else None,
        int(learning) if learning else None,
        quote or None,
    )


def read_edits(body: Sequence[str], unparsed: list[str]) -> tuple[Edit, ...]:
    """Parse the edits below one header; append other lines to `unparsed`."""
    edits: list[Edit] = []
    for line in body:
        if not line.strip() or PLACEHOLDER.fullmatch(line):
            continue
        if (edit := _read(line)) is not None:
            edits.append(edit)
        elif edits and edits[-1].verb != "delete" and line.lstrip().startswith(("- ", "* ")):
            edits[-1] = replace(edits[-1], lines=(*edits[-1].lines, read_line(line)))
        else:
            unparsed.append(line)
    return tuple(edit for edit in edits if edit.verb == "delete" or edit.lines)


def _read(line: str) -> Edit | None:
    found = _CHANGE.match(line)
    if found and (found["number"] or found["words"]):
        number = int(found["number"]) if found["number"] else None
        read = read_line(found["rest"])
        words = " ".join((found["words"] or "").split())
        if found["verb"].upper() == "REPLACE":
            return Edit("replace", number, words, lines=(read,) if read.text else ())
        return Edit("delete", number, words, why=read)
    if found := _ADD.match(line):
        path = tuple(name for part in found["heading"].split(">") if (name := heading_name(part)))
        read = read_line(found["rest"])
        return Edit("add", path=path[:2], lines=(read,) if read.text else ()) if path else None
    return None


def as_listed(line: str) -> str:
    """Return a new line with a list mark, if it has no mark yet."""
    return line if line.lstrip().startswith(("- ", "* ", "#", "<!--")) else f"- {line.strip()}"


def heading_name(line: str) -> str:
    """Return the text of a heading without its marks."""
    return line.strip().strip("#`*\"'").strip()


# --- complete files ---


def edits_between(old: str, new: str) -> tuple[Edit, ...]:
    """Return the edits that turn a file into new complete content. Headings, motto and empty lines are not compared.

    Line numbers that a model copied into the content are removed.
    """
    lines = new.rstrip("\n").split("\n")
    if sum(_SHOWN_NUMBER.match(line) is not None for line in lines) * 2 > len(lines):
        lines = [_SHOWN_NUMBER.sub("", line) for line in lines]
    kept = Counter(" ".join(line.split()) for line in lines)
    lost: dict[int, str] = {}
    before = old.rstrip("\n").split("\n")
    for number, line in enumerate(before, start=1):
        if kept[normal := " ".join(line.split())]:
            kept[normal] -= 1
        elif normal and not _depth(line) and not _is_motto(number - 1, before):
            lost[number] = line.strip()
    edits: list[Edit] = []
    for path, line in _additions(lines, kept):
        read = read_line(line)
        words = content_words(read.text)
        alike = {number: share(content_words(was), words) for number, was in lost.items() if content_words(was)}
        best = max(alike, key=lambda number: alike[number], default=None)
        if best is not None and alike[best] >= _LIVES_ON:
            edits.append(Edit("replace", best, lost.pop(best), lines=(read,)))
        else:
            edits.append(Edit("add", path=path, lines=(read,)))
    edits += [Edit("delete", number, was) for number, was in lost.items()]
    return tuple(edits)


def _additions(lines: Sequence[str], kept: Counter[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the lines left in `kept` with the headings above them."""
    path: tuple[str, ...] = ()
    for line in lines:
        normal = " ".join(line.split())
        depth = _depth(line)
        if depth > 2 and path:  # noqa: PLR2004 - below a main heading
            path = (path[0], heading_name(line))
        elif depth > 1:
            path = (heading_name(line),)
        elif not depth and normal and kept[normal]:
            kept[normal] -= 1
            yield path or ("Notes",), line


class EditedFile:
    """A file while edits are applied to it: positions of lines stay valid until `content` is read."""

    def __init__(self, text: str) -> None:
        self.lines = text.rstrip("\n").split("\n")
        #: Current lines at each old position: the same, another, or none.
        self._now: list[list[str]] = [[line] for line in self.lines]
        self._added: list[tuple[tuple[str, ...], str]] = []

    @property
    def content(self) -> str:
        """Return the file's new content. A subheading whose last line was removed is removed, too."""
        emptied = frozenset(heading.strip() for heading in self._emptied())
        lines = _without_empty([line for now in self._now for line in now], emptied)
        # Additions come last: a line added below another must not be deleted with it.
        for path, line in self._added:
            _add(lines, path, as_listed(line))
        return "\n".join(lines).rstrip("\n") + "\n"

    def find(self, edit: Edit) -> int:
        """Return the position of the line that an edit names. ValueError with the reason if there is none."""
        if not _first_words(edit.words):
            raise ValueError("name the line by its first words, in quotation marks")
        alike = [at for at, line in enumerate(self.lines) if self._now[at] and begins(line, edit.words)]
        named = (edit.number or 0) - 1
        if not alike:
            raise ValueError("no line begins like this")
        if named not in alike and len(alike) > 1:
            raise ValueError("several lines begin like this")
        at = named if named in alike else alike[0]
        if at < 1 or self.lines[at].lstrip().startswith(("# ", "## ")) or _is_motto(at, self.lines):
            raise ValueError("titles and main headings stay")
        if self._is_pinned(at):
            raise ValueError("the user pinned this line")
        return at

    def section(self, at: int) -> str:
        """Return the main heading above a position, as it stands there."""
        return next((line for line in reversed(self.lines[:at]) if line.startswith("## ")), "")

    def put(self, at: int, lines: Sequence[str]) -> None:
        """Replace a line; remove it without new lines."""
        listed = self.lines[at].lstrip().startswith("- ")
        self._now[at] = [as_listed(line) if listed else line for line in lines]

    def add(self, path: tuple[str, ...], line: str) -> None:
        """Add a line at the end of a section."""
        self._added.append((path, line))

    def _is_pinned(self, at: int) -> bool:
        inside = False
        for line in self.lines[: at + 1]:
            inside = line.strip() != UNPIN if inside else line.strip() == PIN
        return inside or self.lines[at].strip() in {PIN, UNPIN}

    def _emptied(self) -> Iterator[str]:
        """Yield the subheadings under which lines were removed."""
        heading: str | None = None
        for at, line in enumerate(self.lines):
            if depth := _depth(line):
                heading = line if depth > 2 else None  # noqa: PLR2004 - title and main headings
            elif heading is not None and not self._now[at]:
                yield heading


def begins(line: str, words: str) -> bool:
    """Return whether a line begins with these words, whatever its marks, case and spaces."""
    return _first_words(line).startswith(_first_words(words))


def _first_words(text: str) -> str:
    """Return a line as its beginnings are compared: without marks, case and repeated spaces."""
    return " ".join(text.replace("…", "").rstrip(".").lstrip("-*+ \t").casefold().split())


def _add(lines: list[str], path: tuple[str, ...], new: str) -> None:
    """Add a line at the end of its section; create a missing heading."""
    top, *below = path
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
    lines.insert(at, new)


def _heading(lines: Sequence[str], name: str, places: Iterable[int], *, depth: int) -> int | None:
    wanted = name.casefold()
    alike = (at for at in places if _depth(lines[at]) == depth and heading_name(lines[at]).casefold() == wanted)
    return next(alike, None)


def _end_of_section(lines: Sequence[str], start: int) -> int:
    depth = _depth(lines[start])
    return next((at for at in range(start + 1, len(lines)) if 0 < _depth(lines[at]) <= depth), len(lines))


def _last_filled(lines: Sequence[str], start: int, end: int) -> int:
    return next(at for at in range(end - 1, start - 1, -1) if lines[at].strip())


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
