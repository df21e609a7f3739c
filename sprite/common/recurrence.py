"""Repeats (RFC 5545 RRULE): parse, check, and compute the next moment in the zone's local time (pure; Unix seconds).

python-dateutil enumerates days, and this module times within a day: dateutil would search for minutes after a minute
that no day has. At most `_HORIZON_DAYS` days are examined, so any rule takes at most some tenths of a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from typing import Literal
from zoneinfo import ZoneInfo

from dateutil.rrule import DAILY, HOURLY, MINUTELY, MONTHLY, WEEKLY, YEARLY, rrule, weekday

from sprite.errors import PeerError

DEFAULT_ZONE = "UTC"
#: Latest time of an action: room for a century of repeats, and for every calendar's arithmetic.
LATEST = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
_NAME = re.compile(r"[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,2}")
#: Files beside the zones that are no zones, or that mean another zone on each machine.
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})


def known_zone(name: str) -> str:
    """Return the name of a zone. Raises PeerError if it is unknown."""
    if _NAME.fullmatch(name) and name not in _NO_ZONES and not name.startswith(("posix/", "right/")):
        with suppress(KeyError, ValueError, OSError):
            return ZoneInfo(name).key
    raise PeerError(f"There is no time zone {name[:60]!r}: name one like Europe/Berlin or UTC.", code="unknown_zone")


def local(moment: float, tz: str) -> datetime:
    """Return a moment as local time in that zone, without its zone."""
    return datetime.fromtimestamp(moment, ZoneInfo(tz)).replace(tzinfo=None, fold=0)


def moment(wall: datetime, tz: str) -> float:
    """Return the moment of a local time: the first if it occurs twice; an hour later if it never does."""
    return wall.replace(tzinfo=ZoneInfo(tz), fold=0).timestamp()


#: Minimum interval between two firings.
LEAST_GAP_SECONDS = 300
MAX_RULE_CHARS = 300
#: Limit for COUNT; use a rule without an end, or UNTIL, for more.
MOST_TIMES = 1000
MOST_INTERVAL = 1000
#: Steps of at most this many days or minutes reach every minute of the day in fewer candidate days.
_HORIZON_DAYS = 1100
#: The calendar repeats after this many years, including weekdays. Near its end, dateutil stops early.
_CYCLE_YEARS = 400
_FREQUENCIES: dict[str, Literal[0, 1, 2, 3, 4, 5]] = {
    "YEARLY": YEARLY,
    "MONTHLY": MONTHLY,
    "WEEKLY": WEEKLY,
    "DAILY": DAILY,
    "HOURLY": HOURLY,
    "MINUTELY": MINUTELY,
}
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_RANGES = {"BYHOUR": (0, 23), "BYMINUTE": (0, 59), "BYMONTH": (1, 12), "BYMONTHDAY": (-31, 31), "BYSETPOS": (-31, 31)}
_BY_DAY = re.compile(r"([+-]?[1-5])?(MO|TU|WE|TH|FR|SA|SU)")
_UNTIL = re.compile(r"(\d{8})(?:T(\d{6})(Z)?)?")


@dataclass(frozen=True, slots=True)
class Repeat:
    """A parsed RRULE: its parts, with lists sorted and empty if the rule lacks them.

    `by_day` are (ordinal or 0, weekday from 0 for Monday); `until` is local time unless `until_is_utc`.
    """

    frequency: str
    interval: int = 1
    count: int | None = None
    until: datetime | None = None
    until_is_utc: bool = False
    by_day: tuple[tuple[int, int], ...] = ()
    by_month_day: tuple[int, ...] = ()
    by_month: tuple[int, ...] = ()
    by_set_pos: tuple[int, ...] = ()
    by_hour: tuple[int, ...] = ()
    by_minute: tuple[int, ...] = ()
    week_start: int = 0

    @property
    def is_within_days(self) -> bool:
        """Whether the rule's frequency is hourly or by minutes, instead of daily or longer."""
        return self.frequency in {"HOURLY", "MINUTELY"}


