"""Lenient parser for the curator's answer (pure).

    NONE
    TYPE [tN] content | "verbatim quote"
    TYPE [tN] supersedes LN, LM: content | "verbatim quote"
    ACTION [tN] due 2026-12-01T09:00 every FREQ=WEEKLY;BYDAY=MO: content | "verbatim quote"
    DONE L61 "first words" | [t33] reason | "verbatim quote"
    OFF_RECORD [t34]
    RULE [t31] stop when command "git commit" and branch "main": reason | "verbatim quote"
    USER_MD_EDIT:
    DELETE 5 "- first words" | [tN] why | "verbatim quote"
    REPLACE 8 "- first words" | [tN] - the new line | "verbatim quote"
    ADD Heading | [tN] - a line | "verbatim quote"
    TOOLS_MD_UPDATE:
    the complete new file

Learnings come first. From the first header on, every line belongs to a file. A line in a file that looks like a
learning is content: text that enters a file must not become a learning. Quotes, limits and ids are checked elsewhere;
this module uses neither the log nor the limits.

The parser never raises: unreadable lines go to `unparsed`. Every regular expression is anchored and every line is
examined a bounded number of times, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from sprite.curation.answer_files import (
    PLACEHOLDER,
    Edit,
    Line,
    Lines,
    read_bodies,
    read_fence,
    read_header,
    read_line,
)
from sprite.memory.words import plain_text

LEARNING_TYPES = ("FACT", "PATTERN", "CORRECTION", "PREFERENCE", "ACTION", "TOOL_INSTALL", "DIGEST")

# One sentence needs far less. The limit keeps a runaway line out of every later prompt.
MAX_CONTENT_CHARS = 1_000
# A cut quote is still a verbatim part of its turn, so it still proves its source.
MAX_QUOTE_CHARS = 1_000
# The log has the whole answer; a person reads the report.
MAX_UNPARSED_LINES = 50
MAX_UNPARSED_CHARS = 200

_TYPE = re.compile(
    r"[ \t>]{0,16}(?:[-*+•·\u2013\u2014]|[0-9]{1,3}[.)])?[ \t]{0,8}"
    r"(?P<mark>\*\*|__|`)?"
    r"(?P<type>FACT|PATTERN|CORRECTION|PREFERENCE|ACTION|TOOL[_ ]INSTALL|DIGEST)(?![A-Z0-9])",
    re.IGNORECASE | re.ASCII,
)
# In `[t31, t32]` and `[t31-t33]` the first counts: a learning has one source.
_CITATION = re.compile(
    r"[ \t]*\[[ \t]{0,4}(?:turn[ \t]?|t)?([0-9]{1,15})(?:[ \t]{0,4}[,;\u2013-][^\]]{0,80})?\]", re.IGNORECASE
)
_LEARNING_ID = re.compile(r"\[?L([0-9]{1,15})\]?", re.IGNORECASE | re.ASCII)
_SUPERSEDES = re.compile(
    rf"[ \t]*\(?supersedes[ \t:]{{0,4}}{_LEARNING_ID.pattern}"
    rf"(?:[ \t]{{0,4}}(?:,|;|&|and)[ \t]{{0,4}}{_LEARNING_ID.pattern}){{0,64}}\)?",
    re.IGNORECASE | re.ASCII,
)
# The due time of an action and its repeat. Other notations stay part of the content.
_DUE = re.compile(
    r"[ \t]*\(?due[ \t:]{0,4}([0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:(?:T|[ \t]{1,4})[0-9]{2}:[0-9]{2}(?::[0-9]{2})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?)(?![0-9])\)?,?",
    re.IGNORECASE | re.ASCII,
)
_EVERY = re.compile(r"[ \t]*\(?every[ \t:]{0,4}(?:RRULE:)?(FREQ=[A-Z0-9=;,+-]{1,300})\)?,?", re.IGNORECASE | re.ASCII)
_DONE = re.compile(
    rf"[ \t>]{{0,16}}(?:[-*+][ \t])?(?:\*\*|`)?DONE(?:\*\*|`)?[ \t:]{{1,4}}(?P<ids>{_LEARNING_ID.pattern}"
    rf"(?:[ \t]{{0,4}}(?:,|;|&|and)[ \t]{{0,4}}{_LEARNING_ID.pattern}){{0,64}})"
    r"(?:[ \t]{1,4}[\"“](?P<words>[^\"”\n]{1,200})[\"”])?[ \t]{0,4}(?:[|:]|\Z)(?P<rest>.*)",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
_OFF_RECORD = re.compile(
    r"[ \t>]{0,16}(?:[-*+][ \t])?(?:\*\*|`)?OFF[_ ]RECORD(?:\*\*|`)?[ \t:]{1,4}(?=\[?t[0-9])", re.IGNORECASE | re.ASCII
)
_RULE = re.compile(r"[ \t>]{0,16}(?:[-*+][ \t])?(?:\*\*|`)?RULE(?:\*\*|`)?[ \t:]{1,4}(?=\[|stop|ask)", re.IGNORECASE)
_TURN_ID = re.compile(r"\bt([0-9]{1,15})\b", re.IGNORECASE | re.ASCII)
_COLON = re.compile(r"[ \t]*:")
_QUOTE_START = re.compile(r"\|[ \t]{0,4}[\"“]")


@dataclass(frozen=True, slots=True)
class ParsedLearning:
    """One line of the answer: `type` is one of LEARNING_TYPES, `content` one line of at most MAX_CONTENT_CHARS.

    `turn_id`, `quote` and `supersedes` are unchecked claims of the model. So are an ACTION's `due` (a day or a moment)
    and `rrule`. `told` is the content with its time, to find it and to distinguish it from other days.
    """

    type: str
    content: str
    turn_id: int | None
    quote: str | None
    supersedes: tuple[int, ...]
    due: str | None = None
    rrule: str | None = None
    told: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ParsedDone:
    """A `DONE` line: finished or dropped actions by their learnings' ids, or the first words of one, and why."""

    ids: tuple[int, ...]
    why: Line
    words: str = ""


