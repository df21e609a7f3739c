"""transcript.db: the log. Observations and curations are appended and never changed. Times are Unix seconds."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from sprite.common.sqlite import LARGEST_ROW_ID, Schema
from sprite.log.curations import WAITING, Curation, Curations, LostCalls, Quarantine, Spending, append
from sprite.log.file_table import USER_FILES, Entry, UserFilesLog, keep_look
from sprite.log.turn_index import REINDEX, TURN_INDEX, TurnLook
from sprite.protocol.pasted import Spans, read_spans, write_spans
from sprite.protocol.shapes import Effort
from sprite.storage.changes import ShipChanges, noted, shipped_tables
from sprite.storage.connection import Database, Tables, in_transaction, open_database, open_reader, to_json


@dataclass(frozen=True, slots=True)
class LogMark:
    """The identity of a log, with its newest turn and one curation by id and time (Unix seconds; 0 if there is none).

    Identity and times never change. So a log with other values, or without these rows, is another or an older one.
    """

    #: None in a memory.db that has seen no log yet.
    log_id: str | None
    turn_id: int
    turn_at: float
    curation_id: int
    curation_at: float


SCHEMA = Schema(
    name="transcript.db",
    application_id=0x53505431,  # "SPT1"
    migrations=[
        """
        -- Which log this is, for good: what was made of another one, or of a newer copy of this one, is known by it.
        CREATE TABLE log_identity (id TEXT NOT NULL);
        INSERT INTO log_identity VALUES (lower(hex(randomblob(16))));
        CREATE TRIGGER log_identity_stays BEFORE DELETE ON log_identity
        BEGIN SELECT RAISE(ABORT, 'the identity of a log is never deleted'); END;
        CREATE TRIGGER log_identity_frozen BEFORE UPDATE ON log_identity
        BEGIN SELECT RAISE(ABORT, 'the identity of a log is never changed'); END;
        CREATE TRIGGER log_identity_alone BEFORE INSERT ON log_identity
        BEGIN SELECT RAISE(ABORT, 'a log never has a second identity'); END;
        CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            started_at REAL NOT NULL,
            ended_at REAL,
            message_count INTEGER NOT NULL DEFAULT 0,
            observation_count INTEGER NOT NULL DEFAULT 0,
            cli_session_id TEXT,
            last_active_at REAL NOT NULL DEFAULT 0,
            -- What the person chose for it; null: the default.
            model TEXT,
            effort TEXT
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
            -- Whether a schedule began the turn; its `trigger` is 'task'.
            by_schedule INTEGER NOT NULL DEFAULT 0,
            -- Of which project it is (null: the person's own), and which program it was said to (null: this sprite).
            project TEXT,
            source TEXT,
            -- Which program's words `user_message` has (null: the person's, or nobody's); the `trigger` of such a turn
            -- is 'task'.
            asked_by TEXT,
            -- Which parts of `user_message` the person pasted: [[start, end], ...] in code points; null: none.
            pasted_json TEXT CHECK (pasted_json IS NULL OR json_valid(pasted_json)),
            UNIQUE (session_id, sequence_num)
        );
        CREATE INDEX observations_waiting ON observations (id) WHERE processed = 0;
        CREATE INDEX observations_quarantined ON observations (id) WHERE processed = 2;
        CREATE INDEX observations_project ON observations (project, id) WHERE project IS NOT NULL;
        CREATE TRIGGER observations_stay BEFORE DELETE ON observations
        BEGIN SELECT RAISE(ABORT, 'observations are never deleted'); END;
        CREATE TRIGGER observations_frozen BEFORE UPDATE ON observations
        WHEN NOT (OLD.id IS NEW.id AND OLD.timestamp IS NEW.timestamp
            AND OLD.session_id IS NEW.session_id AND OLD.sequence_num IS NEW.sequence_num
            AND OLD.user_message IS NEW.user_message AND OLD.tool_calls_json IS NEW.tool_calls_json
            AND OLD.agent_response IS NEW.agent_response AND OLD.outcome IS NEW.outcome
            AND OLD.mission_id IS NEW.mission_id AND OLD.trigger IS NEW.trigger
            AND OLD.notice IS NEW.notice AND OLD.import_key IS NEW.import_key
            AND OLD.by_schedule IS NEW.by_schedule
            AND OLD.project IS NEW.project AND OLD.source IS NEW.source AND OLD.asked_by IS NEW.asked_by
            AND OLD.pasted_json IS NEW.pasted_json)
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
            generation INTEGER NOT NULL DEFAULT 0,
            -- What was decided about it, logged with it: memory is a fold of decisions.
            decision_json TEXT CHECK (decision_json IS NULL OR json_valid(decision_json)),
            -- The verifier's request hash, answer and cost.
            verification_json TEXT CHECK (verification_json IS NULL OR json_valid(verification_json))
        );
        CREATE INDEX curations_quarantine ON curations (first_observation_id) WHERE kind = 'quarantine';
        -- Whether another extraction took over is asked at every turn; answers are long rows.
        CREATE INDEX curations_edit ON curations (id) WHERE kind = 'edit';
        CREATE INDEX curations_drift ON curations (id) WHERE kind = 'drift';
        CREATE INDEX curations_undo ON curations (first_observation_id) WHERE kind = 'undo';
        CREATE INDEX curations_action ON curations (id) WHERE kind = 'action';
        CREATE TRIGGER curations_stay BEFORE DELETE ON curations
        BEGIN SELECT RAISE(ABORT, 'curations are never deleted'); END;
        CREATE TRIGGER curations_frozen BEFORE UPDATE ON curations
        BEGIN SELECT RAISE(ABORT, 'curations are never changed'); END;
        CREATE TRIGGER curations_new BEFORE INSERT ON curations
        WHEN EXISTS (SELECT 1 FROM curations WHERE id = NEW.id)
        BEGIN SELECT RAISE(ABORT, 'curations are never replaced'); END;
        -- Calls that were paid for and gave no curation: cut off, empty, or asked once more; and an answer until its
        -- curation is logged. No number comes twice. It says which turns a call was about, in which extraction: what
        -- counts against a turn outlives the process.
        CREATE TABLE lost_calls (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            created_at REAL NOT NULL,
            model TEXT NOT NULL,
            reason TEXT NOT NULL,
            usage_json TEXT NOT NULL,
            cost_usd REAL,
            first_observation_id INTEGER,
            last_observation_id INTEGER,
            generation INTEGER NOT NULL DEFAULT 0
        );
        CREATE TRIGGER lost_calls_stay BEFORE DELETE ON lost_calls WHEN OLD.reason <> 'not logged'
        BEGIN SELECT RAISE(ABORT, 'lost calls are never deleted'); END;
        CREATE TRIGGER lost_calls_frozen BEFORE UPDATE ON lost_calls
        BEGIN SELECT RAISE(ABORT, 'lost calls are never changed'); END;
        CREATE VIEW model_calls AS
            SELECT created_at, usage_json, cost_usd FROM curations WHERE kind = 'batch'
            UNION ALL SELECT created_at, usage_json, cost_usd FROM lost_calls;
        """  # noqa: S608 - our own schema
        + TURN_INDEX
        + USER_FILES
        + noted(
            "log_identity sessions observations turn_journal curations lost_calls disk_entries disk_look "
            "file_deeds".split()
        )
    ],
)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event of an unfinished turn."""

    turn_key: str
    session_id: str
    at: float
    event: str
    data: dict[str, Any]


