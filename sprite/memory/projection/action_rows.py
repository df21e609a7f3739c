"""The rows of kind `action` in the log, as JSON (pure). Times are Unix seconds.

A row names its action by number. A re-extraction renumbers learned actions, so their rows also have identifying words
(`of`). With these, a row never refers to another action.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from sprite.errors import PeerError
from sprite.schedules.recurrence import MAX_RULE_CHARS, parse_rule
from sprite.schedules.zones import LATEST, known_zone

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
    """The identity of a learned action across extractions: its learning's text and source turn."""

    content: str
    turn: _Id | None = None


class ActionRecord(Struct, tag_field="op", omit_defaults=True):
    """One change of an action, as logged."""


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
    """A change of an existing action."""

    action: _Id
    by: Maker
    of: Known | None = None
    mission: _Mission | None = None


class Updated(Changed, tag="update"):
    """New values; unset fields stay."""

    content: _Content | UnsetType = UNSET
    due: float | UnsetType | None = UNSET
    rrule: _Rule | UnsetType | None = UNSET
    tz: str | UnsetType | None = UNSET
    priority: _Priority | UnsetType = UNSET


class Resolved(Changed, tag="resolve", kw_only=True):
    """A new status. `once`: only this occurrence of a repeat is done, and the action stays open."""

    status: Status
    note: _Note = ""
    once: bool = False


class Fired(Changed, tag="fired", kw_only=True):
    """The action fired: `due` began the mission, `next` is the next time. `late_by` is in seconds."""

    due: float
    next: float | None = None
    late_by: float = 0.0


class Noted(Changed, tag="noted", kw_only=True):
    """A history entry: the end of its mission, why it waits, a status, or a retry time."""

    what: _Note
    status: Status | UnsetType = UNSET
    due: float | UnsetType | None = UNSET


class Zoned(ActionRecord, tag="zone"):
    """The user's time zone from here on."""

    tz: str
    by: Maker = "person"


AnyRecord = Added | Updated | Resolved | Fired | Noted | Zoned
_DECODER: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)


def write_record(record: AnyRecord) -> str:
    """Return a row's JSON."""
    return msgspec.json.encode(record).decode()


def read_record(response: str) -> AnyRecord:
    """Parse a logged row. ValueError with a description if it is invalid."""
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
