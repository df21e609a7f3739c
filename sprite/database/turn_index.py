"""The turns' full text: one row a turn, kept by triggers, so that it is complete however a turn is written.

`observations_fts` keeps no text of its own: it indexes `observations_text`, a view of the log. `turn_outlines` has
what ranking needs to know of many turns, without their words: reading it costs 0.8 us a turn, where a turn's own
row can be hundreds of kilobytes. Its columns `chars` and `asks` are no longer read: the lengths of both sides, which
FTS5 keeps, took their place, and taking columns out would rewrite the table of every workspace.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sprite.database.connection import Database
from sprite.database.full_text import TOKENIZER, Filters, Index, ProjectSql, any_of, index_stems, spaced_sql
from sprite.protocol.tools import SEARCH_CALL

_T = TypeVar("_T")

#: Searching memory is itself a tool call: its answer would match whatever its question matched, for ever.
_ECHO = f'%"name":"{SEARCH_CALL}"%'
#: Names, inputs and results of the tool calls. Damaged or foreign JSON has none.
_TOOLS = f"""(SELECT group_concat(leaf.atom, ' ')
    FROM json_each(CASE json_type(tool_calls_json) WHEN 'array' THEN tool_calls_json ELSE '[]' END) AS call,
        json_tree(CASE WHEN call.type = 'object' AND call.value NOT LIKE '{_ECHO}' THEN call.value ELSE 'null' END)
            AS leaf
    WHERE leaf.type IN ('text', 'integer', 'real') AND leaf.key NOT IN ('tool_use_id', 'agent_id'))"""  # noqa: S608
#: "8 May 2023", in UTC, so that a date asked for is found in turns that do not say it.
_MONTHS = "January  February March    April    May      June     July     August   SeptemberOctober  November December "
_SAID_ON = f"""coalesce(CAST(strftime('%d', timestamp, 'unixepoch') AS INTEGER) || ' '
    || rtrim(substr('{_MONTHS}', 9 * strftime('%m', timestamp, 'unixepoch') - 8, 9)) || ' '
    || strftime('%Y', timestamp, 'unixepoch'), '')"""
_LAST_WORD = "rtrim(CASE agent_response WHEN '' THEN user_message ELSE agent_response END, char(10) || ' \"”)')"

#: A turn with a pasted file is not longer than a page for ranking.
MAX_CHARS = 4000

_TEXT = "id, user_message, agent_response, tools, said_on"
_INDEX = "INSERT INTO observations_fts (rowid, user_message, agent_response, tools, said_on)"

#: What its person asked not to be remembered (`processed = 3`) is in no index: both are filled from these views.
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
    at REAL NOT NULL,
    chars INTEGER NOT NULL,
    asks INTEGER NOT NULL
);
CREATE INDEX turn_outlines_times ON turn_outlines (at);
CREATE VIEW observations_outline AS SELECT id, session_id, timestamp AS at,
    min({MAX_CHARS}, length(user_message) + length(agent_response)) AS chars,
    substr({_LAST_WORD}, -1) IN ('?', '\uff1f') AS asks
    FROM observations WHERE processed <> 3;
CREATE TRIGGER observations_indexed AFTER INSERT ON observations BEGIN
    {_INDEX} SELECT {_TEXT} FROM observations_text WHERE id = NEW.id;
    INSERT INTO turn_outlines SELECT id, session_id, at, chars, asks FROM observations_outline WHERE id = NEW.id;
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
    SELECT id, session_id, at, chars, asks FROM observations_outline WHERE id = NEW.id;
END;
"""  # noqa: S608 - our own tables

#: Writes the full text anew; FTS5's own `rebuild` takes no view that reads JSON.
REINDEX = (
    "INSERT INTO observations_fts (observations_fts) VALUES ('delete-all')",
    f"{_INDEX} SELECT {_TEXT} FROM observations_text",  # noqa: S608 - our own tables
)

