"""Significant words: the offline model's only measure of similarity.

Used by recall (memory lines that answer a question) and by the curator (the line that a correction replaces). Pure.
"""

import re
from typing import Any

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_STOP_WORDS = frozenset(
    """
    a about again all also am an and any anything are as at be been being but by call called can could did do does
    doing don't
    everything for from had has have how i i'd i'll i'm i've if in into is it it's its just
    know let me my of off on or our please recall remember said say shall should so tell than that the
    their them then there these they thing this those to too us use used uses using was we were what
    what's when where which who whom whose why will with would you your yours
    user user's users assistant team team's now no not yes actually exactly still currently
    """.split()
)
# Words with the same meaning in questions. Left: spelling in a text; right: the spelling that is compared.
_SAME = {
    "wrote": "write",
    "written": "write",
    "favorite": "favourite",
    "color": "colour",
    "preferred": "prefer",
    "preference": "prefer",
    "living": "live",
    "working": "work",
    "job": "work",
    "installed": "install",
    "todo": "action",
}
_SHORTEST_PLURAL = 4


def _stem(word: str) -> str:
    """Remove simple plurals and possessives: "dates" and "date's" are both "date"."""
    word = word.removesuffix("'s")
    if len(word) >= _SHORTEST_PLURAL:
        if word.endswith("ies"):
            word = word[:-3] + "y"
        elif word.endswith(("xes", "ches", "shes", "sses")):
            word = word[:-2]
        elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
    return _SAME.get(word, word)


def significant(text: str) -> frozenset[str]:
    """Return the stemmed words of `text` without stop words."""
    words = _WORD.findall(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    return frozenset(_stem(word) for word in words if word not in _STOP_WORDS)


def normalised(text: str) -> str:
    """Return the words of `text` in lower case, for the detection of repeats."""
    return " ".join(_WORD.findall(text.lower()))


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
        return {**asked, "rrule": _rule(every)}
    if soon := said.get("soon"):
        return {**asked, "due": soon}
    day, clock = said["day"].lower().removeprefix("on "), said.get("clock")
    return {**asked, "due": f"{day} {clock if ':' in clock else f'{clock}:00'}" if clock else day}


def _rule(every: str) -> str:
    """Return the RFC 5545 rule of "every weekday at 8"."""
    _, day, *clock = every.lower().replace(" at ", " ").split()
    days = "MO,TU,WE,TH,FR" if day == "weekday" else day[:2].upper()
    rule = "FREQ=DAILY" if day == "day" else f"FREQ=WEEKLY;BYDAY={days}"
    hour, _, minute = clock[0].partition(":") if clock else ("", "", "")
    return f"{rule};BYHOUR={int(hour)};BYMINUTE={int(minute or 0)}" if hour else rule
