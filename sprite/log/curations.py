"""The log's curations: every event that changes memory, append-only. Times are Unix seconds.

They are batches' raw answers, people's edits and words on learnings, forgets, quarantined turns, and files' drifts.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sprite.common.prices import cost_usd
from sprite.common.sqlite import LARGEST_ROW_ID
from sprite.protocol.shapes import QuarantinedTurn
from sprite.storage.connection import Tables, in_transaction, to_json

SECONDS_PER_DAY = 86_400.0


def seconds_since_midnight() -> float:
    """Return the seconds since the start of the UTC day, the period of the spending limit."""
    return time.time() % SECONDS_PER_DAY


class Spending(Tables):
    """Read the cost of memory's model calls."""

    async def curation_counts(self) -> tuple[int, int, float | None]:
        """Return (curated batches, calls of unknown price, time of the last batch)."""
        row = await self._db.fetch_one(
            "SELECT count(*), (SELECT count(*) - count(cost_usd) FROM model_calls), max(created_at) "
            "FROM curations WHERE kind = 'batch'"
        )
        return (row[0], row[1], row[2]) if row else (0, 0, None)

    async def total(self, since: float = 0.0) -> float:
        """Return the known cost of curation since a time, in US dollars."""
        return float(
            await self._db.fetch_value(
                "SELECT coalesce(sum(cost_usd), 0.0) FROM model_calls WHERE created_at >= ?", (since,)
            )
        )

    async def estimated(self, since: float = 0.0) -> float:
        """Return the cost of calls of unknown price since a time, at the dearest known price."""
        usages = await self._db.fetch_column(
            "SELECT usage_json FROM model_calls WHERE cost_usd IS NULL AND created_at >= ? AND json_valid(usage_json)",
            (since,),
        )
        return sum(cost_usd(None, json.loads(usage)) or 0.0 for usage in usages)

    async def tokens(self) -> tuple[int, int]:
        """Return the total input and output tokens of curation, including cached ones."""
        row = await self._db.fetch_one(
            "SELECT coalesce(sum(coalesce(json_extract(usage_json, '$.input_tokens'), 0) "
            "+ coalesce(json_extract(usage_json, '$.cache_creation_input_tokens'), 0) "
            "+ coalesce(json_extract(usage_json, '$.cache_read_input_tokens'), 0)), 0), "
            "coalesce(sum(json_extract(usage_json, '$.output_tokens')), 0) FROM model_calls "
            "WHERE json_valid(usage_json)"
        )
        return (int(row[0]), int(row[1])) if row else (0, 0)


_NEW = (
    "kind, response, first_observation_id, last_observation_id, model, prompt_sha256, usage_json, cost_usd, "
    "seen_curation_id, generation, decision_json, verification_json, created_at"
)
_ROW = f"{_NEW}, id"


@dataclass(frozen=True, slots=True)
class Curation:
    """An event that changes memory. A file's drift changes nothing until a person accepts it."""

    kind: str
    #: The raw answer, or JSON of a person's change.
    response: str
    first_observation_id: int | None = None
    last_observation_id: int | None = None
    model: str | None = None
    prompt_sha256: str | None = None
    usage_json: str | None = None
    cost_usd: float | None = None
    #: The state of memory that the curator was shown.
    seen_curation_id: int | None = None
    #: The extraction of the log that it belongs to: 0 is the first, each re-extraction adds one.
    generation: int = 0
    #: Its effect on memory.db, without words forgotten since (see `memory/decision.py`). Answers, changes of actions
    #: and activations of an extraction have a decision. Other rows are facts, stated by `response`.
    decision_json: str | None = None
    #: The verifier's answer (see `sprite/curation/verifier.py`).
    verification_json: str | None = None
    #: The time of the decision; 0 before it is decided about or logged. The id is 0 before it is logged.
    created_at: float = 0.0
    id: int = 0
    #: Until it is logged: the rows that count its answers as lost (see `LostCalls`), and the turns that the verifier
    #: puts off the record.
    lost_calls: tuple[int, ...] = ()
    off_record: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Drift:
    """New content of a memory file, changed on disk while the agent worked, that waits for the person's decision."""

    curation_id: int
    name: str
    found_at: float
    content: str
    #: The former content of a deployed file, None for a curated file.
    was: str | None


def what_happened(name: str) -> str:
    """Return how a pending change of a file came about, as text for people."""
    return f"{name} changed while the agent was at work"


