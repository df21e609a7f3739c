"""The journal of unfinished turns, for recovery after a killed process.

The table is in transcript.db; a turn's entries are deleted in the transaction that writes its observation. Times
are Unix seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sprite.database.connection import Database


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event of an unfinished turn."""

    turn_key: str
    session_id: str
    at: float
    event: str
    data: dict[str, Any]


class TurnJournal:
    """Append, read and delete journal entries."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def append(self, turn_key: str, session_id: str, event: str, data: Mapping[str, Any]) -> None:
        """Store one event of a turn until its observation is written."""
        await self._db.execute(
            "INSERT INTO turn_journal (turn_key, session_id, at, event, data_json) VALUES (?, ?, ?, ?, ?)",
            # Escaped to ASCII: the CLI's text can contain half a surrogate pair, which UTF-8 cannot encode.
            (turn_key, session_id, time.time(), event, json.dumps(data, default=str)),
        )

    async def entries(self) -> list[JournalEntry]:
        """Return the events of turns that never ended, oldest first."""
        rows = await self._db.fetch_all(
            "SELECT turn_key, session_id, at, event, data_json FROM turn_journal ORDER BY id"
        )
        return [JournalEntry(r[0], r[1], r[2], r[3], json.loads(r[4])) for r in rows]

    async def drop(self, turn_key: str) -> None:
        """Delete the entries of a turn that is already in the log."""
        await self._db.execute("DELETE FROM turn_journal WHERE turn_key = ?", (turn_key,))
