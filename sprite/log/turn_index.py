"""Full-text index of the turns: one row a turn, updated by triggers, so that every write is indexed.

`turn_outlines` serves to rank many turns in 0.8 us each: a turn's own row can be hundreds of kilobytes.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sprite.protocol.tools import SEARCH_CALL
from sprite.storage.full_text import TOKENIZER, Filters, Index, ProjectSql, any_of, spaced_sql, varints

#: Excludes memory searches: their answer would match whatever their query matched, for ever.
_ECHO = f'%"name":"{SEARCH_CALL}"%'
#: Names, inputs and results of the tool calls. Damaged or foreign JSON yields none.
_TOOLS = f"""(SELECT group_concat(leaf.atom, ' ')
    FROM json_each(CASE json_type(tool_calls_json) WHEN 'array' THEN tool_calls_json ELSE '[]' END) AS call,
        json_tree(CASE WHEN call.type = 'object' AND call.value NOT LIKE '{_ECHO}' THEN call.value ELSE 'null' END)
            AS leaf
    WHERE leaf.type IN ('text', 'integer', 'real') AND leaf.key NOT IN ('tool_use_id', 'agent_id'))"""  # noqa: S608
#: "8 May 2023" in UTC, so that a query for a date finds turns that do not contain it.
_MONTHS = "January  February March    April    May      June     July     August   SeptemberOctober  November December "
_SAID_ON = f"""coalesce(CAST(strftime('%d', timestamp, 'unixepoch') AS INTEGER) || ' '
    || rtrim(substr('{_MONTHS}', 9 * strftime('%m', timestamp, 'unixepoch') - 8, 9)) || ' '
    || strftime('%Y', timestamp, 'unixepoch'), '')"""

_TEXT = "id, user_message, agent_response, tools, said_on"
_INDEX = "INSERT INTO observations_fts (rowid, user_message, agent_response, tools, said_on)"

#: Turns off the record (`processed = 3`) are in no index: both are filled from these views.
TURN_INDEX = f"""
CREATE VIEW observations_text AS SELECT id, {spaced_sql("user_message")} AS user_message,
    {spaced_sql("agent_response")} AS agent_response, coalesce({_TOOLS}, '') AS tools, {_SAID_ON} AS said_on
    FROM observations WHERE processed <> 3;
