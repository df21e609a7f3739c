"""The language of rules: which tool calls a rule is about, as JSON and as one line of text (pure).

    stop when command "git commit" and branch "main" or "master": Commit on a branch of your own.
    ask when tool "Edit" or "Write" and path "tests/**" and not project "scratch"

All conditions must hold, each with one of its values. With `not`, the rule leaves out calls for which every value of
that kind is one of these. `*` stands for any characters, in a path for any within one name, and `**` for any folders.
In a command, the words after the program are its first ones apart from options; `...` stands for any words between,
and an option may stand anywhere. There are no regular expressions and no code; the cost is bounded by the limits here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from sprite.errors import PeerError
from sprite.rules.shell import Command, after_options, unversioned

KEYS = ("tool", "command", "path", "host", "connection", "project", "branch", "time")
Action = Literal["stop", "ask"]
MAX_VALUES = 12
MAX_VALUE_CHARS = 120
MAX_REASON_CHARS = 300
MAX_RULE_CHARS = 4_000
#: Longer names and words match by their beginning.
_MAX_SEEN = 4096

_Value = Annotated[str, Meta(min_length=1, max_length=MAX_VALUE_CHARS)]
#: Values by kind.
Values = dict[str, Annotated[list[_Value], Meta(min_length=1, max_length=MAX_VALUES)]]


class Condition(Struct, frozen=True, omit_defaults=True):
    """Which calls a rule is about: they have one value of each kind in `given`, and not only those in `unless`."""

    given: Values = field(name="when")
    unless: Values = field(name="not", default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError if it would be about every call, or a value cannot be read."""
        if not self.given.keys() & {"tool", "command", "path", "host", "connection"}:
            raise ValueError("name a tool, a command, a path, a host or a connection")
        for values in (self.given, self.unless):
            if not values.keys() <= set(KEYS):
                raise ValueError(f"there are {', '.join(KEYS)}")
            for pattern in values.get("command", ()):
                if pattern.split()[:1] in ([], ["..."]) or pattern.startswith("-"):
                    raise ValueError(f"{pattern!r} must begin with a program")
            for span in values.get("time", ()):
                read_time(span)


class Proposed(Struct, frozen=True):
    """A rule as written in one line."""

    condition: Condition
    action: Action
    reason: str


_HEAD = re.compile(r"\s*(stop|ask)\s+when\s+", re.IGNORECASE)
_QUOTED = re.compile(r"[\"“]([^\"”\n]{1,400})[\"”]")
#: `not branch "main" or "master" and`; the kind may be repeated before a value.
_CLAUSE = re.compile(
    rf"\s*(not\s+)?({'|'.join(KEYS)})((?:\s*(?:or\b|,|=|:|is\b)?\s*(?:\2\s*)?{_QUOTED.pattern})+)\s*(?:and\b|[,;])?",
    re.IGNORECASE,
)
_REASON = re.compile(r"\s*(?::\s*(.*)|[\s.]*)", re.DOTALL)


def parse(text: str) -> Proposed:
    """Read a rule in one line. Raise PeerError with what is wrong."""
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
        raise PeerError(f"{text[at : at + 60].strip()!r} is no condition. There are {names}, each with a quoted value.")
    try:
        condition = msgspec.convert({"when": given, "not": unless}, Condition)
    except (msgspec.ValidationError, ValueError) as error:
        raise PeerError(f"This is no rule: {error}.") from error
    return Proposed(condition, "ask" if head[1].lower() == "ask" else "stop", (reason[1] or "")[:MAX_REASON_CHARS])


def shown(condition: Condition, action: str) -> str:
    """Return the line that `parse` reads."""
    parts = [
        f"{before}{key} " + " or ".join(f'"{value}"' for value in values[key])
        for before, values in (("", condition.given), ("not ", condition.unless))
        for key in KEYS
        if key in values
    ]
    return f"{action} when {' and '.join(parts)}"


# --- values ---


def fits(pattern: str, value: str) -> bool:
    """Return whether a text fits a pattern with `*`, whatever the case, in linear time."""
    pattern, value = pattern.casefold(), value[:_MAX_SEEN].casefold()
    first, *rest = pattern.split("*")
    if not rest:
        return value == first
    last = rest.pop()
    if len(value) < len(first) + len(last) or not value.startswith(first) or not value.endswith(last):
        return False
    at, end = len(first), len(value) - len(last)
    for part in rest:
        found = value.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def fits_any(patterns: Sequence[str], value: str) -> bool:
    """Return whether a text fits one of these patterns."""
    return any(fits(pattern, value) for pattern in patterns)


def fits_path(pattern: str, path: str) -> bool:
    """Return whether a path fits: a pattern without a folder at its start fits below any folder."""
    pattern = os.path.expanduser(pattern)  # noqa: PTH111 - a string, and fast
    names, parts = path[:_MAX_SEEN].strip("/").split("/"), pattern.strip("/").split("/")
    if not pattern.startswith("/"):
        parts = ["**", *parts]
    at = place = 0
    star, taken = -1, 0
    while at < len(names):
        if place < len(parts) and parts[place] == "**":
            star, taken, place = place, at, place + 1
        elif place < len(parts) and fits(parts[place], names[at]):
            at, place = at + 1, place + 1
        elif star >= 0:
            taken += 1
            at, place = taken, star + 1
        else:
            return False
    return all(part == "**" for part in parts[place:])


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
    """Read `Mon-Fri 09:00-17:00` as days and minutes from midnight. Raise ValueError if it is none."""
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
    """Return whether a moment is in the span. One that ends earlier than it begins lasts into the next day."""
    days, start, end = read_time(span)
    minute, day = now.hour * 60 + now.minute, now.weekday()
    if start <= end:
        return day in days and start <= minute < end
    return (day in days and minute >= start) or ((day - 1) % 7 in days and minute < end)


def strings(value: Any, levels: int = 4) -> Iterator[str]:
    """Yield the strings of a JSON value, not too deep ones."""
    if isinstance(value, str):
        yield value
    elif levels and isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item, levels - 1)
