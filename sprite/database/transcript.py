"""transcript.db: the log. Observations and curations are appended and never changed.

Owns the rows of the log and the journal of the turn in the making; knows nothing of models or files.
Times are Unix seconds.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sprite.database.connection import LARGEST_ROW_ID, Database, Schema, open_database, open_reader, row_id
from sprite.database.turn_index import REINDEX, TURN_INDEX, TurnIndex

Outcome = Literal["complete", "interrupted", "error", "max_turns", "crashed"]
#: Whose turn it was: a person's mission, or one the CLI started by itself (a background task is done).
Trigger = Literal["user", "task"]
CurationKind = Literal["batch", "edit", "forget"]

SCHEMA = Schema(
    name="transcript.db",
    application_id=0x53505431,  # "SPT1"
    migrations=[
        """
        CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            started_at REAL NOT NULL,
            ended_at REAL,
            message_count INTEGER NOT NULL DEFAULT 0,
            observation_count INTEGER NOT NULL DEFAULT 0,
            cli_session_id TEXT,
            last_active_at REAL NOT NULL DEFAULT 0
        );
        CREATE TABLE observations (
            id INTEGER PRIMARY KEY,
            timestamp REAL NOT NULL,
            session_id TEXT NOT NULL REFERENCES sessions (id),
            sequence_num INTEGER NOT NULL,
            user_message TEXT NOT NULL,
            tool_calls_json TEXT NOT NULL CHECK (json_valid(tool_calls_json)),
            agent_response TEXT NOT NULL,
            processed INTEGER NOT NULL DEFAULT 0,
            outcome TEXT NOT NULL
                CHECK (outcome IN ('complete', 'interrupted', 'error', 'max_turns', 'crashed')),
            mission_id TEXT UNIQUE,
            trigger TEXT NOT NULL DEFAULT 'user' CHECK (trigger IN ('user', 'task')),
            notice TEXT NOT NULL DEFAULT '',
            -- Where an imported turn comes from: it is taken once, also when its session's log has grown or was copied.
            import_key TEXT UNIQUE,
            UNIQUE (session_id, sequence_num)
        );
        CREATE INDEX observations_waiting ON observations (id) WHERE processed = 0;
        CREATE TRIGGER observations_stay BEFORE DELETE ON observations
        BEGIN SELECT RAISE(ABORT, 'observations are never deleted'); END;
        CREATE TRIGGER observations_frozen BEFORE UPDATE ON observations
        WHEN NOT (OLD.id IS NEW.id AND OLD.timestamp IS NEW.timestamp
            AND OLD.session_id IS NEW.session_id AND OLD.sequence_num IS NEW.sequence_num
            AND OLD.user_message IS NEW.user_message AND OLD.tool_calls_json IS NEW.tool_calls_json
            AND OLD.agent_response IS NEW.agent_response AND OLD.outcome IS NEW.outcome
            AND OLD.mission_id IS NEW.mission_id AND OLD.trigger IS NEW.trigger
            AND OLD.notice IS NEW.notice AND OLD.import_key IS NEW.import_key)
        BEGIN SELECT RAISE(ABORT, 'observations are never changed'); END;
        -- REPLACE deletes the row in its way without asking the trigger on DELETE.
        CREATE TRIGGER observations_new BEFORE INSERT ON observations
        WHEN EXISTS (SELECT 1 FROM observations WHERE id = NEW.id OR mission_id = NEW.mission_id
            OR import_key = NEW.import_key OR (session_id = NEW.session_id AND sequence_num = NEW.sequence_num))
        BEGIN SELECT RAISE(ABORT, 'observations are never replaced'); END;
        CREATE TABLE turn_journal (
            id INTEGER PRIMARY KEY,
            turn_key TEXT NOT NULL,
            session_id TEXT NOT NULL,
            at REAL NOT NULL,
            event TEXT NOT NULL,
            data_json TEXT NOT NULL
        );
        CREATE INDEX turn_journal_turns ON turn_journal (turn_key);
        CREATE TABLE curations (
            id INTEGER PRIMARY KEY,
            created_at REAL NOT NULL,
            kind TEXT NOT NULL,
            first_observation_id INTEGER,
            last_observation_id INTEGER,
            model TEXT,
            prompt_sha256 TEXT,
            response TEXT NOT NULL,
            usage_json TEXT,
            cost_usd REAL,
            seen_curation_id INTEGER,
            generation INTEGER NOT NULL DEFAULT 0
        );
        CREATE TRIGGER curations_stay BEFORE DELETE ON curations
        BEGIN SELECT RAISE(ABORT, 'curations are never deleted'); END;
        CREATE TRIGGER curations_frozen BEFORE UPDATE ON curations
        BEGIN SELECT RAISE(ABORT, 'curations are never changed'); END;
        CREATE TRIGGER curations_new BEFORE INSERT ON curations
        WHEN EXISTS (SELECT 1 FROM curations WHERE id = NEW.id)
        BEGIN SELECT RAISE(ABORT, 'curations are never replaced'); END;
        """  # noqa: S608 - our own schema
        + TURN_INDEX,
        """
        -- Calls that were paid for and gave no curation: cut off, empty, or asked once more.
        CREATE TABLE lost_calls (
            id INTEGER PRIMARY KEY,
            created_at REAL NOT NULL,
            model TEXT NOT NULL,
            reason TEXT NOT NULL,
            usage_json TEXT NOT NULL,
            cost_usd REAL
        );
        CREATE TRIGGER lost_calls_stay BEFORE DELETE ON lost_calls
        BEGIN SELECT RAISE(ABORT, 'lost calls are never deleted'); END;
        CREATE TRIGGER lost_calls_frozen BEFORE UPDATE ON lost_calls
        BEGIN SELECT RAISE(ABORT, 'lost calls are never changed'); END;
        CREATE VIEW model_calls AS
            SELECT created_at, usage_json, cost_usd FROM curations WHERE kind = 'batch'
            UNION ALL SELECT created_at, usage_json, cost_usd FROM lost_calls;
        """,
    ],
)

_OBSERVATION = (
    "id, timestamp, session_id, sequence_num, user_message, tool_calls_json, agent_response, processed, "
    "outcome, mission_id, trigger, notice"
)
_CURATION = (
    "id, created_at, kind, first_observation_id, last_observation_id, model, prompt_sha256, response, "
    "usage_json, cost_usd, seen_curation_id, generation"
)


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation, from its first mission to its end."""

    id: str
    started_at: float
    ended_at: float | None
    message_count: int
    observation_count: int
    cli_session_id: str | None
    last_active_at: float


