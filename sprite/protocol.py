"""Wire messages of protocol version 1: what travels, its limits, and the bytes it travels as.

Owns the shapes and the framing; knows no sockets, no asyncio and no storage (feed bytes, get messages).
The bridge imports this module and nothing else of the sprite. `json_schema()` is generated from it.

A frame is one JSON object on one line: `{"type", "id", "timestamp", "payload"}`, with `seq` on durable
events and `reply_to` on answers. `timestamp` is Unix time in milliseconds, `id` a UUID of the sender's.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, Literal, NoReturn, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from sprite.errors import FatalPeerError as FatalPeerError
from sprite.errors import PeerError as PeerError

PROTOCOL_VERSION = 1
_T = TypeVar("_T")

#: One message must fit in memory many times over, on a small VM, for a hostile peer.
MAX_FRAME_BYTES = 1024 * 1024
#: Nobody is authenticated yet, so little is believed.
MAX_AUTH_FRAME_BYTES = 64 * 1024
AUTH_TIMEOUT_SECONDS = 5.0
#: A mission is a message of a person's, possibly with a pasted document.
MAX_MISSION_CHARS = 200_000
#: base64 of this many bytes fits a frame with room for its envelope.
UPLOAD_CHUNK_BYTES = 512 * 1024
MAX_UPLOAD_BYTES = 100 * 1024 * 1024
#: The newest chat messages a client gets in `state_sync`.
CHAT_LIMIT = 200
#: A single chat line is shown whole up to here; the turn in memory has all of it.
CHAT_TEXT_CHARS = 20_000


class Payload(Struct, omit_defaults=True):
    """What every payload has in common: unknown fields are ignored, unset ones are not sent."""


# --- client -> server -------------------------------------------------------------------------


class Resume(Payload):
    """Where a client left off: the epoch it knew, and the last `seq` it saw."""

    epoch: str
    last_seq: int


class Auth(Payload):
    """The first frame of a connection."""

    token: str
    protocol: int = PROTOCOL_VERSION
    client: str = ""
    resume: Resume | None = None


class Mission(Payload):
    """A person's message to the agent; the envelope's `id` is its idempotency key."""

    text: str
    stack_id: str | None = None


class Heartbeat(Payload):
    """Answered in its turn, after the missions before it."""


class Interrupt(Payload):
    """Stops the running mission (if it is the named one, where one is named)."""

    mission_id: str | None = None


class Point(Payload, omit_defaults=False):
    """A place on the canvas, in pixels from its top left."""

    x: float
    y: float


class Size(Payload, omit_defaults=False):
    """A card's size in pixels."""

    width: float
    height: float


CanvasAction = Literal[
    "create_stack",
    "rename_stack",
    "archive_stack",
    "restore_stack",
    "archive_card",
    "restore_card",
    "move_card",
]


class CanvasInteraction(Payload):
    """What a person does to the canvas, without the agent."""

    action: CanvasAction
    name: str | None = None
    stack_id: str | None = None
    card_id: str | None = None
    position: Point | None = None
    size: Size | None = None


class FileUpload(Payload):
    """One chunk of a file, base64; chunks come in order of `index`, from 0."""

    upload_id: str
    name: str
    index: int
    last: bool
    data: str


MemoryOp = Literal[
    "files",
    "file",
    "history",
    "search",
    "learnings",
    "turn",
    "actions",
    "edit",
    "resolve_action",
    "forget",
    "curations",
    "observations",
    "chat",
    "health",
]


class MemoryRequest(Payload):
    """A look into memory, or a person's change to it."""

    op: MemoryOp
    name: str | None = None
    query: str | None = None
    after: int | None = None
    limit: int | None = None
    #: Newest first, below an id where one is given: `curations`, `observations` and `chat` always, `learnings` when
    #: this or `newest` is set. Pages end with an empty one.
    before: int | None = None
    newest: bool = False
    id: int | None = None
    content: str | None = None
    status: str | None = None
    #: Of `file`: which one to show. Of `edit`: the one that was edited; another one by now is a `conflict`.
    version: int | None = None
    #: To forget: exactly one of text, turn, session and learning; `preview` only says what would go.
    text: str | None = None
    turn: int | None = None
    session: str | None = None
    learning: int | None = None
    preview: bool = False
    yes: bool = False