PERSON, REPLY, TOOLS, SAID_ON = "{user_message}", "{agent_response}", "{tools}", "{said_on}"
SPOKEN = "{user_message agent_response}"
#: Turns read for one word and one side. A word that more turns have says little beside rarer ones and does not choose
#: turns. Where all words of a side are so frequent, the newest turns with two of them are read. The cut is made for
#: each side: among 19,000 turns of an assistant that writes pages, one for both leaves 8 points less at 10.
MAX_POSTINGS = 2000
#: Places of words counted for one question: 0.15 us each. The words above are frequent ones, which count by presence.
COUNTED_ROWS = 50_000
#: bm25's constants in FTS5 itself (https://sqlite.org/fts5.html#the_bm25_function).
_K1, _B = 1.2, 0.75
#: The reply's share of the frequency that bm25 sees: both sides' counts stand in one number, 12 bits apart.
_REPLY_UNIT = 2.0**-12
#: Rows, then words in each of the four columns.
_TOTALS = 5


@dataclass(frozen=True, slots=True)
class Postings:
    """The turns in which a word stands, side by side; `turns` is in how many anyone said it."""

    person: frozenset[int]
    reply: frozenset[int]
    tools: frozenset[int]
    dated: frozenset[int]
    turns: int


class Outline(NamedTuple):
    """A turn without its words; `person` and `reply` are its sides' lengths in words.

    Hundreds are made for every search, and a tuple is made three times as fast as a frozen dataclass.
    """

    id: int
    session_id: str
    at: float
    person: int
    reply: int


@dataclass(frozen=True, slots=True)
class Opening:
    """How a turn begins on both sides, where a log of several people says who speaks."""

    id: int
    user_message: str
    agent_response: str


