"""What each tool takes and gives (pure). Their JSON Schemas are made from these types.

Times are Unix seconds; beside them stands the same in words, since some clients show a model nothing but this.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from sprite.protocol.messages import MAX_MISSION_CHARS
from sprite.protocol.rows import SearchHit

#: A question is a sentence.
MAX_QUERY_CHARS = 20_000
MAX_CONTENT_CHARS = 2_000
DEFAULT_HITS, MAX_HITS = 10, 100
DEFAULT_AROUND, MAX_AROUND = 5, 50

_PROJECT = (
    "a project's key, as turns name it: its folder's whole path or its repository's address; left out: every project"
)

# --- what they take ---------------------------------------------------------------------------


class Arguments(Struct, forbid_unknown_fields=True):
    """What a call gives; a name that is not known is refused, since it may be a misspelt one."""


class SearchMemory(Arguments):
    """A question."""

    query: Annotated[
        str, Meta(description="in natural language, with filters where they help", max_length=MAX_QUERY_CHARS)
    ]
    limit: Annotated[int, Meta(description=f"how many hits, from 1 to {MAX_HITS}; brought into that range")] = (
        DEFAULT_HITS
    )
    project: Annotated[str | None, Meta(description=_PROJECT)] = None


class Around(Arguments):
    """A turn, and how much of its conversation."""

    turn: Annotated[int, Meta(description="the turn's number, as a hit names it")]
    before: Annotated[int, Meta(description=f"how many turns before it, up to {MAX_AROUND}")] = DEFAULT_AROUND
    after: Annotated[int, Meta(description=f"how many turns after it, up to {MAX_AROUND}")] = DEFAULT_AROUND


class ReadMemory(Arguments):
    """Which file, and as of when."""

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
    """Nothing."""


class AskSprite(Arguments):
    """A mission."""

    text: Annotated[
        str, Meta(description="what the agent is to do or answer", min_length=1, max_length=MAX_MISSION_CHARS)
    ]


class AddAction(Arguments):
    """Something to be done."""

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
    """What a call gives beside its text."""


class ShownHit(SearchHit, omit_defaults=True, kw_only=True):
    """A hit; `when` is its time in words."""

    when: str


class Hits(Given):
    """Hits in rank order; learnings exist up to turn `indexed_through`, `waiting` turns are not curated yet."""

    hits: list[ShownHit]
    indexed_through: int
    waiting: int
    notes: list[str] = field(default_factory=list)


class ShownTurn(Struct, omit_defaults=True):
    """One turn: what was said, cut where it is very long, and the names of the tools that it used.

    `when` is its time in words. `project` is left out for the person's own, `source` for what was said to this agent.
    `asked_by` is there where the words in `user` are not the person's: it names the program that said them.
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
    """Something to be done. `due` is when it fires next, `when` that in words; `rrule` is its repeat, in zone `tz`."""

    id: int
    content: str
    priority: int
    status: str
    due: float | None = None
    when: str | None = None
    rrule: str | None = None
    tz: str | None = None


class ActionList(Given):
    """The open actions, the next due first."""

    actions: list[ShownAction]


class AddedAction(Given):
    """The action that was made."""

    action: ShownAction


class ShownCard(Struct):
    """A card that the agent drew: `uri` is the resource that shows it."""

    card_id: str
    title: str
    uri: str


class Reply(Given):
    """How a mission ended, what the agent said, and the cards that it drew meanwhile."""

    outcome: Literal["complete", "interrupted", "error"]
    reply: str
    mission_id: str
    cards: list[ShownCard] = field(default_factory=list)
