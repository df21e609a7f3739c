"""transcript.db: the log. Observations and curations are appended and never changed.

Owns the rows of the log; knows nothing of models or files. Times are Unix seconds.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sprite.database.connection import LARGEST_ROW_ID, Database, open_database, open_reader, row_id, to_json
from sprite.database.curations import Curations, NewCuration, append
from sprite.database.log_mark import LogMark
from sprite.database.lost_calls import LostCalls
from sprite.database.quarantine import OFF_RECORD, WAITING, Quarantine
from sprite.database.ship_changes import ShipChanges, shipped_tables
from sprite.database.spending import Spending
from sprite.database.transcript_schema import SCHEMA
from sprite.database.turn_index import REINDEX, TurnIndex
from sprite.database.turn_journal import TurnJournal
from sprite.database.user_files import Entry, UserFilesLog, keep_look

Outcome = Literal["complete", "interrupted", "error", "max_turns", "crashed"]
#: Origin of a turn: a person's mission, one that the CLI started itself (background work ended), a schedule's, or
#: another program's request.
Trigger = Literal["user", "task", "schedule", "program"]

#: An FTS5 expression that matches no row.
NOTHING = '"\u2205"'
#: The deepest nesting kept of a tool call. Its readers walk through it level by level, two frames of Python each.
_MAX_LEVELS = 100
_OBSERVATION = (
    "id, timestamp, session_id, sequence_num, user_message, tool_calls_json, agent_response, processed, "
    "outcome, mission_id, trigger, notice, unkept_json, by_schedule, project, source, asked_by"
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
    #: Whether its person asked not to remember it.
    off_record: bool = False
    #: Parts of tool results that are not stored: see `sprite/memory/unkept.py`.
    unkept: Mapping[str, Any] = field(default_factory=dict)
    #: The turn's project: a root path on its machine, or a repository's address; None for the person's own.
    project: str | None = None
    #: The program it was said to, such as "claude-code"; None for this sprite.
    source: str | None = None
    #: The program that wrote `user_message`, if `trigger` is "program"; None for the person.
    asked_by: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """A turn that another program recorded. `key` identifies it in every copy of that program's log."""

    key: str
    started_at: float
    ended_at: float
    observation: NewObservation


@dataclass(frozen=True, slots=True)
class Observation:
    """A logged turn; `processed` is WAITING, CURATED, QUARANTINED or OFF_RECORD."""

    id: int
    timestamp: float
    session_id: str
    sequence_num: int
    user_message: str
    tool_calls: list[dict[str, Any]]
    agent_response: str
    processed: int
    outcome: Outcome
    mission_id: str | None
    trigger: Trigger
    notice: str
    #: Parts of tool results that are not stored, by tool call: see `sprite/memory/unkept.py`.
    unkept: dict[str, Any] = field(default_factory=dict)
    project: str | None = None
    source: str | None = None
    asked_by: str | None = None


