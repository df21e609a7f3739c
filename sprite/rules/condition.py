"""The language of rules: which tool calls a rule is about, in one line of text (pure); see docs/rules.md.

    stop when command "git commit" and branch "main" or "master": Commit on a branch of your own.

There are no regular expressions and no code; the cost is bounded by the limits here.
"""

from __future__ import annotations

import fnmatch
import os
import re
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from sprite.errors import PeerError
from sprite.rules.shell import Command, after_options, unversioned

KEYS = ("tool", "command", "path", "host", "connection", "project", "branch", "time")
MAX_VALUES = 12
MAX_VALUE_CHARS = 120
MAX_REASON_CHARS = 300
MAX_RULE_CHARS = 4_000
#: Longer names and words match by their beginning.
_MAX_SEEN = 4096

_Value = Annotated[str, Meta(min_length=1, max_length=MAX_VALUE_CHARS)]
#: Values by kind.
Values = dict[str, Annotated[list[_Value], Meta(min_length=1, max_length=MAX_VALUES)]]


class Rule(Struct, frozen=True):
    """A rule: it matches calls that have a value of each kind in `given`, except those that match `unless`."""

    action: Literal["stop", "ask"]
    given: Values = field(name="when")
    unless: Values = field(name="not")
    reason: str

    def __post_init__(self) -> None:
        """Raise ValueError if the rule would match every call, or one of its values cannot be parsed."""
        if not self.given.keys() & {"tool", "command", "path", "host", "connection"}:
            raise ValueError("it must name a tool, a command, a path, a host or a connection")
        for values in (self.given, self.unless):
            for pattern in values.get("command", ()):
                if pattern.split()[:1] in ([], ["..."]) or pattern.startswith("-"):
                    raise ValueError(f"{pattern!r} must begin with a program")
            for span in values.get("time", ()):
                read_time(span)


_HEAD = re.compile(r"\s*(stop|ask)\s+when\s+", re.IGNORECASE)
_QUOTED = re.compile(r"[\"“]([^\"”\n]{1,400})[\"”]")
#: `not branch "main" or "master" and`; the kind may be repeated before a value.
_CLAUSE = re.compile(
    rf"\s*(not\s+)?({'|'.join(KEYS)})((?:\s*(?:or\b|,|=|:|is\b)?\s*(?:\2\s*)?{_QUOTED.pattern})+)\s*(?:and\b|[,;])?",
    re.IGNORECASE,
)
_REASON = re.compile(r"\s*(?::\s*(.*)|[\s.]*)", re.DOTALL)


@lru_cache(maxsize=1024)
def parse(text: str) -> Rule:
    """Parse a rule from one line. Raise PeerError that says what is wrong."""
    text = " ".join(text.split())
    head = _HEAD.match(text)
    if head is None or len(text) > MAX_RULE_CHARS:
        raise PeerError(f'A rule has at most {MAX_RULE_CHARS:,} characters and begins with "stop when" or "ask when".')
    given: dict[str, list[str]] = {}
    unless: dict[str, list[str]] = {}
    at = head.end()
    while (clause := _CLAUSE.match(text, at)) is not None:
        (unless if clause[1] else given).setdefault(clause[2].lower(), []).extend(_QUOTED.findall(clause[3]))
        at = clause.end()
    reason = _REASON.fullmatch(text, at)
    if reason is None:
        names = ", ".join(KEYS)
        raise PeerError(
            f"{text[at : at + 60].strip()!r} is no condition. Conditions are {names}, each with a quoted value."
        )
    said = (reason[1] or "")[:MAX_REASON_CHARS]
    rule = {"action": head[1].lower(), "when": given, "not": unless, "reason": said}
    try:
        return msgspec.convert(rule, Rule)
    except (msgspec.ValidationError, ValueError) as error:
        raise PeerError(f"This is no rule: {error}.") from error


