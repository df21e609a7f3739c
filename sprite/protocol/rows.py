"""Rows of memory lists, single turns and statistics (pure). Times are Unix seconds."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from sprite.protocol.shapes import FileState, QuarantinedTurn


class LearningRow(Struct):
    """Something learned, with its evidence; `superseded_by` is the id of the learning that replaced it.

    `project` is null where it is the person's own.
    """

    id: int
    created_at: float
    session_id: str | None
    type: str
    content: str
    source_observation_id: int | None
    confidence: float
    curation_id: int
    origin: str
    evidence: str | None
    superseded_by: int | None
    seen: int
    last_seen: float
    project: str | None = None


class ActionChange(Struct):
    """One entry of an action's history: when, who (curator, person, agent, schedule or sprite), and what, in words."""

    at: float
    by: str
    what: str


class ActionRow(Struct):
    """Something to be done. `status` is open, done, dismissed or failed.

    `due` and `fired_at` are Unix seconds: when it fires next, and when it fired last. `rrule` is the repeat (RFC 5545),
    computed in `tz`, an IANA zone. `origin` says who made it: curator, person, agent, or schedule (an agent within a
    turn that a schedule began). `history` is oldest first. `version` grows with each change.
    """

    id: int
    created_at: float
    content: str
    priority: int
    status: str
    source_learning_id: int | None
    due: float | None = None
    rrule: str | None = None
    tz: str | None = None
    fired_at: float | None = None
    origin: str = "curator"
    history: list[ActionChange] = []
    version: int = 1


class UserFile(Struct):
    """A file in one of the user's folders: `path` from the workspace, `size` in bytes, the time in Unix seconds."""

    path: str
    size: int
    modified_at: float


class VersionRow(Struct):
    """One version of a memory file; `source` is curator or person."""

    version: int
    curation_id: int
    at: float
    lines: int
    source: str


class SearchHit(Struct, omit_defaults=True):
    """One result of a search; `turn_id` is the turn it is or comes from, `type` a learning's, or TURN.

    `project` is left out for the person's own.
    """

    kind: Literal["learning", "turn"]
    id: int
    type: str
    at: float
    session_id: str | None
    turn_id: int | None
    text: str
    superseded_by: int | None = None
    origin: str | None = None
    project: str | None = None


class LoggedTurn(Struct):
    """One turn of the log, whole. `tool_calls` may hold any JSON where another program has written it.

    It waits to be curated where it is neither `processed` nor `quarantined` nor `off_record`: what its person asked not
    to be remembered never is. `project` is null for the person's own, `source` the program it was said to (null: this
    sprite). Where `trigger` is "program", `user_message` has the words of a program and not the person's; `asked_by`
    names it.
    """

    id: int
    timestamp: float
    session_id: str
    sequence_num: int
    user_message: str
    tool_calls: list[Any]
    agent_response: str
    processed: bool
    outcome: str
    mission_id: str | None
    trigger: str
    notice: str
    quarantined: bool
    off_record: bool = False
    project: str | None = None
    source: str | None = None
    asked_by: str | None = None


class TurnRow(Struct):
    """One turn in a list: its words are cut, `tools` are the names of what was called."""

    id: int
    at: float
    session_id: str
    sequence_num: int
    user_message: str
    agent_response: str
    tools: list[str]
    outcome: str
    trigger: str
    mission_id: str | None
    curated: bool
    quarantined: bool
    off_record: bool = False
    project: str | None = None
    source: str | None = None
    asked_by: str | None = None


class Project(Struct):
    """A project that turns are of; `project` is its key, as given. Times are Unix seconds."""

    project: str
    turns: int
    learnings: int
    last_at: float


class MadeVersion(Struct):
    """A version of a file that a curation made."""

    name: str
    version: int


class TokenCount(Struct):
    """Tokens of one call to a model; null where they were not counted."""

    input: int | None
    output: int | None


class Rejected(Struct):
    """A part of a curation that a guard refused, in words."""

    kind: str
    detail: str


class CurationRow(Struct):
    """What changed memory: a batch of turns, an edit, a forget, a turn's quarantine or its end (`kind`), or a drift.

    `detail` is what it was about, where it is no batch; `active` is false where a later extraction has replaced it.
    """

    id: int
    at: float
    kind: str
    model: str | None
    first_turn: int | None
    last_turn: int | None
    turns: int
    learnings: int
    files: list[MadeVersion]
    cost_usd: float | None
    tokens: TokenCount
    rejected: list[Rejected]
    detail: dict[str, Any]
    active: bool


class DaySpend(Struct):
    """What memory cost on one day (UTC)."""

    day: str
    usd: float
    calls: int


class SessionSpend(Struct):
    """What memory of one session cost."""

    session_id: str
    started_at: float
    turns: int
    usd: float


class Refusal(Struct):
    """What a guard refused, in words, with the curation it was part of."""

    curation_id: int
    kind: str
    detail: str


class Drifted(Struct):
    """A memory file's change that waits for the person's word, and since when; by which curation.

    `source` is `disk` for what changed while the agent worked, `import` for what notes from elsewhere would add.
    """

    name: str
    at: float
    curation_id: int
    source: Literal["disk", "import"] = "disk"


class Health(Struct):
    """Memory and what it costs, in numbers; spend in US dollars, as far as prices are known."""

    sessions: int
    turns: int
    waiting: int
    learnings: int
    unverified: int
    open_actions: int
    curations: int
    last_curation_at: float | None
    files: list[FileState]
    spend_today_usd: float
    spend_usd: float
    usd_per_100_turns: float | None
    calls_of_unknown_price: int
    lost_calls: int
    lost_usd: float
    tokens_read: int
    tokens_written: int
    spend_by_day: list[DaySpend]
    spend_by_session: list[SessionSpend]
    refusals: list[Refusal]
    daily_cap_usd: float | None
    last_error: str | None
    quarantined: list[QuarantinedTurn]
    #: Problems that need a person, as text; empty if there are none.
    attention: list[str]
    drift: list[Drifted] = []


class Place(Struct, frozen=True):
    """A text, and where it stands, in words: "user.md", "learning 4", "turn 7, the reply"."""

    where: str
    text: str


class Forgotten(Struct):
    """What a forget touches, in numbers and in words (`gone`; `more` counts what is not listed).

    `remains` names the deployed files that say it, too. `still` is what was found afterwards, in every store: empty,
    all of it is gone. A preview has looked for nothing yet.
    """

    by: str
    turns: list[int]
    learnings: int
    curations: int
    lines: int
    cards: int
    remains: list[str]
    gone: list[Place] = []
    more: int = 0
    still: list[Place] = []
