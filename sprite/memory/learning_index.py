"""Full-text indexes of the learnings in memory.db, updated by triggers, and queries of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass

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
    """Return SQL for a full-text index of the learnings whose origin meets a condition; learnings may move."""
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
