"""From plain words to the `schedule` tool: "remind me tomorrow at 9 to call Bo", "every weekday at 8 draw a table ...".

Pure: text and the present moment in, the tool's input out. Days and times are given as the person's wall clock says
them, and only what lies so many minutes or hours ahead as a moment.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from sprite.protocol.tools import OWN_TOOLS

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CODES = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_UNITS = {"minute": 60, "min": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_DAY = rf"(?:{'|'.join(_DAYS)})"
_CLOCK = r"(?:\s*,?\s+at\s+(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>am|pm)?\b)?"
_TO = r"\s*,?\s*(?:to\s+|that\s+|about\s+)?(?P<what>\S.*)"
#: Where a sentence or a request begins: "I drink tea every day with milk" is none.
_EVERY = re.compile(
    rf"(?:\A|[.!?;:,\n]\s*|\b(?:please|remind me)\s+)every\s+(?P<every>weekday|day|morning|{_DAY})\b{_CLOCK}"
    r"\s*,?\s*(?:please\s+|(?:remind me )?(?:to|that|about)\s+)?(?P<what>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_AHEAD = re.compile(
    rf"\bremind me in\s+(?P<count>an?|\d{{1,4}})\s+(?P<unit>{'|'.join(_UNITS)})s?\b{_TO}", re.IGNORECASE | re.DOTALL
)
_WHEN = rf"(?:(?:on\s+)?(?P<day>today|tomorrow|{_DAY}|\d{{4}}-\d{{2}}-\d{{2}}))"
_ON = re.compile(rf"\bremind me\s+{_WHEN}\b{_CLOCK}{_TO}", re.IGNORECASE | re.DOTALL)
_TO_ON = re.compile(
    rf"\bremind me\s+(?:to|that|about)\s+(?P<what>\S[^.!?\n]*?)\s+{_WHEN}\b{_CLOCK}", re.IGNORECASE | re.DOTALL
)
#: A morning's hour, where none is said.
_MORNING = (9, 0)

Call = tuple[str, dict[str, Any]]


def schedule_call(text: str, now: datetime) -> Call | None:
    """Returns `(tool name, input)` where `text` asks for something at a time; `now` is aware."""
    if found := _AHEAD.search(text):
        count = 1 if found["count"].lower() in {"a", "an"} else int(found["count"])
        due = now + timedelta(seconds=count * _UNITS[found["unit"].lower()])
        return _call(found["what"], due.timestamp())
    if found := _EVERY.search(text):
        return _repeated(found, now)
    if (found := _ON.search(text) or _TO_ON.search(text)) and (day := _day(found["day"].lower(), now)):
        at = _clock(found)
        return _call(found["what"], f"{day:%Y-%m-%d}T{at[0]:02}:{at[1]:02}" if at else f"{day:%Y-%m-%d}")
    return None


def _repeated(found: re.Match[str], now: datetime) -> Call:
    hour, minute = _clock(found) or _MORNING
    every = found["every"].lower()
    if every in {"day", "morning"}:
        rule, first = "FREQ=DAILY", {*range(7)}
    elif every == "weekday":
        rule, first = "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", {*range(5)}
    else:
        first = {_DAYS.index(every)}
        rule = f"FREQ=WEEKLY;BYDAY={_CODES[_DAYS.index(every)]}"
    # Tomorrow at the earliest: whether the hour of today has passed where the person is, is not known here.
    day = now + timedelta(days=1)
    while day.weekday() not in first:
        day += timedelta(days=1)
    name, arguments = _call(found["what"], f"{day:%Y-%m-%d}T{hour:02}:{minute:02}")
    return name, {**arguments, "rrule": rule}


def _call(what: str, due: float | str) -> Call:
    said = what.strip().rstrip(".!")
    return f"{OWN_TOOLS}schedule", {"content": said[:1].upper() + said[1:], "due": due}


def _day(word: str, now: datetime) -> datetime | None:
    if word in {"today", "tomorrow"}:
        return now + timedelta(days=word == "tomorrow")
    if word in _DAYS:
        return now + timedelta(days=(_DAYS.index(word) - now.weekday() - 1) % 7 + 1)
    try:
        return datetime.fromisoformat(word)
    except ValueError:
        return None


def _clock(found: re.Match[str]) -> tuple[int, int] | None:
    if found["hour"] is None:
        return None
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    if found["half"]:
        hour = hour % 12 + (12 if found["half"].lower() == "pm" else 0)
    return (hour, minute) if hour < 24 and minute < 60 else None  # noqa: PLR2004 - a day's hours, an hour's minutes