@lru_cache(maxsize=256)
def parse_rule(text: str) -> Repeat:
    """Parse a rule. Raises PeerError (`bad_repeat`) if it is invalid, `too_often` if it is too dense."""
    if len(text) > MAX_RULE_CHARS:
        raise PeerError(f"A repeat has at most {MAX_RULE_CHARS} characters.", code="bad_repeat")
    try:
        repeat = _read(text)
    except (ValueError, KeyError) as error:
        words = str(error) if isinstance(error, ValueError) and error.args else "it cannot be read"
        raise PeerError(
            f"{text[:80]!r} is not a valid repeat: {words}. Write it like FREQ=WEEKLY;BYDAY=MO or FREQ=DAILY;BYHOUR=8.",
            code="bad_repeat",
        ) from error
    if (gap := _least_gap_minutes(repeat)) * 60 < LEAST_GAP_SECONDS:
        often = "every minute" if gap == 1 else f"{gap} minutes apart"
        raise PeerError(
            f"{text[:80]!r} would fire {often}: at most every {LEAST_GAP_SECONDS // 60} minutes.", code="too_often"
        )
    return repeat


def first_after(rule: str, tz: str, after: float) -> float | None:
    """Return the first moment of a rule that has no start yet, after `after`; None if there is none.

    It is on the rule's days, at the rule's hour or 09:00.
    """
    repeat = parse_rule(rule)
    start = local(after, tz).replace(second=0, microsecond=0)
    if not repeat.is_within_days:
        start = start.replace(hour=9, minute=0)
    elif repeat.by_minute or repeat.by_hour:
        start = start.replace(minute=0)
    return _first(repeat, start, tz, after)


def next_after(rule: str, first: float, tz: str, after: float) -> float | None:
    """Return the rule's next moment after another one, or None if there is none.

    `first` is the action's first due time, the base for intervals and counts. It need not fit the rule: it fires in
    any case, and is not one of the rule's moments.
    """
    return _first(parse_rule(rule), local(first, tz), tz, after)


def missed(rule: str, first: float, tz: str, since: float, until: float, most: int = 1000) -> int:
    """Return how many of a rule's moments are after `since` and not after `until`, at most `most`."""
    repeat, count, at = parse_rule(rule), 0, since
    for at in _moments(repeat, local(first, tz), tz, since):
        if at > until or count >= most:
            break
        count += at > since
    return count


def _first(repeat: Repeat, start: datetime, tz: str, after: float) -> float | None:
    return next((at for at in _moments(repeat, start, tz, after) if at > after), None)


def _moments(repeat: Repeat, start: datetime, tz: str, after: float) -> Iterator[float]:
    """Yield a rule's moments in Unix seconds, in order; the first ones may be before `after`."""
    until, start = repeat.until, _forwarded(repeat, start, local(after, tz) - timedelta(days=2))
    if repeat.is_within_days:
        walls = _within_days(repeat, start)
    else:
        walls = _moments_of(repeat, start, repeat.frequency, repeat.interval, times=True)
    for wall in islice(walls, repeat.count):
        at = moment(wall, tz)
        if until is not None and (at > moment(until, "UTC") if repeat.until_is_utc else wall > until):
            return
        if at > LATEST:
            return
        yield at


def _forwarded(repeat: Repeat, start: datetime, before: datetime) -> datetime:
    """Return a later start, not after `before`, from which a rule has the same moments as from `start`.

    Return `start` itself if the rule counts its moments, or has few of them.
    """
    step = {"DAILY": 1440, "WEEKLY": 10_080, "HOURLY": 60, "MINUTELY": 1}.get(repeat.frequency)
    if step is None or repeat.count is not None or before <= start:
        return start
    step *= repeat.interval
    return start + timedelta(minutes=step * int((before - start) / timedelta(minutes=step)))


