"""Arguments and results of each tool, and the results as text for a model (pure). Types give the JSON Schemas.

Times are Unix seconds, and also given as text, because some clients show a model only the structured result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct, field

from sprite.protocol.framing import on_one_line, set_in
from sprite.protocol.messages import MAX_MISSION_CHARS
from sprite.protocol.shapes import RETIRED, SearchHit

#: A query is usually a sentence.
MAX_QUERY_CHARS = 20_000
MAX_CONTENT_CHARS = 2_000
DEFAULT_HITS, MAX_HITS = 10, 100
DEFAULT_AROUND, MAX_AROUND = 5, 50

_PROJECT = (
    "a project's key, as turns name it: its folder's whole path or its repository's address; left out: every project"
)


class Arguments(Struct, forbid_unknown_fields=True):
    """Arguments of a call. An unknown name is refused, because it may be misspelt."""


class SearchMemory(Arguments):
    """A query and its filters."""

    query: Annotated[
        str, Meta(description="in natural language, with filters where they help", max_length=MAX_QUERY_CHARS)
    ]
    limit: Annotated[int, Meta(description=f"how many hits, from 1 to {MAX_HITS}; brought into that range")] = (
        DEFAULT_HITS
    )
    project: Annotated[str | None, Meta(description=_PROJECT)] = None


class Around(Arguments):
    """A turn, and how many turns before and after it to return."""

    turn: Annotated[int, Meta(description="the turn's number, as a hit names it")]
    before: Annotated[int, Meta(description=f"how many turns before it, up to {MAX_AROUND}")] = DEFAULT_AROUND
    after: Annotated[int, Meta(description=f"how many turns after it, up to {MAX_AROUND}")] = DEFAULT_AROUND


class ReadMemory(Arguments):
    """Arguments of `read_memory`: the file, and the time whose version to return."""

    file: Annotated[
        str | None,
        Meta(description="soul.md, os.md, tools.md, user.md, files.md or context.md; left out: what memory curates"),
    ] = None
    as_of: Annotated[
        str | float | None,
        Meta(description="as it was then: 2026-11-20, 2026-11-20T15:00 (UTC where it names no zone), or Unix seconds"),
    ] = None
    project: Annotated[str | None, Meta(description=_PROJECT)] = None


class ListActions(Arguments):
    """Arguments of `list_actions`: none."""


class AskSprite(Arguments):
    """Arguments of `ask_sprite`: a message to the agent."""

    text: Annotated[
        str, Meta(description="what the agent is to do or answer", min_length=1, max_length=MAX_MISSION_CHARS)
    ]


class AddAction(Arguments):
    """Arguments of `add_action`: a new action."""

    content: Annotated[str, Meta(description="what is to be done", min_length=1, max_length=MAX_CONTENT_CHARS)]
    due: Annotated[
        str | float | None,
        Meta(description="2026-12-01 (means 09:00), 2026-12-01T14:30, or Unix seconds; left out: no time"),
    ] = None
    rrule: Annotated[str | None, Meta(description="a repeat, as an RFC 5545 rule such as FREQ=DAILY")] = None
    tz: Annotated[str | None, Meta(description="an IANA zone such as Europe/Berlin; left out: the person's")] = None
    priority: Annotated[int, Meta(description="higher comes first", ge=-1000, le=1000)] = 0


class Given(Struct):
    """Base of the structured results of tools."""


class ShownHit(SearchHit, omit_defaults=True, kw_only=True):
    """A search hit as MCP clients see it; `when` is its time as text."""

    when: str


class Hits(Given):
    """Hits in rank order; learnings exist up to turn `indexed_through`, `waiting` turns are not curated yet."""

    hits: list[ShownHit]
    indexed_through: int
    waiting: int
    notes: list[str] = field(default_factory=list)


class ShownTurn(Struct, omit_defaults=True):
    """One turn: its text, cut if very long, and the names of its tools."""

    id: int
    at: float
    when: str
    session_id: str
    user: str
    reply: str
    outcome: str
    tools: list[str] = field(default_factory=list)
    #: None for the person's own turns.
    project: str | None = None
    #: None for turns with this agent.
    source: str | None = None
    #: The program that wrote `user`, or None if the person did.
    asked_by: str | None = None


class Turns(Given):
    """Turns of one conversation, oldest first."""

    turns: list[ShownTurn]


class ShownFile(Struct):
    """A memory file; `version` is 0 while it is as shipped."""

    name: str
    content: str
    version: int


class Files(Given):
    """Memory files."""

    files: list[ShownFile]


class ShownAction(Struct, omit_defaults=True):
    """An action. `due` is its next time in Unix seconds, `when` the same as text, `rrule` its repeat in zone `tz`."""

    id: int
    content: str
    priority: int
    status: str
    due: float | None = None
    when: str | None = None
    rrule: str | None = None
    tz: str | None = None


class ActionList(Given):
    """The open actions, next due first."""

    actions: list[ShownAction]


class AddedAction(Given):
    """The new action."""

    action: ShownAction


class Reply(Given):
    """The outcome of a mission, and the agent's reply."""

    outcome: Literal["complete", "interrupted", "error"]
    reply: str
    mission_id: str


