"""Asking an FTS5 table: which rows hold a word, and the best rows for many words. Knows no table of ours.

Expressions are made of phrases that the caller has quoted. All of it runs on a connection's own thread.
"""

from __future__ import annotations

import heapq
import json
import math
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

TOKENIZER = "porter unicode61 remove_diacritics 2"
#: Scripts that put no spaces between words (Chinese, Japanese, and Korean with its endings), whose sentences FTS5
#: would take for one word each: every character is indexed as a word of its own, and looked for in pairs.
UNSPACED = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff"
#: Splitting is done in SQL and takes time by the square of the length; what comes after is indexed as it is.
UNSPACED_CHARS = 4000
#: Rows that a full OR query may score: 1.2 us each on a slow core, so that this takes about 25 ms.
FULL_QUERY_ROWS = 20_000
#: What a word counts at most, for its weight, in nearly all texts: it may stand twice, or in a short one. With 1.0,
#: 0.5 % of the first ten are lost among a million sentences of equal length, 5 % among texts of 5 to 25 words.
DENSE = 1.3
#: Of a query too large for that, the rarest words count; the others would add little to any score.
LARGE_QUERY_TERMS = 8

#: Stands for the person's own among the keys of projects.
OWN = ""
#: A condition that a row is of one of so many projects, each a parameter, or of none, where that is asked for.
ProjectSql = Callable[[int, bool], str]

_UNSPACED = re.compile(f"([{UNSPACED}])")


@dataclass(frozen=True, slots=True)
class Filters:
    """What a hit must be; times in Unix seconds, `types` none for all.

    `projects` are keys, OWN for what is of none; None for all.
    """

    since: float | None = None
    before: float | None = None
    session: str | None = None
    types: tuple[str, ...] = ()
    projects: tuple[str, ...] | None = None

    def sql(
        self, time: str, session: str, type_: str | None = None, project: ProjectSql | None = None
    ) -> tuple[str, list[str | float]]:
        """As a condition on these columns, with its parameters; "1" if there is none."""
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
    """A text with the characters of unspaced scripts set apart, as the index has them."""
    return " ".join(_UNSPACED.sub(r" \1 ", text).split())


def spaced_sql(column: str) -> str:
    """The same for a column, in SQL, so that triggers can keep an index up to date."""
    head = f"substr({column}, 1, {UNSPACED_CHARS})"
    one = f"substr({column}, n, 1)"
    return f"""CASE WHEN {head} GLOB '*[{UNSPACED}]*' THEN (
        WITH RECURSIVE place (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM place WHERE n < length({head}))
        SELECT group_concat(CASE WHEN {one} GLOB '[{UNSPACED}]' THEN ' ' || {one} || ' ' ELSE {one} END, '')
        FROM place) || substr({column}, {UNSPACED_CHARS + 1}) ELSE {column} END"""  # noqa: S608 - our own column


def phrase(text: str) -> str:
    """A text as one FTS5 phrase: quoted, so that nothing in it is syntax."""
    return f'"{spaced(text).replace(chr(34), "")}"'


def any_of(phrases: Sequence[str]) -> str:
    """The expression that any of some phrases or expressions stands in a row."""
    return phrases[0] if len(phrases) == 1 else f"({' OR '.join(phrases)})"


