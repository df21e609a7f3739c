"""The turns' full text: one row a turn, kept by triggers, so that it is complete however a turn is written.

`observations_fts` keeps no text of its own: it indexes `observations_text`, a view of the log. `turn_outlines` has
what ranking needs to know of many turns, without their words: reading it costs 0.8 us a turn, where a turn's own
row can be hundreds of kilobytes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sprite.database.connection import Database
from sprite.database.full_text import TOKENIZER, Filters, Index, any_of, spaced_sql
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

TURN_INDEX = f"""
CREATE VIEW observations_text AS SELECT id, {spaced_sql("user_message")} AS user_message,
    {spaced_sql("agent_response")} AS agent_response, coalesce({_TOOLS}, '') AS tools, {_SAID_ON} AS said_on
    FROM observations;
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
    FROM observations;
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

SPOKEN = "{user_message agent_response said_on}"
TOOLS = "{tools}"
#: Turns read for one word. One that more turns have says little beside rarer ones and is not looked for: on LoCoMo,
#: without the words of every fifth turn, 0.4 points of recall at 5 and at 10 are lost. Where all words are so frequent,
#: the newest turns with two of them are read.
MAX_POSTINGS = 2000


@dataclass(frozen=True, slots=True)
class Postings:
    """The turns in which a word stands: in what was said, and only in what tools said; `turns` in how many in all."""

    spoken: list[int]
    tools: list[int]
    turns: int


class Outline(NamedTuple):
    """A turn without its words; `chars` is its length, `asks` whether it ends with a question.

    Hundreds are made for every search, and a tuple is made three times as fast as a frozen dataclass.
    """

    id: int
    session_id: str
    at: float
    chars: int
    asks: bool


@dataclass(frozen=True, slots=True)
class Opening:
    """How a turn begins on both sides, where a log of several people says who speaks."""

    id: int
    user_message: str
    agent_response: str


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look into the index gives: postings by word, and how many turns there are to choose from."""

    postings: list[Postings]
    turns: int


class TurnLook:
    """The index on the reader's own thread, for as long as one question takes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def look_up(self, needles: Sequence[Sequence[str]], filters: Filters) -> Looked:
        """The postings of each needle: any of some FTS5 phrases for one and the same word."""
        connection, index = self._connection, _filtered(filters)
        words = [any_of(needle) for needle in needles]
        # Under filters a word's frequency is not known beforehand, and all that pass are read.
        counts = [0 if index.joined else index.count(connection, f"{SPOKEN} : {word}") for word in words]
        rare = [place for place, count in enumerate(counts) if count <= MAX_POSTINGS]
        # One look at all words spares one for each where tools said nothing of the kind.
        tools = bool(words) and bool(index.newest(connection, f"{TOOLS} : {any_of(words)}", 1))
        postings = [
            _postings(connection, index, _needed(words, place, rare), count, tools=tools)
            for place, count in enumerate(counts)
        ]
        return Looked(postings, _turns(connection, filters))

    def outlines(self, ids: Collection[int], filters: Filters) -> dict[int, Outline]:
        """What is known of these turns, as far as they exist and pass the filters."""
        where, parameters = filters.sql("at", "session_id")
        sql = (
            "SELECT o.id, session_id, at, chars, asks FROM json_each(?) AS wanted "  # noqa: S608 - our clause
            f"CROSS JOIN turn_outlines o ON o.id = wanted.value WHERE {where}"
        )
        return {row[0]: Outline._make(row) for row in self._rows(sql, (json.dumps(list(ids)), *parameters))}

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
        where, parameters = filters.sql("at", "session_id")
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
    where, parameters = filters.sql("o.at", "o.session_id")
    joined = "" if where == "1" else "CROSS JOIN turn_outlines o ON o.id = observations_fts.rowid"
    return Index("observations_fts", joined, where, parameters)


def _turns(connection: sqlite3.Connection, filters: Filters) -> int:
    if filters.session is not None:
        sql, parameters = "SELECT count(*) FROM observations WHERE session_id = ?", (filters.session,)
    else:
        # The newest id is as good as a count, and costs nothing at a million turns.
        sql, parameters = "SELECT coalesce(max(id), 0) FROM turn_outlines", ()  # type: ignore[assignment]
    return int(connection.execute(sql, parameters).fetchone()[0])


def _needed(words: Sequence[str], place: int, rare: Sequence[int]) -> str:
    """The expression for the turns that are worth reading for a word, empty if none is."""
    if place in rare:
        return words[place]
    if rare:
        return ""
    others = [*words[:place], *words[place + 1 :]]
    return f"({words[place]} AND {any_of(others)})" if others else words[place]


def _postings(connection: sqlite3.Connection, index: Index, word: str, count: int, *, tools: bool) -> Postings:
    spoken = index.newest(connection, f"{SPOKEN} : {word}", MAX_POSTINGS) if word else []
    by_tools = index.newest(connection, f"{TOOLS} : {word}", MAX_POSTINGS) if word and tools else []
    return Postings(spoken, by_tools, max(count, len({*spoken, *by_tools})))
