"""Parse the time in a question: a period in the user's zone, or "first" or "latest" (pure).

A period ranks its turns higher. It never excludes others, since people remember dates wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

_MONTHS = "january february march april may june july august september october november december".split()
_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_NUMBERS = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "a couple of": 2, "a few": 3}
_NUMBER = rf"(\d{{1,3}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})"
_MONTH = rf"({'|'.join(_MONTHS)})"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"

_ISO = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_DAY_MONTH = re.compile(rf"\b{_DAY}(?: of)? {_MONTH}\b(?:,? (\d{{4}}))?", re.IGNORECASE)
_MONTH_DAY = re.compile(rf"\b{_MONTH} {_DAY}\b(?:,? (\d{{4}}))?", re.IGNORECASE)
#: "may" and "march" are months only after such a word.
_IN_MONTH = re.compile(rf"\b(?:in|during|of|since|last|this) {_MONTH}\b(?:,? (\d{{4}}))?", re.IGNORECASE)
_IN_YEAR = re.compile(r"\b(?:in|during|of) (\d{4})\b", re.IGNORECASE)
_ON_DAY = re.compile(rf"\b(?:on|last|this) ({'|'.join(_DAYS)})\b", re.IGNORECASE)
_RELATIVE = re.compile(r"\b(today|yesterday|last night|this morning)\b", re.IGNORECASE)
_UNIT = re.compile(r"\b(this|last|past|previous) (week|weekend|month|year)\b", re.IGNORECASE)
_AGO = re.compile(rf"\b{_NUMBER} (day|week|month|year)s? ago\b", re.IGNORECASE)
_LAST_N = re.compile(rf"\b(?:last|past|previous) {_NUMBER} (day|week|month|year)s?\b", re.IGNORECASE)
_FIRST = re.compile(r"\b(?:first time|earliest|originally|initially|at first|the first)\b", re.IGNORECASE)
#: "As we said last time" does not ask for the latest; "the last time we" does.
_LATEST = re.compile(
    r"\b(?:most recent(?:ly)?|latest|newest|(?<!from )(?<!like )last time (?:that )?(?:i|we|you|he|she|they))\b",
    re.IGNORECASE,
)

_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}


@dataclass(frozen=True, slots=True)
class When:
    """A period from `since` up to `before` (Unix seconds), if named; `words` name it relative to today.

    `end` is set if the question asks for the first or the latest item.
    """

    since: float | None = None
    before: float | None = None
    words: frozenset[str] = frozenset()
    end: Literal["first", "latest"] | None = None


NO_TIME = When()


def when_asked(text: str, now: datetime) -> When:
    """Parse the time in a question; `now` has the user's zone, or none for the computer's."""
    end: Literal["first", "latest"] | None = None
    if _FIRST.search(text):
        end = "first"
    elif _LATEST.search(text):
        end = "latest"
    try:
        start, stop, named = next(_periods(text, now))
        since, before = start.timestamp(), stop.timestamp()
    # No period, the 31st of February, a thousand years ago, or the year 1, which is out of range in some zones.
    except (StopIteration, ValueError, OverflowError):
        return When(end=end)
    return When(since, before, frozenset(re.findall(r"\w+", named.casefold())), end)


def _periods(text: str, now: datetime) -> Iterator[tuple[datetime, datetime, str]]:
    """Yield all named periods, the most exact first, with their purely relative words."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if found := _ISO.search(text):
        yield *_day(today, int(found[1]), int(found[2]), int(found[3])), ""
    if found := _DAY_MONTH.search(text):
        yield *_dated(today, found[3], _month(found[2]), int(found[1])), ""
    if found := _MONTH_DAY.search(text):
        yield *_dated(today, found[3], _month(found[1]), int(found[2])), ""
    if found := _IN_MONTH.search(text):
        month = _month(found[1])
        year = int(found[2]) if found[2] else today.year - (month > today.month)
        start = today.replace(year=year, month=month, day=1)
        yield start, _next_month(start), ""
    if found := _IN_YEAR.search(text):
        start = today.replace(year=int(found[1]), month=1, day=1)
        yield start, start.replace(year=start.year + 1), ""
    yield from _relative(text, today)


def _relative(text: str, today: datetime) -> Iterator[tuple[datetime, datetime, str]]:
    if found := _RELATIVE.search(text):
        start = today - timedelta(days=found[1].casefold() in {"yesterday", "last night"})
        yield start, start + timedelta(days=1), found[0]
    if found := _LAST_N.search(text):
        yield today - timedelta(days=_number(found[1]) * _UNIT_DAYS[found[2].casefold()]), _tomorrow(today), found[0]
    if found := _AGO.search(text):
        unit = _UNIT_DAYS[found[2].casefold()]
        start = today - timedelta(days=_number(found[1]) * unit)
        # "Two months ago" allows half a month on each side.
        yield start - timedelta(days=unit // 2), start + timedelta(days=1 + unit // 2), found[0]
    if found := _UNIT.search(text):
        start, stop = _unit(today, found[2].casefold())
        if found[1].casefold() != "this":
            start, stop = _unit(start - timedelta(days=6), found[2].casefold())
        yield start, stop, found[0]
    if found := _ON_DAY.search(text):
        back = (today.weekday() - _DAYS.index(found[1].casefold())) % 7 or 7
        yield today - timedelta(days=back), today - timedelta(days=back - 1), ""


def _unit(day: datetime, unit: str) -> tuple[datetime, datetime]:
    """Return the week, weekend, month or year of a day."""
    if unit == "month":
        start = day.replace(day=1)
        return start, _next_month(start)
    if unit == "year":
        start = day.replace(month=1, day=1)
        return start, start.replace(year=start.year + 1)
    monday = day - timedelta(days=day.weekday())
    return monday + timedelta(days=5 if unit == "weekend" else 0), monday + timedelta(days=7)


def _day(today: datetime, year: int, month: int, day: int) -> tuple[datetime, datetime]:
    start = today.replace(year=year, month=month, day=day)
    return start, start + timedelta(days=1)


def _dated(today: datetime, year: str | None, month: int, day: int) -> tuple[datetime, datetime]:
    """Return a day of a month, in the last twelve months if no year is named."""
    return _day(today, int(year) if year else today.year - ((month, day) > (today.month, today.day)), month, day)


def _next_month(start: datetime) -> datetime:
    return (start + timedelta(days=32)).replace(day=1)


def _tomorrow(today: datetime) -> datetime:
    return today + timedelta(days=1)


def _month(name: str) -> int:
    return _MONTHS.index(name.casefold()) + 1


def _number(word: str) -> int:
    return _NUMBERS.get(word.casefold()) or int(word)
