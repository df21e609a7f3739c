"""Tool results as text for a model (pure). Foreign text is indented, so that it cannot pass for ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from sprite.mcp.shapes import ActionList, AddedAction, Files, Reply, ShownAction, ShownTurn, Turns
from sprite.protocol.framing import on_one_line, set_in
from sprite.protocol.shapes import SearchHit


def hits_text(hits: Sequence[SearchHit], notes: Iterable[str], indexed_through: int, waiting: int) -> str:
    """Return hits as text for a model, and the last turn with learnings."""
    reach = f"Learnings exist up to turn {indexed_through}; {waiting} newer turn(s) are not curated yet."
    if not hits:
        return " ".join(["Nothing found.", *notes, reach])
    return "\n".join([*(_hit(hit) for hit in hits), *notes, reach])


def _hit(hit: SearchHit) -> str:
    name = f"L{hit.id} {hit.type}" if hit.kind == "learning" else f"turn {hit.id}"
    source = f", turn {hit.turn_id}" if hit.kind == "learning" and hit.turn_id is not None else ""
    marks = f" (superseded by L{hit.superseded_by})" if hit.superseded_by is not None else ""
    if hit.origin in {"tool", "web", "program", "none"}:
        marks += f" (origin: {hit.origin}, not the person's words)"
    project = f", project {hit.project}" if hit.project is not None else ""
    return f"- [{name}, {_day(hit.at)}{source}, session {hit.session_id}{project}]{marks} {set_in(hit.text)}"


def turns_text(given: Turns) -> str:
    """Return turns of a conversation as text, oldest first."""
    return "\n".join(map(_turn, given.turns)) or "There is nothing around that turn."


def _turn(turn: ShownTurn) -> str:
    marks = [f"turn {turn.id}", turn.when, f"session {on_one_line(turn.session_id)}"]
    marks += [f"project {on_one_line(turn.project)}"] if turn.project is not None else []
    marks += [f"said to {on_one_line(turn.source)}"] if turn.source is not None else []
    marks += [turn.outcome] if turn.outcome != "complete" else []
    asker = "User" if turn.asked_by is None else f"Program {on_one_line(turn.asked_by)}"
    said = [(asker, turn.user), ("Agent", turn.reply), ("Tools", ", ".join(turn.tools))]
    return "\n".join([f"[{', '.join(marks)}]", *(f"{who}: {set_in(text)}" for who, text in said if text)])


def files_text(given: Files) -> str:
    """Return files as text; each has its name above it if there are several."""
    if not given.files:
        return "There are no memory files yet."
    if len(given.files) == 1:
        return given.files[0].content or f"{given.files[0].name} is empty."
    return "\n\n".join(
        f"--- {file.name}, {f'version {file.version}' if file.version else 'as shipped'} ---\n{file.content.strip()}"
        for file in given.files
    )


def actions_text(given: ActionList) -> str:
    """Return the open actions as text, one per line."""
    return "\n".join(map(_action, given.actions)) or "Nothing is open."


def added_text(given: AddedAction) -> str:
    """Return the added action as text."""
    return f"Added: {_action(given.action)}"


def _action(action: ShownAction) -> str:
    marks = [f"action {action.id}"]
    marks += [f"due {action.when}"] if action.when is not None else []
    marks += [f"repeats {on_one_line(action.rrule)}"] if action.rrule else []
    marks += [f"priority {action.priority}"] if action.priority else []
    return f"- [{', '.join(marks)}] {on_one_line(action.content)}"


def reply_text(given: Reply, drawn: Sequence[str]) -> str:
    """Return the agent's reply as text; `drawn` are its cards as text."""
    said = {
        "complete": given.reply or "The agent is done, and said nothing.",
        "interrupted": "The agent was stopped before it was done.",
        "error": given.reply or "The agent could not do it.",
    }[given.outcome]
    return "\n\n".join([said, *drawn])


def _zone(name: str | None) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (ValueError, OSError, KeyError):
        # A zone that this machine does not know.
        return UTC


def _local(at: float, zone: tzinfo) -> str | None:
    try:
        return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return None


def _day(at: float) -> str:
    return (_local(at, UTC) or "at an unknown time")[:10]


def minute(at: float) -> str:
    """Return a past moment as text."""
    moment = _local(at, UTC)
    return f"{moment} UTC" if moment else "at an unknown time"


def due(at: float, tz: str | None) -> str:
    """Return a future moment as text, in the local time of a zone."""
    moment = _local(at, _zone(tz))
    return f"{moment} {tz or 'UTC'}" if moment else "at a time that no calendar has"
