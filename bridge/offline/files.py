"""Apply learnings to the curated files: add lines, correct them in place, return whole new contents.

Pure. Lines between `<!-- pin -->` and `<!-- /pin -->` are never changed.
"""

import re
from collections.abc import Callable, Iterable

from bridge.offline.batch import MemoryFile
from bridge.offline.words import normalised, significant

# Words that many preferences share say nothing about their topic.
_GENERIC = frozenset({"prefer", "like", "love", "hate", "dislike", "want", "use", "ask", "should", "never", "always"})
_SAME_TOPIC = 0.5
_SUBJECT = re.compile(r"\A(.*?\b(?:is|are|was|lives in|works (?:at|as|for|in|on)))\s", re.IGNORECASE)
# These subjects have one value at a time: a new one replaces the old.
_BULLET = re.compile(r"\A\s*[-*]\s+")


def kinship(one: str, other: str) -> float:
    """Return from 0 to 1 how much two statements are about the same thing."""
    left, right = significant(one) - _GENERIC, significant(other) - _GENERIC
    return len(left & right) / min(len(left), len(right)) if left and right else 0.0


def related(one: str, other: str) -> bool:
    """Return whether a correction `one` may replace the statement `other`."""
    return kinship(one, other) >= _SAME_TOPIC


class FileDraft:
    """A draft of a curated file; `text()` is the new content, or None when nothing changed."""

    def __init__(self, name: str, title: str, file: MemoryFile | None) -> None:
        self.limit = file.limit if file else 200
        self._before = file.content.rstrip().splitlines() if file else []
        self.lines = list(self._before) or [f"# {title}"]
        self.name = name
        self._changed = False

    def add(self, heading: str, statement: str) -> None:
        """Add a line under `## heading`, unless it is known or the file is full."""
        known = {normalised(_BULLET.sub("", line)) for line in self.lines}
        if normalised(statement) in known:
            return
        if self._replace_if(lambda line: _same_subject(statement, line), statement):
            return
        self._insert(heading, f"- {statement}")

    def correct(self, heading: str, statement: str, replaced: str | None) -> None:
        """Replace the line about the same topic by `statement`, or add it under `heading`."""
        old = normalised(replaced or "")
        if old and self._replace_if(lambda line: normalised(line) == old, statement):
            return
        if not self._replace_if(lambda line: related(statement, line), statement):
            self.add(heading, statement)

    def put(self, heading: str, key: str, statement: str) -> None:
        """Replace the line that begins with `key`, or add one."""
        if not self._replace_if(lambda line: line.startswith(key), statement):
            self.add(heading, statement)

    def drop_oldest(self, heading: str, keep: int) -> None:
        """Keep the newest `keep` lines under `heading`, fewer when the file is over its limit."""
        pinned = self._pinned()
        section = [
            index for index in self._section(heading) if index not in pinned and _BULLET.match(self.lines[index])
        ]
        excess = max(len(section) - keep, min(len(self.lines) - self.limit, len(section)))
        for index in reversed(section[: max(0, excess)]):
            del self.lines[index]

    def text(self) -> str | None:
        """Return the complete content when it changed and fits its limit."""
        if self.lines == self._before or len(self.lines) > self.limit or not self._changed:
            return None
        return "\n".join(self.lines)

    def _replace_if(self, fits: Callable[[str], bool], statement: str) -> bool:
        pinned = self._pinned()
        for index, line in enumerate(self.lines):
            if index in pinned or not _BULLET.match(line):
                continue
            if fits(_BULLET.sub("", line).strip()):
                changed = f"- {statement}"
                self._changed |= changed != line
                self.lines[index] = changed
                return True
        return False

    def _insert(self, heading: str, line: str) -> None:
        section = self._section(heading)
        pinned = self._pinned()
        if section:
            filled = [index for index in section if self.lines[index].strip()]
            at = filled[-1] + 1
            while at in pinned and at - 1 in pinned:
                at += 1
            fresh = [line]
        else:
            at = len(self.lines)
            fresh = ["", f"## {heading}", line]
        # Only the context makes room; elsewhere a statement that does not fit stays a learning.
        if len(self.lines) + len(fresh) <= self.limit or self.name == "context.md":
            self.lines[at:at] = fresh
            self._changed = True

    def _section(self, heading: str) -> list[int]:
        """Return the line numbers of a section, with its heading; empty when there is none."""
        numbers: list[int] = []
        inside = False
        for index, line in enumerate(self.lines):
            if line.startswith("#"):
                inside = line.lstrip("# ").strip().lower() == heading.lower()
            if inside:
                numbers.append(index)
        return numbers

    def _pinned(self) -> set[int]:
        numbers: set[int] = set()
        inside = False
        for index, line in enumerate(self.lines):
            inside = inside or "<!-- pin -->" in line
            if inside:
                numbers.add(index)
            inside = inside and "<!-- /pin -->" not in line
        return numbers


def _same_subject(one: str, other: str) -> bool:
    left, right = _SUBJECT.match(one), _SUBJECT.match(other)
    # "The user is ..." may be said of many things; "The user's name is ..." only of one.
    return bool(left and right and left[1].lower() == right[1].lower() and left[1].lower() != "the user is")


def updates(drafts: Iterable[FileDraft]) -> str:
    """Return the `*_MD_UPDATE:` parts of a response for the files that changed."""
    parts = []
    for draft in drafts:
        content = draft.text()
        if content is not None:
            marker = draft.name.removesuffix(".md").upper()
            parts.append(f"{marker}_MD_UPDATE:\n{content}\n")
    return "".join(parts)