class TurnJournal(Tables):
    """Append, read and delete journal entries."""

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


_T = TypeVar("_T")
Outcome = Literal["complete", "interrupted", "error", "max_turns", "crashed"]
#: Origin of a turn: a person's mission, one that the CLI started itself (background work ended), a schedule's, or
#: another program's request.
Trigger = Literal["user", "task", "schedule", "program"]

_OBSERVATION = (
    "id, timestamp, session_id, sequence_num, user_message, tool_calls_json, agent_response, processed, "
    "outcome, mission_id, trigger, notice, by_schedule, project, source, asked_by, pasted_json"
)

_UNDONE = (
    "coalesce((SELECT json_extract(response, '$.undone') FROM curations WHERE kind = 'undo' "
    "AND first_observation_id = observations.id ORDER BY curations.id DESC LIMIT 1), 0)"
)


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation, from its first mission to its end."""

    id: str
    started_at: float
    ended_at: float | None
    message_count: int
    observation_count: int
    cli_session_id: str | None
    last_active_at: float
    model: str | None = None
    effort: Effort | None = None


@dataclass(frozen=True, slots=True)
class NewObservation:
    """A turn that ended and is not written yet. `tool_calls` are the wire's tool calls, already cut."""

    session_id: str
    user_message: str
    tool_calls: Sequence[Mapping[str, Any]]
    agent_response: str
    outcome: Outcome
    mission_id: str | None = None
    trigger: Trigger = "user"
    notice: str = ""
    #: WAITING, CURATED, QUARANTINED or OFF_RECORD.
    processed: int = WAITING
    #: The turn's project: a root path on its machine, or a repository's address, or None for the person's own.
    project: str | None = None
    #: The program it was said to, such as "claude-code", or None for this sprite.
    source: str | None = None
    #: The program that wrote `user_message`, if `trigger` is "program", or None for the person.
    asked_by: str | None = None
    #: The parts of `user_message` that the person pasted: see `sprite/protocol/pasted.py`.
    pasted: Spans = ()


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """A turn that another program recorded. `key` identifies it in every copy of that program's log."""

    key: str
    started_at: float
    ended_at: float
    observation: NewObservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(NewObservation):
    """A logged turn."""

    id: int
    timestamp: float
    sequence_num: int
    #: Whether its file changes were undone.
    undone: bool = False


