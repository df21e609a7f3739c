"""Paid model calls that gave no curation, and the turns they were about.

The rows are part of the log and append-only, so that a turn's count of failed calls outlives the process. An answer
has a row from its arrival until its curation is logged. So a crash in between neither hides its cost nor allows
endless repeats.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sprite.database.connection import Database, row_id, to_json

#: A control call without a turn: answered, or failed too. In the latter case the model is at fault, not a turn.
CONTROL_ANSWERED: Final = "control answered"
CONTROL_IN_VAIN: Final = "control in vain"
#: Reason of an answer whose curation is not in the log yet.
NOT_LOGGED: Final = "not logged"


@dataclass(frozen=True, slots=True)
class LostCall:
    """A call without a curation: `usage` in tokens, the inclusive range of turns, None for a control."""

    model: str
    reason: str
    usage: Mapping[str, Any]
    cost_usd: float | None
    turns: tuple[int, int] | None = None
    generation: int = 0


@dataclass(slots=True)
class Failures:
    """A turn's failed calls: in all, about it alone, and the newest one's turns and reason."""

    calls: int = 0
    alone: int = 0
    span: tuple[int, int] = (0, 0)
    reason: str = ""


class LostCalls:
    """Read and append failed calls."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def append(self, call: LostCall) -> int:
        """Log a call; return the row's id."""
        first, last = call.turns or (None, None)
        row = (time.time(), call.model, call.reason, to_json(call.usage), call.cost_usd, first, last, call.generation)

        def write(tx: sqlite3.Connection) -> int:
            cursor = tx.execute(
                "INSERT INTO lost_calls (created_at, model, reason, usage_json, cost_usd, first_observation_id, "
                "last_observation_id, generation) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            return row_id(cursor.lastrowid)

        return await self._db.transact(write)

    async def failures(self, turns: Sequence[int], generation: int) -> dict[int, Failures]:
        """Return each turn's failed calls in one extraction, without forgiven ones."""
        found = {turn: Failures() for turn in turns}
        first, last = min(turns), max(turns)
        forgiven = await self._forgiven(first, last)
        rows = await self._db.fetch_all(
            "SELECT id, first_observation_id, last_observation_id, reason FROM lost_calls WHERE generation = ?1 "
            "AND first_observation_id <= ?3 AND last_observation_id >= ?2 "
            "AND id > (SELECT coalesce(max(id), 0) FROM lost_calls WHERE reason = ?4) ORDER BY id",
            (generation, first, last, CONTROL_IN_VAIN),
        )
        for call, begins, ends, reason in rows:
            for turn in range(max(begins, first), min(ends, last) + 1):
                if turn in found and call > forgiven.get(turn, 0):
                    known = found[turn]
                    alone = known.alone + (begins == ends)
                    found[turn] = Failures(known.calls + 1, alone, (begins, ends), reason)
        return found

    async def _forgiven(self, first: int, last: int) -> dict[int, int]:
        rows = await self._db.fetch_all(
            "SELECT first_observation_id, max(json_extract(response, '$.forgiven')) FROM curations "
            "WHERE kind = 'quarantine' AND first_observation_id BETWEEN ? AND ? "
            "AND json_extract(response, '$.forgiven') IS NOT NULL GROUP BY first_observation_id",
            (first, last),
        )
        return {row[0]: row[1] for row in rows}

    async def is_model_in_doubt(self) -> bool:
        """Return whether the newest call to the model is a failed control."""
        newest = await self._db.fetch_one("SELECT reason FROM lost_calls ORDER BY id DESC LIMIT 1")
        return newest is not None and newest[0] == CONTROL_IN_VAIN
