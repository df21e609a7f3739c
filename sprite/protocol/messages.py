"""Messages of protocol version 1 and their limits (pure). `frames.py` has the encoding."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from typing import Any, Literal, get_args

from msgspec import UNSET, UnsetType, field

from sprite.protocol import shapes
from sprite.protocol.events import AnyAgentEvent
from sprite.protocol.memory import MemoryRequest, MemoryResult
from sprite.protocol.observing import Observe, Observed
from sprite.protocol.replication import Lease, Ship, ShipAck, Shipped
from sprite.protocol.shapes import Payload, union_of

ClientPayload = shapes.ClientPayload
ServerPayload = shapes.ServerPayload
RelayedPayload = shapes.RelayedPayload
PROTOCOL_VERSION = 1

#: A message from a hostile peer must fit many times into the memory of a small VM.
MAX_FRAME_BYTES = 1024 * 1024
#: Client name that only requests replication of the log.
STORE = "store"
#: Client name that only requests the status: it receives no events, and no agent is prewarmed for it.
PROBE = "probe"
#: An unauthenticated peer gets little memory.
MAX_AUTH_FRAME_BYTES = 64 * 1024
AUTH_TIMEOUT_SECONDS = 5.0
#: A mission is a person's message, possibly with a pasted document.
MAX_MISSION_CHARS = 200_000
#: The name of an asking program is shown beside its message.
MAX_ASKED_BY_CHARS = 40
#: base64 of this many bytes fits a frame with room for its envelope.
UPLOAD_CHUNK_BYTES = 512 * 1024
MAX_UPLOAD_BYTES = 100 * 1024 * 1024
#: Limits of the API for one request: pictures, and the bytes of each, which are a third longer as base64.
MOST_PICTURES, MAX_PICTURE_BYTES = 20, 5 * 1024 * 1024 * 3 // 4
#: Limit for all pictures of a message; the API takes 32 MB a request.
MAX_PICTURES_BYTES = 15 * 1024 * 1024
#: The newest chat messages in `state_sync`.
CHAT_LIMIT = 200
#: Limit for a chat line; the turn in memory has the whole text.
CHAT_TEXT_CHARS = 20_000


# --- a person's changes to the canvas -----------------------------------------------------------


class CanvasInteraction(ClientPayload, tag_field="action"):
    """A person's own change of the canvas, made without the agent; one type for each `action`."""


class NewBlock(Payload, omit_defaults=False):
    """A block of a new card."""

    type: str
    data: dict[str, Any]


class CreateCard(CanvasInteraction, tag="create_card"):
    """Creates a note card on the given stack, by default on the visible one."""

    title: str
    blocks: list[NewBlock]
    stack_id: str | None = None
    position: shapes.Point | None = None
    size: shapes.Size | None = None


class UpdateBlock(CanvasInteraction, tag="update_block"):
    """Replaces a block's data. `seen` is the version that the person edited; refused if there is a newer one."""

    card_id: str
    block_id: str
    data: dict[str, Any]
    seen: int


class CreateStack(CanvasInteraction, tag="create_stack"):
    """Creates an empty stack."""

    name: str


class RenameStack(CanvasInteraction, tag="rename_stack"):
    """Renames a stack."""

    name: str
    stack_id: str


class ArchiveStack(CanvasInteraction, tag="archive_stack"):
    """Removes a stack from the canvas; it can be restored."""

    stack_id: str


class RestoreStack(CanvasInteraction, tag="restore_stack"):
    """Restores an archived stack."""

    stack_id: str


class ArchiveCard(CanvasInteraction, tag="archive_card"):
    """Removes a card from the canvas; it can be restored."""

    card_id: str


class RestoreCard(CanvasInteraction, tag="restore_card"):
    """Restores an archived card."""

    card_id: str


class MoveCard(CanvasInteraction, tag="move_card"):
    """Moves or resizes a card; missing fields stay."""

    card_id: str
    position: shapes.Point | None = None
    size: shapes.Size | None = None


# --- the agent's reach: hosts, the person's rules about them, and the folders that it may write ---


class Reach(ClientPayload):
    """Asks which hosts the agent may reach. `revoke` first removes the rule for a host and ends its connections."""

    revoke: str | None = None