def shown(rule: Rule) -> str:
    """Return a rule as a line for `parse`, without its reason."""
    parts = [
        f"{before}{key} " + " or ".join(f'"{value}"' for value in values[key])
        for before, values in (("", rule.given), ("not ", rule.unless))
        for key in KEYS
        if key in values
    ]
    return f"{rule.action} when {' and '.join(parts)}"


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> re.Pattern[str]:
    # Its groups are atomic, so that a match takes linear time.
    return re.compile(fnmatch.translate(re.sub(r"[?[]", r"[\g<0>]", pattern.casefold())))


def fits(pattern: str, value: str) -> bool:
    """Return whether a text fits a pattern with `*`, whatever the case."""
    return _pattern(pattern).match(value[:_MAX_SEEN].casefold()) is not None


def fits_path(pattern: str, path: str) -> bool:
    """Return whether a path matches a pattern with `*`.

    A pattern that does not begin with a folder matches below any folder.
    """
    pattern = os.path.expanduser(pattern)  # noqa: PTH111 - a string, and fast
    whole = pattern if pattern.startswith("/") else f"**/{pattern}"
    parts = re.sub(r"(?:\*\*/)+", "**/", whole.strip("/")).split("/")
    reached = {0}
    for name in path[:_MAX_SEEN].strip("/").split("/"):
        reached |= {at + 1 for at in reached if parts[at : at + 1] == ["**"]}
        here = [at for at in reached if at < len(parts) and (parts[at] == "**" or fits(parts[at], name))]
        reached = {at + (parts[at] != "**") for at in here}
    return any(parts[at:] in ([], ["**"]) for at in reached)


def fits_command(pattern: str, command: Command) -> bool:
    """Return whether a command begins with these words, apart from options and the program's folder and version."""
    program, *parts = pattern.split()
    if not (fits(program, command.program) or fits(program, unversioned(command.program))):
        return False
    words, places, is_after_gap = command.words, {1}, False
    for part in parts:
        if part == "...":
            is_after_gap = True
        elif part.startswith("-"):
            if not any(fits(part, word) for word in words[1:]):
                return False
        else:
            among = range(min(places), len(words)) if is_after_gap else after_options(words, places)
            places = {at + 1 for at in among if fits(part, words[at])}
            is_after_gap = False
            if not places:
                return False
    return True


_DAY_MINUTES = 24 * 60
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(
    rf"(?:({'|'.join(_DAYS)})[a-z]*(?:\s*-\s*({'|'.join(_DAYS)})[a-z]*)?)?\s*(?:(\d\d?):(\d\d)\s*-\s*(\d\d?):(\d\d))?",
    re.IGNORECASE,
)


def read_time(span: str) -> tuple[frozenset[int], int, int]:
    """Parse `Mon-Fri 09:00-17:00`: return weekdays, and start and end in minutes. Raise ValueError if invalid."""
    match = _TIME.fullmatch(span.strip())
    if match is None or not match[0]:
        raise ValueError(f'{span!r} is no time: write it as "Mon-Fri 09:00-17:00"')
    first = _DAYS.index(match[1][:3].lower()) if match[1] else 0
    last = _DAYS.index(match[2][:3].lower()) if match[2] else first if match[1] else 6
    days = frozenset((first + step) % 7 for step in range((last - first) % 7 + 1))
    start, end = 0, _DAY_MINUTES
    if match[3]:
        start, end = int(match[3]) * 60 + int(match[4]), int(match[5]) * 60 + int(match[6])
    if max(start, end) > _DAY_MINUTES:
        raise ValueError(f"{span!r} has no such time of day")
    return days, start, end


def fits_time(span: str, now: datetime) -> bool:
    """Return whether a moment is within a time span; a span whose end is before its start goes past midnight."""
    days, start, end = read_time(span)
    minute, day = now.hour * 60 + now.minute, now.weekday()
    if start <= end:
        return day in days and start <= minute < end
    return (day in days and minute >= start) or ((day - 1) % 7 in days and minute < end)
