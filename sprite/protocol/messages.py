"""Messages of protocol version 1 and their limits (pure). `frames.py` has the encoding."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from typing import Any, Literal, get_args

from msgspec import UNSET, UnsetType, field

from sprite.protocol import shapes
from sprite.protocol.events import AnyAgentEvent
from sprite.protocol.memory import AnyMemoryRequest, AnyMemoryResult
from sprite.protocol.observing import Observe, Observed
from sprite.protocol.replication import Lease, Ship, ShipAck, Shipped
from sprite.protocol.shapes import Payload

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


class CanvasInteraction(Payload, tag_field="action"):
    """A person's change of the canvas, without the agent."""


class NewBlock(Payload, omit_defaults=False):
    """A block that a person writes."""

    type: str
    data: dict[str, Any]


class CreateCard(CanvasInteraction, tag="create_card"):
    """A notes card of a person's, on the stack named or the one shown first."""

    title: str
    blocks: list[NewBlock]
    stack_id: str | None = None
    position: shapes.Point | None = None
    size: shapes.Size | None = None


class UpdateBlock(CanvasInteraction, tag="update_block"):
    """A person's new data for a block. `seen` is the version that was edited: with another one by now it is refused."""

    card_id: str
    block_id: str
    data: dict[str, Any]
    seen: int


class CreateStack(CanvasInteraction, tag="create_stack"):
    """A new, empty stack."""

    name: str


class RenameStack(CanvasInteraction, tag="rename_stack"):
    """Another name for a stack."""

    name: str
    stack_id: str


class ArchiveStack(CanvasInteraction, tag="archive_stack"):
    """Takes a stack off the canvas."""

    stack_id: str


class RestoreStack(CanvasInteraction, tag="restore_stack"):
    """Brings a stack back."""

    stack_id: str


class ArchiveCard(CanvasInteraction, tag="archive_card"):
    """Takes a card off the canvas."""

    card_id: str


class RestoreCard(CanvasInteraction, tag="restore_card"):
    """Brings a card back."""

    card_id: str


class MoveCard(CanvasInteraction, tag="move_card"):
    """Another place or size for a card; what is left out stays."""

    card_id: str
    position: shapes.Point | None = None
    size: shapes.Size | None = None


AnyCanvasInteraction = (
    CreateStack
    | RenameStack
    | ArchiveStack
    | RestoreStack
    | CreateCard
    | UpdateBlock
    | ArchiveCard
    | RestoreCard
    | MoveCard
)


# --- the agent's reach: hosts, the person's rules about them, and the folders that it may write ---


class Reach(Payload):
    """Asks what the agent may reach. `revoke` names a host whose rule is taken back first, with its connections."""

    revoke: str | None = None


class AllowedHost(Payload, omit_defaults=False):
    """A host that the person allowed: for the turn or session, or always. `message` began the turn that asked."""

    host: str
    until: Literal["turn", "session", "always"]
    at: float | None = None
    message: str | None = None


class ReachedHost(Payload, omit_defaults=False):
    """Connections to a host with the same decision; bytes as seen by the agent, `last_at` in Unix seconds.

    `decision` says why: the model's endpoint, a package registry, all hosts are open, the person's answer, or it was
    refused. `open` of them are open now. `message` began the turn of the last one.
    """

    host: str
    port: int
    decision: str
    connections: int
    open: int
    sent: int
    received: int
    last_at: float
    message: str | None