@dataclass(frozen=True, slots=True)
class NewObservation:
    """A turn as it ended, about to be written. `tool_calls` are the wire's tool calls, already cut."""

    session_id: str
    user_message: str
    tool_calls: Sequence[Mapping[str, Any]]
    agent_response: str
    outcome: Outcome
    mission_id: str | None = None
    trigger: Trigger = "user"
    notice: str = ""


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """A turn that another program recorded; `key` names it for good, whichever copy of its log it is read from."""

    key: str
    started_at: float
    ended_at: float
    observation: NewObservation


@dataclass(frozen=True, slots=True)
class Observation:
    """A turn in the log."""

    id: int
    timestamp: float
    session_id: str
    sequence_num: int
    user_message: str
    tool_calls: list[dict[str, Any]]
    agent_response: str
    processed: bool
    outcome: Outcome
    mission_id: str | None
    trigger: Trigger
    notice: str


@dataclass(frozen=True, slots=True)
class NewCuration:
    """An event that changes memory, about to be logged. `response` is the raw answer, or JSON of an edit.

    `seen_curation_id` says how far memory was when the curator was shown it.
    """

    kind: CurationKind
    response: str
    first_observation_id: int | None = None
    last_observation_id: int | None = None
    model: str | None = None
    prompt_sha256: str | None = None
    usage: Mapping[str, Any] | None = None
    cost_usd: float | None = None
    seen_curation_id: int | None = None
    #: Which extraction of the log it belongs to: 0 is the first, each re-extraction is one more.
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Curation:
    """An event in the log that changed memory."""

    id: int
    created_at: float
    kind: str
    first_observation_id: int | None
    last_observation_id: int | None
    model: str | None
    prompt_sha256: str | None
    response: str
    usage_json: str | None
    cost_usd: float | None
    seen_curation_id: int | None
    generation: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event of a turn that has not ended."""

    turn_key: str
    session_id: str
    at: float
    event: str
    data: dict[str, Any]


class TranscriptDB:
    """The log's verbs."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.index = TurnIndex(database)

    # --- sessions ---

    async def start_session(self, session_id: str) -> Session:
        """Opens a session, now."""
        now = time.time()
        await self._db.execute(
            "INSERT INTO sessions (id, started_at, last_active_at) VALUES (?, ?, ?)", (session_id, now, now)
        )
        return Session(session_id, now, None, 0, 0, None, now)

    async def open_session(self) -> Session | None:
        """The newest session that has not ended, or None."""
        row = await self._db.fetch_one(
            "SELECT * FROM sessions WHERE ended_at IS NULL ORDER BY started_at DESC, rowid DESC LIMIT 1"
        )
        return Session(**dict(row)) if row else None

    async def end_sessions(self) -> None:
        """Ends every open session, now."""
        await self._db.execute("UPDATE sessions SET ended_at = ? WHERE ended_at IS NULL", (time.time(),))

    async def link_cli_session(self, session_id: str, cli_session_id: str) -> None:
        """Notes under which id the CLI keeps this conversation, so that it can be resumed."""
        await self._db.execute(
            "UPDATE sessions SET cli_session_id = ? WHERE id = ? AND cli_session_id IS NOT ?",
            (cli_session_id, session_id, cli_session_id),
        )

    async def session_count(self) -> int:
        """How many sessions there have been."""
        return int(await self._db.fetch_value("SELECT count(*) FROM sessions"))

    # --- the turn in the making ---

    async def journal(self, turn_key: str, session_id: str, event: str, data: Mapping[str, Any]) -> None:
        """Keeps one event of a turn, in one small insert, until the turn's observation is written."""
        await self._db.execute(
            "INSERT INTO turn_journal (turn_key, session_id, at, event, data_json) VALUES (?, ?, ?, ?, ?)",
            # Escaped to ASCII, since what the CLI says can hold half a surrogate pair, which no file can.
            (turn_key, session_id, time.time(), event, json.dumps(data, default=str)),
        )

    async def journal_entries(self) -> list[JournalEntry]:
        """What turns that never ended left behind, oldest first."""
        rows = await self._db.fetch_all(
            "SELECT turn_key, session_id, at, event, data_json FROM turn_journal ORDER BY id"
        )
        return [JournalEntry(r[0], r[1], r[2], r[3], json.loads(r[4])) for r in rows]

    async def drop_journal(self, turn_key: str) -> None:
        """Removes what a turn left behind that is in the log already."""
        await self._db.execute("DELETE FROM turn_journal WHERE turn_key = ?", (turn_key,))

    async def add_observation(
        self, observation: NewObservation, *, turn_keys: Sequence[str] = (), at: float | None = None
    ) -> int:
        """Writes a turn, removes its journal and counts it in its session, all or nothing; returns its id."""
        timestamp = time.time() if at is None else at

        def write(tx: sqlite3.Connection) -> int:
            observation_id = _add(tx, observation, timestamp)
            tx.execute(
                "UPDATE sessions SET observation_count = observation_count + 1, "
                "message_count = message_count + ?, last_active_at = max(last_active_at, ?) WHERE id = ?",
                (observation.trigger == "user", timestamp, observation.session_id),
            )
            tx.executemany("DELETE FROM turn_journal WHERE turn_key = ?", [(key,) for key in turn_keys])
            return observation_id

        return await self._db.transact(write)

    # --- turns from elsewhere ---

    async def add_imported(self, turns: Sequence[ImportedTurn]) -> list[ImportedTurn]:
        """Writes turns of other conversations with their sessions, all or nothing; returns those that were new.

        A turn whose key is in the log already is left out. Their sessions have ended, so none is ever taken up again.
        """

        def write(tx: sqlite3.Connection) -> list[ImportedTurn]:
            added: list[ImportedTurn] = []
            for turn in turns:
                if tx.execute("SELECT 1 FROM observations WHERE import_key = ?", (turn.key,)).fetchone():
                    continue
                tx.execute(
                    "INSERT INTO sessions (id, started_at, ended_at, message_count, observation_count, last_active_at) "
                    "VALUES (?1, ?2, ?3, ?4, 1, ?3) ON CONFLICT (id) DO UPDATE SET "
                    "started_at = min(started_at, ?2), ended_at = max(coalesce(ended_at, 0), ?3), "
                    "message_count = message_count + ?4, observation_count = observation_count + 1, "
                    "last_active_at = max(last_active_at, ?3)",
                    (
                        turn.observation.session_id,
                        turn.started_at,
                        turn.ended_at,
                        turn.observation.trigger == "user",
                    ),
                )
                _add(tx, turn.observation, turn.ended_at, turn.key)
                added.append(turn)
            return added

        return await self._db.transact(write)

    async def imported_among(self, keys: Sequence[str]) -> set[str]:
        """Which of these keys are in the log already."""
        rows = await self._db.fetch_all(
            "SELECT import_key FROM observations WHERE import_key IN (SELECT value FROM json_each(?))", (_json(keys),)
        )
        return {row[0] for row in rows}

    async def cli_sessions(self) -> set[str]:
        """Under which ids the CLI keeps conversations that were recorded here as they happened."""
        rows = await self._db.fetch_all("SELECT cli_session_id FROM sessions WHERE cli_session_id IS NOT NULL")
        return {row[0] for row in rows}

    # --- observations ---

    async def observation(self, observation_id: int) -> Observation | None:
        """One turn."""
        rows = await self._observations("WHERE id = ?", (observation_id,))
        return rows[0] if rows else None

    async def turn_of(self, mission_id: str) -> Observation | None:
        """The turn of a mission, or None if it has no observation."""
        rows = await self._observations("WHERE mission_id = ?", (mission_id,))
        return rows[0] if rows else None

    async def observations_between(self, first: int, last: int) -> list[Observation]:
        """The turns of an inclusive id range, oldest first."""
        return await self._observations("WHERE id BETWEEN ? AND ? ORDER BY id", (first, last))

    async def observations_after(self, observation_id: int, limit: int) -> list[Observation]:
        """Turns above an id, oldest first."""
        return await self._observations("WHERE id > ? ORDER BY id LIMIT ?", (observation_id, limit))

    async def observations_before(self, observation_id: int | None, limit: int) -> list[Observation]:
        """The newest turns (below an id), newest first."""
        return await self._observations(
            "WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2", (observation_id, limit)
        )

    async def observations_of_session(self, session_id: str) -> list[Observation]:
        """Every turn of a session, oldest first."""
        return await self._observations("WHERE session_id = ? ORDER BY id", (session_id,))

    async def conversation(self, observation_id: int, turns: int) -> list[Observation]:
        """A turn with so many of its session before and after it, in their order; empty if there is no such turn."""
        return await self._observations(
            "WHERE id IN (SELECT id FROM (SELECT s.id FROM observations o JOIN observations s "
            "ON s.session_id = o.session_id AND s.sequence_num <= o.sequence_num WHERE o.id = ?1 "
            "ORDER BY s.sequence_num DESC LIMIT ?2 + 1) UNION ALL SELECT id FROM (SELECT s.id FROM observations o "
            "JOIN observations s ON s.session_id = o.session_id AND s.sequence_num > o.sequence_num WHERE o.id = ?1 "
            "ORDER BY s.sequence_num LIMIT ?2)) ORDER BY sequence_num",
            (observation_id, turns),
        )

    async def observations_of(self, ids: Sequence[int]) -> dict[int, Observation]:
        """These turns by id, as far as they exist."""
        found = await self._observations("WHERE id IN (SELECT value FROM json_each(?))", (_json(list(ids)),))
        return {turn.id: turn for turn in found}

    async def waiting(self, limit: int) -> list[Observation]:
        """The oldest turns that are not curated yet, oldest first."""
        return await self._observations("WHERE processed = 0 ORDER BY id LIMIT ?", (limit,))

    async def newest_waiting(self, limit: int) -> list[Observation]:
        """The newest turns that are not curated yet, oldest first."""
        rows = await self._observations("WHERE processed = 0 ORDER BY id DESC LIMIT ?", (limit,))
        return rows[::-1]

    async def counts(self) -> tuple[int, int, int]:
        """(turns, turns that wait to be curated, id of the last curated turn or 0)."""
        row = await self._db.fetch_one(
            "SELECT (SELECT count(*) FROM observations), "
            "(SELECT count(*) FROM observations WHERE processed = 0), "
            "coalesce((SELECT min(id) - 1 FROM observations WHERE processed = 0), "
            "(SELECT max(id) FROM observations), 0)"
        )
        return (row[0], row[1], row[2]) if row else (0, 0, 0)

    async def reach(self) -> tuple[int, int]:
        """(id of the last turn before all that wait to be curated, how many wait)."""
        row = await self._db.fetch_one(
            "SELECT coalesce((SELECT min(id) - 1 FROM observations WHERE processed = 0), "
            "(SELECT max(id) FROM observations), 0), (SELECT count(*) FROM observations WHERE processed = 0)"
        )
        return (row[0], row[1]) if row else (0, 0)

    async def waiting_count(self) -> int:
        """How many turns wait to be curated."""
        return int(await self._db.fetch_value("SELECT count(*) FROM observations WHERE processed = 0"))

    async def _observations(self, where: str, parameters: Sequence[Any]) -> list[Observation]:
        sql = f"SELECT {_OBSERVATION} FROM observations {where}"  # noqa: S608 - our columns, our clause
        return [_observation(row) for row in await self._db.fetch_all(sql, parameters)]

    # --- curations ---

    async def append_batch(self, curation: NewCuration) -> int:
        """Logs a batch's curation and marks its turns, in one transaction: the one place of exactly-once.

        Raises ValueError if any turn of the range is already curated.
        """
        span = (curation.first_observation_id, curation.last_observation_id)
        _, generation = await self.activation()
        current = dataclasses.replace(curation, generation=generation)

        def write(tx: sqlite3.Connection) -> int:
            curation_id = _append(tx, current)
            marked = tx.execute(
                "UPDATE observations SET processed = 1 WHERE processed = 0 AND id BETWEEN ? AND ?", span
            ).rowcount
            inside = tx.execute("SELECT count(*) FROM observations WHERE id BETWEEN ? AND ?", span).fetchone()[0]
            if marked != inside:
                raise ValueError(f"turns {span[0]} to {span[1]} are already curated, at least in part")
            return curation_id

        return await self._db.transact(write)

    async def append_lost_call(self, model: str, reason: str, usage: Mapping[str, Any], cost_usd: float | None) -> None:
        """Logs a call that gave no curation, so that its cost is known; `usage` in tokens."""
        await self._db.execute(
            "INSERT INTO lost_calls (created_at, model, reason, usage_json, cost_usd) VALUES (?, ?, ?, ?, ?)",
            (time.time(), model, reason, _json(usage), cost_usd),
        )

    async def append_extraction(self, curation: NewCuration) -> Curation:
        """Logs a batch of a re-extraction; its turns are curated already, and memory follows when all are done."""
        curation_id = await self._db.transact(lambda tx: _append(tx, curation))
        return (await self._curations("WHERE id = ?", (curation_id,)))[0]

    async def append_edit(self, response: Mapping[str, Any]) -> int:
        """Logs a person's change to memory; returns the curation's id."""
        curation = NewCuration(kind="edit", response=_json(response))
        return await self._db.transact(lambda tx: _append(tx, curation))

    async def curations_after(self, curation_id: int, limit: int = 100) -> list[Curation]:
        """The events above a cursor, oldest first, of every generation."""
        return await self._curations("WHERE id > ? ORDER BY id LIMIT ?", (curation_id, limit))

    async def curations_before(self, curation_id: int | None, limit: int) -> list[Curation]:
        """The newest events (below an id) of every generation, newest first."""
        return await self._curations("WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2", (curation_id, limit))

    async def activation(self, until: int = LARGEST_ROW_ID) -> tuple[int, int]:
        """(curation, generation) of the extraction that memory was made of at an event: (0, 0) for the first."""
        row = await self._db.fetch_one(
            "SELECT id, json_extract(response, '$.generation') FROM curations WHERE kind = 'edit' AND id <= ? "
            "AND json_valid(response) AND json_type(response, '$.generation') = 'integer' ORDER BY id DESC LIMIT 1",
            (until,),
        )
        return (int(row[0]), int(row[1])) if row else (0, 0)

    async def fold(self, above: int, until: int, generation: int, limit: int = 100) -> list[Curation]:
        """The events above a cursor, up to one and with it, that memory is made of, oldest first."""
        return await self._curations(
            "WHERE id > ? AND id <= ? AND (kind <> 'batch' OR generation = ?) ORDER BY id LIMIT ?",
            (above, until, generation, limit),
        )

    async def newest_event(self, at: float) -> int:
        """The last event that had changed memory by a time, 0 if none had."""
        return int(
            await self._db.fetch_value("SELECT coalesce(max(id), 0) FROM curations WHERE created_at <= ?", (at,))
        )

    async def extraction(self, generation: int, before: int) -> list[Curation]:
        """A re-extraction with the edits made up to its activation, in the order in which things happened.

        A batch happened when its last turn did, and is dated so.
        """
        rows = await self._db.fetch_all(
            f"SELECT {_CURATION}, coalesce((SELECT timestamp FROM observations o "  # noqa: S608 - our columns
            "WHERE o.id = c.last_observation_id AND c.kind = 'batch'), created_at) AS moment FROM curations c "
            "WHERE id < ? AND ((kind = 'batch' AND generation = ?) OR kind = 'edit') ORDER BY moment, id",
            (before, generation),
        )
        dated = [{**dict(row), "created_at": row["moment"]} for row in rows]
        return [Curation(**{key: value for key, value in row.items() if key != "moment"}) for row in dated]

    async def extracted_through(self, generation: int) -> int:
        """The last turn that a re-extraction has reached, 0 if it has not begun."""
        return int(
            await self._db.fetch_value(
                "SELECT coalesce(max(last_observation_id), 0) FROM curations WHERE kind = 'batch' AND generation = ?",
                (generation,),
            )
        )

    async def newest_generation(self) -> int:
        """The newest extraction, finished or not."""
        return int(await self._db.fetch_value("SELECT coalesce(max(generation), 0) FROM curations"))

    async def _curations(self, where: str, parameters: Sequence[Any]) -> list[Curation]:
        sql = f"SELECT {_CURATION} FROM curations {where}"  # noqa: S608 - our columns, our clause
        return [Curation(**dict(row)) for row in await self._db.fetch_all(sql, parameters)]

    async def forgotten_after(self, curation_id: int) -> bool:
        """Whether something was forgotten later than a curation."""
        found = await self._db.fetch_value(
            "SELECT EXISTS (SELECT 1 FROM curations WHERE kind = 'forget' AND id > ?)", (curation_id,)
        )
        return bool(found)

    async def event_count(self) -> int:
        """How many events have changed memory."""
        return int(await self._db.fetch_value("SELECT count(*) FROM curations"))

    async def curation_counts(self) -> tuple[int, int, float | None]:
        """(curated batches, calls of unknown price, when the last batch was)."""
        row = await self._db.fetch_one(
            "SELECT count(*), (SELECT count(*) - count(cost_usd) FROM model_calls), max(created_at) "
            "FROM curations WHERE kind = 'batch'"
        )
        return (row[0], row[1], row[2]) if row else (0, 0, None)

    async def lost_calls(self) -> tuple[int, float]:
        """(calls that were paid for and gave nothing, what they cost in US dollars as far as prices are known)."""
        row = await self._db.fetch_one("SELECT count(*), coalesce(sum(cost_usd), 0.0) FROM lost_calls")
        return (int(row[0]), float(row[1])) if row else (0, 0.0)

    async def spend(self, since: float = 0.0) -> float:
        """What curation has cost since a time, in US dollars, as far as prices are known."""
        return float(
            await self._db.fetch_value(
                "SELECT coalesce(sum(cost_usd), 0.0) FROM model_calls WHERE created_at >= ?", (since,)
            )
        )

    async def tokens(self) -> tuple[int, int]:
        """What curation has read and written in all, in tokens, cached ones included."""
        row = await self._db.fetch_one(
            "SELECT coalesce(sum(coalesce(json_extract(usage_json, '$.input_tokens'), 0) "
            "+ coalesce(json_extract(usage_json, '$.cache_creation_input_tokens'), 0) "
            "+ coalesce(json_extract(usage_json, '$.cache_read_input_tokens'), 0)), 0), "
            "coalesce(sum(json_extract(usage_json, '$.output_tokens')), 0) FROM model_calls "
            "WHERE json_valid(usage_json)"
        )
        return (int(row[0]), int(row[1])) if row else (0, 0)

    async def spend_by_day(self, days: int) -> list[tuple[str, float, int]]:
        """(day in UTC, US dollars, calls) of the newest days on which a model was called, newest first."""
        rows = await self._db.fetch_all(
            "SELECT date(created_at, 'unixepoch') AS day, coalesce(sum(cost_usd), 0.0), count(*) FROM model_calls "
            "GROUP BY day ORDER BY day DESC LIMIT ?",
            (days,),
        )
        return [(str(row[0]), float(row[1]), int(row[2])) for row in rows]

    async def spend_by_session(self, sessions: int) -> list[tuple[str, float, int, float]]:
        """(session, when it started, turns, US dollars) of the newest sessions, newest first.

        A batch over several sessions is shared out among its turns.
        """
        rows = await self._db.fetch_all(
            "WITH newest AS (SELECT id, started_at, observation_count FROM sessions ORDER BY started_at DESC LIMIT ?) "
            "SELECT n.id, n.started_at, n.observation_count, coalesce((SELECT sum(c.cost_usd * 1.0 / (SELECT count(*) "
            "FROM observations b WHERE b.id BETWEEN c.first_observation_id AND c.last_observation_id)) "
            "FROM observations o JOIN curations c ON c.kind = 'batch' "
            "AND o.id BETWEEN c.first_observation_id AND c.last_observation_id WHERE o.session_id = n.id), 0.0) "
            "FROM newest n ORDER BY n.started_at DESC",
            (sessions,),
        )
        return [(str(row[0]), float(row[1]), int(row[2]), float(row[3])) for row in rows]

    # --- forgetting ---

    async def forget(
        self, observations: Sequence[Observation], responses: Mapping[int, str], tombstone: Mapping[str, Any]
    ) -> int:
        """The one exception to "never changed": takes words out of rows, in one transaction with its tombstone.

        `responses` are the new responses of curations by id. Returns the tombstone's id. What the pages of the file
        still hold goes with `purge`.
        """

        def write(tx: sqlite3.Connection) -> int:
            frozen = tx.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' "
                "AND name IN ('observations_frozen', 'curations_frozen')"
            ).fetchall()
            for name, _ in frozen:
                tx.execute(f"DROP TRIGGER {name}")
            for turn in observations:
                tx.execute(
                    "UPDATE observations SET user_message = ?, tool_calls_json = ?, agent_response = ?, notice = ? "
                    "WHERE id = ?",
                    (turn.user_message, _json(turn.tool_calls), turn.agent_response, turn.notice, turn.id),
                )
            tx.executemany(
                "UPDATE curations SET response = ? WHERE id = ?", [(text, key) for key, text in responses.items()]
            )
            tx.execute("DELETE FROM turn_journal")
            for _, sql in frozen:
                tx.execute(sql)
            return _append(tx, NewCuration(kind="forget", response=_json(tombstone)))

        return await self._db.transact(write)

    async def purge(self) -> None:
        """Rebuilds the file and its full text, so that no page holds what was forgotten."""
        await self._db.purge(REINDEX)


