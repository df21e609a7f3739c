"""The due time of a learned action, and detection of an action that already exists, in one transaction.

Deterministic: the zone is the logged one at this point, and "now" is the time of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sprite.database.projected import Action, ProjectedActions
from sprite.errors import PeerError
from sprite.memory.curation.answer import ParsedLearning
from sprite.memory.projection.action_fold import alikeness, made_words
from sprite.memory.projection.action_rows import MOST_SCHEDULED
from sprite.memory.projection.decision import Acted
from sprite.schedules.due import parse_due
from sprite.schedules.recurrence import first_after, next_after, parse_rule
from sprite.schedules.zones import DEFAULT_ZONE

#: A time that passed while its turn waited for curation still fires, late. A time from long ago, in imported
#: conversations, does not.
STILL_FIRES_SECONDS = 86_400.0
#: Minimum word overlap with an existing action: of the same turn and due time, of the same turn, of another turn.
ALIKE_AT_ONCE, ALIKE_IN_TURN, ALIKE = 0.15, 0.3, 0.7


@dataclass(frozen=True, slots=True)
class AskedTime:
    """The time words of an answer, when they were said, and when the answer was given (Unix seconds)."""

    due: str | None
    rrule: str | None
    said_at: float
    read_at: float


@dataclass(frozen=True, slots=True)
class When:
    """The resulting time of an action."""

    due: float | None = None
    rrule: str | None = None
    tz: str | None = None


def time_of(asked: AskedTime, actions: ProjectedActions) -> tuple[When, str | None]:
    """Return (its time, the reason if a requested time was refused)."""
    if asked.due is None and asked.rrule is None:
        return When(), None
    try:
        when = _read(asked, actions.zone() or DEFAULT_ZONE)
    except PeerError as error:
        return When(), str(error)
    if when.due is None:
        return When(), "its time had passed when it was said"
    if actions.scheduled() >= MOST_SCHEDULED:
        return When(), f"{MOST_SCHEDULED} open actions have a due time already"
    return when, None


def _read(asked: AskedTime, tz: str) -> When:
    """Parse the time; a due time of None has passed. PeerError if it is invalid."""
    oldest = max(asked.said_at, asked.read_at - STILL_FIRES_SECONDS)
    if asked.rrule is not None:
        parse_rule(asked.rrule)
    if asked.due is None:
        return When(first_after(asked.rrule or "", tz, oldest), asked.rrule, tz)
    due = parse_due(asked.due, tz, asked.said_at)
    if due > oldest:
        return When(due, asked.rrule, tz)
    return When(None if asked.rrule is None else next_after(asked.rrule, due, tz, asked.read_at), asked.rrule, tz)


def with_its_time(learning: ParsedLearning) -> ParsedLearning:
    """Return the learning with its time in its text, to find it and to distinguish it from other days."""
    parts = [f"due {learning.due}" if learning.due else "", f"every {learning.rrule}" if learning.rrule else ""]
    told = ", ".join(part for part in parts if part)
    return replace(learning, content=f"{learning.content} ({told})") if told else learning


def new_action(number: int, at: float, content: str, when: When) -> Acted:
    """Return the part of a decision that opens a learned action."""
    return Acted(
        action=number,
        is_new=True,
        note=made_words(when.due, when.rrule, when.tz),
        created_at=at,
        content=content,
        source_learning_id=number,
        due=when.due,
        rrule=when.rrule,
        tz=when.tz,
        first_due=when.due,
    )


def written_already(actions: ProjectedActions, mission_id: str | None, content: str, when: When) -> Action | None:
    """Return the action that the agent made in the same turn, or an equal open one with the same time."""
    made = actions.made_in(mission_id) if mission_id else []
    likely = [
        (alike, action)
        for action in made
        if (alike := alikeness(action.content, content)) >= (ALIKE_AT_ONCE if action.due == when.due else ALIKE_IN_TURN)
    ]
    likely += [
        (alike, action)
        for action in actions.open()
        if action.is_made and when.due in {None, action.due} and (alike := alikeness(action.content, content)) >= ALIKE
    ]
    return max(likely, key=lambda pair: pair[0])[1] if likely else None
