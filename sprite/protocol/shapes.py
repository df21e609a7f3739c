"""Shapes of the wire that several messages contain, and rows of memory lists (pure). Times are Unix seconds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

#: Folders with the person's files: listed, shown, downloaded and deleted.
FILE_FOLDERS = ("documents", "artifacts", "ocr", "extractions")

#: SQLite's largest row number.
LARGEST_ID = 2**63 - 1
RowId = Annotated[int, Meta(ge=0, le=LARGEST_ID)]


class Payload(Struct, omit_defaults=True):
    """The common form of all payloads: unknown fields are ignored, unset ones are not sent."""


class ClientPayload(Payload):
    """A message from a client to the sprite."""


class RelayedPayload(Payload):
    """A message from the bridge to its pages and terminals."""


class ServerPayload(RelayedPayload):
    """A message from the sprite to its clients."""


def union_of(family: type[Payload]) -> Any:
    """Return the union of all payloads with this base class, whose tag field tells them apart."""
    below = family.__subclasses__()
    return reduce(or_, map(union_of, below)) if below else family


#: Limits in pixels: how far a canvas reaches from its corner, and how small and large a card on it may be.
FARTHEST = 1_000_000
SMALLEST = 1
LARGEST = 100_000
_Coordinate = Annotated[float, Meta(ge=-FARTHEST, le=FARTHEST)]
_Length = Annotated[float, Meta(ge=SMALLEST, le=LARGEST)]


class Point(Payload, omit_defaults=False):
    """A position on the canvas, in pixels from its top left."""

    x: _Coordinate
    y: _Coordinate


class Size(Payload, omit_defaults=False):
    """The size of a card, in pixels."""

    width: _Length
    height: _Length


class Block(Struct):
    """A part of a card. `version` counts its changes from 1; `by` made the last one."""

    id: str
    type: str
    data: dict[str, Any]
    version: int = 1
    by: Literal["agent", "person"] = "agent"


class Stack(Struct):
    """A tab of the canvas."""

    stack_id: str
    name: str
    archived: bool


class Card(Struct):
    """A card on a stack."""

    card_id: str
    stack_id: str
    title: str
    card_type: str
    position: Point | None
    size: Size | None
    blocks: list[Block]
    archived: bool


#: The origin of a turn: a message (of a person, or of a program in their name), the agent itself (its background work
#: ended), or a schedule.
Origin = Literal["person", "agent", "schedule"]


MissionStatus = Literal["queued", "running", "complete", "interrupted", "error"]


class UsedTool(Struct, omit_defaults=True):
    """A tool call of a turn, cut; `title` is its purpose.

    `tool_use_id` finds the whole call in the log; `answer` is the person's answer if the call was asked.
    """

    name: str
    title: str
    is_error: bool
    tool_use_id: str = ""
    answer: Literal["allow", "deny", "session", "always"] | None = None


class FileCounts(Struct):
    """The numbers of files that a turn added, changed and deleted; folders do not count."""

    added: int
    modified: int
    deleted: int


class ChangedFile(Struct, omit_defaults=True):
    """A file that a turn changed. Sizes are in bytes, modes as in `ls`; null where the file did not exist.

    A path with a slash at its end is a folder that is not searched (not `kept`), or a git repository, which is
    shown and undone as a whole. Not `kept`: its content cannot be restored. `yours`: the person may have changed
    it, so it is undone only by name. `undone`: it was undone. `diff` is a unified diff of text; previews are
    `data:` URLs of small images.
    """

    path: str
    kind: Literal["added", "modified", "deleted"]
    kept: bool
    yours: bool = False
    undone: bool = False
    size_before: int | None = None
    size: int | None = None
    mode_before: str | None = None
    mode: str | None = None
    diff: str | None = None
    preview_before: str | None = None
    preview: str | None = None


class SearchHit(Struct, omit_defaults=True):
    """A result of a search of memory; `turn_id` is the turn itself or the learning's turn.

    `type` is the learning's type, or TURN. `project` is left out for the person's own. `unverified` marks a
    learning that neither evidence nor the person has confirmed. `undone`: the file changes of its turn were undone.
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
    unverified: bool = False
    undone: bool = False


class FoundHit(Struct, omit_defaults=True):
    """A hit of a search of memory that the agent made in a turn; `turn` is the turn that the hit is or comes from."""

    kind: Literal["learning", "turn"]
    id: int
    type: str
    at: float
    text: str
    turn: int | None = None


