"""Rows of kind `action` in the log: their JSON and their effect. Times are Unix seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from sprite.common.due_times import due_words, moment_words, span_words
from sprite.common.recurrence import DEFAULT_ZONE, LATEST, MAX_RULE_CHARS, known_zone, next_after, parse_rule
from sprite.errors import PeerError
from sprite.memory.decision import Acted, Action, Fold, Projected, Zone
from sprite.memory.words import FORGOTTEN, content_words, said, share
from sprite.protocol.shapes import LearningRow

_T = TypeVar("_T")
MAX_ACTION_CHARS = 2000
MAX_NOTE_CHARS = 500
LARGEST_PRIORITY = 100
#: Limit of open actions with a due time, from all origins together.
MOST_SCHEDULED = 50
#: Authors of changes: `schedule` is the agent in a scheduled turn, `sprite` is the process.
Maker = Literal["person", "agent", "schedule", "sprite"]
Status = Literal["open", "done", "dismissed", "failed"]
ACTION_STATUSES: frozenset[str] = frozenset(get_args(Status))

_Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Content = Annotated[str, Meta(min_length=1, max_length=MAX_ACTION_CHARS)]
_Note = Annotated[str, Meta(max_length=MAX_NOTE_CHARS)]
_Priority = Annotated[int, Meta(ge=-LARGEST_PRIORITY, le=LARGEST_PRIORITY)]
_Mission = Annotated[str, Meta(max_length=200)]
_Rule = Annotated[str, Meta(max_length=MAX_RULE_CHARS)]


class Known(Struct, omit_defaults=True):
    """The identity of a learning in every extraction: its text and source turn. Its number differs in each."""

    content: str
    turn: _Id | None = None


class ActionRecord(Struct, tag_field="op", omit_defaults=True):
    """One change of an action, or of the user's time zone, as logged."""


class Added(ActionRecord, tag="add"):
    """A new action; its number is the row's."""

    by: Maker
    content: _Content
    due: float | None = None
    rrule: _Rule | None = None
    tz: str | None = None
    priority: _Priority = 0
    mission: _Mission | None = None


class Changed(ActionRecord):
    """A change of an existing action, and who made it."""

    action: _Id
    by: Maker
    of: Known | None = None
    mission: _Mission | None = None


class Updated(Changed, tag="update"):
    """A change of an action's text, times or priority; unset fields keep the old values."""

    content: _Content | UnsetType = UNSET
    due: float | UnsetType | None = UNSET
    rrule: _Rule | UnsetType | None = UNSET
    tz: str | UnsetType | None = UNSET
    priority: _Priority | UnsetType = UNSET


class Resolved(Changed, tag="resolve", kw_only=True):
    """A change of an action's status. `once`: only this occurrence of a repeat is done, and the action stays open."""

    status: Status
    note: _Note = ""
    once: bool = False


class Fired(Changed, tag="fired", kw_only=True):
    """An action began a mission: `due` is the time that came, `next` the next one; `late_by` is in seconds."""

    due: float
    next: float | None = None
    late_by: float = 0.0


class Noted(Changed, tag="noted", kw_only=True):
    """A new entry in an action's history, such as the end of its mission. `status` and `due` change the action, too."""

    what: _Note
    status: Status | UnsetType = UNSET
    due: float | UnsetType | None = UNSET


class Zoned(ActionRecord, tag="zone"):
    """A change of the user's time zone from this row on."""

    tz: str
    by: Maker = "person"


AnyChange = Updated | Resolved | Fired | Noted
AnyRecord = Added | AnyChange | Zoned
_DECODER: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)


def read_record(response: str) -> AnyRecord:
    """Parse an action's logged change. Raise ValueError with a description if it is invalid."""
    try:
        record = _DECODER.decode(response)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    for moment in (getattr(record, name, None) for name in ("due", "next", "late_by")):
        if isinstance(moment, float) and not (math.isfinite(moment) and 0 <= moment <= LATEST):
            raise ValueError(f"{moment!r} is no time")
    try:
        if isinstance(zone := getattr(record, "tz", None), str):
            known_zone(zone)
        if isinstance(rule := getattr(record, "rrule", None), str):
            parse_rule(rule)
    except PeerError as error:
        raise ValueError(str(error)) from error
    return record


#: Minimum word overlap to recognise a relearned action: in the same turn, and in another one.
ALIKE_IN_TURN, ALIKE = 0.5, 0.8
#: Learnings of another extraction that are compared with a known one.
_NEAREST = 20
#: A reminder whose time is over is closed after this time.
CLOSED_AFTER_DAYS = 7
CLOSED_AFTER_SECONDS = CLOSED_AFTER_DAYS * 86_400.0
#: Mention a delay from this length on.
LATE_SECONDS = 60
#: History entries for new statuses.
_DID = {"open": "opened again", "done": "done", "dismissed": "dismissed", "failed": "failed"}


