"""Learnings and actions in memory.db: their indexes, their kinds of rows, and the actions that a decision reads.

Synchronous: everything runs on the database's own thread (`MemoryDB.apply`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from sprite.protocol.shapes import LearningRow
from sprite.storage.full_text import TOKENIZER, Filters, Index, ProjectSql, any_of, spaced_sql

LEARNING_INDEX = f"""
CREATE VIEW learnings_text AS SELECT id, {spaced_sql("content")} AS content, type FROM learnings;
CREATE VIRTUAL TABLE learnings_fts USING fts5 (
    content, type, content = 'learnings_text', content_rowid = 'id', tokenize = '{TOKENIZER}'
);
CREATE TRIGGER learnings_indexed AFTER INSERT ON learnings BEGIN
    INSERT INTO learnings_fts (rowid, content, type)
    SELECT id, content, type FROM learnings_text WHERE id = NEW.id;
END;
CREATE TRIGGER learnings_retyped AFTER UPDATE OF type ON learnings BEGIN
    INSERT INTO learnings_fts (learnings_fts, rowid, content, type)
    SELECT 'delete', id, content, OLD.type FROM learnings_text WHERE id = NEW.id;
    INSERT INTO learnings_fts (rowid, content, type)
    SELECT id, content, type FROM learnings_text WHERE id = NEW.id;
END;
"""  # noqa: S608 - our own tables

#: Indexes for search: learnings of origin `user`, and all others. A stranger's text cannot change the rarity of a word
#: among the person's own facts, because each index has its own statistics.
TRUSTED, UNTRUSTED = Index("trusted_fts"), Index("untrusted_fts")


def _index_sql(index: Index, origin: str) -> str:
    """Return SQL that creates a full-text index of the learnings whose origin meets a condition, with its triggers.

    `origin` is the condition in SQL. A learning moves to another index when its origin changes.
    """
    table, text = index.table, "id, content FROM learnings_text WHERE id = NEW.id"
    add = f"INSERT INTO {table} (rowid, content) SELECT {text}"
    remove = f"INSERT INTO {table} ({table}, rowid, content) SELECT 'delete', {text}"
    becomes, was = f"NEW.origin {origin}", f"OLD.origin {origin}"
    return f"""
