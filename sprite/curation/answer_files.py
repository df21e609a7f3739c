"""The files in the curator's answer: whole contents, and changes line by line."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
_PLACEHOLDER = re.compile(
    r"\W{0,8}(?:none|no (?:changes?|updates?)(?: (?:needed|required))?|unchanged)\W{0,8}", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Header:
    """A `*_MD_UPDATE:` or `*_MD_EDIT:` line: word and kind in upper case, and the text after the colon."""

    word: str
    kind: str
    rest: str

    @property
    def marker(self) -> str:
        """Return the line without the text after the colon."""
        return f"{self.word}_MD_{self.kind}:"

    def __str__(self) -> str:
        return f"{self.marker} {self.rest}".rstrip()


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
    # All long fences count as one length: few lengths bound the work of `_Bodies._unclosed`.
    return Fence(found[1][0], min(len(found[1]), 8), line[found.end() :].strip())


def is_placeholder(text: str) -> bool:
    """Return whether the text only states that there is no content."""
    return _PLACEHOLDER.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Bodies:
    """The answer's files by name: complete contents that end in one newline, or edit lines."""

    files: dict[str, str]
    edits: dict[str, list[str]]


def read_bodies(lines: Lines, unparsed: list[str]) -> Bodies:
    """Read the files of an answer: `lines` is empty or begins with a header.

    The last update of a file wins, also over its edits. Edits of the same file are joined. Refused, replaced or
    leftover lines are appended to `unparsed`.
    """
    bodies = _Bodies(lines)
    files: dict[str, str] = {}
    edits: dict[str, list[str]] = {}
    cursor = 0
    for _ in range(MAX_UPDATES):
        if cursor >= len(lines):
            break
        header = bodies.headers[cursor]
        body, left_over, cursor = bodies.read(cursor)
        unparsed.extend(line for line in left_over if line.strip())
        content = "\n".join(body).strip("\n")
        name = CURATED_NAMES.get(header.word)
        if name is None:
            unparsed.append(f"{header} names no file of the curator")
        elif not content.strip() or is_placeholder(content.strip()):
            unparsed.append(f"{header} came without content")
        elif header.kind == "EDIT":
            edits.setdefault(name, []).extend(body)
        else:
            if name in files:
                unparsed.append(f"{header} replaced an earlier update of the same file")
            files[name] = content + "\n"
    if cursor < len(lines):
        unparsed.append(f"({len(lines) - cursor} lines behind update {MAX_UPDATES} were not read)")
    for name in files.keys() & edits.keys():
        unparsed.append(f"the edits of {name} came beside a complete update")
        del edits[name]
    return Bodies(files, edits)