class Permission(Payload):
    """The person's word on a `permission_request`."""

    request_id: str
    decision: Literal["allow", "deny", "always"]


class System(Payload):
    """`status`, `new_session` (ends this one), `flush` (curates what waits); answered when done."""

    action: Literal["status", "new_session", "flush"]


class Ping(Payload):
    """Keeps a path open; dropped silently."""


ClientPayload = (
    Auth | Mission | Heartbeat | Interrupt | CanvasInteraction | FileUpload | MemoryRequest | Permission | System | Ping
)


class ResumeFrom(Payload):
    """The first frame of a page or a terminal to the bridge, instead of `auth`: where it left off, if it was here."""

    epoch: str | None = None
    last_seq: int | None = None


CLIENT_TYPES: dict[str, type[ClientPayload]] = {
    "auth": Auth,
    "mission": Mission,
    "heartbeat": Heartbeat,
    "interrupt": Interrupt,
    "canvas_interaction": CanvasInteraction,
    "file_upload": FileUpload,
    "memory": MemoryRequest,
    "permission": Permission,
    "system": System,
    "ping": Ping,
}
#: What pages and terminals may send to the bridge.
VISITOR_TYPES: dict[str, type[ClientPayload | ResumeFrom]] = {
    "resume": ResumeFrom,
    **{name: payload for name, payload in CLIENT_TYPES.items() if name != "auth"},
}


# --- shapes -----------------------------------------------------------------------------------


class Block(Struct):
    """One piece of a card."""

    id: str
    type: str
    data: dict[str, Any]


class Stack(Struct):
    """A tab of the canvas."""

    stack_id: str
    name: str
    archived: bool = False


class Card(Struct):
    """A card on a stack."""

    card_id: str
    stack_id: str
    title: str
    card_type: str
    position: Point | None
    size: Size | None
    blocks: list[Block]
    archived: bool = False


class ChatMessage(Struct):
    """One line of the conversation as people see it; `at` in Unix seconds."""

    id: int
    role: Literal["user", "assistant", "error"]
    text: str
    at: float
    mission_id: str | None


class SessionState(Struct):
    """The conversation under way; `session_id` is null until its first mission."""

    session_id: str | None
    started_at: float | None
    turns: int
    running_mission_id: str | None
    queued: int


class FileState(Struct):
    """A memory file in lines; `managed` says who writes it."""

    name: str
    lines: int
    limit: int
    managed: Literal["deploy", "curated"]
    updated_at: float | None


class MemoryState(Struct):
    """Memory in numbers: how many learnings and turns there are, how many turns wait to be curated."""

    files: list[FileState]
    learnings: int
    turns: int
    waiting: int
    spend_usd: float


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


class Error(Payload, omit_defaults=False):
    """What went wrong, in words a person understands."""

    code: str
    message: str


class StateSync(Payload, omit_defaults=False):
    """Everything a client needs to draw itself.

    `permissions` are the questions that are open, `running` what the mission under way has shown so far, `queued` the
    ids of the missions that wait, in order, `model` the agent's (null until it is known).
    """

    stacks: list[Stack]
    cards: list[Card]
    chat: list[ChatMessage]
    session: SessionState
    memory: MemoryState
    permissions: list[PermissionRequest] = []
    running: Running | None = None
    queued: list[str] = []
    model: str | None = None


class Gap(Payload, omit_defaults=False):
    """The events asked for are pruned: everything after `oldest_seq` is still there; a sync follows."""

    oldest_seq: int


class Status(Payload, omit_defaults=False):
    """The answer to a `system` message."""

    action: str
    session: SessionState
    memory: MemoryState
    last_error: str | None
    permissions: str
    model: str | None


