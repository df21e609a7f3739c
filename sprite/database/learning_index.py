"""Full-text index of the learnings, updated by a trigger, so that every write is indexed."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sprite.database.full_text import TOKENIZER, Filters, Index, ProjectSql, any_of, spaced_sql
from sprite.protocol.rows import LearningRow

LEARNING_INDEX = f"""
CREATE VIEW learnings_text AS SELECT id, {spaced_sql("content")} AS content, type FROM learnings;
CREATE VIRTUAL TABLE learnings_fts USING fts5 (
    content, type, content = 'learnings_text', content_rowid = 'id', tokenize = '{TOKENIZER}'
);
CREATE TRIGGER learnings_indexed AFTER INSERT ON learnings BEGIN
    INSERT INTO learnings_fts (rowid, content, type)
    SELECT id, content, type FROM learnings_text WHERE id = NEW.id;
END;
"""  # noqa: S608 - our own tables

LEARNING_COLUMNS = ", ".join(LearningRow.__struct_fields__)

#: Words that type names consist of: only these must be searched in the content alone, which costs a third more.
_TYPE_WORD = re.compile(r'"(?:fact|pattern|correct|prefer|action|tool|instal|digest)')
#: Up to this many learnings, words are counted one by one, as in turns; above, FTS5 ranks.
MAX_POSTINGS = 2000


@dataclass(frozen=True, slots=True)
class LearningsLooked:
    """The result of one lookup: postings by word if they are few, else the best with scores, best first."""

    postings: list[list[int]] | None
    best: list[tuple[int, float]]
    learnings: int


class LearningLook:
    """Query the index on the reader's own thread, for the duration of one question."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def look_up(self, needles: Sequence[Sequence[str]], filters: Filters, sure: int, limit: int) -> LearningsLooked:
        """Return the learnings with the needles: all postings if they are few, else the best (`Index.best`)."""
        connection, index = self._connection, _filtered(filters)
        total = int(connection.execute("SELECT coalesce(max(id), 0) FROM learnings").fetchone()[0])
        postings: list[list[int]] = []
        left = MAX_POSTINGS
        for needle in needles:
            postings.append(index.newest(connection, any_of([_in_content(form) for form in needle]), left + 1))
            left -= len(postings[-1])
            if left < 0:
                # With this many, a word's other forms (`needle[1:]`) are not worth their time.
                words = [_in_content(needle[0]) for needle in needles]
                return LearningsLooked(None, index.best(connection, words, total, sure, limit), total)
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


def _in_content(phrase: str) -> str:
    return f"{{content}} : {phrase}" if _TYPE_WORD.match(phrase) else phrase


def _filtered(filters: Filters) -> Index:
    where, parameters = filters.sql("l.created_at", "l.session_id", "l.type", _of_projects("l.project"))
    joined = "" if where == "1" else "CROSS JOIN learnings l ON l.id = learnings_fts.rowid"
    return Index("learnings_fts", joined, where, parameters)
