"""How far a log was seen by what is made of it: by this, memory.db knows the log that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogMark:
    """A log's identity, its newest turn and a curation, with their times in Unix seconds; 0 where there is none.

    Neither identity nor times ever change, so a log that has other ones, or no such rows, is another one or an older.
    `log_id` is None in a memory.db from before logs had an identity.
    """

    log_id: str | None
    turn_id: int
    turn_at: float
    curation_id: int
    curation_at: float