class _Bodies:
    """Find the end of each body in one answer. A body is (content, leftover, line of the next header)."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.headers = {at: header for at, line in enumerate(lines) if line and (header := read_header(line))}
        self._header_lines = list(self.headers)
        self._fences = {at: fence for at, line in enumerate(lines) if line and (fence := read_fence(line))}
        self._fence_lines = list(self._fences)
        # The shortest length of a fence without a partner, by mark. A later search for that length or more would fail,
        # too. Skipping it keeps many open fences linear.
        self._unclosed: dict[str, int] = {}

    def read(self, at: int) -> tuple[Lines, Lines, int]:
        """Return the body under the header at line `at`."""
        rest = self.headers[at].rest
        if rest and self.headers[at].kind == "EDIT":
            content, _, end = self._plain(at + 1)
            return [rest, *content], (), end
        if not rest:
            first = self._skip_blank(at + 1)
            return self._wrapped(first, self._fences.get(first)) or self._plain(at + 1)
        if fence := read_fence(rest):
            return self._wrapped(at, fence) or self._plain(at + 1)
        content, _, end = self._plain(at + 1)
        if rest.startswith(("#", "<!--")):
            return [rest, *content], (), end
        # `USER_MD_UPDATE: no change, since ...` is talk: neither it nor the text below may become the file.
        return (), content, end

    def _wrapped(self, opening: int, fence: Fence | None) -> tuple[Lines, Lines, int] | None:
        """Return the body in the fence at line `opening`, or None if the fence wraps only a part."""
        if fence is None or fence.info.lower() not in WRAPPERS:
            return None
        start = opening + 1
        closing = self._closing(opening, fence)
        if closing is not None:
            return self._lines[start:closing], (), self._skip_blank(closing + 1)
        if not fence.info and not "".join(self._lines[start : start + 1]).startswith("# "):
            return None  # a file that begins with a code block
        end = self._next_header(start)
        last = next((line for line in reversed(self._fences_in(start, end)) if self._fences[line].closes(fence)), None)
        if last is None:
            return self._lines[start:end], (), end
        return self._lines[start:last], self._lines[last + 1 : end], end

    def _closing(self, opening: int, fence: Fence) -> int | None:
        """Return the line that closes the wrapper: outside inner blocks, or else the first candidate."""
        inner: Fence | None = None
        candidate: int | None = None
        for at in self._fences_in(opening + 1, len(self._lines)):
            here = self._fences[at]
            if here.mark != fence.mark or here.length < fence.length:
                continue
            last_word = here.closes(fence) and self._is_last_word(at)
            if last_word and inner is None:
                return at
            if last_word and candidate is None:
                candidate = at
            if inner is None:
                inner = here
            elif here.closes(inner):
                inner = None
        return candidate

    def _plain(self, start: int) -> tuple[Lines, Lines, int]:
        """Return the unwrapped body from line `start` to the next header outside of closed blocks."""
        beyond = start  # the line after the last closed block
        for index in range(bisect_left(self._fence_lines, start), len(self._fence_lines)):
            at = self._fence_lines[index]
            if at < beyond:
                continue
            if self._next_header(beyond) < at:
                break
            beyond = self._behind_block(index)
        end = self._next_header(beyond)
        return self._lines[start:end], (), end

    def _behind_block(self, index: int) -> int:
        at = self._fence_lines[index]
        fence = self._fences[at]
        if fence.length >= self._unclosed.get(fence.mark, fence.length + 1):
            return at + 1
        for other in range(index + 1, len(self._fence_lines)):
            if self._fences[self._fence_lines[other]].closes(fence):
                return self._fence_lines[other] + 1
        self._unclosed[fence.mark] = fence.length
        return at + 1

    def _fences_in(self, start: int, end: int) -> list[int]:
        return self._fence_lines[bisect_left(self._fence_lines, start) : bisect_left(self._fence_lines, end)]

    def _next_header(self, start: int) -> int:
        index = bisect_left(self._header_lines, start)
        return self._header_lines[index] if index < len(self._header_lines) else len(self._lines)

    def _skip_blank(self, start: int) -> int:
        while start < len(self._lines) and not self._lines[start].strip():
            start += 1
        return start

    def _is_last_word(self, at: int) -> bool:
        following = self._skip_blank(at + 1)
        return following == len(self._lines) or following in self.headers


_CITED = re.compile(
    r"\[(?:[ \t]{0,4}(?:turn[ \t]?|t)?(?P<turn>[0-9]{1,15})[^\]]{0,80}|L(?P<learning>[0-9]{1,15}))\][ \t:]{0,4}",
    re.IGNORECASE,
)
_QUOTE = re.compile(r"\|[ \t]{0,4}[\"“](?P<quote>[^|]*)[\"”][ \t.*`]*\Z")
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
    """Text in an edit with its evidence: a turn and a quote, or a learning."""

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
        """Return the turn that it names, if any."""
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
        if not line.strip() or is_placeholder(line):
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
    """A file during edits: positions of lines stay valid until `content` is read."""

    def __init__(self, text: str) -> None:
        self._lines = text.rstrip("\n").split("\n")
        #: Current lines at each old position: the same, another, or none.
        self._now: list[list[str]] = [[line] for line in self._lines]
        self._added: list[tuple[tuple[str, ...], str]] = []

    @property
    def content(self) -> str:
        """Return the new content. A subheading goes with its last line."""
        emptied = frozenset(heading.strip() for heading in self._emptied())
        lines = _without_empty([line for now in self._now for line in now], emptied)
        # Additions come last: a line added below another must not be deleted with it.
        for path, line in self._added:
            _add(lines, path, as_listed(line))
        return "\n".join(lines).rstrip("\n") + "\n"

    def find(self, edit: Edit) -> int:
        """Return the position of the line that an edit names. ValueError with the reason if there is none."""
        wanted = _first_words(edit.words)
        if not wanted:
            raise ValueError("name the line by its first words, in quotation marks")
        alike = [at for at, line in enumerate(self._lines) if self._now[at] and _first_words(line).startswith(wanted)]
        named = (edit.number or 0) - 1
        if not alike:
            raise ValueError("no line begins like this")
        if named not in alike and len(alike) > 1:
            raise ValueError("several lines begin like this")
        at = named if named in alike else alike[0]
        if at < 1 or self._lines[at].lstrip().startswith(("# ", "## ")) or _is_motto(at, self._lines):
            raise ValueError("titles and main headings stay")
        if self._is_pinned(at):
            raise ValueError("the user pinned this line")
        return at

    def line(self, at: int) -> str:
        """Return the old line at a position."""
        return self._lines[at]

    def section(self, at: int) -> str:
        """Return the main heading above a position, as it stands there."""
        return next((line for line in reversed(self._lines[:at]) if line.startswith("## ")), "")

    def put(self, at: int, lines: Sequence[str]) -> None:
        """Replace a line; remove it without new lines."""
        listed = self._lines[at].lstrip().startswith("- ")
        self._now[at] = [as_listed(line) if listed else line for line in lines]

    def add(self, path: tuple[str, ...], line: str) -> None:
        """Add a line at the end of a section."""
        self._added.append((path, line))

    def _is_pinned(self, at: int) -> bool:
        inside = False
        for line in self._lines[: at + 1]:
            inside = line.strip() != UNPIN if inside else line.strip() == PIN
        return inside or self._lines[at].strip() in {PIN, UNPIN}

    def _emptied(self) -> Iterator[str]:
        """Yield the subheadings under which lines were removed."""
        heading: str | None = None
        for at, line in enumerate(self._lines):
            if depth := _depth(line):
                heading = line if depth > 2 else None  # noqa: PLR2004 - title and main headings
            elif heading is not None and not self._now[at]:
                yield heading


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