def _observation(row: sqlite3.Row) -> Observation:
    fields = dict(row)
    calls = json.loads(fields.pop("tool_calls_json"))
    processed = bool(fields.pop("processed"))
    return Observation(**fields, tool_calls=calls, processed=processed)


def _add(tx: sqlite3.Connection, observation: NewObservation, timestamp: float, import_key: str | None = None) -> int:
    cursor = tx.execute(
        f"INSERT INTO observations ({_OBSERVATION}, import_key) VALUES (NULL, ?1, ?2, "  # noqa: S608 - our columns
        "(SELECT coalesce(max(sequence_num), 0) + 1 FROM observations WHERE session_id = ?2), "
        "?3, ?4, ?5, 0, ?6, ?7, ?8, ?9, ?10)",
        (
            timestamp,
            observation.session_id,
            observation.user_message,
            _json(observation.tool_calls),
            observation.agent_response,
            observation.outcome,
            observation.mission_id,
            observation.trigger,
            observation.notice,
            import_key,
        ),
    )
    return row_id(cursor.lastrowid)


def _append(tx: sqlite3.Connection, curation: NewCuration) -> int:
    cursor = tx.execute(
        f"INSERT INTO curations ({_CURATION}) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - ours
        (
            time.time(),
            curation.kind,
            curation.first_observation_id,
            curation.last_observation_id,
            curation.model,
            curation.prompt_sha256,
            curation.response,
            None if curation.usage is None else _json(curation.usage),
            curation.cost_usd,
            curation.seen_curation_id,
            curation.generation,
        ),
    )
    return row_id(cursor.lastrowid)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


@asynccontextmanager
async def open_transcript(path: Path) -> AsyncIterator[TranscriptDB]:
    """Opens the log as its owner."""
    async with open_database(path, SCHEMA) as database:
        yield TranscriptDB(database)


@asynccontextmanager
async def read_transcript(path: Path) -> AsyncIterator[TranscriptDB]:
    """Opens the log to read from, beside its owner."""
    async with open_reader(path, SCHEMA) as database:
        yield TranscriptDB(database)