def decide_action(draft: Fold) -> None:
    """Apply one logged change of an action. Record a refusal if the row is unreadable or the action does not exist."""
    try:
        record = read_record(draft.curation.response)
    except ValueError as error:
        draft.refuse("damaged", f"a change of an action could not be read: {str(error)[:300]}")
        return
    if isinstance(record, Zoned):
        draft.put(Zone(record.tz))
    elif isinstance(record, Added):
        if record.content != FORGOTTEN:
            draft.put(
                Acted(
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
            )
    elif (action := find_action(draft, record.action, record.of)) is not None:
        _change(draft, record, action)
    elif record.of is None or FORGOTTEN not in record.of.content:
        draft.refuse("action_missing", f"there is no action {record.action} any more")


def pass_over(draft: Fold) -> None:
    """Move past due times of learned actions to their next times at a re-extraction, so that they do not fire again."""
    at = draft.curation.created_at
    for action in draft.actions.open():
        if not action.is_made and action.due is not None and action.due <= at:
            draft.put(Acted(action=action.id, due=next_due(action, at)))


def find_action(tx: Projected, number: int, of: Known | None) -> Action | None:
    """Return the action that a row is about: by number if it still matches, else by its learning's text and turn."""
    action = tx.actions.get(number)
    if of is None or (action is not None and action.is_made):
        return action
    if action is not None and tx.actions.taught_as(action) == of.content:
        return action
    return most_alike(of, tx.actions.learned())


def most_alike(of: Known, found: Iterable[tuple[_T, str, int | None]]) -> _T | None:
    """Return the value of the (value, text, source turn) that is most like a known learning, or None."""
    saying = said(of.content)
    best: tuple[float, _T] | None = None
    for each, content, turn in found:
        alike = 1.0 if said(content) == saying else alikeness(content, of.content)
        wanted = ALIKE_IN_TURN if of.turn is not None and turn == of.turn else ALIKE
        if alike >= wanted and (best is None or alike > best[0]):
            best = (alike, each)
    return best[1] if best else None


def find_learning(tx: Projected, number: int, of: Known) -> LearningRow | None:
    """Return the learning that a row is about: by number if it still matches, else by its text and turn."""
    known = tx.known(number)
    if known is not None and known.content == of.content:
        return known
    nearest = tx.nearest(of.content, _NEAREST)
    return most_alike(of, [(each, each.content, each.source_observation_id) for each in nearest])


def alikeness(one: str, other: str) -> float:
    """Return how alike two texts are: the smaller of their shares of common words, from 0 to 1."""
    words, others = content_words(one), content_words(other)
    return min(share(words, others), share(others, words))


def made_words(due: float | None, rrule: str | None, tz: str | None) -> str:
    """Return the first entry of an action's history: the time and repeat that the author requested."""
    asked = due_words(due, rrule, tz)
    return f"made: {asked}" if asked else "made"


def _change(draft: Fold, record: Changed, action: Action) -> None:
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
        words.append("the text changed")
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
    if record.status == "open" and action.first_due is not None and (action.due is None or action.due <= at):
        # Its time passed while it was closed, so it must not fire now, and must not be closed again for it.
        columns["due"] = next_due(action, at)
        if columns["due"] is None:
            columns |= {"first_due": None, "rrule": None}
    return columns, f"{_DID[record.status]}{note}"


def _fired(action: Action, record: Fired, at: float) -> tuple[dict[str, Any], str]:
    columns: dict[str, Any] = {"fired_at": at}
    if action.due is not None and action.due <= record.due:
        # Otherwise it was changed meanwhile, and the change stands.
        columns["due"] = record.next
    late = f", {span_words(record.late_by)} late" if record.late_by >= LATE_SECONDS else ""
    when = moment_words(record.due, action.tz or DEFAULT_ZONE)
    return columns, f"fired{late} (was due {when})"


def has_passed(action: Action, at: float) -> bool:
    """Return whether an open action's last time was over CLOSED_AFTER_SECONDS ago, with no repeat or firing to come."""
    if action.status != "open" or action.first_due is None:
        return False
    if action.due is not None and (action.rrule is not None or action.due <= at):
        return False
    return max(action.first_due, action.fired_at or 0.0) + CLOSED_AFTER_SECONDS <= at


def next_due(action: Action, at: float) -> float | None:
    """Return the next time of a repeat after a moment, or None without a repeat or another time."""
    if action.rrule is None or action.first_due is None:
        return None
    return next_after(action.rrule, action.first_due, action.tz or DEFAULT_ZONE, at)
