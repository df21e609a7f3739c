"""The files in the curator's answer: whole contents, and changes line by line."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sprite.memory.files import CURATED

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