CREATE VIRTUAL TABLE {table} USING fts5 (
    content, content = 'learnings_text', content_rowid = 'id', tokenize = '{TOKENIZER}'
);
CREATE TRIGGER {table}_new AFTER INSERT ON learnings WHEN {becomes} BEGIN {add}; END;
CREATE TRIGGER {table}_moved AFTER UPDATE OF origin ON learnings BEGIN {remove} AND {was}; {add} AND {becomes}; END;
"""


LEARNING_INDEX += _index_sql(TRUSTED, "= 'user'") + _index_sql(UNTRUSTED, "<> 'user'")

LEARNING_COLUMNS = ", ".join(LearningRow.__struct_fields__)

#: Up to this many learnings, words are counted one by one, as in turns; above, FTS5 ranks.
MAX_POSTINGS = 2000


@dataclass(frozen=True, slots=True)
class LearningsLooked:
    """The result of one lookup in an index of learnings.

    `postings` has the learnings of each word if they are few. Otherwise `best` has the best learnings with scores.
    """

    postings: list[list[int]] | None
    best: list[tuple[int, float]]
    learnings: int


class LearningLook:
    """Query the full-text indexes of learnings on the reader's own thread, for the duration of one question."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def look_up(self, index: Index, needles: Sequence[Sequence[str]], filters: Filters, limit: int) -> LearningsLooked:
        """Look up words in an index: return all postings if they are few, else the best learnings."""
        connection, total = self._connection, index.totals(self._connection, 0)[0]
        index = _filtered(index, filters)
        postings: list[list[int]] = []
        left = MAX_POSTINGS
        for needle in needles:
            postings.append(index.newest(connection, any_of(needle), left + 1))
            left -= len(postings[-1])
            if left < 0:
                # With this many, a word's other forms (`needle[1:]`) are not worth their time.
                words = [needle[0] for needle in needles]
                return LearningsLooked(None, index.best(connection, words, total, limit), total)
        return LearningsLooked(postings, [], total)

    def learnings(self, ids: Collection[int]) -> dict[int, LearningRow]:
        """Return those of these learnings that exist."""
        rows = self._connection.execute(
            f"SELECT {LEARNING_COLUMNS} FROM learnings "  # noqa: S608 - our columns
            "WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        return {row[0]: LearningRow(*row) for row in rows}

    def newest(self, filters: Filters, limit: int) -> list[int]:
        """Return the ids of the newest learnings that pass the filters."""
        where, parameters = filters.sql("created_at", "session_id", "type", _of_projects("project"))
        sql = f"SELECT id FROM learnings WHERE {where} ORDER BY id DESC LIMIT ?"  # noqa: S608 - our clause
        return [row[0] for row in self._connection.execute(sql, (*parameters, limit))]


def _of_projects(column: str) -> ProjectSql:
    def condition(keys: int, own: bool) -> str:
        parts = [f"{column} IN ({', '.join('?' * keys)})"] if keys else []
        return f"({' OR '.join([*parts, *([f'{column} IS NULL'] if own else [])]) or '0'})"

    return condition


def _filtered(index: Index, filters: Filters) -> Index:
    where, parameters = filters.sql("l.created_at", "l.session_id", "l.type", _of_projects("l.project"))
    joined = "" if where == "1" else f"CROSS JOIN learnings l ON l.id = {index.table}.rowid"
    return Index(index.table, joined, where, parameters)


#: Actions without a learning have their log row's number above this value. So they keep their id after every rebuild
#: and re-extraction, and no learning ever has it.
MADE_IDS = 1_000_000
#: History entries kept per action: the first and the newest. The history of a repeat would otherwise grow without
#: limit.
HISTORY_KEPT = 40

ACTION_COLUMNS = (
    "id, created_at, content, priority, status, source_learning_id, due, rrule, tz, fired_at, origin, history_json, "
    "first_due, mission_id, version"
)


@dataclass(frozen=True, slots=True)
class Action:
    """An action: a task or reminder; `status` is open, done, dismissed or failed.

    `due` is the next time, `first_due` the first and `fired_at` the last. `rrule` is the repeat (RFC 5545),
    computed in `tz`. `mission_id` is the agent's turn that created it. `history_json` is a list of {at, by, what},
    oldest first.
    """

    id: int
    created_at: float
    content: str
    priority: int
    status: str
    source_learning_id: int | None
    due: float | None = None
    rrule: str | None = None
    tz: str | None = None
    fired_at: float | None = None
    origin: str = "curator"
    history_json: str = "[]"
    first_due: float | None = None
    mission_id: str | None = None
    #: Grows with each change, so that changes based on an older version are refused.
    version: int = 1

    @property
    def is_made(self) -> bool:
        """Whether a person or the agent created it; otherwise the curator learned it."""
        return self.id > MADE_IDS


class ProjectedActions:
    """Read and write the table of actions in memory.db, within a curation's transaction."""

    def __init__(self, tx: sqlite3.Connection) -> None:
        self._tx = tx

    def get(self, action_id: int) -> Action | None:
        """Return the action with this id, or None."""
        found = self._select("WHERE id = ?", (action_id,))
        return found[0] if found else None

    def learned(self) -> list[tuple[Action, str, int | None]]:
        """Return (action, its learning's text, its learning's source turn) of each action from a learning."""
        rows = self._tx.execute(
            f"SELECT {', '.join(f'a.{name}' for name in ACTION_COLUMNS.split(', '))}, "  # noqa: S608 - our columns
            "l.content AS learned, l.source_observation_id AS turn FROM pending_actions a "
            "JOIN learnings l ON l.id = a.source_learning_id WHERE a.id <= ? ORDER BY a.id",
            (MADE_IDS,),
        )
        found = [dict(row) for row in rows]
        return [
            (Action(**row), content, turn) for row in found for content, turn in [(row.pop("learned"), row.pop("turn"))]
        ]

    def taught_as(self, action: Action) -> str | None:
        """Return the text of the learning that an action comes from, or None."""
        row = self._tx.execute("SELECT content FROM learnings WHERE id = ?", (action.source_learning_id,)).fetchone()
        return str(row[0]) if row else None

    def open(self) -> list[Action]:
        """Return the open actions."""
        return self._select("WHERE status = 'open' ORDER BY id")

    def standing_for(self, learning_id: int) -> list[Action]:
        """Return the open actions that come from a learning."""
        return self._select("WHERE source_learning_id = ? AND status = 'open' ORDER BY id", (learning_id,))

    def made_in(self, mission_id: str) -> list[Action]:
        """Return the actions that the agent created in a turn."""
        return self._select("WHERE mission_id = ? ORDER BY id", (mission_id,))

    def scheduled(self) -> int:
        """Return the number of open actions with a due time."""
        row = self._tx.execute(
            "SELECT count(*) FROM pending_actions WHERE status = 'open' AND due IS NOT NULL"
        ).fetchone()
        return int(row[0])

    def _select(self, where: str, parameters: Iterable[Any] = ()) -> list[Action]:
        rows = self._tx.execute(
            f"SELECT {ACTION_COLUMNS} FROM pending_actions {where}",  # noqa: S608 - our columns, our clause
            tuple(parameters),
        )
        return [Action(**dict(row)) for row in rows]

    def add(self, action: Action) -> None:
        """Store a new action."""
        values = [getattr(action, name) for name in ACTION_COLUMNS.split(", ")]
        places = ", ".join("?" * len(values))
        self._tx.execute(f"INSERT INTO pending_actions ({ACTION_COLUMNS}) VALUES ({places})", values)  # noqa: S608

    def change(self, action_id: int, **columns: Any) -> None:
        """Change columns of an action."""
        sets = ", ".join(f"{name} = ?" for name in columns)
        self._tx.execute(
            f"UPDATE pending_actions SET {sets}, version = version + 1 WHERE id = ?",  # noqa: S608 - the fold's own names
            (*columns.values(), action_id),
        )

    def note(self, action_id: int, at: float, by: str, what: str) -> None:
        """Append an entry to an action's history."""
        row = self._tx.execute("SELECT history_json FROM pending_actions WHERE id = ?", (action_id,)).fetchone()
        history = [*json.loads(row[0]), {"at": at, "by": by, "what": what}]
        if len(history) > HISTORY_KEPT:
            history = [history[0], *history[-HISTORY_KEPT + 1 :]]
        self.change(action_id, history_json=json.dumps(history, ensure_ascii=False))


#: Confidence of a learning: verified words of the person, words of others, unverified.
VERIFIED = 0.9
QUOTED_OTHER = 0.6
UNVERIFIED = 0.1


class NewLearning(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="did", tag="learn"):
    """A learning that the curator found, with its number, as stored in the log.

    `turn` and `quote` are its evidence, `origin` is the author of those words. `said` is the content without
    fillers, used to detect repeats. `proposed` is the type that it gets if the person confirms it; None if it need not
    be confirmed.
    """

    number: int
    created_at: float
    type: str
    content: str
    said: str
    origin: str
    confidence: float
    turn: int | None = None
    session: str | None = None
    quote: str | None = None
    project: str | None = None
    proposed: str | None = None
