"""What a search gives: hits as they travel, and how far memory reaches (pure)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sprite.database.learning_index import LearningHit
from sprite.database.transcript import Observation
from sprite.protocol.rows import SearchHit

#: Of a turn, so much text is shown; `around:` and the turn itself have the rest.
SNIPPET_CHARS = 600


@dataclass(frozen=True, slots=True)
class Found:
    """Hits in rank order; learnings exist up to turn `indexed_through`, `waiting` turns are not curated yet."""

    hits: list[SearchHit]
    indexed_through: int
    waiting: int


def learning_hit(learning: LearningHit) -> SearchHit:
    """A learning as a hit."""
    return SearchHit(
        kind="learning",
        id=learning.id,
        type=learning.type,
        at=learning.created_at,
        session_id=learning.session_id,
        turn_id=learning.source_observation_id,
        text=learning.content,
        superseded_by=learning.superseded_by,
        origin=learning.origin,
    )


def turn_hit(turn: Observation) -> SearchHit:
    """A turn as a hit, cut to a snippet."""
    parts = {"User": turn.user_message, "Agent": turn.agent_response, "Tools": _tools(turn)}
    text = "\n".join(f"{name}: {part}" for name, part in parts.items() if part)
    text = text.encode("utf-8", "replace").decode()  # JSON can hold half a surrogate pair, what travels cannot
    return SearchHit(
        kind="turn",
        id=turn.id,
        type="TURN",
        at=turn.timestamp,
        session_id=turn.session_id,
        turn_id=turn.id,
        text=text if len(text) <= SNIPPET_CHARS else f"{text[:SNIPPET_CHARS]}…",
    )


def _tools(turn: Observation) -> str:
    logged: Any = turn.tool_calls  # any JSON, if another program wrote it
    calls = [call for call in logged if isinstance(call, dict)] if isinstance(logged, list) else []
    return "; ".join(
        " ".join(_plain(call[key]) for key in ("name", "input", "result") if call.get(key)) for call in calls
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
