"""Due times: parse what people and models write, and show times as text (pure). Moments are Unix seconds."""

from __future__ import annotations

import math
import re
from datetime import datetime, time, timedelta

from sprite.common.recurrence import DEFAULT_ZONE, LATEST, Repeat, local, moment, parse_rule
from sprite.errors import PeerError

#: The time of day for a date without a time.
MORNING = time(9)
_ISO = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:(?:T| at | )(\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)\s?(Z|[+-]\d{2}:?\d{2})?)?",
    re.IGNORECASE,
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
        raise PeerError(f"{text!r} is not a time: {_HOW}.", code="bad_due") from error


def _moment_in(text: str, tz: str, now: float) -> float:
    """Return the moment that a text names. Raise ValueError if it names none."""
    if found := _ISO.fullmatch(text):
        day, clock, offset = found.groups()
        clock = _two_digits(clock or MORNING.isoformat())
        if offset is not None:
            return datetime.fromisoformat(f"{day}T{clock}{offset}").timestamp()
        return moment(datetime.fromisoformat(f"{day}T{clock}"), tz)
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
    at = moment(datetime.combine(day, time.fromisoformat(_two_digits(clock)) if clock else MORNING), tz)
    if word is None and at <= now:
        at = moment(datetime.combine(day + timedelta(days=1), local(at, tz).time()), tz)
    return at


def _two_digits(clock: str) -> str:
    return clock if clock[2] == ":" else f"0{clock}"


_DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = "January February March April May June July August September October November December".split()
_UNITS = {
    "YEARLY": "year",
    "MONTHLY": "month",
    "WEEKLY": "week",
    "DAILY": "day",
    "HOURLY": "hour",
    "MINUTELY": "minute",
}
_ORDINALS = {
    1: "first",
    2: "second",
    3: "third",
    4: "fourth",
    5: "fifth",
    -1: "last",
    **{-nth: f"{nth}th last" for nth in (4, 5)},
    -2: "second last",
    -3: "third last",
}
_WORKDAYS = tuple((0, day) for day in range(5))
_SPANS = ((86_400, "day"), (3600, "hour"), (60, "minute"))


def moment_words(at: float, tz: str) -> str:
    """Return a moment in local time: "Tue 2026-12-01 09:00 Europe/Berlin"."""
    wall = local(at, tz)
    return f"{_DAY_NAMES[wall.weekday()][:3]} {wall:%Y-%m-%d %H:%M} {tz}"


def due_words(due: float | None, rrule: str | None, tz: str | None) -> str:
    """Return due time and repeat: "Tue 2026-12-01 09:00 Europe/Berlin, then every Monday"; empty if never."""
    if due is None:
        return repeat_words(rrule) if rrule else ""
    when = moment_words(due, tz or DEFAULT_ZONE)
    return f"{when}, then {repeat_words(rrule)}" if rrule else when


def span_words(seconds: float) -> str:
    """Return a duration in its largest unit, rounded down: "3 hours"."""
    for length, unit in _SPANS:
        if seconds >= length:
            return _several(int(seconds // length), unit)
    return "less than a minute"


def repeat_words(rule: str) -> str:
    """Return a repeat as text, "every weekday at 08:00", or the rule itself if that is not possible."""
    try:
        repeat = parse_rule(rule)
    except PeerError:
        return f"by the rule {rule}"
    if repeat.by_set_pos or (repeat.is_within_days and (repeat.by_hour or repeat.by_minute)):
        return f"by the rule {rule}"
    words = [_how_often(repeat), _on_days(repeat), _in_months(repeat), _at(repeat), _end(repeat)]
    return " ".join(word for word in words if word)


def _how_often(repeat: Repeat) -> str:
    unit = _UNITS[repeat.frequency]
    if repeat.interval == 1 and repeat.frequency in {"DAILY", "WEEKLY"} and repeat.by_day and not repeat.by_month_day:
        return f"every {_day_list(repeat)}"
    return f"every {unit}" if repeat.interval == 1 else f"every {_several(repeat.interval, unit)}"


def _day_list(repeat: Repeat) -> str:
    if repeat.by_day == _WORKDAYS:
        return "weekday"
    return _listed([f"{_ORDINALS[nth]} {_DAY_NAMES[day]}" if nth else _DAY_NAMES[day] for nth, day in repeat.by_day])


def _on_days(repeat: Repeat) -> str:
    words = []
    if repeat.by_month_day:
        words.append(
            "on day " + _listed([str(day) if day > 0 else f"{-day} from the end" for day in repeat.by_month_day])
        )
    if repeat.by_day and not _how_often(repeat).endswith(_day_list(repeat)):
        words.append(f"on {'a' if words else 'the' if repeat.by_day[0][0] else 'each'} {_day_list(repeat)}")
    return ", ".join(words)


def _in_months(repeat: Repeat) -> str:
    return f"in {_listed([_MONTHS[month - 1] for month in repeat.by_month])}" if repeat.by_month else ""


def _at(repeat: Repeat) -> str:
    if not repeat.by_hour:
        return ""
    return "at " + _listed([f"{hour:02}:{minute:02}" for hour in repeat.by_hour for minute in repeat.by_minute or (0,)])


def _end(repeat: Repeat) -> str:
    if repeat.count is not None:
        return f"({_several(repeat.count, 'time')})"
    return f"until {repeat.until:%Y-%m-%d}" if repeat.until is not None else ""


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _several(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"