class TranscriptDB:
    """Read and append the log's sessions and observations."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.index = TurnIndex(database)
        self.curations = Curations(database)
        self.quarantine = Quarantine(database)
        self.lost_calls = LostCalls(database)
        self.spending = Spending(database)
        self.journal = TurnJournal(database)
        self.user_files = UserFilesLog(database)
        self.changes = ShipChanges(database, shipped_tables("transcript.db"))

    # --- what it is ---

    async def mark(self, until: int = LARGEST_ROW_ID) -> LogMark:
        """Return the identity and end of this log; of its curations, up to and including one."""
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
        row = await self._db.fetch_one(
            "SELECT * FROM sessions WHERE ended_at IS NULL ORDER BY started_at DESC, rowid DESC LIMIT 1"
        )
        return Session(**dict(row)) if row else None

    async def end_sessions(self) -> None:
        """End every open session now."""
        await self._db.execute("UPDATE sessions SET ended_at = ? WHERE ended_at IS NULL", (time.time(),))

    async def link_cli_session(self, session_id: str, cli_session_id: str) -> None:
        """Record the CLI's id of this conversation, so that it can be resumed."""
        await self._db.execute(
            "UPDATE sessions SET cli_session_id = ? WHERE id = ? AND cli_session_id IS NOT ?",
            (cli_session_id, session_id, cli_session_id),
        )

    async def session_count(self) -> int:
        """Return the number of sessions."""
        return int(await self._db.fetch_value("SELECT count(*) FROM sessions"))

    # --- observations ---

    async def add_observation(
        self, observation: NewObservation, *, turn_keys: Sequence[str] = (), at: float | None = None
    ) -> int:
        """Write a turn, delete its journal and count it in its session, in one transaction; return its id."""
        timestamp = time.time() if at is None else at

        def write(tx: sqlite3.Connection) -> int:
            observation_id = _add_counted(tx, observation, timestamp)
            tx.executemany("DELETE FROM turn_journal WHERE turn_key = ?", [(key,) for key in turn_keys])
            return observation_id

        return await self._db.transact(write)

    async def add_look(self, observation: NewObservation, entries: Sequence[Entry], at: float, more: int) -> int:
        """Write the turn that reports changed user files, and the files seen; return the turn's id."""

        def write(tx: sqlite3.Connection) -> int:
            keep_look(tx, entries, at, more)
            return _add_counted(tx, observation, at)

        return await self._db.transact(write)

    # --- turns from elsewhere ---

    async def add_imported(self, turns: Sequence[ImportedTurn]) -> list[ImportedTurn]:
        """Write turns of other conversations with their sessions, in one transaction; return the new ones.

        A turn with a known key is skipped. Their sessions are ended, so that none is ever resumed.
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
        """Return those of these keys that are in the log."""
        rows = await self._db.fetch_all(
            "SELECT import_key FROM observations WHERE import_key IN (SELECT value FROM json_each(?))", (to_json(keys),)
        )
        return {row[0] for row in rows}

    async def cli_sessions(self) -> set[str]:
        """Return the CLI's ids of conversations that this sprite recorded itself."""
        rows = await self._db.fetch_all("SELECT cli_session_id FROM sessions WHERE cli_session_id IS NOT NULL")
        return {row[0] for row in rows}

    async def own_sessions(self, ids: Collection[str]) -> set[str]:
        """Return those of these sessions that this sprite recorded itself: other programs must not add to them."""
        rows = await self._db.fetch_all(
            "SELECT id FROM sessions WHERE id IN (SELECT value FROM json_each(?)) AND (ended_at IS NULL "
            "OR cli_session_id IS NOT NULL OR EXISTS (SELECT 1 FROM observations "
            "WHERE session_id = sessions.id AND import_key IS NULL))",
            (to_json(list(ids)),),
        )
        return {row[0] for row in rows}

    async def session_ids(self) -> set[str]:
        """Return the ids of all sessions; those imported from Claude Code keep its ids."""
        return {row[0] for row in await self._db.fetch_all("SELECT id FROM sessions")}

    # --- reading observations ---

    async def observation(self, observation_id: int) -> Observation | None:
        """Return a turn, or None."""
        rows = await self._observations("WHERE id = ?", (observation_id,))
        return rows[0] if rows else None

    async def turn_of(self, mission_id: str) -> Observation | None:
        """Return the turn of a mission, or None if it has no observation."""
        rows = await self._observations("WHERE mission_id = ?", (mission_id,))
        return rows[0] if rows else None

    async def observations_after(self, observation_id: int, limit: int) -> list[Observation]:
        """Return turns above an id, oldest first."""
        return await self._observations("WHERE id > ? ORDER BY id LIMIT ?", (observation_id, limit))

    async def observations_before(self, observation_id: int | None, limit: int) -> list[Observation]:
        """Return the newest turns (below an id), newest first."""
        return await self._observations(
            "WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2", (observation_id, limit)
        )

    async def observations_of_session(self, session_id: str) -> list[Observation]:
        """Return every turn of a session, oldest first."""
        return await self._observations("WHERE session_id = ? ORDER BY id", (session_id,))

    async def heard(self, first: int, last: int, match: str, *, limit: int, recent: int) -> list[Observation]:
        """Return the turns of an inclusive id range and earlier turns that may be their source, oldest first.

        Earlier turns are the newest `limit` that match an FTS5 expression. Among the `recent` ones before the
        range, those with unstored tool results are added.
        """
        return await self._observations(
            "WHERE id BETWEEN ?1 AND ?2 OR (id >= ?1 - ?3 AND id < ?1 AND unkept_json <> '{}') "
            "OR id IN (SELECT rowid FROM observations_fts WHERE observations_fts MATCH ?4 AND rowid < ?1 "
            "ORDER BY rowid DESC LIMIT ?5) ORDER BY id",
            (first, last, recent, match or NOTHING, limit),
        )

    async def conversation(self, observation_id: int, before: int, after: int) -> list[Observation]:
        """Return a turn with its neighbours in the session, in order; empty if there is no such turn.

        `before` and `after` are numbers of turns. Turns off the record are skipped.
        """
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
        """Return those of these turns that exist, by id."""
        found = await self._observations("WHERE id IN (SELECT value FROM json_each(?))", (to_json(list(ids)),))
        return {turn.id: turn for turn in found}

    async def waiting(self, limit: int) -> list[Observation]:
        """Return the oldest adjacent turns that wait for curation, oldest first: the possible span of a batch."""
        return side_by_side(await self._observations("WHERE processed = 0 ORDER BY id LIMIT ?", (limit,)))

    async def curated(self) -> list[Observation]:
        """Return every curated turn, oldest first."""
        return await self._observations("WHERE processed = 1 ORDER BY id", ())

    async def newest_waiting(self, limit: int) -> list[Observation]:
        """Return the newest uncurated turns, oldest first."""
        rows = await self._observations("WHERE processed = 0 ORDER BY id DESC LIMIT ?", (limit,))
        return rows[::-1]

    async def newest_waiting_here(self, limit: int) -> list[Observation]:
        """Return the newest uncurated turns said to this sprite, oldest first."""
        rows = await self._observations("WHERE processed = 0 AND source IS NULL ORDER BY id DESC LIMIT ?", (limit,))
        return rows[::-1]

    async def newest_waiting_of(self, project: str, limit: int) -> list[Observation]:
        """Return the newest uncurated turns of a project, oldest first."""
        rows = await self._observations(
            "WHERE project = ? AND processed = 0 ORDER BY id DESC LIMIT ?", (project, limit)
        )
        return rows[::-1]

    async def counts(self) -> tuple[int, int, int]:
        """Return (turns, turns that wait for curation, id of the last turn before all waiting ones or 0)."""
        row = await self._db.fetch_one(
            "SELECT (SELECT count(*) FROM observations), "
            "(SELECT count(*) FROM observations WHERE processed = 0), "
            "coalesce((SELECT min(id) - 1 FROM observations WHERE processed = 0), "
            "(SELECT max(id) FROM observations), 0)"
        )
        return (row[0], row[1], row[2]) if row else (0, 0, 0)

    async def reach(self) -> tuple[int, int]:
        """Return (id of the last turn before all waiting ones, number of waiting turns)."""
        row = await self._db.fetch_one(
            "SELECT coalesce((SELECT min(id) - 1 FROM observations WHERE processed = 0), "
            "(SELECT max(id) FROM observations), 0), (SELECT count(*) FROM observations WHERE processed = 0)"
        )
        return (row[0], row[1]) if row else (0, 0)

    async def waiting_count(self) -> int:
        """Return the number of turns that wait for curation."""
        return int(await self._db.fetch_value("SELECT count(*) FROM observations WHERE processed = 0"))

    async def _observations(self, where: str, parameters: Sequence[Any]) -> list[Observation]:
        sql = f"SELECT {_OBSERVATION} FROM observations {where}"  # noqa: S608 - our columns, our clause
        return [_observation(row) for row in await self._db.fetch_all(sql, parameters)]

    # --- forgetting ---

    async def forget(
        self,
        observations: Sequence[Observation],
        responses: Mapping[int, str],
        decisions: Mapping[int, str],
        tombstone: Mapping[str, Any],
    ) -> int:
        """Remove text from rows, in one transaction with a tombstone: the only change to existing rows.

        `responses` and `decisions` are the new values of curations by id. Returns the tombstone's id. Call `purge`
        afterwards to clear the file's pages.
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
                    "UPDATE observations SET user_message = ?, tool_calls_json = ?, agent_response = ?, notice = ?, "
                    "unkept_json = ? WHERE id = ?",
                    (
                        turn.user_message,
                        to_json(turn.tool_calls),
                        turn.agent_response,
                        turn.notice,
                        to_json(turn.unkept),
                        turn.id,
                    ),
                )
            tx.executemany(
                "UPDATE curations SET response = ? WHERE id = ?", [(text, key) for key, text in responses.items()]
            )
            tx.executemany(
                "UPDATE curations SET decision_json = ?1 WHERE id = ?2 AND decision_json IS NOT ?1",
                [(text, key) for key, text in decisions.items()],
            )
            tx.execute("DELETE FROM turn_journal")
            for _, sql in frozen:
                tx.execute(sql)
            return append(tx, NewCuration(kind="forget", response=to_json(tombstone)))

        return await self._db.transact(write)

    async def purge(self) -> None:
        """Rebuild the file and its full text, so that no page contains forgotten text."""
        await self._db.purge(REINDEX)


def _observation(row: sqlite3.Row) -> Observation:
    fields = dict(row)
    calls = json.loads(fields.pop("tool_calls_json"))
    unkept = json.loads(fields.pop("unkept_json"))
    if fields.pop("by_schedule"):
        fields["trigger"] = "schedule"
    elif fields["asked_by"] is not None:
        fields["trigger"] = "program"
    return Observation(**fields, tool_calls=calls, unkept=unkept)


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
        "?3, ?4, ?5, ?12, ?6, ?7, ?8, ?9, ?10, ?13, ?14, ?15, ?16, ?11)",
        (
            timestamp,
            observation.session_id,
            observation.user_message,
            to_json([_bounded(call) for call in observation.tool_calls]),
            observation.agent_response,
            observation.outcome,
            observation.mission_id,
            "user" if observation.trigger == "user" else "task",
            observation.notice,
            to_json(observation.unkept),
            import_key,
            OFF_RECORD if observation.off_record else WAITING,
            observation.trigger == "schedule",
            observation.project,
            observation.source,
            observation.asked_by,
        ),
    )
    return row_id(cursor.lastrowid)


def _bounded(value: Any, levels: int = _MAX_LEVELS) -> Any:
    """Return a JSON value without what is nested too deeply."""
    if not isinstance(value, Mapping | list):
        return value
    if levels == 0:
        return "[nested too deeply]"
    if isinstance(value, list):
        return [_bounded(item, levels - 1) for item in value]
    return {name: _bounded(item, levels - 1) for name, item in value.items()}


@asynccontextmanager
async def open_transcript(path: Path) -> AsyncIterator[TranscriptDB]:
    """Open the log as its owner."""
    async with open_database(path, SCHEMA) as database:
        yield TranscriptDB(database)


@asynccontextmanager
async def read_transcript(path: Path) -> AsyncIterator[TranscriptDB]:
    """Open the log for reading, beside its owner."""
    async with open_reader(path, SCHEMA) as database:
        yield TranscriptDB(database)
