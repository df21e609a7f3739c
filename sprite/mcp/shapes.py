"""Arguments and results of each tool (pure); their JSON Schemas are generated from these types.

Times are Unix seconds, and also given as text, because some clients show a model only the structured result.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from sprite.protocol.messages import MAX_MISSION_CHARS
from sprite.protocol.shapes import SearchHit

#: A query is usually a sentence.
MAX_QUERY_CHARS = 20_000
MAX_CONTENT_CHARS = 2_000
DEFAULT_HITS, MAX_HITS = 10, 100
DEFAULT_AROUND, MAX_AROUND = 5, 50

_PROJECT = (
    "a project's key, as turns name it: its folder's whole path or its repository's address; left out: every project"
)

# --- what they take ---------------------------------------------------------------------------


class Arguments(Struct, forbid_unknown_fields=True):
    """Arguments of a call. An unknown name is refused, because it may be misspelt."""


class SearchMemory(Arguments):
    """A query."""

    query: Annotated[
        str, Meta(description="in natural language, with filters where they help", max_length=MAX_QUERY_CHARS)
    ]
    limit: Annotated[int, Meta(description=f"how many hits, from 1 to {MAX_HITS}; brought into that range")] = (
        DEFAULT_HITS
    )
    project: Annotated[str | None, Meta(description=_PROJECT)] = None


class Around(Arguments):
    """A turn, and the number of turns around it."""

    turn: Annotated[int, Meta(description="the turn's number, as a hit names it")]
    before: Annotated[int, Meta(description=f"how many turns before it, up to {MAX_AROUND}")] = DEFAULT_AROUND
    after: Annotated[int, Meta(description=f"how many turns after it, up to {MAX_AROUND}")] = DEFAULT_AROUND


class ReadMemory(Arguments):
    """The file, and the time of its version."""

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
    """No arguments."""


class AskSprite(Arguments):
    """A mission."""

    text: Annotated[
        str, Meta(description="what the agent is to do or answer", min_length=1, max_length=MAX_MISSION_CHARS)
    ]


class AddAction(Arguments):
    """A new action."""

    content: Annotated[str, Meta(description="what is to be done", min_length=1, max_length=MAX_CONTENT_CHARS)]
    due: Annotated[
        str | float | None,
        Meta(description="2026-12-01 (means 09:00), 2026-12-01T14:30, or Unix seconds; left out: no time"),
    ] = None
    rrule: Annotated[str | None, Meta(description="a repeat, as an RFC 5545 rule such as FREQ=DAILY")] = None
    tz: Annotated[str | None, Meta(description="an IANA zone such as Europe/Berlin; left out: the person's")] = None
    priority: Annotated[int, Meta(description="higher comes first", ge=-1000, le=1000)] = 0


# --- what they give ---------------------------------------------------------------------------


class Given(Struct):
    """The structured result of a call."""


class ShownHit(SearchHit, omit_defaults=True, kw_only=True):
    """A hit; `when` is its time as text."""

    when: str


class Hits(Given):
    """Hits in rank order; learnings exist up to turn `indexed_through`, `waiting` turns are not curated yet."""

    hits: list[ShownHit]
    indexed_through: int
    waiting: int
    notes: list[str] = field(default_factory=list)


class ShownTurn(Struct, omit_defaults=True):
    """One turn: its text, cut if very long, and the names of its tools.

    `when` is its time as text. `project` is absent for the person's own, `source` for turns with this agent.
    `asked_by` names the program that wrote the text in `user`, if the person did not.
    """

    id: int
    at: float
    when: str
    session_id: str
    user: str
    reply: str
    outcome: str
    tools: list[str] = field(default_factory=list)
    project: str | None = None
    source: str | None = None
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
    """An action. `due` is its next time, `when` that as text; `rrule` is its repeat, in zone `tz`."""

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


class ShownCard(Struct):
    """A card that the agent drew; `uri` is its resource."""

    card_id: str
    title: str
    uri: str


class Reply(Given):
    """The outcome of a mission, the agent's reply, and the cards that it drew meanwhile."""

    outcome: Literal["complete", "interrupted", "error"]
    reply: str
    mission_id: str
    cards: list[ShownCard] = field(default_factory=list)
