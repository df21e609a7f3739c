"""The journal of the turn in the making: what a killed process leaves of a turn that never ended.

The table is transcript.db's; a turn's entries go in the transaction that writes its observation.
Times are Unix seconds.
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
    """One event of a turn that has not ended."""

    turn_key: str
    session_id: str
    at: float
    event: str
    data: dict[str, Any]


class TurnJournal:
    """The verbs of the journal."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def append(self, turn_key: str, session_id: str, event: str, data: Mapping[str, Any]) -> None:
        """Keeps one event of a turn, in one small insert, until the turn's observation is written."""
        await self._db.execute(
            "INSERT INTO turn_journal (turn_key, session_id, at, event, data_json) VALUES (?, ?, ?, ?, ?)",
            # Escaped to ASCII, since what the CLI says can hold half a surrogate pair, which no file can.
            (turn_key, session_id, time.time(), event, json.dumps(data, default=str)),
        )

    async def entries(self) -> list[JournalEntry]:
        """What turns that never ended left behind, oldest first."""
        rows = await self._db.fetch_all(
            "SELECT turn_key, session_id, at, event, data_json FROM turn_journal ORDER BY id"
        )
        return [JournalEntry(r[0], r[1], r[2], r[3], json.loads(r[4])) for r in rows]

    async def drop(self, turn_key: str) -> None:
        """Removes what a turn left behind that is in the log already."""
        await self._db.execute("DELETE FROM turn_journal WHERE turn_key = ?", (turn_key,))
