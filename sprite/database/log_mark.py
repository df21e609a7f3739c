"""Position of memory.db in its log, used to detect that a log is another or an older one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogMark:
    """A log's identity, its newest turn and a curation, with their times in Unix seconds; 0 if there is none.

    Identity and times never change. So a log with other values, or without these rows, is another or an older one.
    `log_id` is None in a memory.db from before logs had an identity.
    """

    log_id: str | None
    turn_id: int
    turn_at: float
    curation_id: int
    curation_at: float
