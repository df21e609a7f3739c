"""Query an FTS5 table: the rows with a word, and the best rows for many words. Knows no table of ours.

Expressions consist of phrases that the caller has quoted. Everything runs on a connection's own thread.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

TOKENIZER = "porter unicode61 remove_diacritics 2"
#: Scripts without spaces between words (Chinese, Japanese, and Korean with its endings), whose sentences FTS5 would
#: take for one word. Every character is indexed as a word, and searched in pairs.
UNSPACED = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff"
#: Splitting is done in SQL and takes quadratic time, so text after this length is indexed unsplit.
UNSPACED_CHARS = 4000
#: Project key of the person's own learnings and turns.
OWN = ""
#: Builds a condition that a row is of one of so many projects (each a parameter), or optionally of none.
ProjectSql = Callable[[int, bool], str]

_UNSPACED = re.compile(f"([{UNSPACED}])")


@dataclass(frozen=True, slots=True)
class Filters:
    """The hits that a search may return, by Unix seconds, session, types (empty: all) and projects."""

    since: float | None = None
    before: float | None = None
    session: str | None = None
    types: tuple[str, ...] = ()
    #: None for all; OWN stands for those of no project.
    projects: tuple[str, ...] | None = None

    def sql(
        self, time: str, session: str, type_: str | None = None, project: ProjectSql | None = None
    ) -> tuple[str, list[str | float]]:
        """Return an SQL condition on the columns with these names, and its parameters; "1" without a filter."""
        parts: list[str] = []
        parameters: list[str | float] = []
        for condition, value in (
            (f"{time} >= ?", self.since),
            (f"{time} < ?", self.before),
            (f"{session} = ?", self.session),
        ):
            if value is not None:
                parts.append(condition)
                parameters.append(value)
        if self.types and type_ is not None:
            parts.append(f"{type_} IN ({', '.join('?' * len(self.types))})")
            parameters.extend(self.types)
        if self.projects is not None and project is not None:
            keys = [key for key in self.projects if key != OWN]
            parts.append(project(len(keys), len(keys) < len(self.projects)))
            parameters.extend(keys)
        return " AND ".join(parts) or "1", parameters


def spaced(text: str) -> str:
    """Return a text with the characters of unspaced scripts separated, as in the index."""
    return " ".join(_UNSPACED.sub(r" \1 ", text).split())


def spaced_sql(column: str) -> str:
    """Return SQL that does to a column what `spaced` does to a text, for triggers that update an index."""
    head = f"substr({column}, 1, {UNSPACED_CHARS})"
    one = f"substr({column}, n, 1)"
    return f"""CASE WHEN {head} GLOB '*[{UNSPACED}]*' THEN (
        WITH RECURSIVE place (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM place WHERE n < length({head}))
        SELECT group_concat(CASE WHEN {one} GLOB '[{UNSPACED}]' THEN ' ' || {one} || ' ' ELSE {one} END, '')
        FROM place) || substr({column}, {UNSPACED_CHARS + 1}) ELSE {column} END"""  # noqa: S608 - our own column


def phrase(text: str) -> str:
    """Return a text as one quoted FTS5 phrase, so that nothing in it is syntax."""
    return f'"{spaced(text).replace(chr(34), "")}"'


def any_of(phrases: Sequence[str]) -> str:
    """Return the expression for rows with any of these phrases or expressions."""
    return phrases[0] if len(phrases) == 1 else f"({' OR '.join(phrases)})"


def index_stems(words: Sequence[str]) -> list[str]:
    """Return the index's stem of each word. FTS5 shows stems only of a table, so use one in memory: 0.2 ms."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE words USING fts5 (word, content = '', tokenize = '{TOKENIZER}')")
        connection.execute("CREATE VIRTUAL TABLE stems USING fts5vocab (words, instance)")
        connection.executemany("INSERT INTO words (rowid, word) VALUES (?, ?)", enumerate(words))
        # If the tokenizer splits a word ("snake_case"), use the first part.
        stems = dict(connection.execute("SELECT doc, term FROM stems WHERE offset = 0"))
    return [stems.get(place, word) for place, word in enumerate(words)]


@dataclass(frozen=True, slots=True)
class Index:
    """Query one FTS5 table, alone or joined with the table that has the other columns of its rows."""

    table: str
    joined: str = ""
    where: str = "1"
    parameters: Sequence[str | float] = ()

    def _from(self) -> str:
        return f"FROM {self.table} {self.joined} WHERE {self.table} MATCH ? AND {self.where}"

    def count(self, connection: sqlite3.Connection, match: str, most: int | None = None) -> int:
        """Return the number of matching rows, or `most`, ignoring filters: 0.03 us a row, because no row is read."""
        rows = f"FROM {self.table} WHERE {self.table} MATCH ?"
        if most is not None:
            rows = f"FROM (SELECT 1 {rows} LIMIT {most})"
        return int(connection.execute(f"SELECT count(*) {rows}", (match,)).fetchone()[0])

    def newest(self, connection: sqlite3.Connection, match: str, limit: int) -> list[int]:
        """Return the ids of the newest matching rows, newest first."""
        inner = f"SELECT {self.table}.rowid AS id {self._from()} ORDER BY {self.table}.rowid DESC LIMIT ?"
        # Reading one row with all ids takes 60 % of the time of a row each.
        sql = f"SELECT json_group_array(id) FROM ({inner})"  # noqa: S608 - our own table
        found: list[int] = json.loads(connection.execute(sql, (match, *self.parameters, limit)).fetchone()[0])
        return found

    def totals(self, connection: sqlite3.Connection, columns: int) -> list[int]:
        """Return the numbers of rows and of words by column, which FTS5 stores (https://sqlite.org/fts5.html)."""
        row = connection.execute(f"SELECT block FROM {self.table}_data WHERE id = 1").fetchone()  # noqa: S608 - ours
        # An index that never had a row has no totals.
        return varints(row[0], 1 + columns) if row and row[0] else [0] * (1 + columns)

    def ranked(self, connection: sqlite3.Connection, match: str, limit: int) -> list[tuple[int, float]]:
        """Return (id, score) of the best rows by FTS5's bm25; a higher score is better."""
        sql = f"SELECT {self.table}.rowid, rank {self._from()} ORDER BY rank LIMIT ?"
        return [(row[0], -row[1]) for row in connection.execute(sql, (match, *self.parameters, limit))]

    def best(
        self, connection: sqlite3.Connection, phrases: Sequence[str], total: int, limit: int
    ) -> list[tuple[int, float]]:
        """Return (id, score) of the best rows for any phrase; a score is a share of the weight of all phrases."""
        counts = [self.count(connection, phrase) for phrase in phrases]
        sum_of_weights = sum(_weight(total, count) for count in counts)
        return [(row, score / sum_of_weights) for row, score in self.ranked(connection, any_of(phrases), limit)]


def varints(blob: bytes, number: int) -> list[int]:
    """Return the first integers of a blob in SQLite's format: seven bits a byte, the last byte below 128."""
    if (start := blob[:number]).isascii():  # one byte each, as the lengths of most texts are
        return list(start)
    found: list[int] = []
    value = 0
    for byte in blob:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 - the format
            found.append(value)
            if len(found) == number:
                break
            value = 0
    return found


def _weight(total: int, count: int) -> float:
    """Return FTS5's weight (inverse document frequency) of a word that `count` of `total` rows contain."""
    return max(1e-6, math.log((total - count + 0.5) / (count + 0.5)))
