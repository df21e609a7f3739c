"""memory.db: a projection of the curations with learnings, open actions, file versions, and the cursor.

All of it can be deleted and rebuilt from the log. Only the projection writes it, except the record of which file
version is on disk. Times are Unix seconds.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sprite.common.sqlite import Schema
from sprite.log.transcript import LogMark
from sprite.memory.decision import ACTION_COLUMNS, REFUSED_LAST, Action
from sprite.memory.learning_index import LEARNING_COLUMNS, LEARNING_INDEX, TRUSTED, UNTRUSTED, LearningLook
from sprite.protocol.shapes import LearningRow, Refusal
from sprite.storage.connection import Tables, in_transaction, open_database, open_reader

_T = TypeVar("_T")
_DAY = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
#: Learnings that may name a day, as an expression of SQLite's GLOB.
_DATED = "*[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*"

SCHEMA = Schema(
    name="memory.db",
    application_id=0x53504D31,  # "SPM1"
    migrations=[
        """
        CREATE TABLE learnings (
            id INTEGER PRIMARY KEY,
            created_at REAL NOT NULL,
            session_id TEXT,
            type TEXT NOT NULL CHECK (
                type IN ('FACT', 'PATTERN', 'CORRECTION', 'PREFERENCE', 'ACTION', 'TOOL_INSTALL', 'DIGEST')),
            content TEXT NOT NULL,
            source_observation_id INTEGER,
            confidence REAL NOT NULL,
            curation_id INTEGER NOT NULL DEFAULT 0,
            origin TEXT NOT NULL DEFAULT 'none',
            evidence TEXT,
            -- May name a learning that was forgotten: what it replaced does not stand again.
            -- 0: the person retired it.
            superseded_by INTEGER,
            seen INTEGER NOT NULL DEFAULT 1,
            last_seen REAL NOT NULL DEFAULT 0,
            said TEXT NOT NULL DEFAULT '',
            -- Of which project it is; null for the person's own.
            project TEXT,
            -- The type that it gets if the person confirms it; null if it need not be confirmed.
            proposed TEXT
        );
        CREATE INDEX learnings_retired ON learnings (said) WHERE superseded_by = 0;
        CREATE INDEX learnings_said ON learnings (said, type) WHERE superseded_by IS NULL;
        CREATE INDEX learnings_curation ON learnings (curation_id);
        CREATE INDEX learnings_standing ON learnings (type, id) WHERE superseded_by IS NULL;
        CREATE INDEX learnings_project ON learnings (project, id) WHERE project IS NOT NULL;
        CREATE TABLE pending_actions (
            id INTEGER PRIMARY KEY,
            created_at REAL NOT NULL,
            content TEXT NOT NULL,
            priority INTEGER NOT NULL DEFAULT 0,
            status TEXT NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'done', 'dismissed', 'failed')),
            source_learning_id INTEGER REFERENCES learnings (id),
            due REAL,
            rrule TEXT,
            tz TEXT,
            fired_at REAL,
            origin TEXT NOT NULL DEFAULT 'curator',
            history_json TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(history_json)),
            first_due REAL,
            mission_id TEXT,
            version INTEGER NOT NULL DEFAULT 1
        );
        CREATE INDEX pending_actions_due ON pending_actions (due) WHERE status = 'open' AND due IS NOT NULL;
        CREATE INDEX pending_actions_mission ON pending_actions (mission_id) WHERE mission_id IS NOT NULL;
        CREATE TABLE file_versions (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL,
            version INTEGER NOT NULL,
            curation_id INTEGER NOT NULL,
            created_at REAL NOT NULL,
            source TEXT NOT NULL CHECK (source IN ('curator', 'person')),
            content TEXT NOT NULL,
            sha256 TEXT NOT NULL,
            UNIQUE (name, version)
        );
        CREATE TABLE written_files (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL);
        CREATE TABLE reports (
            id INTEGER PRIMARY KEY,
            curation_id INTEGER NOT NULL,
            kind TEXT NOT NULL,
            detail TEXT NOT NULL,
            turn INTEGER
        );
        -- `numbered`: how many learnings the answers had so far, with those that are no rows (repeats, forgotten ones);
        -- `tz`: the person's zone, null until it is known.
        CREATE TABLE projection (
            id INTEGER PRIMARY KEY CHECK (id = 1), cursor INTEGER NOT NULL, numbered INTEGER NOT NULL, tz TEXT
        );
        INSERT INTO projection VALUES (1, 0, 0, NULL);
        -- Which log this was made of: its identity, its newest turn when it was looked at last, what was applied last.
        CREATE TABLE log_seen (
            id INTEGER PRIMARY KEY CHECK (id = 1), log_id TEXT, turn_id INTEGER NOT NULL, turn_at REAL NOT NULL,
            curation_id INTEGER NOT NULL, curation_at REAL NOT NULL
        );
        INSERT INTO log_seen VALUES (1, NULL, 0, 0, 0, 0);
        CREATE TABLE rules (
            id INTEGER PRIMARY KEY,
            created_at REAL NOT NULL,
            condition_json TEXT NOT NULL,
            action TEXT NOT NULL,
            reason TEXT NOT NULL,
            source_learning_id INTEGER,
            status TEXT NOT NULL DEFAULT 'offered',
            row_json TEXT NOT NULL
        );
        """  # noqa: S608 - our own schema
        + LEARNING_INDEX
    ],
)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a curated file, with the curation that made it."""

    name: str
    version: int
    curation_id: int
    created_at: float
    source: str
    content: str
    sha256: str