#: The row that activated the extraction in use at an event, and its generation.
_ACTIVATION = (
    "SELECT id, json_extract(response, '$.generation') FROM curations WHERE kind = 'edit' AND id <= ? "
    "AND json_valid(response) AND json_type(response, '$.generation') = 'integer' ORDER BY id DESC LIMIT 1"
)


class Curations(Tables):
    """Read and append the log's curations."""

    async def append_event(self, curation: Curation) -> Curation:
        """Log any change except a batch of the current extraction; return it with its id."""
        curation_id = await self._db.transact(lambda tx: append(tx, curation))
        return (await self._select("WHERE id = ?", (curation_id,)))[0]

    async def append_said(self, kind: Literal["edit", "drift"], response: Mapping[str, Any]) -> int:
        """Log a person's edit of a file, a file's drift, or a decision on a drift; return the curation's id.

        A drift has `name` and `content`; a decision has `name`, and the drift's id in `accepted` or `rejected`.
        """
        return (await self.append_event(Curation(kind=kind, response=to_json(response)))).id

    async def has_note_of(self, mission_id: str) -> bool:
        """Return whether a logged action change records the end of this schedule's mission."""
        found = await self._db.fetch_value(
            "SELECT EXISTS (SELECT 1 FROM curations WHERE kind = 'action' AND json_valid(response) "
            "AND json_extract(response, '$.op') = 'noted' AND json_extract(response, '$.mission') = ?)",
            (mission_id,),
        )
        return bool(found)

    async def has_undo(self, undo: str) -> bool:
        """Return whether an undo of file changes is logged."""
        sql = "SELECT count(*) FROM curations WHERE kind = 'undo' AND json_extract(response, '$.undo') = ?"
        return bool(await self._db.fetch_value(sql, (undo,)))

    async def undone(self, turns: Collection[int]) -> set[int]:
        """Return those of the turns whose file changes are undone; an undo may be undone itself."""
        found = await self._db.fetch_column(
            "SELECT first_observation_id FROM curations c WHERE kind = 'undo' "
            "AND first_observation_id IN (SELECT value FROM json_each(?)) AND json_extract(response, '$.undone') "
            "AND NOT EXISTS (SELECT 1 FROM curations later WHERE later.kind = 'undo' AND later.id > c.id "
            "AND later.first_observation_id = c.first_observation_id)",
            (json.dumps(sorted(turns)),),
        )
        return set(found)

    async def open_drift(self) -> dict[str, Drift]:
        """Return the drift of each file that no person has accepted or rejected."""
        rows = await self._db.fetch_all(
            "SELECT id, created_at, response FROM curations c WHERE kind = 'drift' AND id IN (SELECT max(id) "
            "FROM curations WHERE kind = 'drift' GROUP BY json_extract(response, '$.name')) "
            "AND json_type(response, '$.content') = 'text' AND NOT EXISTS (SELECT 1 FROM curations e "
            "WHERE e.id > c.id AND e.kind = 'edit' AND json_valid(e.response) "
            "AND json_extract(e.response, '$.drift') = c.id) ORDER BY id"
        )
        found = [(row["id"], row["created_at"], json.loads(row["response"])) for row in rows]
        return {said["name"]: Drift(id_, said["name"], at, said["content"], said.get("was")) for id_, at, said in found}

    async def after(self, curation_id: int, limit: int = 100) -> list[Curation]:
        """Return the events above an id, of all extractions, oldest first."""
        return await self._select("WHERE id > ? ORDER BY id LIMIT ?", (curation_id, limit))

    async def before(self, curation_id: int | None, limit: int) -> list[Curation]:
        """Return the newest events (below an id), of all extractions, newest first."""
        return await self._select("WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2", (curation_id, limit))

    async def activation(self, until: int = LARGEST_ROW_ID) -> tuple[int, int]:
        """Return (curation, generation) of the extraction that was in use at event `until`: (0, 0) for the first."""
        row = await self._db.fetch_one(_ACTIVATION, (until,))
        return (row[0], row[1]) if row else (0, 0)

    async def activations(self) -> list[Curation]:
        """Return the rows that activated re-extractions, oldest first."""
        return await self._select("WHERE kind = 'edit' AND decision_json IS NOT NULL ORDER BY id", ())

    async def fold(self, above: int, until: int, generation: int, limit: int = 100) -> list[Curation]:
        """Return the events in (above, until] that make memory in a generation of extraction, oldest first."""
        return await self._select(
            "WHERE id > ? AND id <= ? AND (kind <> 'batch' OR generation = ?) ORDER BY id LIMIT ?",
            (above, until, generation, limit),
        )

    async def newest_batch_at(self) -> float | None:
        """Return the time of the newest batch in Unix seconds, or None."""
        at: float | None = await self._db.fetch_value(
            "SELECT created_at FROM curations WHERE kind = 'batch' ORDER BY id DESC LIMIT 1"
        )
        return at

    async def newest_event(self, at: float) -> int:
        """Return the last event that had changed memory by a time, 0 if none had."""
        return int(
            await self._db.fetch_value("SELECT coalesce(max(id), 0) FROM curations WHERE created_at <= ?", (at,))
        )

    async def extraction(self, generation: int, before: int = LARGEST_ROW_ID) -> list[Curation]:
        """Return the answers of a re-extraction below an id, oldest first, each dated by the last turn of its range."""
        ended = "(SELECT timestamp FROM observations o WHERE o.id = c.last_observation_id)"
        sql = f"SELECT {_ROW.replace('created_at', ended)} FROM curations c "  # noqa: S608 - our columns
        sql += "WHERE kind = 'batch' AND generation = ? AND id < ? ORDER BY id"
        return await self._db.fetch_as(Curation, sql, (generation, before))

    async def peoples_changes(self, before: int = LARGEST_ROW_ID) -> list[Curation]:
        """Return the edits of files and the changes of actions and learnings with ids below `before`, oldest first."""
        # An edit with a decision is the activation of an extraction.
        return await self._select(
            "WHERE id < ? AND (kind IN ('action', 'learning') OR (kind = 'edit' AND decision_json IS NULL)) "
            "ORDER BY id",
            (before,),
        )

    async def rules(self, before: int) -> list[Curation]:
        """Return the events of rules with ids below `before`, oldest first."""
        return await self._select("WHERE id < ? AND kind = 'rule' ORDER BY id", (before,))

    async def batches(self, generation: int) -> list[tuple[int, int]]:
        """Return the inclusive ranges of turns that an extraction has curated."""
        rows = await self._db.fetch_all(
            "SELECT first_observation_id, last_observation_id FROM curations WHERE kind = 'batch' AND generation = ?",
            (generation,),
        )
        return [(row[0], row[1]) for row in rows]

    async def newest_generation(self) -> int:
        """Return the number of the newest extraction, finished or not."""
        return int(await self._db.fetch_value("SELECT coalesce(max(generation), 0) FROM curations"))

    async def newest_forget(self, after: int = 0) -> int | None:
        """Return the id of the newest forget above an id, or None."""
        sql = "SELECT max(id) FROM curations WHERE kind = 'forget' AND id > ?"
        newest: int | None = await self._db.fetch_value(sql, (after,))
        return newest

    async def count(self) -> int:
        """Return the number of events that changed memory."""
        return int(await self._db.fetch_value("SELECT count(*) FROM curations"))

    async def _select(self, where: str, parameters: Sequence[Any]) -> list[Curation]:
        sql = f"SELECT {_ROW} FROM curations {where}"  # noqa: S608 - our columns, our clause
        return await self._db.fetch_as(Curation, sql, parameters)


