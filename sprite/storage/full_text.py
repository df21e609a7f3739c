"""Query an FTS5 table: the rows with a word, and the best rows for many words. Knows no table of ours.

Expressions consist of phrases that the caller has quoted. Everything runs on a connection's own thread.
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
#: Scripts without spaces between words (Chinese, Japanese, and Korean with its endings), whose sentences FTS5 would
#: take for one word. Every character is indexed as a word, and searched in pairs.
UNSPACED = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff"
#: Splitting is done in SQL and takes quadratic time, so text after this length is indexed unsplit.
UNSPACED_CHARS = 4000
#: Rows that a full OR query may score: 1.2 us each on a slow core, so about 25 ms.
FULL_QUERY_ROWS = 20_000
#: Upper bound of a word's score relative to its weight, in nearly all texts: it may occur twice, or in a short text.
#: With 1.0, 0.5 % of the first ten are lost among a million sentences of equal length, 5 % among texts of 5 to 25
#: words.
DENSE = 1.3
#: Larger queries use only this many of the rarest words; the others would add little to any score.
LARGE_QUERY_TERMS = 8

#: Project key of the person's own learnings and turns.
OWN = ""
#: Builds a condition that a row is of one of so many projects (each a parameter), or optionally of none.
ProjectSql = Callable[[int, bool], str]

_UNSPACED = re.compile(f"([{UNSPACED}])")


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters for hits, in Unix seconds. `types`: empty for all; `projects`: None for all, OWN for none."""

    since: float | None = None
    before: float | None = None
    session: str | None = None
    types: tuple[str, ...] = ()
    projects: tuple[str, ...] | None = None

    def sql(
        self, time: str, session: str, type_: str | None = None, project: ProjectSql | None = None
    ) -> tuple[str, list[str | float]]:
        """Return a condition on these columns and its parameters; "1" if there is none."""
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
    """Return the same for a column, in SQL, so that triggers can update an index."""
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
    """Query an FTS5 table, alone or joined with the table of its other columns."""

    table: str
    joined: str = ""
    where: str = "1"
    parameters: Sequence[str | float] = ()

    def _from(self) -> str:
        return f"FROM {self.table} {self.joined} WHERE {self.table} MATCH ? AND {self.where}"

    def count(self, connection: sqlite3.Connection, match: str) -> int:
        """Return the number of matching rows, ignoring filters: 0.03 us a row, because no row is read."""
        sql = f"SELECT count(*) FROM {self.table} WHERE {self.table} MATCH ?"  # noqa: S608 - our own table
        return int(connection.execute(sql, (match,)).fetchone()[0])

    def newest(self, connection: sqlite3.Connection, match: str, limit: int) -> list[int]:
        """Return the ids of the newest matching rows, newest first."""
        inner = f"SELECT {self.table}.rowid AS id {self._from()} ORDER BY {self.table}.rowid DESC LIMIT ?"
        # Reading one row with all ids takes 60 % of the time of a row each.
        sql = f"SELECT json_group_array(id) FROM ({inner})"  # noqa: S608 - our own table
        found: list[int] = json.loads(connection.execute(sql, (match, *self.parameters, limit)).fetchone()[0])
        return found

    def totals(self, connection: sqlite3.Connection, columns: int) -> list[int]:
        """Return FTS5's totals: rows, then words by column (https://sqlite.org/fts5.html, structure of its tables)."""
        row = connection.execute(f"SELECT block FROM {self.table}_data WHERE id = 1").fetchone()  # noqa: S608 - ours
        # An index that never had a row has no totals.
        return varints(row[0], 1 + columns) if row and row[0] else [0] * (1 + columns)

    def ranked(self, connection: sqlite3.Connection, match: str, limit: int) -> list[tuple[int, float]]:
        """Return (id, score) of the best rows by FTS5's bm25; a higher score is better."""
        sql = f"SELECT {self.table}.rowid, rank {self._from()} ORDER BY rank LIMIT ?"
        rows = connection.execute(sql, (match, *self.parameters, limit))
        return [(row[0], -row[1]) for row in rows]

    def best(
        self, connection: sqlite3.Connection, phrases: Sequence[str], total: int, sure: int, limit: int
    ) -> list[tuple[int, float]]:
        """Return (id, score) of the best rows for any phrase; a score is a row's share of the total weight.

        The first `sure` are the best there are; the others, up to `limit`, are good. Small queries are one OR in
        FTS5. Large ones read only rows with two of the words: for each word, from the rarest on, those that have it
        and any more frequent word. A row's full score comes from the query of its rarest word, and no word counts
        twice. The search stops once the remaining words cannot reach the score of the last wanted row. Measured on
        a million sentences of 14 words (Zipf-distributed) with five words, against the full OR: a fifth of its
        time, 99.9 % of its first ten.
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
        # Ties keep FTS5's order.
        return heapq.nlargest(limit, scores.items(), key=lambda pair: (round(pair[1], 9), -pair[0]))


class Lexicon:
    """The words of an index, for other spellings of a query's words; forms are taken from `columns`."""

    def __init__(self, connection: sqlite3.Connection, index: Index, columns: Sequence[str]) -> None:
        self._connection = connection
        self._index = index
        self._columns = columns

    def having(self, needles: Sequence[Sequence[str]]) -> list[int]:
        """Return the number of rows with any of the phrases of each needle."""
        return [self._index.count(self._connection, any_of(needle)) for needle in needles]

    def stems(self, initial: str) -> list[tuple[str, int]]:
        """Return the stems with this initial, each with its number of rows."""
        connection, table = self._connection, self._index.table
        # FTS5 exposes its vocabulary only through a table: a temporary one, which a read-only connection cannot
        # create.
        connection.execute("PRAGMA query_only=OFF")
        try:
            connection.execute(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{table}_words USING fts5vocab(main, {table}, row)"
            )
        finally:
            connection.execute("PRAGMA query_only=ON")
        sql = f"SELECT term, doc FROM temp.{table}_words WHERE term >= ?1 AND term < ?2"  # noqa: S608 - our own table
        return [(row[0], row[1]) for row in connection.execute(sql, (initial, chr(ord(initial) + 1)))]

    def as_written(self, stem: str) -> str:
        """Return the most frequent written form of a stem in the newest row that contains it."""
        table, text = self._index.table, " || ' ' || ".join(self._columns)
        sql = f"SELECT {text} FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC LIMIT 1"  # noqa: S608 - ours
        row = self._connection.execute(sql, (f'{{{" ".join(self._columns)}}} : "{stem}"',)).fetchone()
        words = [word for word in re.findall(r"\w+", row[0].casefold() if row else "") if word[0] == stem[0]]
        distinct = list(dict.fromkeys(words))
        having = [word for word, its in zip(distinct, index_stems(distinct), strict=True) if its == stem]
        return max(having, key=words.count, default=stem)


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
    """Return FTS5's weight of a word (inverse document frequency); its scores are sums of these."""
    return max(1e-6, math.log((total - count + 0.5) / (count + 0.5)))
