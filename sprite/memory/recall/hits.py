"""What a search gives: hits as they travel, and how far memory reaches (pure)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from sprite.database.learning_index import LearningHit
from sprite.database.transcript import Observation

#: Of a turn, so much text is shown; `around:` and the turn itself have the rest.
SNIPPET_CHARS = 600


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


def learning_hit(learning: LearningHit) -> Hit:
    """A learning as a hit."""
    return Hit(
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


def turn_hit(turn: Observation) -> Hit:
    """A turn as a hit, cut to a snippet."""
    parts = {"User": turn.user_message, "Agent": turn.agent_response, "Tools": _tools(turn)}
    text = "\n".join(f"{name}: {part}" for name, part in parts.items() if part)
    text = text.encode("utf-8", "replace").decode()  # JSON can hold half a surrogate pair, what travels cannot
    return Hit(
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