@dataclass(frozen=True, slots=True)
class Means:
    """How long the two sides of a turn are, in words."""

    person: float
    reply: float


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look into the index gives: postings by word, and how many turns there are to choose from."""

    postings: list[Postings]
    turns: int
    means: Means


_NONE: frozenset[int] = frozenset()
#: A word's counts by turn: how often the person said it, how often the reply.
Counts = dict[int, tuple[float, float]]


class TurnLook:
    """The index on the reader's own thread, for as long as one question takes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def look_up(self, needles: Sequence[Sequence[str]], filters: Filters) -> Looked:
        """The postings of each needle: any of some FTS5 phrases for one and the same word."""
        index = _filtered(filters)
        words = [any_of(needle) for needle in needles]
        person, person_counts = self._side(index, PERSON, words)
        reply, reply_counts = self._side(index, REPLY, words)
        tools, dated = self._some(index, TOOLS, words), self._some(index, SAID_ON, words)
        # A year in which so much was said tells no turn from another.
        dated = [turns if len(turns) < MAX_POSTINGS else frozenset() for turns in dated]
        postings = []
        for place, word in enumerate(words):
            having = len(person[place] | reply[place]) or len(tools[place] | dated[place])
            if max(person_counts[place], reply_counts[place]) > MAX_POSTINGS:  # not all of them were read
                having = Index("observations_fts").count(self._connection, f"{SPOKEN} : {word}")
            postings.append(Postings(person[place], reply[place], tools[place], dated[place], having))
        totals = self._totals()
        rows = max(1, totals[0])
        return Looked(postings, _turns(self._connection, filters), Means(totals[1] / rows, totals[2] / rows))

    def _side(self, index: Index, side: str, words: Sequence[str]) -> tuple[list[frozenset[int]], list[int]]:
        """The turns in which each word stands on one side, and in how many it does; 0 where that is not known."""
        connection = self._connection
        # Under filters a word's frequency is not known beforehand, and all that pass are read.
        counts = [0 if index.joined else index.count(connection, f"{side} : {word}") for word in words]
        rare = {place for place, count in enumerate(counts) if count <= MAX_POSTINGS}
        some = any(0 < count <= MAX_POSTINGS for count in counts) or bool(index.joined)
        # Under filters any of them may stand there; a word that stands nowhere is no reason to leave others out.
        there = [word for word, count in zip(words, counts, strict=True) if count or index.joined]

        def newest(needed: str) -> frozenset[int]:
            return frozenset(index.newest(connection, f"{side} : {needed}", MAX_POSTINGS))

        if some:
            return [
                newest(word) if word in there and place in rare else _NONE for place, word in enumerate(words)
            ], counts
        found = [newest(_with_another(word, there)) if word in there else _NONE for word in words]
        if not any(found):
            # No turn has two of them.
            found = [newest(word) if word in there else _NONE for word in words]
        return found, counts

    def _some(self, index: Index, column: str, words: Sequence[str]) -> list[frozenset[int]]:
        """The newest turns in which each word stands in a column that seldom has any of them."""
        # One look at all words spares one for each.
        if not words or not index.newest(self._connection, f"{column} : {any_of(words)}", 1):
            return [frozenset()] * len(words)
        return [frozenset(index.newest(self._connection, f"{column} : {word}", MAX_POSTINGS)) for word in words]

    def outlines(self, ids: Collection[int], filters: Filters) -> dict[int, Outline]:
        """What is known of these turns, as far as they exist and pass the filters."""
        where, parameters = filters.sql("at", "session_id", project=_of_projects("o.id"))
        sql = (
            "SELECT o.id, session_id, at, sz FROM json_each(?) AS wanted "  # noqa: S608 - our clause
            "CROSS JOIN turn_outlines o ON o.id = wanted.value "
            f"CROSS JOIN observations_fts_docsize size ON size.id = o.id WHERE {where}"
        )
        return {
            row[0]: Outline(row[0], row[1], row[2], *_varints(row[3], 2))
            for row in self._rows(sql, (json.dumps(list(ids)), *parameters))
        }

    def counts(self, needles: Sequence[Sequence[str]], rows: Sequence[int], ids: Collection[int]) -> list[Counts]:
        """How often each needle stands in each of these turns; nothing for those too frequent to be counted.

        FTS5 gives no count by itself, but its bm25 does: for one phrase it is a known function of the phrase's weighted
        frequency in the row, and the weights keep the two sides apart.
        """
        totals = self._totals()
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
        having = Index("observations_fts").count(self._connection, f"{SPOKEN} : {phrase}")
        if not having or not ids:
            return
        idf = math.log((totals[0] - having + 0.5) / (having + 0.5))
        scale = (idf if idf > 0 else 1e-6) * (_K1 + 1)
        mean = sum(totals[1:]) / totals[0]
        rows = self._rows(
            # The plus keeps SQLite from looking for each id by itself, which would count the phrase each time.
            f"SELECT f.rowid, -bm25(observations_fts, 1, {_REPLY_UNIT}, 0, 0), sz FROM observations_fts f "  # noqa: S608
            "CROSS JOIN observations_fts_docsize size ON size.id = f.rowid WHERE observations_fts MATCH ? "
            "AND f.rowid BETWEEN ? AND ? AND +f.rowid IN (SELECT value FROM json_each(?))",
            (f"{SPOKEN} : {phrase}", min(ids), max(ids), json.dumps(list(ids))),
        )
        for turn, score, size in rows:
            share = score / scale
            frequency = share * _K1 * (1 - _B + _B * sum(_varints(size, 4)) / mean) / (1 - share)
            person = math.floor(frequency + _REPLY_UNIT / 2)
            yield turn, (person, round((frequency - person) / _REPLY_UNIT))

    def _totals(self) -> list[int]:
        """FTS5's own totals: rows, then words by column (https://sqlite.org/fts5.html, the structure of its tables)."""
        row = self._connection.execute("SELECT block FROM observations_fts_data WHERE id = 1").fetchone()
        # An index that never had a row has no totals either.
        return _varints(row[0], _TOTALS) if row and row[0] else [0] * _TOTALS

    def vocabulary(self, initial: str) -> list[tuple[str, int]]:
        """The stems of all turns that begin so, each with how many turns have it."""
        connection = self._connection
        # FTS5 shows its vocabulary through a table alone: a temporary one, which an ordinary reader may not make.
        connection.execute("PRAGMA query_only=OFF")
        try:
            connection.execute(
                "CREATE VIRTUAL TABLE IF NOT EXISTS temp.turn_words USING fts5vocab(main, observations_fts, row)"
            )
        finally:
            connection.execute("PRAGMA query_only=ON")
        rows = self._rows(
            "SELECT term, doc FROM temp.turn_words WHERE term >= ?1 AND term < ?2", (initial, chr(ord(initial) + 1))
        )
        return [(term, turns) for term, turns in rows]

    def as_written(self, stem: str) -> str:
        """How people wrote a stem of the vocabulary: most often in the newest turn that has it."""
        newest = _filtered(Filters()).newest(self._connection, f'{SPOKEN} : "{stem}"', 1)
        sql = "SELECT user_message || ' ' || agent_response FROM observations WHERE id = ?"
        text = next((row[0] for turn in newest for row in self._rows(sql, (turn,))), "")
        words = [word for word in re.findall(r"\w+", text.casefold()) if word[0] == stem[0]]
        distinct = list(dict.fromkeys(words))
        having = [word for word, its in zip(distinct, index_stems(distinct), strict=True) if its == stem]
        return max(having, key=words.count, default=stem)

    def openings(self, ids: Collection[int], chars: int) -> list[Opening]:
        """How these turns begin."""
        rows = self._rows(
            "SELECT id, substr(user_message, 1, ?1), substr(agent_response, 1, ?1) FROM observations "
            "WHERE id IN (SELECT value FROM json_each(?2))",
            (chars, json.dumps(list(ids))),
        )
        return [Opening(*row) for row in rows]

    def newest(self, filters: Filters, limit: int) -> list[int]:
        """The ids of the newest turns that pass the filters."""
        where, parameters = filters.sql("at", "session_id", project=_of_projects("turn_outlines.id"))
        sql = f"SELECT id FROM turn_outlines WHERE {where} ORDER BY at DESC, id DESC LIMIT ?"  # noqa: S608 - our clause
        return [row[0] for row in self._rows(sql, (*parameters, limit))]

    def _rows(self, sql: str, parameters: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # plain tuples: half the time of sqlite3.Row
        return cursor.execute(sql, parameters)


class TurnIndex:
    """Which turns have which words."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def ask(self, work: Callable[[TurnLook], _T]) -> _T:
        """Lets a function look things up, all in one hop: a hop each takes milliseconds where the machine is busy."""
        return await self._db.read(lambda connection: work(TurnLook(connection)))


def _filtered(filters: Filters) -> Index:
    where, parameters = filters.sql("o.at", "o.session_id", project=_of_projects("o.id"))
    joined = "" if where == "1" else "CROSS JOIN turn_outlines o ON o.id = observations_fts.rowid"
    return Index("observations_fts", joined, where, parameters)


def _of_projects(turn: str) -> ProjectSql:
    """The condition on a turn's id, read from the index alone: a turn's own row can be hundreds of kilobytes."""

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
        # The newest id is as good as a count, and costs nothing at a million turns.
        sql, parameters = "SELECT coalesce(max(id), 0) FROM turn_outlines", ()
    return int(connection.execute(sql, parameters).fetchone()[0])


def _with_another(word: str, words: Sequence[str]) -> str:
    """The expression for the turns that have a word and another one of them."""
    others = [other for other in words if other != word]
    return f"({word} AND {any_of(others)})" if others else word


def _varints(blob: bytes, number: int) -> list[int]:
    """The first integers of a blob, as SQLite packs them: seven bits a byte, the last byte below 128."""
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