class ReachResult(Payload, omit_defaults=False):
    """The answer to `reach`. `sandbox` says what holds; `holds` is null until the agent's first start has tried it.

    `writable` are the folders that the agent may write. `mode` is that of SPRITE_EGRESS. `registries` are open in the
    modes `ask` and `packages`.
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
    """Where a client left off: the epoch it knew, and the last `seq` it saw."""

    epoch: str
    last_seq: int


class Auth(Payload):
    """The first frame of a connection; `lease` is that of the bridge that speaks, where several share the sprites."""

    token: str
    protocol: int = PROTOCOL_VERSION
    client: str = ""
    resume: Resume | None = None
    lease: Lease | None = None


class Image(Payload):
    """A picture: base64 `data` of a `media_type`, or the `path` of a file that was uploaded."""

    media_type: str = ""
    data: str | None = None
    path: str | None = None


class Mission(Payload):
    """A message to the agent; the envelope's `id` is its idempotency key.

    `asked_by` names the program whose words these are, where no person typed them: what it says is never taken for the
    person's word. Without it, a client speaks as the person, which only their own clients can. `pasted` lists the parts
    of `text` that the person pasted: spans of Unicode code points, half-open, sorted and disjoint. The model sees the
    `images` beside the text.
    """

    text: str
    stack_id: str | None = None
    asked_by: str | None = None
    pasted: list[tuple[int, int]] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)


class Heartbeat(Payload):
    """Looks at what is due; answered when that has ended, and so have the missions before it."""


class Interrupt(Payload):
    """Stops the named turn, or takes back the named mission that waits.

    Without a name it stops the running mission; where none runs, the turn that the agent began by itself and its
    background work.
    """

    mission_id: str | None = None


class FileUpload(Payload):
    """One chunk of a file, base64; chunks come in order of `index`, from 0."""

    upload_id: str
    name: str
    index: int
    last: bool
    data: str


def upload_chunks(name: str, data: bytes) -> Iterator[FileUpload]:
    """Yield the messages in order, at least one. The answer to the last contains the file's path."""
    upload_id = str(uuid.uuid4())
    last = max(0, (len(data) - 1) // UPLOAD_CHUNK_BYTES)
    for index in range(last + 1):
        chunk = data[index * UPLOAD_CHUNK_BYTES : (index + 1) * UPLOAD_CHUNK_BYTES]
        yield FileUpload(upload_id, name, index, index == last, base64.b64encode(chunk).decode())


#: An answer to a permission request. "session" is offered for hosts only.
Decision = Literal["allow", "deny", "session", "always"]


class Permission(Payload):
    """The person's word on a `permission_request`."""

    request_id: str
    decision: Decision


class System(Payload):
    """`status`, `new_session` (ends this one), `resume_session`, `flush` (curates what waits) and others.

    Answered when done. `check_model` sends one request that is not billed. `revoke` takes back what was allowed for
    good: the rule with this id, or (without one) all of them. `zone` says in which time zone the person is: `tz`, an
    IANA name. `go_on` is the person's word to a session that is paused; with `raise_limit` the bridge first raises what
    may be spent today by one daily budget. `model` chooses the model and the effort of this session; null is the
    default, and what is left out stays.
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


class Ping(Payload):
    """Keeps a path open; dropped silently."""


ClientPayload = (
    Auth
    | Mission
    | Heartbeat
    | Interrupt
    | AnyCanvasInteraction
    | FileUpload
    | AnyMemoryRequest
    | Permission
    | System
    | Reach
    | Observe
    | Ship
    | ShipAck
    | Ping
)


class ResumeFrom(Payload):
    """The first frame of a page or a terminal to the bridge, instead of `auth`: where it left off, if it was here."""

    epoch: str | None = None
    last_seq: int | None = None


#: A type, or the tagged union of several, by message name.
CLIENT_TYPES: dict[str, Any] = {
    "auth": Auth,
    "mission": Mission,
    "heartbeat": Heartbeat,
    "interrupt": Interrupt,
    "canvas_interaction": AnyCanvasInteraction,
    "file_upload": FileUpload,
    "memory": AnyMemoryRequest,
    "permission": Permission,
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


class AuthOk(Payload, omit_defaults=False):
    """Welcome; `limits` in bytes and characters."""

    protocol: int
    server_version: str
    epoch: str
    last_seq: int
    limits: dict[str, int]


class Ack(Payload):
    """Taken; which of the other fields are set depends on what is acknowledged."""

    status: Literal["accepted", "queued", "duplicate", "done"]
    position: int | None = None
    path: str | None = None
    upload_id: str | None = None
    index: int | None = None
    stack_id: str | None = None
    card_id: str | None = None
    mission_id: str | None = None
    stopped: list[shapes.Stopped] | None = None


class Error(Payload, omit_defaults=False):
    """The fault, in words that a person understands; `block` or `action` is what stands where a change came too late.

    `newest` is the newest lease's epoch, for a bridge that is refused since it has an older one.
    """

    code: str
    message: str
    block: shapes.Block | None = None
    newest: int | UnsetType = UNSET
    action: shapes.ActionRow | UnsetType = UNSET


class StateSync(Payload, omit_defaults=False):
    """Everything a client needs to draw itself.

    `permissions` are the questions that are open, `running` what the turn under way has shown so far, `queued` the
    ids of the missions that wait, in order, `model` the agent's (null until it is known). While a mission waits for the
    end of a turn that the agent began by itself, `running` is that turn; `session` names the mission.
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


class Gap(Payload, omit_defaults=False):
    """The events asked for are pruned: everything after `oldest_seq` is still there; a sync follows."""

    oldest_seq: int


class NextDue(Payload, omit_defaults=False):
    """The action that fires next; `at` in Unix seconds."""

    action_id: int
    at: float


class StandingRule(Payload, omit_defaults=False):
    """Rules that hold without a question until the session ends; `at` in Unix seconds.

    `words` are those of the question ("always allow this command"), `command` is the command, if it is about one.
    """

    rule_id: str
    words: str
    command: str
    at: float


class Status(Payload, omit_defaults=False):
    """The answer to a `system` message; `stopped` is what a `new_session` ended with the one before."""

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
    """The progress of a turn: its durable events (the newest, if they are many), then text still growing."""

    mission_id: str
    events: list[AnyAgentEvent]
    partial: str


class ActionUpdate(Payload, omit_defaults=False):
    """An action as it now is: made, changed, fired or closed, by whomever."""

    action: shapes.ActionRow


class ScheduleUpdate(Payload, omit_defaults=False):
    """When the sprite wants to be awake next; null where nothing is due."""

    next_due: NextDue | None


class SessionUpdate(Payload, omit_defaults=False):
    """The session as it now is, after background work began or ended, or it was paused or goes on."""

    session: shapes.SessionState


class ChatSaid(Payload, omit_defaults=False):
    """A mission was taken; `at` in Unix seconds. Its reply comes as agent events.

    A person's message, from whichever client, or (by `origin`) what a schedule asked for, or what a program did, which
    `asked_by` then names. `pasted` lists the parts of the text that the person pasted, as in `mission`.
    """

    mission_id: str
    role: Literal["user"]
    text: str
    at: float
    origin: shapes.Origin = "person"
    asked_by: str | None = None
    pasted: list[tuple[int, int]] = field(default_factory=list)


CanvasCommand = Literal["create_card", "update_card", "close_card"]


class CanvasUpdate(Payload):
    """A card as it now is; `close_card` says it left the canvas."""

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
        """Return the update that clients receive for a card."""
        return cls(
            command, card.card_id, card.stack_id, card.title, card.card_type, card.blocks, card.position, card.size
        )


class StackUpdate(Payload, omit_defaults=False):
    """A stack as it now is: made, renamed, archived or restored."""

    stack_id: str
    name: str
    archived: bool


class MemoryUpdate(Payload, omit_defaults=False):
    """Memory changed: the names of the files rewritten, the learnings added, by which curation.

    `drift` names every file that waits for the person's word, as in the state. `answered` are earlier learnings that
    the person confirmed or retired, as they now are.
    """

    files: list[str]
    learnings: list[shapes.LearningRow]
    curation_id: int
    drift: list[str] = field(default_factory=list)
    answered: list[shapes.LearningRow] = field(default_factory=list)


class PermissionRequest(Payload, omit_defaults=False):
    """A tool call that waits for a person's word.

    `mission_id` is the turn that made it. One of a `background` agent's, which that turn began, stays open when the
    turn ends, as long as anything goes on in the background. `input` is what runs, whole; `folder` is where, if that is
    not the workspace itself, and `real_path` where its `file_path` leads, if that is elsewhere. `always` says what
    "always" would allow; where it is null, "always" is this once. A question of the tool `network` is about the host in
    `input`: "allow" holds for the turn, `session` says what "session" would allow, and "always" holds until it is taken
    back. `redacted`: a copy that was kept of a question by now closed; its input may lack parts, and cannot be allowed.
    `tool_use_id` is the call that waits.
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


class PermissionResolved(Payload, omit_defaults=False):
    """A question is not open any more; `decision` is null if no answer came in time."""

    request_id: str
    decision: Decision | None


ServerPayload = (
    AuthOk
    | Ack
    | Error
    | StateSync
    | Gap
    | Status
    | AnyAgentEvent
    | CanvasUpdate
    | MemoryUpdate
    | AnyMemoryResult
    | PermissionRequest
    | PermissionResolved
    | ChatSaid
    | StackUpdate
    | SessionUpdate
    | ActionUpdate
    | ScheduleUpdate
    | ReachResult
    | Observed
    | Shipped
)

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
    "memory_result": AnyMemoryResult,
    "permission_request": PermissionRequest,
    "permission_resolved": PermissionResolved,
    "chat_said": ChatSaid,
    "stack_update": StackUpdate,
    "session_update": SessionUpdate,
    "action_update": ActionUpdate,
    "schedule_update": ScheduleUpdate,
    "reach_result": ReachResult,
    "observed": Observed,
    "shipped": Shipped,
}


class LinkState(Payload, omit_defaults=False):
    """From the bridge to its pages and terminals: how its link to the sprite is, with words where they help.

    `offer`: what the person may ask the bridge for; `as_of` is when what it keeps was so. `restore`: the machine of the
    agent is gone. `choose`: the agent has less than what is kept, or another log; which of the two goes on is to be
    decided.
    """

    state: Literal["connecting", "waking", "ready", "updating", "unavailable"]
    detail: str
    offer: Literal["restore", "choose"] | None = None
    as_of: float | None = None


#: Messages that the bridge sends to pages and terminals.
RELAYED_TYPES: dict[str, Any] = {
    **{name: payload for name, payload in SERVER_TYPES.items() if name not in _OF_BRIDGES},
    "link": LinkState,
}
TYPE_NAMES: dict[type[Any], str] = {
    member: name
    for types in (CLIENT_TYPES, SERVER_TYPES, VISITOR_TYPES, RELAYED_TYPES)
    for name, payload in types.items()
    for member in get_args(payload) or (payload,)
}