_VERSION = "name, version, curation_id, created_at, source, content, sha256"


class MemoryDB(Tables):
    """Read the projection's tables, and write them through `apply`."""

    async def ask(self, work: Callable[[LearningLook], _T]) -> _T:
        """Run a function on the reader's thread, with access to the full-text indexes; see `TranscriptDB.ask`."""
        return await self._db.read(lambda connection: work(LearningLook(connection)))

    async def cursor(self) -> int:
        """Return the id of the last curation applied, 0 before the first."""
        return int(await self._db.fetch_value("SELECT cursor FROM projection"))

    async def settled_cursor(self) -> int:
        """Wait for a running `apply`, and return the cursor. An `apply` completes even if its caller was cancelled."""
        return await self._db.transact(lambda tx: int(tx.execute("SELECT cursor FROM projection").fetchone()[0]))

    @in_transaction
    def apply(self, tx: sqlite3.Connection, fold: Callable[[sqlite3.Connection], _T], *, cursor: int) -> _T:
        """Run a function that applies a curation, set the cursor in the same transaction, and return the value."""
        value = fold(tx)
        tx.execute("UPDATE projection SET cursor = ?", (cursor,))
        return value

    async def log_seen(self) -> LogMark:
        """Return the mark of the log from which memory.db was made."""
        row = await self._db.fetch_one("SELECT log_id, turn_id, turn_at, curation_id, curation_at FROM log_seen")
        return LogMark(*row) if row else LogMark(None, 0, 0.0, 0, 0.0)

    async def note_log(self, mark: LogMark) -> None:
        """Record the mark of the log from which memory.db is made."""
        await self._db.transact(lambda tx: _note_log(tx, mark))

    async def copy_to(self, path: Path) -> None:
        """Write a copy of memory.db to a new file, atomically: a crash leaves the whole copy or none."""
        await self._db.copy_to(path)

    @in_transaction
    def start_over(self, tx: sqlite3.Connection, mark: LogMark | None = None) -> None:
        """Delete all rows that come from the log, so that a replay can make them again.

        The record of written files stays. `mark` is the new log, if it is another one.
        """
        if mark is not None:
            _note_log(tx, mark)
        for table in ("learnings_fts", TRUSTED.table, UNTRUSTED.table):
            tx.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")  # noqa: S608 - our own tables
        for table in ("pending_actions", "file_versions", "reports", "rules"):
            tx.execute(f"DELETE FROM {table}")  # noqa: S608 - our own tables
        tx.execute("UPDATE learnings SET superseded_by = NULL")
        tx.execute("DELETE FROM learnings")
        tx.execute("UPDATE projection SET cursor = 0, numbered = 0, tz = NULL")

    async def purge(self) -> None:
        """Rebuild the file without forgotten text, after `start_over`.

        The emptied full-text index is not merged: its bytes would differ from those of a rebuilt memory.db.
        """
        await self._db.purge()

    # --- learnings ---

    async def learning_count(self) -> int:
        """Return the number of learnings, including superseded ones."""
        return int(await self._db.fetch_value("SELECT count(*) FROM learnings"))

    async def learnings(self, after: int = 0, limit: int = 100) -> list[LearningRow]:
        """Return learnings above an id, oldest first."""
        return await self._learnings("WHERE id > ? ORDER BY id LIMIT ?", (after, limit))

    async def learnings_before(self, before: int | None, limit: int) -> list[LearningRow]:
        """Return the newest learnings (below an id), including superseded ones, newest first."""
        return await self._learnings("WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2", (before, limit))

    async def learning_counts(self, first: int, last: int) -> dict[int, int]:
        """Return the number of learnings of each curation in an inclusive id range, without zeros."""
        return await self._db.fetch_map(
            "SELECT curation_id, count(*) FROM learnings WHERE curation_id BETWEEN ? AND ? GROUP BY curation_id",
            (first, last),
        )

    async def unverified_count(self) -> int:
        """Return the number of learnings without verified evidence."""
        return int(await self._db.fetch_value("SELECT count(*) FROM learnings WHERE origin = 'none'"))

    async def learning(self, learning_id: int) -> LearningRow | None:
        """Return the learning with this id, or None."""
        found = await self._learnings("WHERE id = ?", (learning_id,))
        return found[0] if found else None

    async def learnings_of(self, curation_id: int) -> list[LearningRow]:
        """Return the learnings of one curation."""
        return await self._learnings("WHERE curation_id = ? ORDER BY id", (curation_id,))

    async def _learnings(self, where: str, parameters: Sequence[Any]) -> list[LearningRow]:
        sql = f"SELECT {LEARNING_COLUMNS} FROM learnings {where}"  # noqa: S608 - our columns, our clause
        return await self._db.fetch_as(LearningRow, sql, parameters)

    async def nearest(self, match: str, limit: int, projects: Collection[str] = ()) -> list[LearningRow]:
        """Return the valid learnings that are most similar to a text, best first.

        `match` is an FTS5 expression, or empty. Includes learnings of these projects and the person's own. Digests are
        excluded: they say only what was done.
        """
        if not match:  # a text without a word, which FTS5 would not parse
            return []
        sql = (
            f"SELECT {', '.join(f'l.{name}' for name in LEARNING_COLUMNS.split(', '))} FROM learnings_fts f "  # noqa: S608
            "JOIN learnings l ON l.id = f.rowid WHERE learnings_fts MATCH ? AND l.superseded_by IS NULL "
            "AND l.type <> 'DIGEST' AND (l.project IS NULL OR l.project IN (SELECT value FROM json_each(?))) "
            "ORDER BY f.rank, l.id DESC LIMIT ?"
        )
        return await self._db.fetch_as(
            LearningRow, sql, (f"{{content}} : ({match})", json.dumps(list(projects)), limit)
        )

    async def standing(
        self, sessions: Collection[str], projects: Collection[str] = (), limit: int = 500
    ) -> list[LearningRow]:
        """Return learnings that hold until revoked: open actions, the sessions' digests, preferences and corrections.

        Newest of each first. Limited to these projects and the person's own; without projects, all actions are
        included.
        """
        actions = await self._learnings(
            "WHERE superseded_by IS NULL AND type = 'ACTION' AND id IN "
            "(SELECT source_learning_id FROM pending_actions WHERE status = 'open') ORDER BY id DESC LIMIT ?",
            (limit,),
        )
        places = ", ".join("?" * len(sessions))
        digests = await self._learnings(
            f"WHERE superseded_by IS NULL AND type = 'DIGEST' AND session_id IN ({places}) ORDER BY id DESC LIMIT ?",
            (*sessions, limit),
        )
        wishes = await self.wishes("PREFERENCE", "CORRECTION", limit=limit)
        here = {None, *projects}
        return [
            *(action for action in actions if not projects or action.project in here),
            *digests,
            *(wish for wish in wishes if wish.project in here),
        ]

    async def ahead(self, day: str, projects: Collection[str] = (), limit: int = 500) -> list[LearningRow]:
        """Return the newest valid learnings, of these projects and the person's own, that name a day from `day` on.

        `day` is an ISO date (2026-12-01). Digests and actions are left out.
        """
        dated = await self._learnings(
            "WHERE superseded_by IS NULL AND type NOT IN ('DIGEST', 'ACTION') AND content GLOB ? "
            "ORDER BY id DESC LIMIT ?",
            (_DATED, limit),
        )
        here = {None, *projects}
        return [
            known
            for known in dated
            if known.project in here and any(named >= day for named in _DAY.findall(known.content))
        ]

    async def wishes(self, *types: str, limit: int = 500) -> list[LearningRow]:
        """Return the newest valid learnings of the given types, such as PREFERENCE, newest first."""
        places = ", ".join("?" * len(types))
        return await self._learnings(
            f"WHERE superseded_by IS NULL AND type IN ({places}) ORDER BY id DESC LIMIT ?", (*types, limit)
        )

    async def rules(self) -> list[sqlite3.Row]:
        """Return the JSON of every rule, the oldest first; see `rule_rows.all_rules`."""
        return await self._db.fetch_all("SELECT row_json FROM rules ORDER BY id")

    # --- actions ---

    async def actions(self, status: str | None = None) -> list[Action]:
        """Return actions, most urgent first, then oldest first."""
        return await self._actions("WHERE ?1 IS NULL OR status = ?1 ORDER BY priority DESC, id", (status,))

    async def action(self, action_id: int) -> Action | None:
        """Return the action with this id, or None."""
        found = await self._actions("WHERE id = ?", (action_id,))
        return found[0] if found else None

    async def action_contents(self, action_ids: Collection[int]) -> dict[int, str]:
        """Return the contents of those of the actions that exist, by id."""
        rows = await self._db.fetch_all(
            "SELECT id, content FROM pending_actions WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(sorted(action_ids)),),
        )
        return {row[0]: row[1] for row in rows}

    async def scheduled(self) -> list[Action]:
        """Return the open actions with a due time, next first."""
        return await self._actions("WHERE status = 'open' AND due IS NOT NULL ORDER BY due, priority DESC, id", ())

    async def _actions(self, where: str, parameters: Sequence[Any]) -> list[Action]:
        sql = f"SELECT {ACTION_COLUMNS} FROM pending_actions {where}"  # noqa: S608 - our columns, our clause
        return await self._db.fetch_as(Action, sql, parameters)

    async def zone(self) -> str | None:
        """Return the person's time zone as an IANA name, or None until it is known."""
        value: str | None = await self._db.fetch_value("SELECT tz FROM projection")
        return value

    # --- files ---

    async def latest_version(self, name: str) -> FileVersion | None:
        """Return the newest version of a curated file, or None if the file is still the shipped template."""
        return await self._version("WHERE name = ? ORDER BY version DESC LIMIT 1", (name,))

    async def latest_versions(self) -> dict[str, FileVersion]:
        """Return the newest version of every curated file that has one, by file name."""
        newest = "WHERE (name, version) IN (SELECT name, max(version) FROM file_versions GROUP BY name)"
        versions = await self._versions(newest, ())
        return {version.name: version for version in versions}

    async def version(self, name: str, number: int) -> FileVersion | None:
        """Return one version of a curated file, or None."""
        return await self._version("WHERE name = ? AND version = ?", (name, number))

    async def version_after(self, name: str, curation_id: int) -> FileVersion | None:
        """Return the version of a curated file that held right after a curation."""
        return await self._version(
            "WHERE name = ? AND curation_id <= ? ORDER BY version DESC LIMIT 1", (name, curation_id)
        )

    async def versions(self, name: str) -> list[FileVersion]:
        """Return every version of a curated file, oldest first."""
        return await self._versions("WHERE name = ? ORDER BY version", (name,))

    async def versions_made(self, first: int, last: int) -> list[tuple[int, str, int]]:
        """Return (curation, file, version) of every version made by the curations of an inclusive id range."""
        rows = await self._db.fetch_all(
            "SELECT curation_id, name, version FROM file_versions WHERE curation_id BETWEEN ? AND ? ORDER BY id",
            (first, last),
        )
        return [(row[0], row[1], row[2]) for row in rows]

    async def _version(self, where: str, parameters: Sequence[Any]) -> FileVersion | None:
        found = await self._versions(where, parameters)
        return found[0] if found else None

    async def _versions(self, where: str, parameters: Sequence[Any]) -> list[FileVersion]:
        sql = f"SELECT {_VERSION} FROM file_versions {where}"  # noqa: S608 - our columns, our clause
        return await self._db.fetch_as(FileVersion, sql, parameters)

    async def written(self) -> dict[str, str]:
        """Return the SHA-256 of the last content that Sprite wrote to each file."""
        return await self._db.fetch_map("SELECT name, sha256 FROM written_files ORDER BY name")

    async def mark_written(self, name: str, sha256: str | None) -> None:
        """Record the SHA-256 of what Sprite wrote to a file (None: as shipped). Any other content is a manual edit."""
        if sha256 is None:
            await self._db.execute("DELETE FROM written_files WHERE name = ?", (name,))
        else:
            await self._db.execute("INSERT OR REPLACE INTO written_files VALUES (?, ?)", (name, sha256))

    # --- reports ---

    async def reports_of(self, first: int, last: int) -> list[Refusal]:
        """Return the refusals of an inclusive range of curations."""
        return await self._db.fetch_as(
            Refusal,
            "SELECT curation_id, kind, detail FROM reports WHERE curation_id BETWEEN ? AND ? ORDER BY id",
            (first, last),
        )

    async def refused_last(self, limit: int) -> list[str]:
        """Return the texts of refusals of the newest curator answer that had a learning or a refusal."""
        return await self._db.fetch_column(f"SELECT detail FROM {REFUSED_LAST} ORDER BY id LIMIT ?", (limit,))  # noqa: S608 - our clause

    async def reports(self, limit: int = 20) -> list[Refusal]:
        """Return the newest refusals, newest first."""
        return await self._db.fetch_as(
            Refusal,
            "SELECT curation_id, kind, detail FROM reports WHERE kind <> 'aged' ORDER BY id DESC LIMIT ?",
            (limit,),
        )


def _note_log(tx: sqlite3.Connection, mark: LogMark) -> None:
    tx.execute(
        "UPDATE log_seen SET log_id = ?, turn_id = ?, turn_at = ?, curation_id = ?, curation_at = ?",
        (mark.log_id, mark.turn_id, mark.turn_at, mark.curation_id, mark.curation_at),
    )


@asynccontextmanager
async def open_memory(path: Path) -> AsyncIterator[MemoryDB]:
    """Open memory.db for reading and writing, as its only writer."""
    async with open_database(path, SCHEMA) as database:
        yield MemoryDB(database)


@asynccontextmanager
async def read_memory(path: Path) -> AsyncIterator[MemoryDB]:
    """Open memory.db for reading, while another process writes it."""
    async with open_reader(path, SCHEMA) as database:
        yield MemoryDB(database)
