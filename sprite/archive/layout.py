"""Database tables that are not in an archive, and why. `sprite/protocol/archive.py` has the archive's layout."""

from __future__ import annotations

from typing import Final

from sprite.protocol.archive import DatabaseName

_SHIPPED = "how much of it a store elsewhere has; a restored workspace ships all of it"
#: Tables that are not in an archive, and the reason.
NOT_STATE: Final[dict[tuple[DatabaseName, str], str]] = {
    ("transcript.db", "turn_outlines"): "made of the turns",
    ("workspace.db", "meta"): "numbers the events, names the newest bridge; both begin anew where restored",
    ("workspace.db", "events"): "what open pages have still to be told",
    ("transcript.db", "ship_changes"): _SHIPPED,
    ("workspace.db", "ship_changes"): _SHIPPED,
    ("workspace.db", "ship_state"): _SHIPPED,
    ("workspace.db", "ship_issued"): _SHIPPED,
    ("workspace.db", "ship_rows"): _SHIPPED,
    ("memory.db", "reports"): "made of the log",
    ("memory.db", "projection"): "how much of the log memory is made of",
    ("memory.db", "log_seen"): "how much of the log memory is made of",
}