CREATE VIRTUAL TABLE observations_fts USING fts5 (
    user_message, agent_response, tools, said_on,
    content = 'observations_text', content_rowid = 'id', tokenize = '{TOKENIZER}'
);
CREATE TABLE turn_outlines (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX turn_outlines_times ON turn_outlines (at);
CREATE VIEW observations_outline AS SELECT id, session_id, timestamp AS at
    FROM observations WHERE processed <> 3;
CREATE TRIGGER observations_indexed AFTER INSERT ON observations BEGIN
    {_INDEX} SELECT {_TEXT} FROM observations_text WHERE id = NEW.id;
    INSERT INTO turn_outlines SELECT id, session_id, at FROM observations_outline WHERE id = NEW.id;
END;
CREATE TRIGGER observations_off_record BEFORE UPDATE OF processed ON observations
WHEN NEW.processed = 3 AND OLD.processed <> 3
BEGIN
    INSERT INTO observations_fts (observations_fts, rowid, user_message, agent_response, tools, said_on)
    SELECT 'delete', {_TEXT} FROM observations_text WHERE id = OLD.id;
    DELETE FROM turn_outlines WHERE id = OLD.id;
END;
-- Only forgetting changes a turn's words; FTS5 takes out what it is told was there.
CREATE TRIGGER observations_unindexed BEFORE UPDATE OF user_message, tool_calls_json, agent_response ON observations
BEGIN
    INSERT INTO observations_fts (observations_fts, rowid, user_message, agent_response, tools, said_on)
    SELECT 'delete', {_TEXT} FROM observations_text WHERE id = OLD.id;
END;
CREATE TRIGGER observations_reindexed AFTER UPDATE OF user_message, tool_calls_json, agent_response ON observations
BEGIN
    {_INDEX} SELECT {_TEXT} FROM observations_text WHERE id = NEW.id;
    INSERT OR REPLACE INTO turn_outlines
    SELECT id, session_id, at FROM observations_outline WHERE id = NEW.id;
END;
"""  # noqa: S608 - our own tables

#: Statements that rewrite the full text; FTS5's own `rebuild` does not support a view that reads JSON.
REINDEX = (
    "INSERT INTO observations_fts (observations_fts) VALUES ('delete-all')",
    f"{_INDEX} SELECT {_TEXT} FROM observations_text",  # noqa: S608 - our own tables
)

PERSON, REPLY, TOOLS, SAID_ON = "{user_message}", "{agent_response}", "{tools}", "{said_on}"
SPOKEN = "{user_message agent_response}"
#: Turns read for one word and one side. A more frequent word adds little beside rarer ones and does not select turns.
#: If all words of a side are so frequent, the newest turns with two of them are read. The limit applies per side:
#: among 19,000 turns of an assistant that writes pages, one limit for both sides loses 8 points at 10.
MAX_POSTINGS = 2000
#: Word positions counted for one question: 0.15 us each. More frequent words count by presence only.
COUNTED_ROWS = 50_000
#: bm25's constants in FTS5 (https://sqlite.org/fts5.html#the_bm25_function).
_K1, _B = 1.2, 0.75
#: Weight of the reply in bm25's frequency: both sides' counts share one number, 12 bits apart.
_REPLY_UNIT = 2.0**-12
_TURNS, _COLUMNS = Index("observations_fts"), 4


@dataclass(frozen=True, slots=True)
class Postings:
    """The turns that contain a word, by side; `turns` is the number of turns in which either side said it."""

    person: frozenset[int]
    reply: frozenset[int]
    tools: frozenset[int]
    dated: frozenset[int]
    turns: int


class Outline(NamedTuple):
    """A turn without its text; `person` and `reply` are the lengths of its sides in words."""

    # Hundreds are created for every search: a tuple is created three times as fast as a frozen dataclass.

    id: int
    session_id: str
    at: float
    person: int
    reply: int


@dataclass(frozen=True, slots=True)
class Opening:
    """The beginnings of a turn's message and reply, in which a log of several people may name the speaker."""

    id: int
    user_message: str
    agent_response: str


@dataclass(frozen=True, slots=True)
class Means:
    """Mean lengths of the two sides of a turn, in words."""

    person: float
    reply: float


@dataclass(frozen=True, slots=True)
class Looked:
    """The result of one lookup: the turns of each word, the number of candidate turns, and their mean lengths."""

    postings: list[Postings]
    turns: int
    means: Means


_NONE: frozenset[int] = frozenset()
#: A word without these is in no date. Stemming makes "mai" of "may".
_OF_DATES = re.compile(r"\b(?:\d+\b|jan|feb|mar|apr|ma[iy]|jun|jul|aug|sep|oct|nov|dec)", re.IGNORECASE)
#: Counts of a word by turn: in the person's text, in the reply.
Counts = dict[int, tuple[float, float]]


class TurnLook:
    """Query the index on the reader's own thread, for the duration of one question."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._counts: dict[str, int] = {}

    def look_up(self, needles: Sequence[Sequence[str]], filters: Filters) -> Looked:
        """Return the postings of each needle; a needle is a list of FTS5 phrases for one word."""
        where, parameters = filters.sql("o.at", "o.session_id", project=_of_projects("o.id"))
        joined = "" if where == "1" else "CROSS JOIN turn_outlines o ON o.id = observations_fts.rowid"
        index = Index("observations_fts", joined, where, parameters)
        words = [any_of(needle) for needle in needles]
        person, person_counts = self._side(index, PERSON, words)
        reply, reply_counts = self._side(index, REPLY, words)
        tools = self._some(index, TOOLS, words)
        dated = self._some(index, SAID_ON, words) if any(map(_OF_DATES.search, words)) else [_NONE] * len(words)
        # A date with so many turns does not distinguish them.
        dated = [turns if len(turns) < MAX_POSTINGS else frozenset() for turns in dated]
        postings = []
        for place, word in enumerate(words):
            having = len(person[place] | reply[place]) or len(tools[place] | dated[place])
            if max(person_counts[place], reply_counts[place]) > MAX_POSTINGS:  # not all of them were read
                having = self._speaking(word)
            postings.append(Postings(person[place], reply[place], tools[place], dated[place], having))
        totals = _TURNS.totals(self._connection, _COLUMNS)
        rows = max(1, totals[0])
        return Looked(postings, _turns(self._connection, filters), Means(totals[1] / rows, totals[2] / rows))

    def _side(self, index: Index, side: str, words: Sequence[str]) -> tuple[list[frozenset[int]], list[int]]:
        """Return the turns with each word on one side, and how many they are: exact up to MAX_POSTINGS without filters.

        With filters, the number is unknown, and 0 here.
        """
        connection = self._connection
        # With filters, a word's frequency is unknown beforehand, so all rows that pass are read.
        most = MAX_POSTINGS + 1
        counts = [0 if index.joined else index.count(connection, f"{side} : {word}", most) for word in words]
        rare = {place for place, count in enumerate(counts) if count <= MAX_POSTINGS}
        some = any(0 < count <= MAX_POSTINGS for count in counts) or bool(index.joined)
        # With filters, any word may occur; a word without occurrences must not exclude the others.
        there = [word for word, count in zip(words, counts, strict=True) if count or index.joined]

        def newest(needed: str) -> frozenset[int]:
            return frozenset(index.newest(connection, f"{side} : {needed}", MAX_POSTINGS))

        if some:
            return [
                newest(word) if word in there and place in rare else _NONE for place, word in enumerate(words)
            ], counts
        found = [newest(_with_another(word, there)) if word in there else _NONE for word in words]
        if not any(found):
            # No turn contains two of them.
            found = [newest(word) if word in there else _NONE for word in words]
        return found, counts

    def _speaking(self, word: str) -> int:
        """Return the number of turns in which either side said the word."""
        if word not in self._counts:
            self._counts[word] = _TURNS.count(self._connection, f"{SPOKEN} : {word}")
        return self._counts[word]

    def _some(self, index: Index, column: str, words: Sequence[str]) -> list[frozenset[int]]:
        """Return the newest turns that contain each word in a column in which words are rare, such as tools."""
        # One query for all words saves one query per word.
        if not words or not index.newest(self._connection, f"{column} : {any_of(words)}", 1):
            return [frozenset()] * len(words)
        return [frozenset(index.newest(self._connection, f"{column} : {word}", MAX_POSTINGS)) for word in words]

    def outlines(self, ids: Collection[int], filters: Filters) -> dict[int, Outline]:
        """Return the outlines of those of these turns that exist and pass the filters."""
        where, parameters = filters.sql("at", "session_id", project=_of_projects("o.id"))
        sql = (
            "SELECT o.id, session_id, at, sz FROM json_each(?) AS wanted "  # noqa: S608 - our clause
            "CROSS JOIN turn_outlines o ON o.id = wanted.value "
            f"CROSS JOIN observations_fts_docsize size ON size.id = o.id WHERE {where}"
        )
        return {
            row[0]: Outline(row[0], row[1], row[2], *varints(row[3], 2))
            for row in self._rows(sql, (json.dumps(list(ids)), *parameters))
        }

    def counts(self, needles: Sequence[Sequence[str]], rows: Sequence[int], ids: Collection[int]) -> list[Counts]:
        """Return the count of each needle in each of these turns; empty for needles too frequent to count.

        For one phrase, bm25 is a known function of its weighted frequency; the weights keep the two sides apart.
        """
        totals = _TURNS.totals(self._connection, _COLUMNS)
        budget = COUNTED_ROWS
        found: list[Counts] = [{} for _ in needles]
        for place in sorted(range(len(needles)), key=lambda place: rows[place]):
            budget -= rows[place]
            if budget < 0:
                break
            for phrase in needles[place]:
                for turn, (person, reply) in self._counted(phrase, ids, totals):
                    before = found[place].get(turn, (0.0, 0.0))
                    found[place][turn] = (before[0] + person, before[1] + reply)
        return found

    def _counted(
        self, phrase: str, ids: Collection[int], totals: Sequence[int]
    ) -> Iterator[tuple[int, tuple[float, float]]]:
        having = self._speaking(phrase)
        if not having or not ids:
            return
        idf = math.log((totals[0] - having + 0.5) / (having + 0.5))
        scale = (idf if idf > 0 else 1e-6) * (_K1 + 1)
        mean = sum(totals[1:]) / totals[0]
        rows = self._rows(
            # The plus stops SQLite from looking up each id separately, which would evaluate the phrase each time.
            f"SELECT f.rowid, -bm25(observations_fts, 1, {_REPLY_UNIT}, 0, 0), sz FROM observations_fts f "  # noqa: S608
            "CROSS JOIN observations_fts_docsize size ON size.id = f.rowid WHERE observations_fts MATCH ? "
            "AND f.rowid BETWEEN ? AND ? AND +f.rowid IN (SELECT value FROM json_each(?))",
            (f"{SPOKEN} : {phrase}", min(ids), max(ids), json.dumps(list(ids))),
        )
        for turn, score, size in rows:
            share = score / scale
            frequency = share * _K1 * (1 - _B + _B * sum(varints(size, 4)) / mean) / (1 - share)
            person = math.floor(frequency + _REPLY_UNIT / 2)
            yield turn, (person, round((frequency - person) / _REPLY_UNIT))

    def openings(self, ids: Collection[int], chars: int) -> list[Opening]:
        """Return the beginnings of these turns."""
        rows = self._rows(
            "SELECT id, substr(user_message, 1, ?1), substr(agent_response, 1, ?1) FROM observations "
            "WHERE id IN (SELECT value FROM json_each(?2))",
            (chars, json.dumps(list(ids))),
        )
        return [Opening(*row) for row in rows]

    def times(self, after: int) -> list[tuple[int, float]]:
        """Return the id and time of every indexed turn above an id, oldest first."""
        rows = self._rows("SELECT id, at FROM turn_outlines WHERE id > ? ORDER BY id", (after,))
        return [(row[0], row[1]) for row in rows]

    def newest(self, filters: Filters, limit: int) -> list[int]:
        """Return the ids of the newest turns that pass the filters."""
        where, parameters = filters.sql("at", "session_id", project=_of_projects("turn_outlines.id"))
        sql = f"SELECT id FROM turn_outlines WHERE {where} ORDER BY at DESC, id DESC LIMIT ?"  # noqa: S608 - our clause
        return [row[0] for row in self._rows(sql, (*parameters, limit))]

    def _rows(self, sql: str, parameters: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # plain tuples: half the time of sqlite3.Row
        return cursor.execute(sql, parameters)


def _of_projects(turn: str) -> ProjectSql:
    """Return a function that makes an SQL condition on a turn's project."""

    # It reads only the index, because a turn's row can be hundreds of kilobytes.
    def condition(keys: int, own: bool) -> str:
        parts = []
        if keys:
            places = ", ".join("?" * keys)
            known = f"observations p INDEXED BY observations_project WHERE p.project IN ({places})"
            parts.append(f"EXISTS (SELECT 1 FROM {known} AND p.project IS NOT NULL AND p.id = {turn})")  # noqa: S608
        if own:
            parts.append(f"{turn} NOT IN (SELECT id FROM observations WHERE project IS NOT NULL)")  # noqa: S608 - ours
        return f"({' OR '.join(parts) or '0'})"

    return condition


def _turns(connection: sqlite3.Connection, filters: Filters) -> int:
    parameters: tuple[str | float, ...]
    if filters.session is not None:
        sql, parameters = "SELECT count(*) FROM observations WHERE session_id = ?", (filters.session,)
    elif filters.projects is not None:
        where, given = filters.sql("at", "session_id", project=_of_projects("turn_outlines.id"))
        sql = f"SELECT count(*) FROM turn_outlines WHERE {where}"  # noqa: S608 - our clause
        parameters = tuple(given)
    else:
        # The newest id approximates the count, and is cheap even for a million turns.
        sql, parameters = "SELECT coalesce(max(id), 0) FROM turn_outlines", ()
    return int(connection.execute(sql, parameters).fetchone()[0])


def _with_another(word: str, words: Sequence[str]) -> str:
    """Return the FTS5 expression for turns that contain a word and at least one of the other words."""
    others = [other for other in words if other != word]
    return f"({word} AND {any_of(others)})" if others else word