class AgentEvent(Payload):
    """Something the agent did, in a mission (or, where `mission_id` is null, by itself).

    Which fields are set depends on `event`; see the wire protocol. `usage` is the vendor's, in tokens.
    """

    mission_id: str | None
    event: Literal[
        "started",
        "text_delta",
        "text",
        "tool_use",
        "tool_result",
        "compacting",
        "compacted",
        "complete",
        "interrupted",
        "error",
    ]
    text: str | UnsetType = UNSET
    tool_use_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    input: dict[str, Any] | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    usage: dict[str, Any] | UnsetType | None = UNSET
    cost_usd: float | UnsetType | None = UNSET
    duration_ms: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    retryable: bool | UnsetType = UNSET


class Running(Payload, omit_defaults=False):
    """What a mission has shown so far: its durable events (the newest, if they are many), then text still growing."""

    mission_id: str
    events: list[AgentEvent]
    partial: str


class ChatSaid(Payload, omit_defaults=False):
    """A person's message was taken, from whichever client; `at` in Unix seconds. Its reply comes as agent events."""

    mission_id: str
    role: Literal["user"]
    text: str
    at: float


CanvasCommand = Literal["create_card", "update_card", "close_card"]


class CanvasUpdate(Payload):
    """A card as it now is; `close_card` says it left the canvas."""

    command: CanvasCommand
    card_id: str
    stack_id: str
    title: str
    card_type: str
    blocks: list[Block]
    position: Point | None = None
    size: Size | None = None

    @classmethod
    def of(cls, command: CanvasCommand, card: Card) -> CanvasUpdate:
        """What clients are told of a card."""
        return cls(
            command=command,
            card_id=card.card_id,
            stack_id=card.stack_id,
            title=card.title,
            card_type=card.card_type,
            blocks=card.blocks,
            position=card.position,
            size=card.size,
        )


class StackUpdate(Payload, omit_defaults=False):
    """A stack as it now is: made, renamed, archived or restored."""

    stack_id: str
    name: str
    archived: bool


class MemoryUpdate(Payload, omit_defaults=False):
    """Memory changed: the names of the files rewritten, the learnings added, by which curation."""

    files: list[str]
    learnings: list[dict[str, Any]]
    curation_id: int


class MemoryResult(Payload):
    """The answer to a `memory` message; `op` is the request's, and says which fields are set."""

    op: str
    files: list[FileState] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    version: int | UnsetType = UNSET
    history: list[dict[str, Any]] | UnsetType = UNSET
    hits: list[dict[str, Any]] | UnsetType = UNSET
    indexed_through: int | UnsetType = UNSET
    waiting: int | UnsetType = UNSET
    learnings: list[dict[str, Any]] | UnsetType = UNSET
    actions: list[dict[str, Any]] | UnsetType = UNSET
    turn: dict[str, Any] | UnsetType = UNSET
    curations: list[dict[str, Any]] | UnsetType = UNSET
    observations: list[dict[str, Any]] | UnsetType = UNSET
    chat: list[ChatMessage] | UnsetType = UNSET
    health: dict[str, Any] | UnsetType = UNSET
    curation_id: int | UnsetType = UNSET
    forgotten: dict[str, Any] | UnsetType = UNSET
    done: bool | UnsetType = UNSET


class PermissionRequest(Payload, omit_defaults=False):
    """A tool call that waits for a person's word."""

    request_id: str
    mission_id: str | None
    tool: str
    input: dict[str, Any]


class PermissionResolved(Payload, omit_defaults=False):
    """A question is not open any more; `decision` is null where nobody answered in time."""

    request_id: str
    decision: Literal["allow", "deny", "always"] | None


ServerPayload = (
    AuthOk
    | Ack
    | Error
    | StateSync
    | Gap
    | Status
    | AgentEvent
    | CanvasUpdate
    | MemoryUpdate
    | MemoryResult
    | PermissionRequest
    | PermissionResolved
    | ChatSaid
    | StackUpdate
)

