"""Parse due times, as written by people and models, to Unix seconds (pure).

A day alone means 09:00. A moment without an offset is local time in the given zone.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, time, timedelta

from sprite.errors import PeerError
from sprite.schedules.zones import LATEST, local, moment

#: The time of day for a date without a time.
MORNING = time(9)
_ISO = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ]+(\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)\s?(Z|[+-]\d{2}:?\d{2})?)?", re.IGNORECASE
)
_SOON = re.compile(r"in (\d{1,5}) ?(minute|min|hour|h|day|week)s?", re.IGNORECASE)
_DAY = re.compile(r"(?:(today|tomorrow)(?: at)?)?(?:(?:^| )(\d{1,2}:\d{2}))?", re.IGNORECASE)
_SECONDS = {"minute": 60, "min": 60, "hour": 3600, "h": 3600}
_DAYS = {"day": 1, "week": 7}
_HOW = "write a day or a moment, like 2026-12-01 or 2026-12-01 09:00, or in 20 minutes"


def parse_due(value: float | str, tz: str, now: float) -> float:
    """Return a due time in Unix seconds from a number or a text: a day, a moment, "in 2 hours", "tomorrow 09:00".

    Raises PeerError (`bad_due`) for an invalid time. A past time is accepted.
    """
    at = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else _read(value, tz, now)
    if not math.isfinite(at) or at < 0 or at > LATEST:
        raise PeerError("That time is out of range: it has to be before the year 2200.", code="bad_due")
    return at


def _read(value: object, tz: str, now: float) -> float:
    text = " ".join(str(value)[:60].split())
    try:
        return _moment_in(text, tz, now)
    except (ValueError, OverflowError) as error:
        raise PeerError(f"{text!r} is no time: {_HOW}.", code="bad_due") from error


def _moment_in(text: str, tz: str, now: float) -> float:
    """Return the moment. Raises ValueError if the text is none."""
    if found := _ISO.fullmatch(text):
        day, clock, offset = found.groups()
        if offset is not None:
            return datetime.fromisoformat(f"{day}T{clock}{offset}").timestamp()
        wall = datetime.fromisoformat(f"{day}T{clock or MORNING.isoformat()}")
        return moment(wall, tz)
    if found := _SOON.fullmatch(text):
        number, unit = int(found[1]), found[2].lower()
        if unit in _SECONDS:
            return now + number * _SECONDS[unit]
        return moment(local(now, tz) + timedelta(days=number * _DAYS[unit]), tz)
    found = _DAY.fullmatch(text)
    if found is None or not text:
        raise ValueError(text)
    word, clock = found.groups()
    here = local(now, tz)
    day = here.date() + timedelta(days=word is not None and word.lower() == "tomorrow")
    at = moment(datetime.combine(day, time.fromisoformat(clock.zfill(5)) if clock else MORNING), tz)
    if word is None and at <= now:
        at = moment(datetime.combine(day + timedelta(days=1), local(at, tz).time()), tz)
    return at