class ChatMessage(Struct):
    """One message of the chat; `at` in Unix seconds.

    `tools` are the turn's tool calls, in order; a reply with tools may have no text. `status` is the state of its
    turn, null if no turn is known. `asked_by` names the program that wrote the message. `pasted` lists the parts
    that the person pasted, as in `mission`. `changes` counts the files that its turn changed; `undone`: some were
    undone. `duration_ms` and `cost_usd` are null if unknown. `found` are the hits of its searches of memory.
    """

    id: int
    role: Literal["user", "assistant", "error"]
    text: str
    at: float
    mission_id: str | None
    origin: Origin = "person"
    tools: list[UsedTool] = []
    status: MissionStatus | None = None
    asked_by: str | None = None
    pasted: list[tuple[int, int]] = []
    changes: FileCounts | None = None
    undone: bool = False
    session_id: str | None = None
    duration_ms: int | None = None
    cost_usd: float | None = None
    found: list[FoundHit] = []


class SessionRow(Struct):
    """A session in a list. `title` is the person's title or the first message; times are Unix seconds.

    `mission_id` is its first mission; `position` orders the list.
    """

    session_id: str
    title: str
    started_at: float
    last_at: float
    turns: int
    mission_id: str
    position: int


#: Kinds of background work: a shell command, an agent, or any other kind of the CLI.
WorkKind = Literal["command", "agent", "task"]


class BackgroundWork(Struct):
    """Work of the agent that runs beside its turns; `since` in Unix seconds."""

    id: str
    kind: WorkKind
    title: str
    since: float


class Stopped(Struct):
    """The stopped work: a person's mission, a turn that the agent had begun by itself, or background work."""

    id: str
    kind: Literal["mission", "turn"] | WorkKind


SlowKind = Literal["turn", "queue", "model_call"]


class SlowWork(Struct):
    """Work that has lasted longer than a minute; `since` in Unix seconds.

    `turn` is the running turn, `queue` the message that has waited longest, `model_call` a model call without an
    answer.
    """

    kind: SlowKind
    since: float


class Paused(Struct):
    """The reason why the agent may not continue by itself: `why` in words, `since` in Unix seconds.

    `by` is the limit that was reached: turns, money, or the budget of the day or `month`. The person can raise the
    day's.
    """

    why: str
    by: Literal["turns", "cost", "budget", "month"]
    since: float


#: Whether a session has read untrusted content.
Label = Literal["clean", "exposed"]

#: The model's effort in thinking; null is the model's default.
Effort = Literal["low", "medium", "high", "xhigh", "max"]


class SessionState(Struct):
    """The current session; `session_id` is null until its first mission.

    `running_mission_id` is the running turn: a person's, or else one that the agent began by itself. `busy`: a turn
    runs or a mission waits. `background` is the work beside turns, oldest first; `held_until` (Unix seconds) is
    when it stops keeping a VM awake, null without such work. `slow` is the work that has lasted longer than a
    minute. While it is `paused`, the agent waits for the person. `model` is null until it is known; `effort` is the
    person's choice. `label` says whether the session has read untrusted content, `sources` from where: `web:HOST`,
    `network:HOST`, `tool:NAME`, `file:PATH`, `program:NAME`, `memory` or `paste`. `label_note` says what follows here,
    and `label_binds` whether the person is asked before words from outside act.
    """

    session_id: str | None
    started_at: float | None
    turns: int
    running_mission_id: str | None
    queued: int
    busy: bool = False
    background: list[BackgroundWork] = []
    held_until: float | None = None
    slow: list[SlowWork] = []
    paused: Paused | None = None
    model: str | None = None
    effort: Effort | None = None
    label: Label = "clean"
    sources: list[str] = []
    label_note: str = ""
    label_binds: bool = True


class FileState(Struct):
    """The size of a memory file in lines; `managed` says who writes it."""

    name: str
    lines: int
    limit: int
    managed: Literal["deploy", "curated"]
    updated_at: float | None


class QuarantinedTurn(Struct):
    """A turn that curation gave up on, because every model call about it failed; `at` in Unix seconds."""

    turn_id: int
    reason: str
    at: float


class MemoryState(Struct):
    """The number of learnings, of turns, and of turns that wait for curation.

    `quarantined` are the turns that curation gave up on, oldest first; a person can `retry` them. `drift` names the
    files that changed on disk while the agent worked and wait for the person. `unshipped_forgets` counts forgets
    that the bridge's replica has not confirmed.
    """

    files: list[FileState]
    learnings: int
    turns: int
    waiting: int
    spend_usd: float
    quarantined: list[QuarantinedTurn] = []
    drift: list[str] = []
    unshipped_forgets: int = 0


