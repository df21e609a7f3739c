"""transcript.db: the log. Observations and curations are appended and never changed.

Owns the rows of the log and the journal of the turn in the making; knows nothing of models or files.
Times are Unix seconds.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sprite.database.connection import Database, Schema, open_database, open_reader, row_id

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
            last_active_at REAL NOT NULL
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
            trigger TEXT NOT NULL CHECK (trigger IN ('user', 'task')),
            notice TEXT NOT NULL DEFAULT '',
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
            AND OLD.notice IS NEW.notice)
        BEGIN SELECT RAISE(ABORT, 'observations are never changed'); END;
        -- REPLACE deletes the row in its way without asking the trigger on DELETE.
        CREATE TRIGGER observations_new BEFORE INSERT ON observations
        WHEN EXISTS (SELECT 1 FROM observations WHERE id = NEW.id OR mission_id = NEW.mission_id
            OR (session_id = NEW.session_id AND sequence_num = NEW.sequence_num))
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
            cost_usd REAL
        );
        CREATE TRIGGER curations_stay BEFORE DELETE ON curations
        BEGIN SELECT RAISE(ABORT, 'curations are never deleted'); END;
        CREATE TRIGGER curations_frozen BEFORE UPDATE ON curations
        BEGIN SELECT RAISE(ABORT, 'curations are never changed'); END;
        CREATE TRIGGER curations_new BEFORE INSERT ON curations
        WHEN EXISTS (SELECT 1 FROM curations WHERE id = NEW.id)
        BEGIN SELECT RAISE(ABORT, 'curations are never replaced'); END;
        CREATE VIRTUAL TABLE observations_fts USING fts5 (
            user_message, agent_response, tools,
            tokenize = 'porter unicode61 remove_diacritics 2'
        );
        """,
    ],
)

_OBSERVATION = (
    "id, timestamp, session_id, sequence_num, user_message, tool_calls_json, agent_response, processed, "
    "outcome, mission_id, trigger, notice"
)
_CURATION = (
    "id, created_at, kind, first_observation_id, last_observation_id, model, prompt_sha256, response, "
    "usage_json, cost_usd"
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
    """An event that changes memory, about to be logged. `response` is the raw answer, or JSON of an edit."""

    kind: CurationKind
    response: str
    first_observation_id: int | None = None
    last_observation_id: int | None = None
    model: str | None = None
    prompt_sha256: str | None = None
    usage: Mapping[str, Any] | None = None
    cost_usd: float | None = None


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
        calls = _json(observation.tool_calls)
        tools = tools_text(observation.tool_calls)

        def write(tx: sqlite3.Connection) -> int:
            observation_id = tx.execute(
                f"INSERT INTO observations ({_OBSERVATION}) VALUES (NULL, ?1, ?2, "  # noqa: S608 - our columns
                "(SELECT coalesce(max(sequence_num), 0) + 1 FROM observations WHERE session_id = ?2), "
                "?3, ?4, ?5, 0, ?6, ?7, ?8, ?9)",
                (
                    timestamp,
                    observation.session_id,
                    observation.user_message,
                    calls,
                    observation.agent_response,
                    observation.outcome,
                    observation.mission_id,
                    observation.trigger,
                    observation.notice,
                ),
            ).lastrowid
            tx.execute(
                "INSERT INTO observations_fts (rowid, user_message, agent_response, tools) VALUES (?, ?, ?, ?)",
                (observation_id, observation.user_message, observation.agent_response, tools),
            )
            tx.execute(
                "UPDATE sessions SET observation_count = observation_count + 1, "
                "message_count = message_count + ?, last_active_at = max(last_active_at, ?) WHERE id = ?",
                (observation.trigger == "user", timestamp, observation.session_id),
            )
            tx.executemany("DELETE FROM turn_journal WHERE turn_key = ?", [(key,) for key in turn_keys])
            return row_id(observation_id)

        return await self._db.transact(write)

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

        def write(tx: sqlite3.Connection) -> int:
            curation_id = _append(tx, curation)
            marked = tx.execute(
                "UPDATE observations SET processed = 1 WHERE processed = 0 AND id BETWEEN ? AND ?", span
            ).rowcount
            inside = tx.execute("SELECT count(*) FROM observations WHERE id BETWEEN ? AND ?", span).fetchone()[0]
            if marked != inside:
                raise ValueError(f"turns {span[0]} to {span[1]} are already curated, at least in part")
            return curation_id

        return await self._db.transact(write)

    async def append_edit(self, response: Mapping[str, Any]) -> int:
        """Logs a person's change to memory; returns the curation's id."""
        curation = NewCuration(kind="edit", response=_json(response))
        return await self._db.transact(lambda tx: _append(tx, curation))

    async def curations_after(self, curation_id: int, limit: int = 100) -> list[Curation]:
        """The events above a cursor, oldest first."""
        rows = await self._db.fetch_all(
            f"SELECT {_CURATION} FROM curations WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608 - our columns
            (curation_id, limit),
        )
        return [Curation(**dict(row)) for row in rows]

    async def event_count(self) -> int:
        """How many events have changed memory."""
        return int(await self._db.fetch_value("SELECT count(*) FROM curations"))

    async def curation_counts(self) -> tuple[int, int, float | None]:
        """(calls to a model, those of unknown price, when the last one was)."""
        row = await self._db.fetch_one(
            "SELECT count(*), count(*) - count(cost_usd), max(created_at) FROM curations WHERE kind = 'batch'"
        )
        return (row[0], row[1], row[2]) if row else (0, 0, None)

    async def spend(self, since: float = 0.0) -> float:
        """What curation has cost since a time, in US dollars, as far as prices are known."""
        return float(
            await self._db.fetch_value(
                "SELECT coalesce(sum(cost_usd), 0.0) FROM curations WHERE created_at >= ?", (since,)
            )
        )

    # --- full text ---

    async def search(self, match: str, where: str, parameters: Sequence[Any], limit: int) -> list[sqlite3.Row]:
        """Turns by rank: (id, timestamp, session_id, trigger, user_message, agent_response, tools, score).

        `match` is an FTS5 expression; `where` an SQL condition on `o`, the observations, or "1". A lower
        score is a better one (FTS5's bm25).
        """
        return await self._db.fetch_all(
            "SELECT o.id, o.timestamp, o.session_id, o.trigger, f.user_message, f.agent_response, f.tools, "  # noqa: S608
            "bm25(observations_fts, 2.0, 1.0, 0.5) AS score "
            "FROM observations_fts f JOIN observations o ON o.id = f.rowid "
            f"WHERE observations_fts MATCH ? AND {where} ORDER BY score, o.id DESC LIMIT ?",
            (match, *parameters, limit),
        )


def tools_text(calls: Sequence[Mapping[str, Any]]) -> str:
    """What is searchable of tool calls: names, inputs and results."""
    return "\n".join(f"{c['name']} {_words(c['input'])} {_words(c['result'])}" for c in calls)


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(_words(v) for v in value.values())
    if isinstance(value, list):
        return " ".join(_words(v) for v in value)
    return "" if value is None else str(value)


def _observation(row: sqlite3.Row) -> Observation:
    fields = dict(row)
    calls = json.loads(fields.pop("tool_calls_json"))
    processed = bool(fields.pop("processed"))
    return Observation(**fields, tool_calls=calls, processed=processed)


def _append(tx: sqlite3.Connection, curation: NewCuration) -> int:
    cursor = tx.execute(
        f"INSERT INTO curations ({_CURATION}) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - ours
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
