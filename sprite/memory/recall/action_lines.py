"""Render an action as one line for the agent and the terminal (pure)."""

from __future__ import annotations

from sprite.database.projected import Action
from sprite.memory.recall.framing import on_one_line
from sprite.schedules.words import moment_words, repeat_words
from sprite.schedules.zones import DEFAULT_ZONE

#: An action is overdue after this time; one that is just due is being fired.
OVERDUE_SECONDS = 300.0
#: The author, unless it is the usual one: a request that the user made in a conversation.
_MADE_BY = {
    "person": "written by the person",
    "agent": "you scheduled it",
    "schedule": "you scheduled it within a schedule's turn",
}


def action_line(action: Action, now: float, tz: str, *, with_status: bool = False) -> str:
    """Return `- [12] text (due Tue 2026-12-01 09:00 Europe/Berlin, every Monday; priority 2)` on one line.

    The time is shown in `tz`, the user's zone, and in the action's own zone if they differ.
    """
    marks = [_when(action, now, tz), _repeat(action), _MADE_BY.get(action.origin, "")]
    if action.priority:
        marks.append(f"priority {action.priority}")
    if action.status == "failed" or with_status:
        marks.append(action.status)
    told = "; ".join(mark for mark in marks if mark)
    return f"- [{action.id}] {on_one_line(action.content)}{f' ({told})' if told else ''}"


def _when(action: Action, now: float, tz: str) -> str:
    if action.due is None:
        return f"last {moment_words(action.fired_at, tz)}" if action.fired_at is not None else ""
    when = f"due {moment_words(action.due, tz)}"
    own = action.tz or DEFAULT_ZONE
    if action.rrule and own != tz:
        when += f" = {moment_words(action.due, own)}"
    is_overdue = action.status == "open" and now - action.due >= OVERDUE_SECONDS
    return f"{when}, OVERDUE" if is_overdue else when


def _repeat(action: Action) -> str:
    return repeat_words(action.rrule) if action.rrule else ""