def append(tx: sqlite3.Connection, curation: Curation, *, is_current: bool = False) -> int:
    """Write one curation inside the caller's transaction; return its id.

    `is_current`: a batch of the current extraction. It marks its turns, so that each turn is curated exactly once.
    Raises ValueError if any turn of its range is already curated.
    """
    generation = curation.generation
    if is_current:
        active = tx.execute(_ACTIVATION, (LARGEST_ROW_ID,)).fetchone()
        generation = active[1] if active else 0
    at = curation.created_at or time.time()
    dated = dataclasses.replace(curation, created_at=at, generation=generation)
    values = [getattr(dated, name) for name in _NEW.split(", ")]
    places = ", ".join("?" * len(values))
    cursor = tx.execute(f"INSERT INTO curations ({_NEW}) VALUES ({places})", values)  # noqa: S608 - our columns
    tx.executemany("DELETE FROM lost_calls WHERE id = ?", [(call,) for call in curation.lost_calls])
    tx.executemany("UPDATE observations SET processed = 3 WHERE id = ?", [(turn,) for turn in curation.off_record])
    if is_current:
        span = (curation.first_observation_id, curation.last_observation_id)
        marked = tx.execute(
            "UPDATE observations SET processed = 1 WHERE processed = 0 AND id BETWEEN ? AND ?", span
        ).rowcount + len(curation.off_record)
        inside = tx.execute("SELECT count(*) FROM observations WHERE id BETWEEN ? AND ?", span).fetchone()[0]
        if marked != inside:
            raise ValueError(f"turns {span[0]} to {span[1]} are already curated, at least in part")
    return cursor.lastrowid or 0


