"""Frames of protocol version 1: encode, decode and check messages. Feed bytes, get messages; no I/O.

A frame is one JSON object on one line: `{"type", "id", "timestamp", "payload"}`, with `seq` on durable events and
`reply_to` on answers. `timestamp` is Unix time in milliseconds, `id` a UUID of the sender.
"""

from __future__ import annotations

import inspect
import json
import math
import time
import uuid
from typing import Any, Generic, NoReturn, TypeVar, get_args

import msgspec
from msgspec import Struct, field

from sprite.errors import FatalPeerError as FatalPeerError
from sprite.errors import PeerError as PeerError
from sprite.protocol import messages

_P = TypeVar("_P")


class Envelope(Struct):
    """A frame as read: the payload is still bytes, because its shape depends on `type`."""

    type: str
    id: str = ""
    timestamp: float = 0
    payload: msgspec.Raw = field(default_factory=lambda: msgspec.Raw(b"{}"))
    seq: int | None = None
    reply_to: str | None = None


class Message(Struct, Generic[_P]):
    """A validated message; `seq` on durable events, `reply_to` on answers, `timestamp` in ms."""

    type: str
    id: str
    payload: _P
    seq: int | None = None
    reply_to: str | None = None
    timestamp: float = 0


#: By sender: a client to the sprite, the sprite, a page or terminal to the bridge, and the bridge to those.
ClientMessage = Message[messages.ClientPayload]
ServerMessage = Message[messages.ServerPayload]
VisitorMessage = Message[messages.ClientPayload | messages.ResumeFrom]
RelayedMessage = Message[messages.RelayedPayload]


class _Outgoing(Struct, omit_defaults=True):
    type: str
    id: str
    timestamp: int
    payload: Any
    seq: int | None = None
    reply_to: str | None = None


#: Decoders of the messages that one side may send, by type: created once, because that of a union is expensive.
_Side = dict[str, msgspec.json.Decoder[Any]]
_client, _server, _visitor, _relayed = (
    {name: msgspec.json.Decoder(payload) for name, payload in types.items()}
    for types in (messages.CLIENT_TYPES, messages.SERVER_TYPES, messages.VISITOR_TYPES, messages.RELAYED_TYPES)
)
_envelopes = msgspec.json.Decoder(Envelope)
_encoder = msgspec.json.Encoder()


def read_envelope(frame: bytes) -> Envelope:
    """Return the envelope of a frame. Raises FatalPeerError if it is no JSON object, PeerError without `type`."""
    try:
        return _envelopes.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = _object(frame)
        if found is None:
            raise FatalPeerError(f"The message is not a JSON object: {_reason(error)}.") from error
        refused = PeerError(f"The message does not fit: {_reason(error)}.", code="bad_message")
        refused.reply_to = found["id"] if isinstance(found.get("id"), str) else None
        raise refused from error