@dataclass(slots=True)
class CuratorResponse:
    """A parsed answer: learnings in order, finished actions, and per file either edits or complete new content.

    Complete content ends in one newline. `off_record` are turns that the user seems to want off the record,
    `rules` the texts of proposed rules. `unparsed` are lines that are no directive and updates that were refused, cut
    short, for the report.
    """

    learnings: list[ParsedLearning] = field(default_factory=list)
    done: list[ParsedDone] = field(default_factory=list)
    off_record: list[int] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    edits: dict[str, tuple[Edit, ...]] = field(default_factory=dict)
    unparsed: list[str] = field(default_factory=list)
    says_none: bool = False

    @property
    def usable(self) -> bool:
        """Return whether the answer can be logged: it says NONE, or has a learning, an edit or a finished action."""
        said = (self.learnings, self.done, self.off_record, self.rules, self.files, self.edits)
        return self.says_none or any(said)

    def read(self, line: str) -> None:
        """Parse a `DONE`, `OFF_RECORD` or `RULE` line; add any other line to `unparsed`."""
        if (done := read_done(line)) is not None:
            self.done.append(done)
        elif turns := read_off_record(line):
            self.off_record = list(dict.fromkeys([*self.off_record, *turns]))
        elif (rule := _RULE.match(line)) is not None:
            self.rules.append(line[rule.end() :])
        else:
            self.unparsed.append(line)


