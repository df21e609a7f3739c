"""The log's quarantine: turns that curation set aside, and their release. They are never deleted.

An observation's `processed` is WAITING, CURATED or QUARANTINED, or permanently OFF_RECORD from the start. Each
change into and out of quarantine adds a curation row in the same transaction. Times are Unix seconds.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sprite.log.curations import NewCuration, append
from sprite.protocol.shapes import QuarantinedTurn
from sprite.storage.connection import Tables, in_transaction, row_id, to_json

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


class LostCalls(Tables):
    """Read and append failed calls."""

    @in_transaction
    def append(self, tx: sqlite3.Connection, call: LostCall) -> int:
        """Log a call; return the row's id."""
        first, last = call.turns or (None, None)
        row = (time.time(), call.model, call.reason, to_json(call.usage), call.cost_usd, first, last, call.generation)
        cursor = tx.execute(
            "INSERT INTO lost_calls (created_at, model, reason, usage_json, cost_usd, first_observation_id, "
            "last_observation_id, generation) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        return row_id(cursor.lastrowid)

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


WAITING: Final = 0
CURATED: Final = 1
QUARANTINED: Final = 2
#: A turn that its person asked not to remember: excluded from curation, search and boot prompts.
OFF_RECORD: Final = 3

#: A turn's newest row applies: quarantined, or (`retry`) released.
_IS_RETRY = "coalesce(json_extract(response, '$.retry'), 0)"


class Quarantine(Tables):
    """Quarantine turns and release them."""

    @in_transaction
    def set_aside(self, tx: sqlite3.Connection, turn_id: int, reason: str, generation: int) -> None:
        """Quarantine a waiting turn with the reason. Raises ValueError if it does not wait."""
        marked = tx.execute(
            "UPDATE observations SET processed = ? WHERE id = ? AND processed = ?", (QUARANTINED, turn_id, WAITING)
        ).rowcount
        if marked != 1:
            raise ValueError(f"turn {turn_id} does not wait to be curated")
        _log(tx, turn_id, {"reason": reason}, generation)

    async def leave_out(self, turn_id: int, reason: str, generation: int) -> None:
        """Set a curated turn aside for one re-extraction; it is quarantined when that is activated."""
        await self._db.transact(lambda tx: _log(tx, turn_id, {"reason": reason}, generation))

    @in_transaction
    def retry(self, tx: sqlite3.Connection, turn_id: int, generation: int) -> bool:
        """Return a quarantined turn to the waiting ones and reset its failed calls. Return False if not quarantined."""
        marked = tx.execute(
            "UPDATE observations SET processed = ? WHERE id = ? AND processed = ?", (WAITING, turn_id, QUARANTINED)
        ).rowcount
        if marked:
            _log_retry(tx, turn_id, generation)
        return marked == 1

    @in_transaction
    def take_back_newest(self, tx: sqlite3.Connection) -> None:
        """Undo the newest quarantining, because the turn was not at fault."""
        row = tx.execute(
            f"SELECT first_observation_id, generation, {_IS_RETRY} FROM curations "  # noqa: S608 - our clause
            "WHERE kind = 'quarantine' ORDER BY id DESC LIMIT 1"
        ).fetchone()
        if row is None or row[2]:
            return
        tx.execute(
            "UPDATE observations SET processed = ? WHERE id = ? AND processed = ?", (WAITING, row[0], QUARANTINED)
        )
        _log_retry(tx, row[0], row[1])

    async def turns(self, limit: int) -> list[QuarantinedTurn]:
        """Return the quarantined turns, oldest first."""
        return await self._db.fetch_as(
            QuarantinedTurn,
            "SELECT o.id, coalesce(json_extract(c.response, '$.reason'), ''), coalesce(c.created_at, o.timestamp) "
            "FROM observations o LEFT JOIN curations c ON c.id = (SELECT max(q.id) FROM curations q "
            "WHERE q.kind = 'quarantine' AND q.first_observation_id = o.id) "
            "WHERE o.processed = 2 ORDER BY o.id LIMIT ?",
            (limit,),
        )

    async def count(self) -> int:
        """Return the number of quarantined turns."""
        return int(await self._db.fetch_value("SELECT count(*) FROM observations WHERE processed = 2"))

    async def tried_through(self) -> int:
        """Return the id of the last waiting turn that had a failed call or was quarantined before; 0 if none."""
        return int(
            await self._db.fetch_value(
                "SELECT coalesce(max(o.id), 0) FROM observations o WHERE o.processed = 0 AND (EXISTS (SELECT 1 FROM "
                "lost_calls l WHERE o.id BETWEEN l.first_observation_id AND l.last_observation_id) OR EXISTS (SELECT 1 "
                "FROM curations c WHERE c.kind = 'quarantine' AND c.first_observation_id = o.id))"
            )
        )

    async def is_newest_verdict(self) -> bool:
        """Return whether no batch has been curated since a turn was quarantined."""
        kind = await self._db.fetch_one(
            f"SELECT kind FROM curations WHERE kind = 'batch' OR (kind = 'quarantine' AND NOT {_IS_RETRY}) "  # noqa: S608
            "ORDER BY id DESC LIMIT 1"
        )
        return kind is not None and kind[0] == "quarantine"

    async def left_out(self, generation: int) -> set[int]:
        """Return the turns that a re-extraction has set aside."""
        return set(await self._db.fetch_column(_LEFT_OUT, (generation,)))

    @in_transaction
    def activate(self, tx: sqlite3.Connection, generation: int, decision: str, at: float) -> int:
        """Log the activation of a re-extraction with its decision, and quarantine the turns that it left out."""
        tx.execute(
            f"UPDATE observations SET processed = 2 WHERE processed = 1 AND id IN ({_LEFT_OUT})",  # noqa: S608
            (generation,),
        )
        response = to_json({"generation": generation})
        return append(tx, NewCuration(kind="edit", response=response, decision=decision, created_at=at))


_LEFT_OUT = (
    "SELECT c.first_observation_id FROM curations c WHERE c.kind = 'quarantine' AND c.generation = ?1 "  # noqa: S608
    f"AND NOT {_IS_RETRY} AND c.id = (SELECT max(q.id) FROM curations q WHERE q.kind = 'quarantine' "
    "AND q.generation = ?1 AND q.first_observation_id = c.first_observation_id)"
)


def _log_retry(tx: sqlite3.Connection, turn_id: int, generation: int) -> None:
    # Failed calls up to here are forgiven.
    forgiven = tx.execute("SELECT coalesce(max(id), 0) FROM lost_calls").fetchone()[0]
    _log(tx, turn_id, {"retry": True, "forgiven": forgiven}, generation)


def _log(tx: sqlite3.Connection, turn_id: int, said: dict[str, object], generation: int) -> None:
    append(
        tx,
        NewCuration(
            kind="quarantine",
            response=to_json(said),
            first_observation_id=turn_id,
            last_observation_id=turn_id,
            generation=generation,
        ),
    )
