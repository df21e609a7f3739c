"""search_memory: learnings and raw turns in one ranked list, and how far the learnings reach.

Reads memory.db and transcript.db; writes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from sprite.database.memory import MemoryDB
from sprite.database.transcript import Observation, TranscriptDB
from sprite.memory.query import Query, parse_query

DEFAULT_LIMIT = 10
MAX_LIMIT = 100
#: Of a turn, so much text is shown; `around:` and the turn itself have the rest.
SNIPPET_CHARS = 600
#: Turns shown on each side of `around:<turn>`.
AROUND = 5
#: bm25 of two indexes cannot be compared, so each list is scaled to its best hit. A learning is a turn's
#: essence, so it comes first where both fit equally well; what was superseded ranks below what replaced it.
TURN_WEIGHT = 0.9
SUPERSEDED_WEIGHT = 0.4


@dataclass(frozen=True, slots=True)
class Hit:
    """One result; `at` in Unix seconds, `turn_id` the turn it is or comes from."""

    kind: Literal["learning", "turn"]
    id: int
    type: str
    at: float
    session_id: str | None
    turn_id: int | None
    text: str
    superseded_by: int | None = None
    origin: str | None = None

    def row(self) -> dict[str, Any]:
        """The hit as it travels."""
        row: dict[str, Any] = {
            "kind": self.kind,
            "id": self.id,
            "type": self.type,
            "at": self.at,
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "text": self.text,
        }
        if self.superseded_by is not None:
            row["superseded_by"] = self.superseded_by
        if self.origin is not None:
            row["origin"] = self.origin
        return row


@dataclass(frozen=True, slots=True)
class Found:
    """Hits in rank order; learnings exist up to turn `indexed_through`, `waiting` turns are not curated yet."""

    hits: list[Hit]
    indexed_through: int
    waiting: int


async def search(transcript: TranscriptDB, memory: MemoryDB, text: str, limit: int = DEFAULT_LIMIT) -> Found:
    """Finds what fits a question in natural language, best first; `limit` is kept between 1 and 100."""
    limit = max(1, min(limit, MAX_LIMIT))
    query = parse_query(text)
    _, waiting, indexed_through = await transcript.counts()
    if query.around is not None:
        turns = await transcript.observations_between(query.around - AROUND, query.around + AROUND)
        return Found([_whole_turn(turn) for turn in turns], indexed_through, waiting)
    if not query.terms:
        return Found([], indexed_through, waiting)
    learnings = await _learnings(memory, query, limit)
    turns_found = await _turns(transcript, query, limit)
    ranked = sorted([*learnings, *turns_found], key=lambda pair: (-pair[0], -pair[1].at, -pair[1].id))
    return Found([hit for _, hit in ranked[:limit]], indexed_through, waiting)


async def _learnings(memory: MemoryDB, query: Query, limit: int) -> list[tuple[float, Hit]]:
    where, parameters = _conditions(query, alias="l", time_column="created_at", type_column="l.type")
    rows = await memory.search(f"{{content}} : ({query.match})", where, parameters, limit)
    return [
        (
            scaled * (SUPERSEDED_WEIGHT if row["superseded_by"] is not None else 1.0),
            Hit(
                kind="learning",
                id=row["id"],
                type=row["type"],
                at=row["created_at"],
                session_id=row["session_id"],
                turn_id=row["source_observation_id"],
                text=row["content"],
                superseded_by=row["superseded_by"],
                origin=row["origin"],
            ),
        )
        for scaled, row in _scaled(rows)
    ]


async def _turns(transcript: TranscriptDB, query: Query, limit: int) -> list[tuple[float, Hit]]:
    if query.types and "TURN" not in query.types:
        return []
    where, parameters = _conditions(query, alias="o", time_column="timestamp", type_column=None)
    rows = await transcript.search(query.match, where, parameters, limit)
    return [
        (
            scaled * TURN_WEIGHT,
            Hit(
                kind="turn",
                id=row["id"],
                type="TURN",
                at=row["timestamp"],
                session_id=row["session_id"],
                turn_id=row["id"],
                text=_snippet(row["user_message"], row["agent_response"], row["tools"]),
            ),
        )
        for scaled, row in _scaled(rows)
    ]


def _scaled(rows: list[sqlite3.Row]) -> Iterable[tuple[float, sqlite3.Row]]:
    """Each row with its score from 0 to 1, the best being 1 (FTS5's scores are negative)."""
    best = min((row["score"] for row in rows), default=-1.0) or -1.0
    return ((row["score"] / best, row) for row in rows)


def _conditions(
    query: Query, *, alias: str, time_column: str, type_column: str | None
) -> tuple[str, list[str | float]]:
    parts: list[str] = []
    parameters: list[str | float] = []
    if query.since is not None:
        parts.append(f"{alias}.{time_column} >= ?")
        parameters.append(query.since)
    if query.before is not None:
        parts.append(f"{alias}.{time_column} < ?")
        parameters.append(query.before)
    if query.session is not None:
        parts.append(f"{alias}.session_id = ?")
        parameters.append(query.session)
    if query.types and type_column is not None:
        parts.append(f"{type_column} IN ({', '.join('?' * len(query.types))})")
        parameters.extend(query.types)
    return " AND ".join(parts) or "1", parameters


def _snippet(user: str, reply: str, tools: str) -> str:
    parts = [f"User: {user}" if user else "", f"Agent: {reply}" if reply else "", f"Tools: {tools}" if tools else ""]
    text = "\n".join(part for part in parts if part)
    return text if len(text) <= SNIPPET_CHARS else f"{text[:SNIPPET_CHARS]}…"


def _whole_turn(turn: Observation) -> Hit:
    tools = ", ".join(call["name"] for call in turn.tool_calls)
    return Hit(
        kind="turn",
        id=turn.id,
        type="TURN",
        at=turn.timestamp,
        session_id=turn.session_id,
        turn_id=turn.id,
        text=_snippet(turn.user_message, turn.agent_response, tools),
    )