def _within_days(repeat: Repeat, start: datetime) -> Iterator[datetime]:
    """Yield the local times from `start` on of an hourly rule, or one by minutes, on all days that match it."""
    step = repeat.interval * (60 if repeat.frequency == "HOURLY" else 1)
    # The start's minute applies to all hours unless the rule names minutes: then those of each hour are examined.
    if repeat.frequency == "HOURLY" and repeat.by_minute:
        origin, minutes = start.replace(minute=0), repeat.by_minute
    else:
        origin, minutes = start, ()
    midnight = start.replace(hour=0, minute=0, second=0)
    hours = frozenset(repeat.by_hour)
    for day in islice(_moments_of(repeat, midnight, "DAILY", 1, times=False), _HORIZON_DAYS):
        behind = max(0, int((day - origin).total_seconds() // 60))
        wall = origin + timedelta(minutes=-(-behind // step) * step)
        while wall.date() == day.date():
            if not hours or wall.hour in hours:
                if minutes:
                    yield from (at for minute in minutes if (at := wall.replace(minute=minute)) >= start)
                elif repeat.frequency == "HOURLY" or not repeat.by_minute or wall.minute in repeat.by_minute:
                    yield wall
            wall += timedelta(minutes=step)


def _moments_of(repeat: Repeat, start: datetime, frequency: str, interval: int, *, times: bool) -> Iterator[datetime]:
    """Return dateutil's local times for a rule, computed in the calendar's last years and moved back.

    So dateutil soon reaches the end of the calendar if a rule has no times.
    """
    years = (MAXYEAR - start.year) // _CYCLE_YEARS * _CYCLE_YEARS
    found = rrule(
        _FREQUENCIES[frequency],
        dtstart=start.replace(year=start.year + years),
        interval=interval,
        wkst=repeat.week_start,
        bymonth=repeat.by_month or None,
        bymonthday=repeat.by_month_day or None,
        byweekday=[weekday(day, ordinal or None) for ordinal, day in repeat.by_day] or None,
        bysetpos=(repeat.by_set_pos or None) if times else None,
        byhour=(repeat.by_hour or None) if times else None,
        byminute=(repeat.by_minute or None) if times else None,
    )
    return (wall.replace(year=wall.year - years) for wall in found)


# --- reading ---


def _read(text: str) -> Repeat:
    """Parse an RRULE. Raise ValueError with a text, or KeyError, if it is invalid."""
    parts = _parts(text)
    frequency = parts.pop("FREQ", "")
    if frequency not in _FREQUENCIES:
        raise ValueError(f"FREQ must be one of {', '.join(_FREQUENCIES)}")
    until, is_utc = _until(parts.pop("UNTIL", None))
    repeat = Repeat(
        frequency=frequency,
        interval=_number("INTERVAL", parts.pop("INTERVAL", "1"), MOST_INTERVAL),
        count=_number("COUNT", count, MOST_TIMES) if (count := parts.pop("COUNT", None)) is not None else None,
        until=until,
        until_is_utc=is_utc,
        by_day=_days(parts.pop("BYDAY", None)),
        by_month_day=_list(parts, "BYMONTHDAY"),
        by_month=_list(parts, "BYMONTH"),
        by_set_pos=_list(parts, "BYSETPOS"),
        by_hour=_list(parts, "BYHOUR"),
        by_minute=_list(parts, "BYMINUTE"),
        week_start=WEEKDAYS.index(parts.pop("WKST", "MO")),
    )
    if parts.pop("BYSECOND", "0") != "0":
        raise ValueError("seconds are not supported")
    if parts:
        raise ValueError(f"{min(parts)} is not supported: use months, days and hours")
    _refuse_what_does_not_go_together(repeat)
    return repeat


def _parts(text: str) -> dict[str, str]:
    rule = "".join(text.split()).upper().removeprefix("RRULE:").rstrip(";")
    parts: dict[str, str] = {}
    for part in rule.split(";"):
        name, sign, value = part.partition("=")
        if not sign or not value:
            raise ValueError(f"{part[:40]!r} is not NAME=VALUE")
        if name in parts:
            raise ValueError(f"{name[:40]} occurs twice")
        parts[name] = value
    return parts


def _refuse_what_does_not_go_together(repeat: Repeat) -> None:
    if repeat.count is not None and repeat.until is not None:
        raise ValueError("COUNT and UNTIL exclude each other")
    if any(ordinal for ordinal, _ in repeat.by_day) and repeat.frequency not in {"MONTHLY", "YEARLY"}:
        raise ValueError("a numbered weekday such as 1MO needs FREQ=MONTHLY or YEARLY")
    picks = repeat.frequency in {"MONTHLY", "YEARLY", "WEEKLY"} and (repeat.by_day or repeat.by_month_day)
    if repeat.by_set_pos and not picks:
        raise ValueError("BYSETPOS needs days, and FREQ=WEEKLY, MONTHLY or YEARLY")


def _number(name: str, text: str, most: int) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else 0
    if not 1 <= value <= most:
        raise ValueError(f"{name} must be a number from 1 to {most}")
    return value


def _list(parts: dict[str, str], name: str) -> tuple[int, ...]:
    text = parts.pop(name, None)
    if text is None:
        return ()
    low, high = _RANGES[name]
    values = set()
    for item in text.split(","):
        digits = item.removeprefix("+").removeprefix("-") if low < 0 else item
        if not (digits.isascii() and digits.isdigit() and low <= int(item) <= high):
            raise ValueError(f"{name} has {item[:20]!r}, but must be from {low} to {high}")
        values.add(int(item))
    if low < 0 and 0 in values:
        raise ValueError(f"{name} must not be 0")
    return tuple(sorted(values))


def _days(text: str | None) -> tuple[tuple[int, int], ...]:
    if text is None:
        return ()
    found = [_BY_DAY.fullmatch(item) for item in text.split(",")]
    if None in found:
        raise ValueError(f"BYDAY has {text[:40]!r}, but must be a list of {', '.join(WEEKDAYS)}, or 1MO, -1FR")
    return tuple(sorted({(int(item[1] or 0), WEEKDAYS.index(item[2])) for item in found if item is not None}))


def _until(text: str | None) -> tuple[datetime | None, bool]:
    """Parse an UNTIL value. Return (the last local or UTC moment, whether it is in UTC); a day means its end."""
    if text is None:
        return None, False
    found = _UNTIL.fullmatch(text)
    if found is None:
        raise ValueError("UNTIL must be a day like 20261231 or a time like 20261231T090000Z")
    day, clock, is_utc = found.groups()
    return datetime.strptime(f"{day}{clock or '235959'}", "%Y%m%d%H%M%S"), is_utc is not None  # noqa: DTZ007 - a wall's


# --- density ---


def _least_gap_minutes(repeat: Repeat) -> int:
    """Return a lower bound for the minutes between two moments."""
    if repeat.is_within_days:
        step = repeat.interval * (60 if repeat.frequency == "HOURLY" else 1)
        if not repeat.by_minute:
            return step
        # In an hourly rule each hour has all the minutes.
        return max(_least(repeat.by_minute, 60), step if repeat.frequency == "MINUTELY" else 1)
    clocks = sorted(hour * 60 + minute for hour in repeat.by_hour or (0,) for minute in repeat.by_minute or (0,))
    # Including over midnight: 23:59 and 00:01.
    return _least(clocks, 1440)


def _least(values: Sequence[int], cycle: int) -> int:
    if len(values) == 1:
        return cycle
    return min(later - earlier for earlier, later in pairwise([*values, values[0] + cycle]))


_WORDS = {
    "hour": "FREQ=HOURLY",
    "day": "FREQ=DAILY",
    "weekday": "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR",
    "week": "FREQ=WEEKLY",
    "month": "FREQ=MONTHLY",
    "year": "FREQ=YEARLY",
}


def rule_of(text: str) -> str:
    """Return the RRULE for a word such as `weekday`, or a checked RRULE itself. Raises the errors of `parse_rule`."""
    rule = _WORDS.get(text.strip().lower()) or "".join(text.split()).upper().removeprefix("RRULE:").rstrip(";")
    parse_rule(rule)
    return rule
