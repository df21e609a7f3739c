"""Parse reminders and repeats in plain English into input of the agent's `schedule` tool (pure)."""

import re
from typing import Any

_CLOCK = r"\d{1,2}(?::\d{2})?"
_DAYS = r"(?:day|weekday|(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_DATE = r"\d{4}-\d{2}-\d{2}"
_WHEN = (
    r"(?P<soon>in \d+ (?:minute|hour|day|week)s?)"
    rf"|(?P<day>today|tomorrow|(?:on )?{_DATE})(?:,? at (?P<clock>{_CLOCK}))?"
    rf"|(?P<every>every {_DAYS}(?: at {_CLOCK})?)"
)
_FIRST = re.compile(rf"\bremind me,? (?:{_WHEN}),? (?:to|of|about) (?P<what>.+)", re.IGNORECASE)
_LAST = re.compile(rf"\bremind me (?:to|of|about) (?P<what>.+?),? (?:{_WHEN})[.!]?\s*\Z", re.IGNORECASE | re.DOTALL)
_REPEATED = re.compile(
    rf"\A(?P<every>every {_DAYS}(?: at {_CLOCK})?),? (?P<what>(?!(?:i|we|he|she|they|it|my|our|the)\b).+)",
    re.IGNORECASE | re.DOTALL,
)


def reminder(text: str) -> dict[str, Any] | None:
    """Return the tool's input for "remind me tomorrow at 9 to call Bo" or "every weekday at 8 ...", else None."""
    found = _FIRST.search(text) or _LAST.search(text) or _REPEATED.search(text.strip())
    if found is None:
        return None
    said = found.groupdict()
    asked: dict[str, Any] = {"content": said["what"].strip().rstrip(".!")}
    if every := said["every"]:
        return {**asked, "rrule": every}
    if soon := said.get("soon"):
        return {**asked, "due": soon}
    day, clock = said["day"].lower().removeprefix("on "), said.get("clock")
    return {**asked, "due": f"{day} {clock if ':' in clock else f'{clock}:00'}" if clock else day}
