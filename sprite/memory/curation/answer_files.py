"""File contents in the curator's answer: all text from the first `*_MD_UPDATE:` or `*_MD_EDIT:` line to the end.

A file's content ends at the next header or at the end of the answer. A code fence around all of it is removed. Between
fences, a line that looks like a header is content. So a snippet given to the agent cannot open another file:

- content in a wrapping fence ends at a bare fence that is followed by blank lines and then a header or the end; all
  blocks opened inside must be closed first;
- in content without a wrapping fence, a block that is opened and closed is skipped as a whole.

Models forget fences. A wrapping fence without a partner is dropped, and header lines below it count as headers.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

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

    def closes(self, opening: "Fence") -> bool:
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
