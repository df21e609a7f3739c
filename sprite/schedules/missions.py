"""A schedule's message to the agent: its mission id, text and chat line (pure). Times are Unix seconds."""

from __future__ import annotations

import re
import uuid

from sprite.database.projected import Action
from sprite.schedules.recurrence import missed
from sprite.schedules.words import moment_words, repeat_words, span_words
from sprite.schedules.zones import DEFAULT_ZONE

_MISSIONS = uuid.UUID("0b6f3f6e-5a0e-5a3c-9d0c-6f1f4f6c7f5e")
#: Lateness from which it is mentioned.
LATE_SECONDS = 60.0
#: Our tag inside an action's text, in any form that a model would still read as one.
_TAG = re.compile(r"<(?=\s*/?\s*due_action\b)", re.IGNORECASE)
_WHOSE = {
    "person": "It is the person's own standing request.",
    "curator": "It was noted from a conversation with the person.",
    "agent": "You set it up yourself, in a conversation with the person: its words are your note of what they wanted.",
    "schedule": (
        "You set it up yourself, in a turn that a schedule had begun: its words are a note of yours, and nobody's wish."
    ),
}


def mission_id_of(action_id: int, due: float) -> str:
    """Return the id of an action's only mission for a due time, so that accepting it twice creates one."""
    return str(uuid.uuid5(_MISSIONS, f"{action_id} {due!r}"))


def mission_text(action: Action, due: float, now: float) -> str:
    """Return the agent's message for an action that is due at `due`."""
    zone = action.tz or DEFAULT_ZONE
    facts = [f"due {moment_words(due, zone)}"]
    if lateness := late_words(due, now):
        facts.append(lateness)
    if action.rrule:
        facts.append(f"repeats {repeat_words(action.rrule)}")
        first = due if action.first_due is None else action.first_due
        if more := missed(action.rrule, first, zone, due, now):
            facts.append(f"missed {more} more {'time' if more == 1 else 'times'} since: this turn is for all of them")
    content = _TAG.sub(r"<\\", action.content)
    return f"""\
A schedule began this turn: action {action.id} is due. Nobody has typed anything now, and perhaps nobody is watching.

<due_action id="{action.id}">
{content}
</due_action>
({"; ".join(facts)})

{_WHOSE.get(action.origin, _WHOSE["agent"])} Do what it says as far as it can be done now; a reminder you only say, in a
sentence or two. What you answer stands in the chat, and the person is told that it is there. What became of this time
is noted by itself when the turn ends."""


def chat_line(action: Action, due: float, now: float) -> str:
    """Return the action's line in the chat."""
    lateness = late_words(due, now)
    if not lateness:
        return action.content
    return f"{action.content}\n\n(Was due {moment_words(due, action.tz or DEFAULT_ZONE)}, {lateness}.)"


def late_words(due: float, now: float) -> str:
    """Return the lateness as text, empty if it is on time."""
    return f"{span_words(now - due)} late" if now - due >= LATE_SECONDS else ""
