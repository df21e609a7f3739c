"""The log's quarantine: turns that curation set aside, and their release. They are never deleted.

An observation's `processed` is WAITING, CURATED or QUARANTINED, or permanently OFF_RECORD from the start. Each
change into and out of quarantine adds a curation row in the same transaction. Times are Unix seconds.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from sprite.database.connection import Database, to_json
from sprite.database.curations import NewCuration, append

WAITING: Final = 0
CURATED: Final = 1
QUARANTINED: Final = 2
#: A turn that its person asked not to remember: excluded from curation, search and boot prompts.
OFF_RECORD: Final = 3

#: A turn's newest row applies: quarantined, or (`retry`) released.
_IS_RETRY = "coalesce(json_extract(response, '$.retry'), 0)"


@dataclass(frozen=True, slots=True)
class SetAside:
    """A quarantined turn with its reason and time."""

    turn_id: int
    reason: str
    at: float


class Quarantine:
    """Quarantine turns and release them."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def set_aside(self, turn_id: int, reason: str, generation: int) -> None:
        """Quarantine a waiting turn with the reason. Raises ValueError if it does not wait."""

        def write(tx: sqlite3.Connection) -> None:
            marked = tx.execute(
                "UPDATE observations SET processed = ? WHERE id = ? AND processed = ?", (QUARANTINED, turn_id, WAITING)
            ).rowcount
            if marked != 1:
                raise ValueError(f"turn {turn_id} does not wait to be curated")
            _log(tx, turn_id, {"reason": reason}, generation)

        await self._db.transact(write)

    async def leave_out(self, turn_id: int, reason: str, generation: int) -> None:
        """Set a curated turn aside for one re-extraction; it is quarantined when that is activated."""
        await self._db.transact(lambda tx: _log(tx, turn_id, {"reason": reason}, generation))

    async def retry(self, turn_id: int, generation: int) -> bool:
        """Return a quarantined turn to the waiting ones and reset its failed calls. Return False if not quarantined."""

        def write(tx: sqlite3.Connection) -> bool:
            marked = tx.execute(
                "UPDATE observations SET processed = ? WHERE id = ? AND processed = ?", (WAITING, turn_id, QUARANTINED)
            ).rowcount
            if marked:
                _log_retry(tx, turn_id, generation)
            return marked == 1

        return await self._db.transact(write)

    async def take_back_newest(self) -> None:
        """Undo the newest quarantining, because the turn was not at fault."""

        def write(tx: sqlite3.Connection) -> None:
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

        await self._db.transact(write)

    async def turns(self, limit: int) -> list[SetAside]:
        """Return the quarantined turns, oldest first."""
        rows = await self._db.fetch_all(
            "SELECT o.id, coalesce(json_extract(c.response, '$.reason'), ''), coalesce(c.created_at, o.timestamp) "
            "FROM observations o LEFT JOIN curations c ON c.id = (SELECT max(q.id) FROM curations q "
            "WHERE q.kind = 'quarantine' AND q.first_observation_id = o.id) "
            "WHERE o.processed = 2 ORDER BY o.id LIMIT ?",
            (limit,),
        )
        return [SetAside(row[0], str(row[1]), row[2]) for row in rows]

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
        rows = await self._db.fetch_all(_LEFT_OUT, (generation,))
        return {row[0] for row in rows}

    async def activate(self, generation: int, decision: str, at: float) -> int:
        """Log the activation of a re-extraction with its decision, and quarantine the turns that it left out."""

        def write(tx: sqlite3.Connection) -> int:
            tx.execute(
                f"UPDATE observations SET processed = 2 WHERE processed = 1 AND id IN ({_LEFT_OUT})",  # noqa: S608
                (generation,),
            )
            response = to_json({"generation": generation})
            return append(tx, NewCuration(kind="edit", response=response, decision=decision, created_at=at))

        return await self._db.transact(write)


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