#: `superseded_by` of a learning that the person retired: nothing replaced it.
RETIRED = 0


class LearningRow(Struct):
    """A learning with its evidence; `superseded_by` is the id of the learning that replaced it.

    It is 0 if the person retired the learning. `project` is null for the person's own. `proposed` is the type that
    the learning gets if the person confirms it, null if it need not be confirmed.
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
    proposed: str | None = None

    @property
    def is_unverified(self) -> bool:
        """Return whether neither evidence nor the person has confirmed it."""
        return self.proposed is not None or self.origin == "none"


class RuleExample(Struct):
    """A past tool call that a rule would have stopped or asked about. `asked`: the person's message names such a call.

    Not `certain`: the log does not record everything that the rule depends on, such as the branch.
    """

    turn: int
    at: float
    tool: str
    input: dict[str, str]
    asked: bool
    certain: bool


class RuleRow(Struct):
    """A rule about tool calls; `status` is offered, active, dismissed or retired.

    `words` is the rule in one line, `turn` and `quote` its evidence. Of `checked` calls in the log it is about `stops`,
    of which the person had asked for `asked`. `instead_of` is the rule that it replaces once it is accepted. Since the
    rule last stopped a call for good, the person has overridden it `overrides` times; `last` is its newest event.
    `doubt` says why it may retire, or is empty.
    """

    id: int
    words: str
    action: Literal["stop", "ask"]
    reason: str
    turn: int | None
    quote: str
    instead_of: int | None
    examples: list[RuleExample]
    checked: int
    stops: int
    asked: int
    status: str
    accepted_at: float | None
    used_at: float | None
    uses: int
    overrides: int
    last: str
    doubt: str

    @property
    def past(self) -> str:
        """Return a text for people about what the rule would have done to the calls in the log."""
        would = "stopped" if self.action == "stop" else "asked about"
        had = f"; you had asked for {self.asked:,} of these" if self.asked else ""
        change = f"; it replaces rule {self.instead_of}" if self.instead_of is not None else ""
        return f"it would have {would} {self.stops:,} of {self.checked:,} past calls{had}{change}"


class ActionChange(Struct):
    """An entry of an action's history: time, author (curator, person, agent, schedule, sprite), and change."""

    at: float
    by: str
    what: str


class ActionRow(Struct):
    """An action: a to-do or reminder. `status` is open, done, dismissed or failed.

    `due` is when it fires next and `fired_at` when it last fired, in Unix seconds. `rrule` is its recurrence (RFC
    5545), computed in `tz`, an IANA zone. `origin` is its author: curator, person, agent, or schedule (the agent in
    a scheduled turn). `history` is oldest first. `version` grows with each change.
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
    """A file in a user's folder: `path` from the workspace, `size` in bytes, time in Unix seconds."""

    path: str
    size: int
    modified_at: float


class VersionRow(Struct):
    """A version of a memory file; `source` is curator or person."""

    version: int
    curation_id: int
    at: float
    lines: int
    source: str


class LoggedTurn(Struct):
    """A whole turn of the log. `tool_calls` of another program may be any JSON.

    It waits for curation unless it is `processed`, `quarantined` or `off_record` (the person asked not to remember
    it). `project` is null for the person's own. `source` is the program in which it was said, null for this sprite.
    If `trigger` is "program", the program `asked_by` wrote `user_message`.
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
    """A turn in a list: its texts are cut, and `tools` are the names of its calls."""

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


class MadeVersion(Struct):
    """A version of a file that a curation made."""

    name: str
    version: int


class TokenCount(Struct):
    """Tokens of one call to a model; null where they were not counted."""

    input: int | None
    output: int | None


class Rejected(Struct):
    """A refused part of a curation, with the reason."""

    kind: str
    detail: str


class CurationRow(Struct):
    """A change of memory: a batch of turns, an edit, a forget, a drift, or the begin or end of a quarantine (`kind`).

    `detail` is the subject if it is no batch. `active` is false if a later extraction has replaced it.
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


class Refusal(Struct):
    """A part of a curation that was refused: the curation's id, the kind of refusal, and the details."""

    curation_id: int
    kind: str
    detail: str


class Drifted(Struct):
    """A memory file whose change waits for the person: since when, and the curation that found it."""

    name: str
    at: float
    curation_id: int


class Cost(Struct, omit_defaults=False):
    """US dollars: `settled` as reported, `estimated` for calls that were cut off or that have no known price."""

    settled: float = 0.0
    estimated: float = 0.0


class Costs(Struct, omit_defaults=False):
    """The costs of the agent, of schedules and of memory."""

    agent: Cost
    schedules: Cost
    memory: Cost