def parse_response(text: str) -> CuratorResponse:
    """Parse a curator answer. Never raises."""
    found = CuratorResponse()
    lines = plain_text(text).split("\n")
    wrapped = False  # inside a code fence around the whole answer
    for index, line in enumerate(lines):
        if not line or line.isspace():
            continue
        if (learning := read_learning(line)) is not None:
            found.learnings.append(learning)
        elif read_header(line) is not None:
            rest = lines[index:]
            found.files, found.edits, left = read_bodies(_unwrapped(rest) if wrapped else rest, found.unparsed)
            for other in left:
                found.read(other)
            break
        elif read_fence(line) is not None:
            wrapped = not wrapped
        elif PLACEHOLDER.fullmatch(line):
            found.says_none = True
        else:
            found.read(line)
    more = len(found.unparsed) - MAX_UNPARSED_LINES
    found.unparsed = [_cut(line.strip(), MAX_UNPARSED_CHARS) for line in found.unparsed[:MAX_UNPARSED_LINES]]
    if more > 0:
        found.unparsed.append(f"({more} more lines)")
    return found


def read_learning(line: str) -> ParsedLearning | None:  # noqa: C901, PLR0912 - its marks come in any order
    """Parse one line before the files as a learning; return None for any other line."""
    head = _TYPE.match(line)
    if head is None:
        return None
    rest = line[head.end() :]
    if head["mark"]:
        # `**FACT** x`, `**FACT:** x`, `**FACT [t3]:** x` and `**FACT: x**`: the closing mark can stand anywhere.
        rest = rest.replace(head["mark"], "", 1)
    turn_id: int | None = None
    supersedes: tuple[int, ...] = ()
    due: str | None = None
    rrule: str | None = None
    at = 0
    while True:  # colon, citation and ids come in any order: `FACT: [t3] x` is as common as `FACT [t3]: x`
        if found := _COLON.match(rest, at):
            pass
        elif turn_id is None and (found := _CITATION.match(rest, at)):
            turn_id = int(found[1])
        elif not supersedes and (found := _SUPERSEDES.match(rest, at)):
            supersedes = tuple(dict.fromkeys(int(number) for number in _LEARNING_ID.findall(found[0])))
        elif due is None and (found := _DUE.match(rest, at)):
            due = " ".join(found[1].split())
        elif rrule is None and (found := _EVERY.match(rest, at)):
            rrule = found[1].upper()
        else:
            break
        at = found.end()
    if at == 0:
        return None  # prose, like "Action is needed"
    content, quote = rest[at:], None
    # A pipe without a fully quoted right side belongs to the content.
    end = content.rstrip(" \t.*`")
    if end.endswith(('"', "”")):
        last = deque(_QUOTE_START.finditer(end), maxlen=1)
        if last and last[0].end() < len(end):
            quote = end[last[0].end() : -1].strip()[:MAX_QUOTE_CHARS] or None
            content = content[: last[0].start()]
    content = " ".join(content.split())
    if not content or PLACEHOLDER.fullmatch(content):
        return None
    if len(content) > MAX_CONTENT_CHARS:
        content = _cut(content, MAX_CONTENT_CHARS)
    time = ", ".join([*([f"due {due}"] if due else []), *([f"every {rrule}"] if rrule else [])])
    told = f"{content} ({time})" if time else content
    # A learning with a time is a to-do, whatever its type says.
    kind = "ACTION" if due or rrule else head["type"].upper().replace(" ", "_")
    return ParsedLearning(kind, content, turn_id, quote, supersedes, due, rrule, told)


def read_done(line: str) -> ParsedDone | None:
    """Parse a `DONE L61 | [t33] reason` line; return None for any other line."""
    found = _DONE.match(line)
    if found is None:
        return None
    ids = tuple(dict.fromkeys(int(number) for number in _LEARNING_ID.findall(found["ids"])))
    return ParsedDone(ids, read_line(found["rest"]), found["words"] or "")


def read_off_record(line: str) -> list[int]:
    """Return the turns of an `OFF_RECORD [t34]` line; none for any other line."""
    found = _OFF_RECORD.match(line)
    return [int(number) for number in _TURN_ID.findall(line, found.end())] if found else []


def _unwrapped(lines: Lines) -> Lines:
    last = next((index for index in range(len(lines) - 1, -1, -1) if lines[index].strip()), None)
    if last is None:
        return lines
    fence = read_fence(lines[last])
    return lines[:last] if fence is not None and not fence.info else lines


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