SERVER_TYPES: dict[str, type[ServerPayload]] = {
    "auth_ok": AuthOk,
    "ack": Ack,
    "error": Error,
    "state_sync": StateSync,
    "gap": Gap,
    "status": Status,
    "agent_event": AgentEvent,
    "canvas_update": CanvasUpdate,
    "memory_update": MemoryUpdate,
    "memory_result": MemoryResult,
    "permission_request": PermissionRequest,
    "permission_resolved": PermissionResolved,
    "chat_said": ChatSaid,
    "stack_update": StackUpdate,
}


class LinkState(Payload, omit_defaults=False):
    """From the bridge to its pages and terminals: how its link to the sprite is, with words where they help."""

    state: Literal["connecting", "waking", "ready", "updating", "unavailable"]
    detail: str


#: What pages and terminals hear from the bridge.
RELAYED_TYPES: dict[str, type[ServerPayload | LinkState]] = {**SERVER_TYPES, "link": LinkState}
_TYPE_NAMES: dict[type[Any], str] = {
    payload: name
    for types in (CLIENT_TYPES, SERVER_TYPES, VISITOR_TYPES, RELAYED_TYPES)
    for name, payload in types.items()
}


# --- framing ----------------------------------------------------------------------------------


class Envelope(Struct):
    """A frame as read: the payload is still bytes, since its shape depends on `type`."""

    type: str
    id: str = ""
    timestamp: float = 0
    payload: msgspec.Raw = field(default_factory=lambda: msgspec.Raw(b"{}"))
    seq: int | None = None
    reply_to: str | None = None


class ClientMessage(Struct):
    """A validated message of a client's."""

    type: str
    id: str
    payload: ClientPayload


class VisitorMessage(Struct):
    """A validated message of a page's or a terminal's."""

    type: str
    id: str
    payload: ClientPayload | ResumeFrom


class ServerMessage(Struct):
    """A validated message of the sprite's; `seq` on durable events, `reply_to` on answers, `timestamp` in ms."""

    type: str
    id: str
    payload: ServerPayload
    seq: int | None = None
    reply_to: str | None = None
    timestamp: float = 0


class RelayedMessage(Struct):
    """A validated message as pages and terminals get it from the bridge."""

    type: str
    id: str
    payload: ServerPayload | LinkState
    seq: int | None = None
    reply_to: str | None = None


class _Outgoing(Struct, omit_defaults=True):
    type: str
    id: str
    timestamp: int
    payload: Any
    seq: int | None = None
    reply_to: str | None = None


_envelopes = msgspec.json.Decoder(Envelope)
_encoder = msgspec.json.Encoder()


def read_envelope(frame: bytes) -> Envelope:
    """The envelope of one frame. FatalPeerError if it is no JSON object, PeerError if it has no `type`."""
    try:
        return _envelopes.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = _object(frame)
        if found is None:
            raise FatalPeerError(f"This is no JSON object: {_reason(error)}.") from error
        refused = PeerError(f"The message does not fit: {_reason(error)}.", code="bad_message")
        refused.reply_to = found["id"] if isinstance(found.get("id"), str) else None
        raise refused from error