class PlanLimit(Struct, omit_defaults=False):
    """A limit of a Claude plan: its name, the part that is used (0 to 1), and its reset in Unix seconds."""

    name: str
    used: float
    resets_at: float


class Spend(Struct, omit_defaults=False):
    """The costs of today (UTC), of this session and of the newest turn; null where nothing of them is known.

    `plan` lists the limits of the Claude plan that pays instead, as far as they are known.
    """

    today: Costs
    session: Costs
    turn: Cost | None = None
    plan: list[PlanLimit] | None = None


class Health(Struct):
    """The size, state and cost of memory; spend in US dollars, as far as prices are known."""

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
    refusals: list[Refusal]
    daily_cap_usd: float | None
    last_error: str | None
    quarantined: list[QuarantinedTurn]
    #: Problems that need a person, as text; empty if there are none.
    attention: list[str]
    drift: list[Drifted] = []
    spend: Spend | None = None


class Place(Struct, frozen=True):
    """A text that a forget found, and `where` in words: "user.md", "learning 4", "turn 7, the reply"."""

    where: str
    text: str


class Forgotten(Struct):
    """The texts that a forget removes: their numbers, and a list (`gone`) with `more` unlisted ones.

    `still` lists what a search of every store found afterwards; empty if all is removed. In a preview it lists what
    the forget would leave: deployed files, the person's own files, and learnings that say more.
    """

    by: str
    turns: list[int]
    learnings: int
    curations: int
    lines: int
    cards: int
    gone: list[Place] = []
    more: int = 0
    still: list[Place] = []


#: Work that takes longer is reported with its age.
SLOW_SECONDS = 60.0
_MINUTE, _HOUR = 60, 3600
_WORDS = {
    "turn": "a turn has been running for {}",
    "queue": "a message has been waiting for {}",
    "model_call": "a call of the model has had no answer for {}",
}


def slow(work: Iterable[SlowWork], now: float) -> list[SlowWork]:
    """Return the pieces of work that have lasted longer than SLOW_SECONDS."""
    return [each for each in work if now - each.since > SLOW_SECONDS]


def oldest(work: Iterable[SlowWork]) -> list[SlowWork]:
    """Return the oldest piece of work of each kind (turn, queue, model call), in a fixed order of kinds."""
    found: dict[str, SlowWork] = {}
    for each in sorted(work, key=lambda one: one.since):
        found.setdefault(each.kind, each)
    return [found[kind] for kind in _WORDS if kind in found]


def slow_words(work: Iterable[SlowWork], now: float) -> list[str]:
    """Return a sentence for people for each piece of slow work."""
    return [_WORDS[each.kind].format(age(now - each.since)) for each in work]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 turn`, `2 turns`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def age(seconds: float) -> str:
    """Return a duration as text: "75 s", "3 min", "2 h 5 min"."""
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole} s"
    if whole < 2 * _HOUR:
        return f"{whole // _MINUTE} min"
    hours, rest = divmod(whole, _HOUR)
    return f"{hours} h {rest // _MINUTE} min"


def named_action(rows: Iterable[ActionRow], words: str) -> ActionRow | str:
    """Return the action whose text is or contains these words, or a sentence about the candidates.

    If several actions have the same text, return the first.
    """
    wanted = " ".join(words.casefold().split())
    texts = [(" ".join(row.content.split()), row) for row in rows]
    found = [each for each in texts if each[0].casefold() == wanted]
    found = found or [each for each in texts if wanted in each[0].casefold()]
    if not found:
        return "No such action has these words."
    if len({text.casefold() for text, _ in found}) > 1:
        return f"Several have these words: {'; '.join(text for text, _ in found)}."
    return found[0][1]


class ChangedTool(Struct):
    """A tool of a connected MCP server that waits for the person's agreement.

    It is new (`before` is null), or its description has changed since they agreed to `before`. To agree, the client
    sends the `digest`, which covers everything that the server says about the tool.
    """

    name: str
    description: str
    before: str | None
    digest: str


class Connection(Struct):
    """A person's connection to an MCP server. `tools` are the names of those that the agent may use.

    `state`: `new` was not reached yet, `login` waits for the person to log in at the server. `detail` says what failed.
    `is_on`: the agent may use it where labels do not bind, too.
    """

    name: str
    kind: Literal["remote", "local"]
    address: str
    state: Literal["new", "ready", "login", "failed"]
    detail: str
    tools: list[str]
    changed: list[ChangedTool]
    pinned: list[str]
    is_on: bool
    calls_today: int
    daily: int
