"""Time zones by their IANA names, and moments in them (pure). Moments are Unix seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from sprite.errors import PeerError

DEFAULT_ZONE = "UTC"
#: Latest time of an action: room for a century of repeats, and for every calendar's arithmetic.
LATEST = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
_NAME = re.compile(r"[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,2}")
#: Files beside the zones that are no zones, or that mean another zone on each machine.
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})


def known_zone(name: str) -> str:
    """Return the name of a zone. Raises PeerError if it is unknown."""
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
    """Return a moment as local time in that zone, without its zone."""
    return datetime.fromtimestamp(moment, ZoneInfo(tz)).replace(tzinfo=None, fold=0)


def moment(wall: datetime, tz: str) -> float:
    """Return the moment of a local time: the first if it occurs twice; an hour later if it never does."""
    return wall.replace(tzinfo=ZoneInfo(tz), fold=0).timestamp()