def _object(frame: bytes) -> dict[str, Any] | None:
    """The JSON object a frame is, if it is one, by a reader that takes half a surrogate pair for a character.

    A browser sends one when it cuts a text inside an emoji: no text for us, but no broken framing either.
    """
    try:
        found = json.loads(frame.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def decode_client(frame: bytes) -> ClientMessage:
    """A client's message. PeerError for an unknown type or a payload that does not fit it."""
    envelope = read_envelope(frame)
    payload = _payload(envelope, CLIENT_TYPES)
    return ClientMessage(type=envelope.type, id=envelope.id, payload=payload)


def decode_server(frame: bytes) -> ServerMessage:
    """The sprite's message, as a client reads it; the errors of `decode_client`."""
    envelope = read_envelope(frame)
    return ServerMessage(
        type=envelope.type,
        id=envelope.id,
        payload=_payload(envelope, SERVER_TYPES),
        seq=envelope.seq,
        reply_to=envelope.reply_to,
        timestamp=envelope.timestamp,
    )


def decode_visitor(frame: bytes) -> VisitorMessage:
    """A page's or a terminal's message, as the bridge reads it; the errors of `decode_client`."""
    envelope = read_envelope(frame)
    return VisitorMessage(type=envelope.type, id=envelope.id, payload=_payload(envelope, VISITOR_TYPES))


def decode_relayed(frame: bytes) -> RelayedMessage:
    """The bridge's message, as a page or a terminal reads it; the errors of `decode_client`."""
    envelope = read_envelope(frame)
    return RelayedMessage(
        type=envelope.type,
        id=envelope.id,
        payload=_payload(envelope, RELAYED_TYPES),
        seq=envelope.seq,
        reply_to=envelope.reply_to,
    )


def _payload(envelope: Envelope, types: dict[str, type[_T]]) -> _T:
    expected = types.get(envelope.type)
    if expected is None:
        raise _at_fault(envelope, PeerError(f"Unknown message type {envelope.type[:80]!r}.", code="unknown_type"))
    try:
        return msgspec.json.decode(envelope.payload, type=expected)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _at_fault(
            envelope,
            PeerError(f"The payload of {envelope.type!r} does not fit: {_reason(error)}.", code="bad_payload"),
        ) from error


def _at_fault(envelope: Envelope, error: PeerError) -> PeerError:
    error.reply_to = envelope.id or None
    return error


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:300]


def encode(
    payload: ClientPayload | ServerPayload | ResumeFrom | LinkState,
    *,
    message_id: str | None = None,
    seq: int | None = None,
    reply_to: str | None = None,
    timestamp: float = 0,
) -> bytes:
    """One frame, its newline included; `timestamp` in ms, now if it is 0."""
    outgoing = _Outgoing(
        type=_TYPE_NAMES[type(payload)],
        id=message_id or str(uuid.uuid4()),
        timestamp=int(timestamp or time.time() * 1000),
        payload=payload,
        seq=seq,
        reply_to=reply_to,
    )
    try:
        return _encoder.encode(outgoing) + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair, from a model or a tool: it must not keep the event from its readers.
        return _encoder.encode(well_formed(msgspec.to_builtins(outgoing))) + b"\n"


def well_formed(value: Any) -> Any:
    """A JSON value in which every half of a surrogate pair, which no UTF-8 can hold, is a question mark."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {well_formed(key): well_formed(item) for key, item in value.items()}
    return [well_formed(item) for item in value] if isinstance(value, list) else value


class FrameDecoder:
    """Bytes in, frames out; a partial line yields nothing, an oversized one ends the connection.

    `limit` may be raised once the peer is authenticated.
    """

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self.limit = limit
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> None:
        """Takes bytes as they come off the wire."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next complete frame without its newline, or None. FatalPeerError over the limit.

        Blank lines are skipped: they are how a person with netcat says hello.
        """
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end == -1:
                # Where the search stopped is kept, so that a long frame in many pieces costs O(n).
                self._searched = len(self._buffer)
                if len(self._buffer) > self.limit:
                    raise FatalPeerError(self._too_long(), code="frame_too_large")
                return None
            if end > self.limit:
                raise FatalPeerError(self._too_long(), code="frame_too_large")
            frame = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._searched = 0
            if frame.strip():
                return frame

    def _too_long(self) -> str:
        return f"A frame may have {self.limit} bytes at most; the connection is closed."


def json_schema() -> dict[str, Any]:
    """The JSON Schema of every message, `client` and `server` by type, with shared definitions."""
    names = [*CLIENT_TYPES, *SERVER_TYPES]
    types = [*CLIENT_TYPES.values(), *SERVER_TYPES.values()]
    schemas, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    by_name = dict(zip(names, schemas, strict=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Sprite wire protocol, version {PROTOCOL_VERSION}",
        "client": {name: by_name[name] for name in CLIENT_TYPES},
        "server": {name: by_name[name] for name in SERVER_TYPES},
        "$defs": definitions,
    }
