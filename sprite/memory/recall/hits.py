"""Search results in their wire format, and how far the learnings reach (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sprite.database.transcript import Observation
from sprite.memory.recall.framing import set_in
from sprite.memory.recall.passage import CUT, PASSAGE_WORDS, best_passage
from sprite.protocol.rows import LearningRow, SearchHit

#: Turns up to this length are shown whole, longer ones by their best passage. `around:` widens it.
SNIPPET_CHARS = 600
#: Characters and words shown of the turn that `around:` names.
AROUND_CHARS = 6000
AROUND_WORDS = 900


@dataclass(frozen=True, slots=True)
class Found:
    """Hits in rank order; learnings exist up to turn `indexed_through`, `waiting` turns are not curated yet.

    `notes` name additional search words, or the filter that excluded all hits.
    """

    hits: list[SearchHit]
    indexed_through: int
    waiting: int
    notes: tuple[str, ...] = ()


def learning_hit(learning: LearningRow) -> SearchHit:
    """Convert a learning to a hit."""
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
        project=learning.project,
    )


def turn_hit(turn: Observation, weights: Mapping[str, float] | None = None, *, wide: bool = False) -> SearchHit:
    """Convert a turn to a hit. Long turns show the passage with the most weight (by stems), longer if `wide`."""
    return SearchHit(
        kind="turn",
        id=turn.id,
        type="TURN",
        at=turn.timestamp,
        session_id=turn.session_id,
        turn_id=turn.id,
        text=_shown(turn, weights or {}, wide=wide),
        project=turn.project,
    )


def _shown(turn: Observation, weights: Mapping[str, float], *, wide: bool) -> str:
    text = ""
    begins: list[tuple[int, str]] = []
    asker = "User" if turn.asked_by is None else f"Program {turn.asked_by}"
    for name, part in ((asker, turn.user_message), ("Agent", turn.agent_response), ("Tools", _tools(turn))):
        if part:
            text += "\n" if text else ""
            begins.append((len(text), name))
            # JSON can hold half of a surrogate pair, the wire format cannot.
            text += f"{name}: {set_in(part.encode('utf-8', 'replace').decode())}"
    chars, words = (AROUND_CHARS, AROUND_WORDS) if wide else (SNIPPET_CHARS, PASSAGE_WORDS)
    if len(text) <= chars:
        return text
    passage = best_passage(text, weights, words)
    end = min(passage.end, passage.start + chars)
    # Name the speaker of a cut passage, too.
    start, name = max(begin for begin in begins if begin[0] <= passage.start)
    whose = f"{name}: {CUT}" if passage.start > start else ""
    return f"{whose}{text[passage.start : end].strip()}{CUT if end < len(text) else ''}"


def _tools(turn: Observation) -> str:
    logged: Any = turn.tool_calls  # any JSON, if another program wrote it
    calls = [call for call in logged if isinstance(call, dict)] if isinstance(logged, list) else []
    return "; ".join(
        " ".join(_plain(call[key]) for key in ("name", "input", "result") if call.get(key)) for call in calls
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
