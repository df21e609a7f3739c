"""Due times as text for people and the agent (pure). Times are Unix seconds."""

from __future__ import annotations

from datetime import datetime

from sprite.errors import PeerError
from sprite.schedules.recurrence import Repeat, parse_rule
from sprite.schedules.zones import DEFAULT_ZONE, local

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
    return f"until {_day(repeat.until)}" if repeat.until is not None else ""


def _day(wall: datetime) -> str:
    return f"{wall:%Y-%m-%d}"


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _several(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"