def index_stems(words: Sequence[str]) -> list[str]:
    """What the index makes of each word; FTS5 shows it only of a table, which is one in memory here: 0.2 ms."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE VIRTUAL TABLE words USING fts5 (word, content = '', tokenize = '{TOKENIZER}')")
        connection.execute("CREATE VIRTUAL TABLE stems USING fts5vocab (words, instance)")
        connection.executemany("INSERT INTO words (rowid, word) VALUES (?, ?)", enumerate(words))
        # Of what is more than one word to it ("snake_case") the first.
        stems = dict(connection.execute("SELECT doc, term FROM stems WHERE offset = 0"))
    return [stems.get(place, word) for place, word in enumerate(words)]


@dataclass(frozen=True, slots=True)
class Index:
    """An FTS5 table, alone or joined with the table that says more of its rows."""

    table: str
    joined: str = ""
    where: str = "1"
    parameters: Sequence[str | float] = ()

    def _from(self) -> str:
        return f"FROM {self.table} {self.joined} WHERE {self.table} MATCH ? AND {self.where}"

    def count(self, connection: sqlite3.Connection, match: str) -> int:
        """How many rows match, filtered or not: 0.03 us a row, since no row is read."""
        sql = f"SELECT count(*) FROM {self.table} WHERE {self.table} MATCH ?"  # noqa: S608 - our own table
        return int(connection.execute(sql, (match,)).fetchone()[0])

    def newest(self, connection: sqlite3.Connection, match: str, limit: int) -> list[int]:
        """The ids of the newest rows that match, newest first."""
        inner = f"SELECT {self.table}.rowid AS id {self._from()} ORDER BY {self.table}.rowid DESC LIMIT ?"
        # One row with all ids is read in 60 % of the time that a row each takes.
        sql = f"SELECT json_group_array(id) FROM ({inner})"  # noqa: S608 - our own table
        found: list[int] = json.loads(connection.execute(sql, (match, *self.parameters, limit)).fetchone()[0])
        return found

    def ranked(self, connection: sqlite3.Connection, match: str, limit: int) -> list[tuple[int, float]]:
        """(id, score) of the best rows by FTS5's bm25, a higher score being better."""
        sql = f"SELECT {self.table}.rowid, rank {self._from()} ORDER BY rank LIMIT ?"
        rows = connection.execute(sql, (match, *self.parameters, limit))
        return [(row[0], -row[1]) for row in rows]

    def best(
        self, connection: sqlite3.Connection, phrases: Sequence[str], total: int, sure: int, limit: int
    ) -> list[tuple[int, float]]:
        """(id, score) of the best rows for any of the phrases; a score is the share of their weight that a row has.

        The first `sure` are the best there are; the others, up to `limit`, are good.

        Small queries are one OR in FTS5. Large ones read only rows with two of the words: for each word, from the
        rarest on, those that have it and any word more frequent. A row is scored in full by the query of its
        rarest word, and no word counts twice. Once the words left could not make up the score of the last row
        wanted, the rest cannot matter. Measured on a million sentences of 14 words, Zipf-distributed, five words
        asked for, against the full OR: a fifth of its time, 99.9 % of its first ten.
        """
        counted = sorted((self.count(connection, phrase), phrase) for phrase in phrases)
        weights = [(phrase, _weight(total, count)) for count, phrase in counted]
        sum_of_weights = sum(weight for _, weight in weights)
        found = [(phrase, weight) for (count, phrase), (_, weight) in zip(counted, weights, strict=True) if count]
        if not found:
            return []
        if sum(count for count, _ in counted) <= FULL_QUERY_ROWS or len(found) == 1:
            rows = self.ranked(connection, any_of([phrase for phrase, _ in found]), limit)
        else:
            rows = self._best_of_many(connection, found[:LARGE_QUERY_TERMS], sure, limit)
        return [(row, score / sum_of_weights) for row, score in rows]

    def _best_of_many(
        self, connection: sqlite3.Connection, found: Sequence[tuple[str, float]], sure: int, limit: int
    ) -> list[tuple[int, float]]:
        scores: dict[int, float] = {}
        steps = [
            (f"({phrase} AND {any_of([other for other, _ in found[place + 1 :]])})", sum(w for _, w in found[place:]))
            for place, (phrase, _) in enumerate(found[:-1])
        ]
        for expression, most in [*steps, *found]:
            if len(scores) >= sure and heapq.nlargest(sure, scores.values())[-1] > DENSE * most:
                continue
            for row, score in self.ranked(connection, expression, limit):
                scores[row] = max(score, scores.get(row, 0.0))
        # Equals stay in FTS5's order.
        return heapq.nlargest(limit, scores.items(), key=lambda pair: (round(pair[1], 9), -pair[0]))


def _weight(total: int, count: int) -> float:
    """FTS5's own weight of a word (inverse document frequency), by which its scores are sums."""
    return max(1e-6, math.log((total - count + 0.5) / (count + 0.5)))