class AllowedHost(Payload, omit_defaults=False):
    """A host that the person allowed `until` the end of the turn or session, or always; `at` is in Unix seconds.

    `message` is the beginning of the message whose turn asked for the host.
    """

    host: str
    until: Literal["turn", "session", "always"]
    at: float | None = None
    message: str | None = None


class ReachedHost(Payload, omit_defaults=False):
    """Connections to a host with the same decision; bytes as the agent sees them, `last_at` in Unix seconds.

    `decision` is why they were allowed (the model's endpoint, a package registry, open egress, the person's answer)
    or that they were refused. `message` is the beginning of the message whose turn made the last one. `open` is the
    number of open connections, which only a running sprite knows.
    """

    host: str
    port: int
    decision: str
    connections: int
    sent: int
    received: int
    last_at: float
    message: str | None
    open: int | UnsetType = UNSET


class ReachResult(ServerPayload, omit_defaults=False):
    """The answer to `reach`. `sandbox` names its protections; `holds` is null until the first start has tested them.

    `writable` are the folders that the agent may write. `mode` is the value of SPRITE_EGRESS. `registries` are
    allowed in the modes `ask` and `packages`.
    """

    mode: Literal["ask", "packages", "open", "bridge"]
    holds: bool | None
    sandbox: str
    writable: list[str]
    allowed: list[AllowedHost]
    hosts: list[ReachedHost]
    registries: list[str]


# --- client -> server -------------------------------------------------------------------------


class Resume(Payload):
    """The position of a client that reconnects: its epoch and the last `seq` that it received."""

    epoch: str
    last_seq: int


class Auth(ClientPayload):
    """The first frame of a connection. `lease` is the bridge's lease if several bridges share the sprites."""

    token: str
    protocol: int = PROTOCOL_VERSION
    client: str = ""
    resume: Resume | None = None
    lease: Lease | None = None


class Image(Payload):
    """A picture: base64 `data` of a `media_type`, or the `path` of an uploaded file."""

    media_type: str = ""
    data: str | None = None
    path: str | None = None


class Mission(ClientPayload):
    """A message to the agent. The envelope's `id` is its idempotency key.

    `asked_by` names the program that wrote it; such words never count as the person's. Only a person's own client
    may leave it out. `pasted` lists the parts of `text` that the person pasted: half-open, sorted, disjoint spans
    of Unicode code points. The model gets the `images` with the text.
    """

    text: str
    stack_id: str | None = None
    asked_by: str | None = None
    pasted: list[tuple[int, int]] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)


class Heartbeat(ClientPayload):
    """Asks the sprite to run the actions that are due. It answers once these and all earlier missions have ended."""


class Interrupt(ClientPayload):
    """Stops the named turn, or removes the named mission from the queue.

    Without a name, stops the running mission; if none runs, the agent's own turn and its background work.
    """

    mission_id: str | None = None


class FileUpload(ClientPayload):
    """A chunk of a file in base64. Chunks come in order of `index`, from 0."""

    upload_id: str
    name: str
    index: int
    last: bool
    data: str


