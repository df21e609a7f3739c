"""Times as operators type and read them (pure)."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from typing import Final

from bridge.operating.control import ControlError

_UNITS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_AGO: Final = re.compile(rf"(\d{{1,6}}) ({'|'.join(_UNITS)})s? ago", re.IGNORECASE | re.ASCII)


def add_as_of(parser: argparse.ArgumentParser) -> None:
    """Add `--as-of`."""
    parser.add_argument(
        "--as-of",
        metavar="TIME",
        help="what is kept, as it was then: 2026-11-22T10:30 (in UTC, unless it says another zone) or '2 hours ago'",
    )


def moment(text: str, now: float) -> float:
    """Parse a typed time into Unix seconds, relative to `now`.

    Raises ControlError if it is invalid or in the future.
    """
    text = text.strip()
    if (found := _AGO.fullmatch(text)) is not None:
        return now - int(found[1]) * _UNITS[found[2].lower()]
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ControlError(f"{text[:40]!r} is no time: say 2026-11-22T10:30, or '2 hours ago'.") from None
    if seconds > now:
        raise ControlError(f"{text[:40]} is yet to come. Times without a zone are in UTC.")
    return seconds


def ago(seconds: float) -> str:
    """Return an age in the largest unit that fits."""
    name, size = next(((name, size) for name, size in reversed(_UNITS.items()) if seconds >= size), ("second", 1))
    count = max(0, int(seconds / size))
    return "just now" if count == 0 else f"{count} {name}{'' if count == 1 else 's'} ago"
