"""Decide the effect of an action row: the action that it names, the new values and the history entry."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from sprite.database.projected import Action, Projected
from sprite.memory.projection.action_rows import (
    Added,
    Changed,
    Fired,
    Known,
    Noted,
    Resolved,
    Updated,
    Zoned,
    read_record,
)
from sprite.memory.projection.decision import Acted, Draft, Zone
from sprite.memory.words import FORGOTTEN, content_words, said, share
from sprite.schedules.recurrence import next_after
from sprite.schedules.words import due_words, moment_words, span_words
from sprite.schedules.zones import DEFAULT_ZONE

#: Minimum word overlap to recognise a relearned action: in the same turn, and in another one.
ALIKE_IN_TURN, ALIKE = 0.5, 0.8
#: Mention a delay from this length on.
LATE_SECONDS = 60
_DID = {"open": "opened again", "done": "done", "dismissed": "dismissed", "failed": "failed"}


def decide_action(draft: Draft) -> None:
    """Decide about one row. Refuse an unreadable row, or one without its action."""
    try:
        record = read_record(draft.curation.response)
    except ValueError as error:
        draft.refuse("damaged", f"a change of an action could not be read: {str(error)[:300]}")
        return
    if isinstance(record, Zoned):
        draft.put(Zone(record.tz))
    elif isinstance(record, Added):
        if record.content != FORGOTTEN:
            draft.put(_added(record))
    elif (action := find_action(draft.tx, record.action, record.of)) is not None:
        _change(draft, record, action)
    elif record.of is None or FORGOTTEN not in record.of.content:
        draft.refuse("action_missing", f"there is no action {record.action} any more")


def pass_over(draft: Draft) -> None:
    """Advance due times that have passed: actions of another extraction must not fire for them again."""
    at = draft.curation.created_at
    for action in draft.tx.actions.open():
        if not action.is_made and action.due is not None and action.due <= at:
            draft.put(Acted(action=action.id, due=_next(action, at)))


def find_action(tx: Projected, number: int, of: Known | None) -> Action | None:
    """Return the action that a row names: by number if it still matches, else by its known words."""
    action = tx.actions.get(number)
    if of is None or (action is not None and action.is_made):
        return action
    if action is not None and tx.actions.taught_as(action) == of.content:
        return action
    saying = said(of.content)
    best: tuple[float, Action] | None = None
    for each, content, turn in tx.actions.learned():
        alike = 1.0 if said(content) == saying else alikeness(content, of.content)
        wanted = ALIKE_IN_TURN if of.turn is not None and turn == of.turn else ALIKE
        if alike >= wanted and (best is None or alike > best[0]):
            best = (alike, each)
    return best[1] if best else None


def alikeness(one: str, other: str) -> float:
    """Return the smaller of the two shares of common words, from 0 to 1."""
    words, others = content_words(one), content_words(other)
    return min(share(words, others), share(others, words))


def status_words(status: str) -> str:
    """Return the history entry for a new status."""
    return _DID[status]


def made_words(due: float | None, rrule: str | None, tz: str | None) -> str:
    """Return the first history entry of an action: what was asked for."""
    asked = due_words(due, rrule, tz)
    return f"made: {asked}" if asked else "made"


def _added(record: Added) -> Acted:
    return Acted(
        is_new=True,
        by=record.by,
        note=made_words(record.due, record.rrule, record.tz),
        content=record.content,
        priority=record.priority,
        due=record.due,
        rrule=record.rrule,
        tz=record.tz,
        origin=record.by,
        first_due=record.due,
        mission_id=record.mission,
    )


def _change(draft: Draft, record: Changed, action: Action) -> None:
    at = draft.curation.created_at
    match record:
        case Updated():
            columns, what = _updated(action, record)
        case Resolved():
            columns, what = _resolved(action, record, at)
        case Fired():
            columns, what = _fired(action, record, at)
        case Noted(what=what):
            columns = {} if record.status is UNSET else {"status": record.status}
            columns |= {} if record.due is UNSET else {"due": record.due}
    draft.put(Acted(action=action.id, by=record.by, note=what, **columns))


def _updated(action: Action, record: Updated) -> tuple[dict[str, Any], str]:
    given = {name: getattr(record, name) for name in ("content", "due", "rrule", "tz", "priority")}
    columns = {name: value for name, value in given.items() if value is not UNSET}
    if "due" in columns:
        columns["first_due"] = columns["due"]
    words = []
    if "content" in columns:
        words.append("its words changed")
    if {"due", "rrule", "tz"} & set(columns):
        now = {"due": action.due, "rrule": action.rrule, "tz": action.tz} | columns
        words.append(due_words(now["due"], now["rrule"], now["tz"]) or "no time any more")
    if "priority" in columns:
        words.append(f"priority {columns['priority']}")
    return columns, "changed: " + ", ".join(words)


def _resolved(action: Action, record: Resolved, at: float) -> tuple[dict[str, Any], str]:
    note = f": {record.note}" if record.note else ""
    if record.once:
        return {}, f"done this time{note}"
    columns: dict[str, Any] = {"status": record.status}
    if record.status == "open" and action.due is not None and action.due <= at:
        # Its time passed while it was closed, so it must not fire now.
        columns["due"] = _next(action, at)
    return columns, f"{status_words(record.status)}{note}"


def _fired(action: Action, record: Fired, at: float) -> tuple[dict[str, Any], str]:
    columns: dict[str, Any] = {"fired_at": at}
    if action.due is not None and action.due <= record.due:
        # Otherwise it was changed meanwhile, and the change stands.
        columns["due"] = record.next
    late = f", {span_words(record.late_by)} late" if record.late_by >= LATE_SECONDS else ""
    when = moment_words(record.due, action.tz or DEFAULT_ZONE)
    return columns, f"fired{late} (was due {when})"


def _next(action: Action, at: float) -> float | None:
    if action.rrule is None or action.first_due is None:
        return None
    return next_after(action.rrule, action.first_due, action.tz or DEFAULT_ZONE, at)