def upload_chunks(name: str, data: bytes) -> Iterator[FileUpload]:
    """Yield the `file_upload` messages for a file's bytes, in order, at least one.

    The answer to the last one contains the path of the stored file.
    """
    upload_id = str(uuid.uuid4())
    last = max(0, (len(data) - 1) // UPLOAD_CHUNK_BYTES)
    for index in range(last + 1):
        chunk = data[index * UPLOAD_CHUNK_BYTES : (index + 1) * UPLOAD_CHUNK_BYTES]
        yield FileUpload(upload_id, name, index, index == last, base64.b64encode(chunk).decode())


#: An answer to a permission request. "session" is offered for hosts only.
Decision = Literal["allow", "deny", "session", "always"]


class Permission(ClientPayload):
    """The person's answer to the open `permission_request` with this id."""

    request_id: str
    decision: Decision


class System(ClientPayload):
    """A command: `status`, `new_session`, `resume_session`, `flush` (curate the waiting turns) and others.

    The answer follows once it is done. `check_model` sends a request that is not billed. `revoke` removes the
    permission rule with this id, or all rules. `zone` sets the person's time zone `tz` (an IANA name). `go_on`
    continues a paused session; with `raise_limit`, the bridge first adds one daily budget to today's limit. `model`
    sets the session's model and effort; null means the default, and missing fields stay.
    """

    action: Literal[
        "status", "new_session", "resume_session", "flush", "check_model", "revoke", "zone", "go_on", "model"
    ]
    session_id: str | None = None
    rule_id: str | None = None
    tz: str | None = None
    raise_limit: bool = False
    model: str | UnsetType | None = UNSET
    effort: shapes.Effort | UnsetType | None = UNSET


#: A person's word on a rule that there is, and what became of a call that a rule is about.
RuleWord = Literal["accept", "dismiss", "retire", "override"]
RuleOutcome = Literal["stopped", "allowed", "denied", "passed"]


class Rule(ClientPayload):
    """The person's word on a rule about tool calls: never sent for a program.

    `override` lets the call that the rule stopped last run once. `propose` has a new rule in one line as `text`, to be
    accepted like one of the curator's; with an `id`, it changes that rule.
    """

    action: RuleWord | Literal["propose"]
    id: int | None = None
    text: str = ""


class Ping(ClientPayload):
    """Keeps a network path open. It has no answer."""


class ResumeFrom(Payload):
    """The first frame of a page or terminal to the bridge, instead of `auth`; with its position if it reconnects."""

    epoch: str | None = None
    last_seq: int | None = None


#: A type, or the tagged union of several, by message name.
CLIENT_TYPES: dict[str, Any] = {
    "auth": Auth,
    "mission": Mission,
    "heartbeat": Heartbeat,
    "interrupt": Interrupt,
    "canvas_interaction": union_of(CanvasInteraction),
    "file_upload": FileUpload,
    "memory": union_of(MemoryRequest),
    "permission": Permission,
    "rule": Rule,
    "system": System,
    "reach": Reach,
    "observe": Observe,
    "ship": Ship,
    "ship_ack": ShipAck,
    "ping": Ping,
}
#: Messages only between a bridge and its sprite.
_OF_BRIDGES = {"auth", "ship", "ship_ack", "shipped"}
#: Messages that pages and terminals may send to the bridge.
VISITOR_TYPES: dict[str, Any] = {
    "resume": ResumeFrom,
    **{name: payload for name, payload in CLIENT_TYPES.items() if name not in _OF_BRIDGES},
}


# --- server -> client -------------------------------------------------------------------------


class AuthOk(ServerPayload, omit_defaults=False):
    """Accepts a connection; `limits` are in bytes and characters."""

    protocol: int
    server_version: str
    epoch: str
    last_seq: int
    limits: dict[str, int]


class Ack(ServerPayload):
    """Confirms a message of the client; the type of that message decides which other fields are set."""

    status: Literal["accepted", "queued", "duplicate", "done"]
    position: int | None = None
    path: str | None = None
    upload_id: str | None = None
    index: int | None = None
    stack_id: str | None = None
    card_id: str | None = None
    mission_id: str | None = None
    stopped: list[shapes.Stopped] | None = None


class Error(ServerPayload, omit_defaults=False):
    """A fault in words for people. After a conflict, `block` or `action` is the current version.

    `newest` is the epoch of the newest lease, for a bridge that is refused because its lease is older.
    """

    code: str
    message: str
    block: shapes.Block | None = None
    newest: int | UnsetType = UNSET
    action: shapes.ActionRow | UnsetType = UNSET


class StateSync(ServerPayload, omit_defaults=False):
    """The whole state that a client needs to draw itself.

    `permissions` are the open questions. `running` is what the current turn has shown so far. `queued` are the ids
    of the waiting missions, in order. `model` is null until it is known. If a mission waits for a turn that the
    agent began by itself, `running` is that turn, and `session` names the mission.
    """

    stacks: list[shapes.Stack]
    cards: list[shapes.Card]
    chat: list[shapes.ChatMessage]
    session: shapes.SessionState
    memory: shapes.MemoryState
    permissions: list[PermissionRequest]
    running: Running | None
    queued: list[str]
    model: str | None
    next_due: NextDue | None = None
    tz: str = "UTC"


class Gap(ServerPayload, omit_defaults=False):
    """The sprite has deleted events that the client asked to replay; those from `oldest_seq` on remain.

    A `state_sync` follows.
    """

    oldest_seq: int


class NextDue(Payload, omit_defaults=False):
    """The next action to fire; `at` in Unix seconds."""

    action_id: int
    at: float


class StandingRule(Payload, omit_defaults=False):
    """A permission that holds without a question until the session ends; `at` in Unix seconds.

    `words` are those of the question ("always allow this command"); `command` is set if it is about a command.
    """

    rule_id: str
    words: str
    command: str
    at: float


class Status(ServerPayload, omit_defaults=False):
    """The answer to a `system` message. `stopped` is what `new_session` stopped in the previous session."""

    action: str
    session: shapes.SessionState
    memory: shapes.MemoryState
    last_error: str | None
    permissions: str
    model: str | None
    #: The answer to `check_model`: whether the model answers, and what was found in words.
    model_answers: bool | None = None
    model_words: str | None = None
    stopped: list[shapes.Stopped] | None = None
    rules: list[StandingRule] = field(default_factory=list)
    next_due: NextDue | None = None
    tz: str = "UTC"
    spend: shapes.Spend | None = None
    #: Models to choose from; others can be named.
    models: list[str] = field(default_factory=list)


class Running(Payload, omit_defaults=False):
    """The progress of a turn: its durable events (the newest ones if they are many), then its unfinished text."""

    mission_id: str
    events: list[AnyAgentEvent]
    partial: str


class ActionUpdate(ServerPayload, omit_defaults=False):
    """The current state of an action that was created, changed, fired or closed."""

    action: shapes.ActionRow


class ScheduleUpdate(ServerPayload, omit_defaults=False):
    """The next time at which the sprite must be awake; null if nothing is due."""

    next_due: NextDue | None


class SessionUpdate(ServerPayload, omit_defaults=False):
    """The current session changed: background work began or ended, or its pause or model changed."""

    session: shapes.SessionState


class ChatSaid(ServerPayload, omit_defaults=False):
    """The sprite accepted a mission: its text for the chat; `at` in Unix seconds. The agent's reply follows as events.

    `origin` says whether a person, a schedule or a program sent it; `asked_by` names the program. `pasted` lists
    the parts of the text that the person pasted, as in `mission`.
    """

    mission_id: str
    role: Literal["user"]
    text: str
    at: float
    origin: shapes.Origin = "person"
    asked_by: str | None = None
    pasted: list[tuple[int, int]] = field(default_factory=list)


CanvasCommand = Literal["create_card", "update_card", "close_card"]


class CanvasUpdate(ServerPayload):
    """A card was drawn or changed; `close_card` means that it left the canvas."""

    command: CanvasCommand
    card_id: str
    stack_id: str
    title: str
    card_type: str
    blocks: list[shapes.Block]
    position: shapes.Point | None = None
    size: shapes.Size | None = None

    @classmethod
    def of(cls, command: CanvasCommand, card: shapes.Card) -> CanvasUpdate:
        """Return the update that clients receive for a card after a canvas command."""
        return cls(
            command, card.card_id, card.stack_id, card.title, card.card_type, card.blocks, card.position, card.size
        )


class StackUpdate(ServerPayload, omit_defaults=False):
    """A stack was created, renamed, archived or restored."""

    stack_id: str
    name: str
    archived: bool


class MemoryUpdate(ServerPayload, omit_defaults=False):
    """Memory changed: the names of the changed files, the new learnings, and the curation that made them.

    `drift` names every file whose drift waits for the person. `answered` are earlier learnings that the person
    confirmed or retired.
    """

    files: list[str]
    learnings: list[shapes.LearningRow]
    curation_id: int
    drift: list[str] = field(default_factory=list)
    answered: list[shapes.LearningRow] = field(default_factory=list)


class ForeignSpan(Payload, omit_defaults=False):
    """Words of a question's input that come from untrusted content, by code points from `start` to `end`.

    `field` is the path of the text in the input, such as `command` or `arguments.to.0`. `source` is one of the
    session's sources, or `unknown` for an address or a number that nobody gave.
    """

    field: str
    start: int
    end: int
    source: str


class PermissionRequest(ServerPayload, omit_defaults=False):
    """A tool call that waits for a person's answer.

    `mission_id` is the turn that made the call. The question of a `background` agent stays open after its turn,
    until the background work ends. `input` is the whole input of the call. `folder` is set if it runs outside the
    workspace; `real_path` is set if its `file_path` leads elsewhere. `always` describes what "always" would allow;
    if it is null, "always" means once. For the tool `network`, the host is in `input`: "allow" holds for the turn,
    `session` describes what "session" would allow, and "always" holds until it is revoked. `redacted` marks the
    stored copy of a closed question: parts of its input may be missing, and it cannot be allowed. `tool_use_id` is
    the waiting call. `exposed`: the session has read untrusted content, and earlier rules do not apply; `foreign`
    are the words of the input that come from there. `rule` names the person's rule that asks.
    """

    request_id: str
    mission_id: str | None
    tool: str
    input: dict[str, Any]
    background: bool = False
    folder: str | None = None
    real_path: str | None = None
    always: str | None = None
    session: str | None = None
    redacted: bool = False
    tool_use_id: str | None = None
    kind: Literal["tool", "host", "connection", "rule"] = "tool"
    exposed: bool = False
    foreign: list[ForeignSpan] = field(default_factory=list)
    rule: str | None = None


class RuleOffered(ServerPayload, omit_defaults=False):
    """A rule was offered to the person, or its status changed."""

    rule: shapes.RuleRow


class RuleApplied(ServerPayload, omit_defaults=False):
    """A rule applied to a call: `said` is the text for the agent, and `did` the outcome.

    `passed`: the person had let the call run once. `allowed` and `denied` are their answers to a rule that asks.
    """

    rule_id: int
    mission_id: str | None
    did: RuleOutcome
    said: str


class PermissionResolved(ServerPayload, omit_defaults=False):
    """A question was closed; `decision` is null if no answer came in time."""

    request_id: str
    decision: Decision | None


SERVER_TYPES: dict[str, Any] = {
    "auth_ok": AuthOk,
    "ack": Ack,
    "error": Error,
    "state_sync": StateSync,
    "gap": Gap,
    "status": Status,
    "agent_event": AnyAgentEvent,
    "canvas_update": CanvasUpdate,
    "memory_update": MemoryUpdate,
    "memory_result": union_of(MemoryResult),
    "permission_request": PermissionRequest,
    "permission_resolved": PermissionResolved,
    "rule_offered": RuleOffered,
    "rule_applied": RuleApplied,
    "chat_said": ChatSaid,
    "stack_update": StackUpdate,
    "session_update": SessionUpdate,
    "action_update": ActionUpdate,
    "schedule_update": ScheduleUpdate,
    "reach_result": ReachResult,
    "observed": Observed,
    "shipped": Shipped,
}


class LinkState(RelayedPayload, omit_defaults=False):
    """The state of the bridge's connection to the sprite, for pages and terminals, with words if they help.

    `offer` is what the person may ask of the bridge; `as_of` is the time of the replica. `restore`: the agent's
    machine is gone. `choose`: the agent has less data than the replica, or another log, and the person decides
    which one to use.
    """

    state: Literal["connecting", "waking", "ready", "updating", "unavailable"]
    detail: str
    offer: Literal["restore", "choose"] | None = None
    as_of: float | None = None


class ConnectionUpdate(RelayedPayload, omit_defaults=False):
    """From the bridge to its pages and terminals: the person's connections as they now are."""

    connections: list[shapes.Connection]


#: Messages that the bridge sends to pages and terminals.
RELAYED_TYPES: dict[str, Any] = {
    **{name: payload for name, payload in SERVER_TYPES.items() if name not in _OF_BRIDGES},
    "link": LinkState,
    "connection_update": ConnectionUpdate,
}
TYPE_NAMES: dict[type[Any], str] = {
    member: name
    for types in (CLIENT_TYPES, SERVER_TYPES, VISITOR_TYPES, RELAYED_TYPES)
    for name, payload in types.items()
    for member in get_args(payload) or (payload,)
}
