"""Render the history of memory as list rows: turns, and events that changed memory (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sprite.database.curations import Curation
from sprite.database.projected import MADE_IDS
from sprite.database.quarantine import CURATED, OFF_RECORD, QUARANTINED
from sprite.database.transcript import Observation
from sprite.protocol.rows import CurationRow, LoggedTurn, MadeVersion, Refusal, Rejected, TokenCount, TurnRow

#: Lists show the beginning of a turn; the turn itself has the rest.
EXCERPT_CHARS = 400
#: Fields of an event that a list may show, without any written or forgotten text. An action's text comes from its
#: current state.
_TOLD = (
    "name",
    "source",
    "action_id",
    "status",
    "generation",
    "drift",
    "accepted",
    "rejected",
    "by",
    "turns",
    "learnings",
    "curations",
    "lines",
    "cards",
    "reason",
    "retry",
    *("op", "action", "once", "due", "rrule", "tz", "next", "late_by", "priority", "what"),
)


@dataclass(frozen=True, slots=True)
class Made:
    """The results of curations: learnings by curation, (curation, file, version), refusals, and action texts."""

    learnings: Mapping[int, int]
    versions: Sequence[tuple[int, str, int]]
    reports: Sequence[Refusal]
    actions: Mapping[int, str]


def action_of(curation: Curation) -> int | None:
    """Return the number of the action that a row is about, or None."""
    if curation.kind not in {"action", "edit"}:
        return None
    said = _object(curation.response)
    if said.get("op") == "add":
        return MADE_IDS + curation.id
    number = said.get("action", said.get("action_id"))
    return number if isinstance(number, int) else None


def curation_row(curation: Curation, made: Made, generation: int) -> CurationRow:
    """Convert an event to a row."""
    first, last = curation.first_observation_id, curation.last_observation_id
    usage = _object(curation.usage_json)
    return CurationRow(
        id=curation.id,
        at=curation.created_at,
        kind=curation.kind,
        model=curation.model,
        first_turn=first,
        last_turn=last,
        turns=last - first + 1 if first is not None and last is not None else 0,
        learnings=made.learnings.get(curation.id, 0),
        files=[MadeVersion(name, version) for made_by, name, version in made.versions if made_by == curation.id],
        cost_usd=curation.cost_usd,
        tokens=TokenCount(usage.get("input_tokens"), usage.get("output_tokens")),
        rejected=[Rejected(report.kind, report.detail) for report in made.reports if report.curation_id == curation.id],
        detail=_detail(curation, made.actions),
        active=curation.kind != "batch" or curation.generation == generation,
    )


def turn_row(turn: Observation) -> TurnRow:
    """Convert a turn to a row: both sides cut, with the names of the tools."""
    return TurnRow(
        id=turn.id,
        at=turn.timestamp,
        session_id=turn.session_id,
        sequence_num=turn.sequence_num,
        user_message=_excerpt(turn.user_message),
        agent_response=_excerpt(turn.agent_response),
        tools=_tools(turn.tool_calls),
        outcome=turn.outcome,
        trigger=turn.trigger,
        mission_id=turn.mission_id,
        curated=turn.processed == CURATED,
        quarantined=turn.processed == QUARANTINED,
        off_record=turn.processed == OFF_RECORD,
        project=turn.project,
        source=turn.source,
        asked_by=turn.asked_by,
    )


def logged_turn(turn: Observation) -> LoggedTurn:
    """Convert a complete turn to its wire format."""
    return LoggedTurn(
        id=turn.id,
        timestamp=turn.timestamp,
        session_id=turn.session_id,
        sequence_num=turn.sequence_num,
        user_message=turn.user_message,
        tool_calls=_list(turn.tool_calls),
        agent_response=turn.agent_response,
        processed=turn.processed == CURATED,
        outcome=turn.outcome,
        mission_id=turn.mission_id,
        trigger=turn.trigger,
        notice=turn.notice,
        quarantined=turn.processed == QUARANTINED,
        off_record=turn.processed == OFF_RECORD,
        project=turn.project,
        source=turn.source,
        asked_by=turn.asked_by,
    )


def _detail(curation: Curation, actions: Mapping[int, str]) -> dict[str, Any]:
    if curation.kind == "batch":
        return {}
    said = _object(curation.response)
    told = {name: value for name, value in said.items() if name in _TOLD}
    # A learned action's number varies between extractions, so its row contains its text.
    of = said.get("of")
    content = of.get("content") if isinstance(of, dict) else actions.get(action_of(curation) or 0)
    return told | {"content": _excerpt(content)} if isinstance(content, str) else told


def _object(text: str | None) -> dict[str, Any]:
    """Parse a JSON object; anything else gives an empty one."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _excerpt(text: str) -> str:
    return text if len(text) <= EXCERPT_CHARS else f"{text[:EXCERPT_CHARS]}…"


def _tools(calls: Any) -> list[str]:
    """Return the names of the tools called."""
    return [str(call["name"]) for call in _list(calls) if isinstance(call, dict) and call.get("name")][:50]


def _list(calls: Any) -> list[Any]:
    """Return a turn's tool calls. Other programs may have written any JSON."""
    return calls if isinstance(calls, list) else []
