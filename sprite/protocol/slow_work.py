"""Work that has been open for too long: its name and age (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from sprite.protocol.shapes import SlowWork

#: Work that takes longer is reported with its age.
SLOW_SECONDS = 60.0
_MINUTE, _HOUR = 60, 3600
_WORDS = {
    "turn": "a turn has been running for {}",
    "queue": "a message has been waiting for {}",
    "model_call": "a call of the model has had no answer for {}",
}


def slow(work: Iterable[SlowWork], now: float) -> list[SlowWork]:
    """Return the work that has been open for longer than SLOW_SECONDS."""
    return [each for each in work if now - each.since > SLOW_SECONDS]


def oldest(work: Iterable[SlowWork]) -> list[SlowWork]:
    """Return the oldest work of each kind, in the fixed order of the kinds."""
    found: dict[str, SlowWork] = {}
    for each in sorted(work, key=lambda one: one.since):
        found.setdefault(each.kind, each)
    return [found[kind] for kind in _WORDS if kind in found]


def slow_words(work: Iterable[SlowWork], now: float) -> list[str]:
    """Return a text for people for each piece of work."""
    return [_WORDS[each.kind].format(age(now - each.since)) for each in work]


def age(seconds: float) -> str:
    """Return a duration as text: "75 s", "3 min", "2 h 5 min"."""
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole} s"
    if whole < 2 * _HOUR:
        return f"{whole // _MINUTE} min"
    hours, rest = divmod(whole, _HOUR)
    return f"{hours} h {rest // _MINUTE} min"
