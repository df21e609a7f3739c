"""Due times and repeats as text, and this machine's time zone. Times are Unix seconds."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_DAYS = {
    "MO": "Monday",
    "TU": "Tuesday",
    "WE": "Wednesday",
    "TH": "Thursday",
    "FR": "Friday",
    "SA": "Saturday",
    "SU": "Sunday",
}
_UNITS = {
    "MINUTELY": "minute",
    "HOURLY": "hour",
    "DAILY": "day",
    "WEEKLY": "week",
    "MONTHLY": "month",
    "YEARLY": "year",
}
#: Inside the year 9999 in every time zone.
_LATEST = 253_402_214_400.0
_NEAR = {-1: "yesterday", 0: "today", 1: "tomorrow"}
_WEEK_DAYS = 7
_LOCAL_TIME = Path("/etc/localtime")
_ZONES = "zoneinfo/"
#: Zones of machines without a location, which are no information about the person.
_NOWHERE = frozenset({"UTC", "Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "Universal", "UCT", "Zulu", "GMT"})


def moment_words(at: float, now: float | None = None) -> str:
    """Return a local time as text: `today 14:03`, `Tue 09:00` within a week, `2026-12-01 09:00`."""
    then, today = _clock(at), _clock(time.time() if now is None else now)
    days = (then.date() - today.date()).days
    day = _NEAR.get(days) or (f"{then:%a}" if abs(days) < _WEEK_DAYS else f"{then:%Y-%m-%d}")
    return f"{day} {then:%H:%M}"


def due_words(due: float, tz: str | None, now: float | None = None) -> str:
    """Return a due time as text, with the time in `tz` if that differs from the local one."""
    is_late = due < (time.time() if now is None else now)
    words = f"overdue since {moment_words(due, now)}" if is_late else moment_words(due, now)
    there = _on_clock_of(tz, due)
    here = _clock(due)
    if (there.date(), there.hour, there.minute) == (here.date(), here.hour, here.minute):
        return words
    day = "" if there.date() == here.date() else f"{there:%Y-%m-%d} "
    return f"{words} ({day}{there:%H:%M} in {tz})"


def repeat_words(rrule: str, due: float | None, tz: str | None) -> str:
    """Return a repeat as text such as `every weekday at 08:00`, or the rule itself if it is too complex."""
    rule = dict(part.split("=", 1) for part in rrule.upper().split(";") if "=" in part)
    unit = _UNITS.get(rule.pop("FREQ", ""))
    interval, days = rule.pop("INTERVAL", "1"), rule.pop("BYDAY", "")
    hour, minute = rule.pop("BYHOUR", ""), rule.pop("BYMINUTE", "0")
    names = [_DAYS.get(day, "") for day in days.split(",")] if days else []
    if unit is None or rule.keys() - {"WKST"} or not all(names) or not (f"{hour or 0}{minute}").isdecimal():
        return f"repeats by {rrule}"
    often = f"every {unit}" if interval == "1" else f"every {interval} {unit}s"
    if names and interval == "1" and unit in {"day", "week"}:
        often = "every weekday" if set(days.split(",")) == {*list(_DAYS)[:5]} else f"every {_listed(names)}"
    elif names:
        often += f" on {_listed(names)}"
    if hour:
        return f"{often} at {int(hour):02}:{int(minute):02}"
    at = _on_clock_of(tz, due) if due is not None and unit not in {"minute", "hour"} else None
    return f"{often} at {at:%H:%M}" if at is not None else often


def own_zone(setting: str) -> str | None:
    """Return this machine's IANA time zone, from `setting` (TZ) or /etc/localtime; None if it is unset or UTC."""
    name = setting.removeprefix(":")
    if not name and _LOCAL_TIME.is_symlink():
        _, _, name = str(_LOCAL_TIME.resolve()).partition(_ZONES)
    return name if name and name not in _NOWHERE and _zone(name) is not None else None


def _on_clock_of(tz: str | None, at: float) -> datetime:
    return _clock(at, _zone(tz) if tz else None)


def _clock(at: float, zone: ZoneInfo | None = None) -> datetime:
    """Return the time in a zone, by default the local one. Times out of range are clamped."""
    return datetime.fromtimestamp(min(max(at, 0.0), _LATEST), zone)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