def projects_of(turns: Iterable[Observation]) -> list[str]:
    """Return the projects of turns, in order."""
    return list(dict.fromkeys(turn.project for turn in turns if turn.project is not None))


class TranscriptDB(Tables):
    """Read and append the log's sessions and observations."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.curations = Curations(database)
        self.quarantine = Quarantine(database)
        self.lost_calls = LostCalls(database)
        self.spending = Spending(database)
        self.journal = TurnJournal(database)
        self.user_files = UserFilesLog(database)
        self.changes = ShipChanges(database, shipped_tables("transcript.db"))

    async def ask(self, work: Callable[[TurnLook], _T]) -> _T:
        """Run a function with the full-text index on the reader's thread."""
        # One function for all queries: a switch of threads takes milliseconds on a busy machine.
        return await self._db.read(lambda connection: work(TurnLook(connection)))

    # --- what it is ---

    async def mark(self, until: int = LARGEST_ROW_ID) -> LogMark:
        """Return the mark of this log: its identity, its newest turn, and its newest curation up to id `until`."""
        row = await self._db.fetch_one(
            "SELECT (SELECT id FROM log_identity), coalesce(t.id, 0), coalesce(t.timestamp, 0), "
            "coalesce(c.id, 0), coalesce(c.created_at, 0) FROM (SELECT 1) "
            "LEFT JOIN observations t ON t.id = (SELECT max(id) FROM observations) "
            "LEFT JOIN curations c ON c.id = (SELECT max(id) FROM curations WHERE id <= ?)",
            (until,),
        )
        if row is None:
            raise sqlite3.InternalError("a row of constants is missing")
        return LogMark(*row)

    async def reaches(self, mark: LogMark) -> bool:
        """Return whether the newest turn and curation of a mark are in this log, unchanged."""
        found = await self._db.fetch_value(
            "SELECT (?1 = 0 OR EXISTS (SELECT 1 FROM observations WHERE id = ?1 AND timestamp = ?2)) "
            "AND (?3 = 0 OR EXISTS (SELECT 1 FROM curations WHERE id = ?3 AND created_at = ?4))",
            (mark.turn_id, mark.turn_at, mark.curation_id, mark.curation_at),
        )
        return bool(found)

    # --- sessions ---

    async def start_session(self, session_id: str) -> Session:
        """Open a session now."""
        now = time.time()
        await self._db.execute(
            "INSERT INTO sessions (id, started_at, last_active_at) VALUES (?, ?, ?)", (session_id, now, now)
        )
        return Session(session_id, now, None, 0, 0, None, now)

    async def open_session(self) -> Session | None:
        """Return the newest session that has not ended, or None."""
        sql = "SELECT * FROM sessions WHERE ended_at IS NULL ORDER BY started_at DESC, rowid DESC LIMIT 1"
        found = await self._db.fetch_as(Session, sql)
        return found[0] if found else None

    async def reopen_session(self, session_id: str) -> Session | None:
        """Open an ended session again, or return None if this sprite has no such session."""
        if session_id not in await self.own_sessions([session_id]):
            return None
        await self._db.execute(
            "UPDATE sessions SET ended_at = NULL, last_active_at = ? WHERE id = ?", (time.time(), session_id)
        )
        found = await self._db.fetch_as(Session, "SELECT * FROM sessions WHERE id = ?", (session_id,))
        return found[0] if found else None

    async def end_sessions(self) -> None:
        """End every open session now."""
        await self._db.execute("UPDATE sessions SET ended_at = ? WHERE ended_at IS NULL", (time.time(),))

    async def link_cli_session(self, session_id: str, cli_session_id: str) -> None:
        """Record the CLI's id of this conversation, so that it can be resumed."""
        await self._db.execute(
            "UPDATE sessions SET cli_session_id = ? WHERE id = ? AND cli_session_id IS NOT ?",
            (cli_session_id, session_id, cli_session_id),
        )

    async def choose_model(self, session_id: str, model: str | None, effort: Effort | None) -> None:
        """Record the model and effort that the person chose for a session."""
        await self._db.execute("UPDATE sessions SET model = ?, effort = ? WHERE id = ?", (model, effort, session_id))

    async def session_count(self) -> int:
        """Return the number of sessions."""
        return int(await self._db.fetch_value("SELECT count(*) FROM sessions"))

    # --- observations ---

    @in_transaction
    def add_observation(
        self,
        tx: sqlite3.Connection,
        observation: NewObservation,
        *,
        turn_keys: Sequence[str] = (),
        at: float | None = None,
    ) -> int:
        """Write a turn, delete the journal's entries with these keys, and return the turn's id."""
        tx.executemany("DELETE FROM turn_journal WHERE turn_key = ?", [(key,) for key in turn_keys])
        return _add_counted(tx, observation, time.time() if at is None else at)

    @in_transaction
    def add_look(
        self, tx: sqlite3.Connection, observation: NewObservation, entries: Sequence[Entry], at: float, more: int
    ) -> int:
        """Write the turn that reports changed user files, and the files seen; return the turn's id."""
        keep_look(tx, entries, at, more)
        return _add_counted(tx, observation, at)

    # --- turns from elsewhere ---

    @in_transaction
    def add_imported(self, tx: sqlite3.Connection, turns: Sequence[ImportedTurn]) -> list[ImportedTurn]:
        """Write turns of other conversations, unless their keys are known, with ended sessions; return the new ones."""
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
                (turn.observation.session_id, turn.started_at, turn.ended_at, turn.observation.trigger == "user"),
            )
            _add(tx, turn.observation, turn.ended_at, turn.key)
            added.append(turn)
        return added

    async def cli_sessions(self) -> set[str]:
        """Return the CLI's ids of conversations that this sprite recorded itself."""
        return set(await self._db.fetch_column("SELECT cli_session_id FROM sessions WHERE cli_session_id IS NOT NULL"))

    async def own_sessions(self, ids: Collection[str]) -> set[str]:
        """Return those of these sessions that this sprite recorded itself: other programs must not add to them."""
        return set(
            await self._db.fetch_column(
                "SELECT id FROM sessions WHERE id IN (SELECT value FROM json_each(?)) AND (ended_at IS NULL "
                "OR cli_session_id IS NOT NULL OR EXISTS (SELECT 1 FROM observations "
                "WHERE session_id = sessions.id AND import_key IS NULL))",
                (to_json(list(ids)),),
            )
        )

    async def observation(self, observation_id: int) -> Observation | None:
        """Return a turn, or None."""
        return (await self.observations_of([observation_id])).get(observation_id)

    async def turn_of(self, mission_id: str) -> Observation | None:
        """Return the turn of a mission, or None if it has no observation."""
        rows = await self._observations("WHERE mission_id = ?", (mission_id,))
        return rows[0] if rows else None

    async def first_turn_after(self, at: float) -> int | None:
        """Return the first turn that ended after a time (Unix seconds), or None."""
        found: int | None = await self._db.fetch_value("SELECT min(id) FROM observations WHERE timestamp > ?", (at,))
        return found

    async def observations_after(self, observation_id: int, limit: int) -> list[Observation]:
        """Return turns above an id, oldest first."""
        return await self._observations("WHERE id > ? ORDER BY id LIMIT ?", (observation_id, limit))

    async def observations_before(self, observation_id: int | None, limit: int) -> list[Observation]:
        """Return the newest turns (below an id), newest first."""
        where = "WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2"
        return await self._observations(where, (observation_id, limit))

    async def observations_of_session(self, session_id: str) -> list[Observation]:
        """Return every turn of a session, oldest first."""
        return await self._observations("WHERE session_id = ? ORDER BY id", (session_id,))

    async def conversation(self, observation_id: int, before: int, after: int) -> list[Observation]:
        """Return a turn with so many neighbours on the record in its session, in order; empty if it does not exist."""
        return await self._observations(
            "WHERE processed <> 3 AND EXISTS (SELECT 1 FROM observations WHERE id = ?1 AND processed <> 3) AND "
            "id IN (SELECT id FROM (SELECT s.id FROM observations o JOIN observations s "
            "ON s.session_id = o.session_id AND s.sequence_num <= o.sequence_num WHERE o.id = ?1 "
            "ORDER BY s.sequence_num DESC LIMIT ?2 + 1) UNION ALL SELECT id FROM (SELECT s.id FROM observations o "
            "JOIN observations s ON s.session_id = o.session_id AND s.sequence_num > o.sequence_num WHERE o.id = ?1 "
            "ORDER BY s.sequence_num LIMIT ?3)) ORDER BY sequence_num",
            (observation_id, before, after),
        )

    async def projects(self, limit: int) -> list[tuple[str, int, float]]:
        """Return (key, turns, time of the newest turn) of every project, most recent first."""
        rows = await self._db.fetch_all(
            "SELECT p.project, p.turns, o.timestamp FROM (SELECT project, count(*) AS turns, max(id) AS newest "
            "FROM observations WHERE project IS NOT NULL GROUP BY project) p JOIN observations o ON o.id = p.newest "
            "ORDER BY p.newest DESC LIMIT ?",
            (limit,),
        )
        return [(row[0], row[1], row[2]) for row in rows]

    async def observations_of(self, ids: Sequence[int]) -> dict[int, Observation]:
        """Return those of these turns that exist, by id and in order."""
        where = "WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
        return {turn.id: turn for turn in await self._observations(where, (json.dumps(list(ids)),))}

    async def _observations(self, where: str, parameters: Sequence[Any]) -> list[Observation]:
        sql = f"SELECT {_OBSERVATION}, {_UNDONE} AS undone FROM observations {where}"  # noqa: S608 - our columns
        found: list[Observation] = []
        for row in await self._db.fetch_all(sql, parameters):
            fields = dict(row)
            calls = json.loads(fields.pop("tool_calls_json"))
            if fields.pop("by_schedule"):
                fields["trigger"] = "schedule"
            elif fields["asked_by"] is not None:
                fields["trigger"] = "program"
            if (pasted := fields.pop("pasted_json")) is not None:
                fields["pasted"] = read_spans(pasted)
            fields["undone"] = bool(fields["undone"])
            found.append(Observation(**fields, tool_calls=calls))
        return found

    async def waiting(self, limit: int) -> list[Observation]:
        """Return the oldest turns that wait for curation, up to the first gap in their ids: one batch at most."""
        return side_by_side(await self._observations("WHERE processed = 0 ORDER BY id LIMIT ?", (limit,)))

    async def oldest_waiting(self) -> Observation | None:
        """Return the oldest turn of this sprite that waits for curation; imported turns carry old times."""
        found = await self._observations("WHERE processed = 0 AND import_key IS NULL ORDER BY id LIMIT 1", ())
        return found[0] if found else None

    async def curated(self) -> list[Observation]:
        """Return every curated turn, oldest first."""
        return await self._observations("WHERE processed = 1 ORDER BY id", ())

    async def newest_waiting(self, limit: int, *, is_here: bool = False) -> list[Observation]:
        """Return the newest uncurated turns, oldest first; `is_here`: only those said to this sprite."""
        where = "WHERE processed = 0 AND (source IS NULL OR NOT ?) ORDER BY id DESC LIMIT ?"
        return (await self._observations(where, (is_here, limit)))[::-1]

    async def newest_waiting_of(self, project: str, limit: int) -> list[Observation]:
        """Return the newest uncurated turns of a project, oldest first."""
        where = "WHERE project = ? AND processed = 0 ORDER BY id DESC LIMIT ?"
        return (await self._observations(where, (project, limit)))[::-1]

    async def mentions(self, names: Collection[str], since: float) -> bool:
        """Return whether a turn on the record since that time has one of the names in its words or tool calls."""
        sql = (
            "SELECT EXISTS (SELECT 1 FROM observations WHERE timestamp > ?1 AND processed <> 3 "
            "AND (instr(user_message, ?2) OR instr(agent_response, ?2) OR instr(notice, ?2) "
            "OR instr(tool_calls_json, ?3)))"
        )
        for name in names:
            if await self._db.fetch_value(sql, (since, name, to_json(name)[1:-1])):
                return True
        return False

    async def counts(self) -> tuple[int, int]:
        """Return (turns, turns that wait for curation)."""
        row = await self._db.fetch_one(
            "SELECT (SELECT count(*) FROM observations), (SELECT count(*) FROM observations WHERE processed = 0)"
        )
        return (row[0], row[1]) if row else (0, 0)

    async def reach(self) -> tuple[int, int]:
        """Return (id of the last turn before the oldest waiting one, number of waiting turns)."""
        row = await self._db.fetch_one(
            "SELECT coalesce((SELECT min(id) - 1 FROM observations WHERE processed = 0), "
            "(SELECT max(id) FROM observations), 0), (SELECT count(*) FROM observations WHERE processed = 0)"
        )
        return (row[0], row[1]) if row else (0, 0)

    async def waiting_count(self) -> int:
        """Return the number of turns that wait for curation."""
        return int(await self._db.fetch_value("SELECT count(*) FROM observations WHERE processed = 0"))

    # --- forgetting ---

    @in_transaction
    def forget(
        self,
        tx: sqlite3.Connection,
        observations: Sequence[Observation],
        responses: Mapping[int, str],
        decisions: Mapping[int, str],
        verifications: Mapping[int, str],
        tombstone: Mapping[str, Any],
    ) -> int:
        """Remove text from rows, in one transaction with a tombstone; return its id. No other change to rows exists.

        `responses`, `decisions` and `verifications` are new values by curation. `purge` must follow to clear the pages.
        """
        frozen = tx.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' "
            "AND name IN ('observations_frozen', 'curations_frozen')"
        ).fetchall()
        for name, _ in frozen:
            tx.execute(f"DROP TRIGGER {name}")
        for turn in observations:
            tx.execute(
                "UPDATE observations SET user_message = ?, tool_calls_json = ?, agent_response = ?, notice = ?, "
                "pasted_json = ? WHERE id = ?",
                (
                    turn.user_message,
                    to_json(turn.tool_calls),
                    turn.agent_response,
                    turn.notice,
                    write_spans(turn.pasted),
                    turn.id,
                ),
            )
        texts = {"response": responses, "decision_json": decisions, "verification_json": verifications}
        for column, new in texts.items():
            sql = f"UPDATE curations SET {column} = ?1 WHERE id = ?2 AND {column} IS NOT ?1"  # noqa: S608 - our columns
            tx.executemany(sql, [(text, key) for key, text in new.items()])
        tx.execute("DELETE FROM turn_journal")
        for _, sql in frozen:
            tx.execute(sql)
        return append(tx, Curation(kind="forget", response=to_json(tombstone)))

    async def purge(self) -> None:
        """Rebuild the file and its full text, so that no page contains forgotten text."""
        await self._db.purge(REINDEX)