def _object(frame: bytes) -> dict[str, Any] | None:
    """Return the frame's JSON object, or None. This reader accepts half of a surrogate pair as a character.

    A browser sends one when it cuts a text inside an emoji: invalid text, but the framing is intact.
    """
    try:
        found = json.loads(frame.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def decode_client(frame: bytes) -> ClientMessage:
    """Return a client's message. Raises PeerError for an unknown type or an unfitting payload."""
    return _decode(frame, _client)


def decode_server(frame: bytes) -> ServerMessage:
    """Return the sprite's message as a client reads it. Raises the errors of `decode_client`."""
    return _decode(frame, _server)


def decode_visitor(frame: bytes) -> VisitorMessage:
    """Return a page's or a terminal's message as the bridge reads it. Raises the errors of `decode_client`."""
    return _decode(frame, _visitor)


def decode_relayed(frame: bytes) -> RelayedMessage:
    """Return the bridge's message as a page or a terminal reads it. Raises the errors of `decode_client`."""
    return _decode(frame, _relayed)


def _decode(frame: bytes, side: _Side) -> Message[Any]:
    got = read_envelope(frame)
    return Message(got.type, got.id, _payload(got, side), got.seq, got.reply_to, got.timestamp)


def _payload(envelope: Envelope, side: _Side) -> Any:
    decoder = side.get(envelope.type)
    if decoder is None:
        raise _at_fault(envelope, PeerError(f"Unknown message type {envelope.type[:80]!r}.", code="unknown_type"))
    try:
        return decoder.decode(envelope.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        words = f"The payload of {envelope.type!r} does not fit: {_reason(error)}."
        raise _at_fault(envelope, PeerError(words, code="bad_payload")) from error


def _at_fault(envelope: Envelope, error: PeerError) -> PeerError:
    error.reply_to = envelope.id or None
    return error


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:300]


def encode(
    payload: messages.ClientPayload | messages.ResumeFrom | messages.RelayedPayload,
    *,
    message_id: str | None = None,
    seq: int | None = None,
    reply_to: str | None = None,
    timestamp: float = 0,
) -> bytes:
    """Return one frame including its newline; `timestamp` in ms, 0 for now."""
    outgoing = _Outgoing(
        type=messages.TYPE_NAMES[type(payload)],
        id=message_id or str(uuid.uuid4()),
        timestamp=int(timestamp or time.time() * 1000),
        payload=payload,
        seq=seq,
        reply_to=reply_to,
    )
    try:
        return _encoder.encode(outgoing) + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair from a model or a tool must not prevent the event.
        return _encoder.encode(well_formed(msgspec.to_builtins(outgoing))) + b"\n"


def well_formed(value: Any) -> Any:
    """Return a JSON value in which a question mark replaces each lone surrogate, which UTF-8 cannot encode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {well_formed(key): well_formed(item) for key, item in value.items()}
    return [well_formed(item) for item in value] if isinstance(value, list) else value


class FrameDecoder:
    """Split bytes into frames. A partial line yields none; an oversized one ends the connection.

    `limit` is in bytes.
    """

    def __init__(self, limit: int = messages.MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0

    def raise_limit(self, limit: int) -> None:
        """Accept larger frames from here on, because the peer is authenticated."""
        self._limit = limit

    def feed(self, data: bytes) -> None:
        """Add bytes from the connection."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """Return the next complete frame without its newline, or None. Raises FatalPeerError over the limit.

        Blank lines are skipped: a person with netcat may send one.
        """
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end == -1:
                # Remember the search position, so that a long frame in many pieces costs O(n).
                self._searched = len(self._buffer)
                if len(self._buffer) > self._limit:
                    raise FatalPeerError(self._too_long(), code="frame_too_large")
                return None
            if end > self._limit:
                raise FatalPeerError(self._too_long(), code="frame_too_large")
            frame = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._searched = 0
            if frame.strip():
                return frame

    def _too_long(self) -> str:
        return f"A frame may have {self._limit} bytes at most; the connection is closed."


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of every payload, with shared definitions.

    Grouped by sender and type: `client` and `server` between bridge and sprite, `visitor` and `relayed` between
    pages (or terminals) and the bridge. Fields that are always sent are required.
    """
    sides = {"client": _client, "server": _server, "visitor": _visitor, "relayed": _relayed}
    types = [decoder.type for side in sides.values() for decoder in side.values()]
    found, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    schemas = iter(found)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Sprite wire protocol, version {messages.PROTOCOL_VERSION}",
        **{
            name: {kind: _defined(decoder.type, next(schemas), definitions) for kind, decoder in side.items()}
            for name, side in sides.items()
        },
        "$defs": definitions,
    }


def _defined(payload: Any, schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to the definition of a payload's JSON Schema; a tagged union is named after its base class."""
    if not (members := get_args(payload)):
        return schema
    family = members[0].__base__
    definitions[family.__name__] = {"title": family.__name__, "description": inspect.getdoc(family), **schema}
    return {"$ref": f"#/$defs/{family.__name__}"}


#: The largest integer up to which a double represents every integer.
_LARGEST_INTEGER = 2**53 - 1
#: JSON readers limit their nesting depth.
_MOST_LEVELS = 100


def arrives_as_it_is(value: Any, level: int = 0) -> bool:
    """Return whether every client reads a JSON value unchanged: no large number, lone surrogate or deep nesting."""
    if isinstance(value, dict | list):
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        return level < _MOST_LEVELS and all(arrives_as_it_is(part, level + 1) for part in parts)
    if isinstance(value, str):
        return not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, float):
        return math.isfinite(value)
    # A boolean is an int, too.
    return value is None or (isinstance(value, int) and abs(value) <= _LARGEST_INTEGER)
