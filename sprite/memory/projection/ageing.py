"""Remove dated reminders whose day has passed (pure).

Only lines that begin with their day are removed by code; the curator judges all others. Removed lines stay in the
archive, and an open action stays open.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from sprite.memory.sections import PIN, UNPIN

#: A day is over when it is over everywhere on earth: a rebuild must not depend on its location.
_LAST_ZONE = timedelta(hours=12)
_SECTION = "## reminders"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATED = re.compile(rf"\s{{0,8}}[-*] \**(?:on |by |before )?{_DAY}", re.IGNORECASE)
_DAYS = re.compile(rf"\b{_DAY}\b")


def without_past_reminders(content: str, at: float) -> tuple[str, list[str]]:
    """Return a file without reminders past at a time (Unix seconds), and those lines. Pinned lines stay."""
    today = (datetime.fromtimestamp(at, UTC) - _LAST_ZONE).strftime("%Y-%m-%d")
    kept: list[str] = []
    gone: list[str] = []
    is_reminder = is_pinned = False
    for line in content.split("\n"):
        if line.startswith("## "):
            is_reminder = line.strip().casefold() == _SECTION
        is_pinned = line.strip() != UNPIN and (is_pinned or line.strip() == PIN)
        if is_reminder and not is_pinned and _DATED.match(line) and max(_DAYS.findall(line)) < today:
            gone.append(line.strip())
        else:
            kept.append(line)
    return "\n".join(kept), gone