def side_by_side(turns: Sequence[Observation]) -> list[Observation]:
    """Return the leading turns with consecutive ids, because a curation's range must contain only its own turns."""
    return [turn for at, turn in enumerate(turns) if turn.id == turns[0].id + at]


def _add_counted(tx: sqlite3.Connection, observation: NewObservation, timestamp: float) -> int:
    observation_id = _add(tx, observation, timestamp)
    tx.execute(
        "UPDATE sessions SET observation_count = observation_count + 1, "
        "message_count = message_count + ?, last_active_at = max(last_active_at, ?) WHERE id = ?",
        (observation.trigger == "user", timestamp, observation.session_id),
    )
    return observation_id


def _add(tx: sqlite3.Connection, observation: NewObservation, timestamp: float, import_key: str | None = None) -> int:
    cursor = tx.execute(
        f"INSERT INTO observations ({_OBSERVATION}, import_key) VALUES (NULL, ?1, ?2, "  # noqa: S608 - our columns
        "(SELECT coalesce(max(sequence_num), 0) + 1 FROM observations WHERE session_id = ?2), "
        "?3, ?4, ?5, ?11, ?6, ?7, ?8, ?9, ?12, ?13, ?14, ?15, ?16, ?10)",
        (
            timestamp,
            observation.session_id,
            observation.user_message,
            to_json(observation.tool_calls),
            observation.agent_response,
            observation.outcome,
            observation.mission_id,
            "user" if observation.trigger == "user" else "task",
            observation.notice,
            import_key,
            observation.processed,
            observation.trigger == "schedule",
            observation.project,
            observation.source,
            observation.asked_by,
            write_spans(observation.pasted),
        ),
    )
    return cursor.lastrowid or 0


@asynccontextmanager
async def open_transcript(path: Path) -> AsyncIterator[TranscriptDB]:
    """Open the log for reading and writing, as its only writer."""
    async with open_database(path, SCHEMA) as database:
        yield TranscriptDB(database)


@asynccontextmanager
async def read_transcript(path: Path) -> AsyncIterator[TranscriptDB]:
    """Open the log for reading, while another process writes it."""
    async with open_reader(path, SCHEMA) as database:
        yield TranscriptDB(database)
