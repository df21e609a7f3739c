"""Parse repeats as people type them, "weekday at 8" or "2 hours", to RRULE (pure); a rule stays unchanged."""

from __future__ import annotations

import re

from sprite.errors import PeerError
from sprite.schedules.recurrence import WEEKDAYS, parse_rule

_UNITS = {
    "minute": "MINUTELY",
    "hour": "HOURLY",
    "day": "DAILY",
    "week": "WEEKLY",
    "month": "MONTHLY",
    "year": "YEARLY",
}
_DAYS = dict(zip(("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"), WEEKDAYS, strict=True))
_AT = re.compile(r"(?:^|\s)(?:at )?(\d{1,2})(?::(\d{2}))?$")
_OFTEN = re.compile(r"(\d{1,4} )?(minute|hour|day|week|month|year)s?")
_LIST = re.compile(r"\s*(?:,|\band\b)\s*|\s+")


def rule_of(text: str) -> str:
    """Return the rule for a text: FREQ=... itself, "day", "weekday at 8", "monday and thursday at 9:30", "2 weeks".

    Raises PeerError (`bad_repeat`, `too_often`) for an invalid one.
    """
    if "=" in text:
        parse_rule(text)
        return "".join(text.split()).upper().removeprefix("RRULE:").rstrip(";")
    said = " ".join(text.lower().split()).removeprefix("every ")
    clock = ""
    if (at := _AT.search(said)) is not None and not _OFTEN.fullmatch(said):
        said = said[: at.start()].strip()
        clock = f";BYHOUR={int(at[1])};BYMINUTE={int(at[2] or 0)}"
    rule = f"{_rule(said, text)}{clock}"
    parse_rule(rule)
    return rule


def _rule(said: str, text: str) -> str:
    if said.rstrip("s") == "weekday":
        return "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"
    if found := _OFTEN.fullmatch(said):
        interval = f";INTERVAL={int(found[1])}" if found[1] else ""
        return f"FREQ={_UNITS[found[2]]}{interval}"
    days = [_DAYS.get(name.removesuffix("s")) for name in _LIST.split(said)]
    if not said or None in days:
        raise PeerError(
            f"{text[:60]!r} is no repeat: say day, weekday, monday and friday, 2 weeks, weekday at 8, or a rule like "
            "FREQ=MONTHLY;BYMONTHDAY=1.",
            code="bad_repeat",
        )
    return f"FREQ=WEEKLY;BYDAY={','.join(day for day in days if day)}"