def hits_text(hits: Sequence[SearchHit], notes: Iterable[str], indexed_through: int, waiting: int) -> str:
    """Return search hits as text for a model, with the notes and up to which turn learnings exist."""
    reach = f"Learnings exist up to turn {indexed_through}; {waiting} newer turn(s) are not curated yet."
    if not hits:
        return " ".join(["Nothing found.", *notes, reach])
    return "\n".join([*(_hit(hit) for hit in hits), *notes, reach])


def _hit(hit: SearchHit) -> str:
    name = f"L{hit.id} {hit.type}" if hit.kind == "learning" else f"turn {hit.id}"
    source = f", turn {hit.turn_id}" if hit.kind == "learning" and hit.turn_id is not None else ""
    by = hit.superseded_by
    marks = "" if by is None else " (done)" if by == hit.id else f" (superseded by L{by})"
    marks = " (no longer true)" if by == RETIRED else marks
    marks += " (unverified)" if hit.unverified else ""
    marks += " (the file changes of this turn were undone)" if hit.undone else ""
    # A turn has none: its text names each speaker.
    if hit.origin not in {None, "user", "assistant"}:
        marks += f" (origin: {hit.origin}, not the person's words)"
    project = f", project {hit.project}" if hit.project is not None else ""
    session = f", session {hit.session_id}" if hit.session_id is not None else ""
    return f"- [{name}, {minute(hit.at)[:10]}{source}{session}{project}]{marks} {set_in(hit.text)}"


def turn_text(turn: ShownTurn) -> str:
    """Return a turn as text, with what marks it."""
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


def action_text(action: ShownAction) -> str:
    """Return an action as a line of text."""
    marks = [f"action {action.id}"]
    marks += [f"due {action.when}"] if action.when is not None else []
    marks += [f"repeats {on_one_line(action.rrule)}"] if action.rrule else []
    marks += [f"priority {action.priority}"] if action.priority else []
    return f"- [{', '.join(marks)}] {on_one_line(action.content)}"


def reply_text(given: Reply) -> str:
    """Return the agent's reply as text."""
    return {
        "complete": given.reply or "The agent finished without a reply.",
        "interrupted": "The agent was stopped before it finished.",
        "error": given.reply or "The agent could not do it.",
    }[given.outcome]


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


def minute(at: float) -> str:
    """Return a past moment as text."""
    moment = _local(at, UTC)
    return f"{moment} UTC" if moment else "at an unknown time"


def due(at: float, tz: str | None) -> str:
    """Return a future moment as text, in the local time of a zone."""
    moment = _local(at, _zone(tz))
    return f"{moment} {tz or 'UTC'}" if moment else "at a time that no calendar has"