#: A control call without a turn: answered, or failed too. In the latter case the model is at fault, not a turn.
CONTROL_ANSWERED: Final = "control answered"
CONTROL_IN_VAIN: Final = "control in vain"
#: Reason of an answer whose curation is not in the log yet.
NOT_LOGGED: Final = "not logged"


@dataclass(frozen=True, slots=True)
class LostCall:
    """A model call without a usable answer; `usage` is in tokens."""

    model: str
    reason: str
    usage: Mapping[str, Any]
    cost_usd: float | None
    #: The range of turns that it asked about, None for a test of the model without turns.
    turns: tuple[int, int] | None = None
    generation: int = 0


@dataclass(slots=True)
class Failures:
    """The failed model calls about a turn: their count, and the count of those about this turn alone."""

    calls: int = 0
    alone: int = 0
    #: The range of turns that the newest failed call asked about, and its reason.
    span: tuple[int, int] = (0, 0)
    reason: str = ""


class LostCalls(Tables):
    """Read and append model calls without a usable answer."""

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
        return cursor.lastrowid or 0

    async def failures(self, turns: Sequence[int], generation: int) -> dict[int, Failures]:
        """Return each turn's failed calls in one extraction, without those before a release from quarantine."""
        found = {turn: Failures() for turn in turns}
        first, last = min(turns), max(turns)
        forgiven = await self._db.fetch_map(
            "SELECT first_observation_id, max(json_extract(response, '$.forgiven')) FROM curations "
            "WHERE kind = 'quarantine' AND first_observation_id BETWEEN ? AND ? "
            "AND json_extract(response, '$.forgiven') IS NOT NULL GROUP BY first_observation_id",
            (first, last),
        )
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

    async def is_model_in_doubt(self) -> bool:
        """Return whether the newest failed call is a test prompt that the model did not answer."""
        newest = await self._db.fetch_value("SELECT reason FROM lost_calls ORDER BY id DESC LIMIT 1")
        return bool(newest == CONTROL_IN_VAIN)


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
        """Quarantine a waiting turn for a reason. Raises ValueError if the turn is not waiting."""
        marked = tx.execute(
            "UPDATE observations SET processed = ? WHERE id = ? AND processed = ?", (QUARANTINED, turn_id, WAITING)
        ).rowcount
        if marked != 1:
            raise ValueError(f"turn {turn_id} does not wait to be curated")
        _log(tx, turn_id, {"reason": reason}, generation)

    async def leave_out(self, turn_id: int, reason: str, generation: int) -> None:
        """Leave a curated turn out of one re-extraction; its activation quarantines the turn."""
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
        """Release the turn that was quarantined last, because the turn was not at fault."""
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
        """Return whether the newest event about turns is a quarantine, not a curated batch."""
        kind = await self._db.fetch_value(
            f"SELECT kind FROM curations WHERE kind = 'batch' OR (kind = 'quarantine' AND NOT {_IS_RETRY}) "  # noqa: S608
            "ORDER BY id DESC LIMIT 1"
        )
        return bool(kind == "quarantine")

    async def left_out(self, generation: int) -> set[int]:
        """Return the turns that `leave_out` excluded from a re-extraction."""
        return set(await self._db.fetch_column(_LEFT_OUT, (generation,)))

    @in_transaction
    def activate(self, tx: sqlite3.Connection, generation: int, decision: str, at: float) -> int:
        """Log that a re-extraction takes effect, with its decision, and quarantine the turns that it left out."""
        tx.execute(
            f"UPDATE observations SET processed = 2 WHERE processed = 1 AND id IN ({_LEFT_OUT})",  # noqa: S608
            (generation,),
        )
        response = to_json({"generation": generation})
        return append(tx, Curation(kind="edit", response=response, decision_json=decision, created_at=at))


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
    append(tx, Curation("quarantine", to_json(said), turn_id, turn_id, generation=generation))
