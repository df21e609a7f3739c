"""Time zones by their IANA names, and moments in them (pure). Moments are Unix seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from sprite.errors import PeerError

DEFAULT_ZONE = "UTC"
#: No time of an action lies beyond: room for a century of repeats, and for every calendar's arithmetic.
LATEST = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
_NAME = re.compile(r"[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,2}")
#: Files beside the zones that are none, or that mean another zone on each machine.
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})


def known_zone(name: str) -> str:
    """The name of a zone. PeerError where there is none of that name."""
    if not _is_zone(name):
        raise PeerError(
            f"There is no time zone {name[:60]!r}: name one like Europe/Berlin or UTC.", code="unknown_zone"
        )
    return name


def _is_zone(name: str) -> bool:
    if not _NAME.fullmatch(name) or name in _NO_ZONES or name.startswith(("posix/", "right/")):
        return False
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def local(moment: float, tz: str) -> datetime:
    """A moment as the clock on a wall in that zone shows it, without its zone."""
    return datetime.fromtimestamp(moment, ZoneInfo(tz)).replace(tzinfo=None, fold=0)


def moment(wall: datetime, tz: str) -> float:
    """When a clock on a wall shows this: the first time where it does so twice; an hour later where it never does."""
    return wall.replace(tzinfo=ZoneInfo(tz), fold=0).timestamp()
