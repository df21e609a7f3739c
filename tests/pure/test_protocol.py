"""Frame decoding and encoding: framing, validation and schema, without a socket.

The file is long because it is one table of valid and invalid frames.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, get_args

import jsonschema  # type: ignore[import-untyped]  # its stubs are a separate package
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from sprite.errors import FatalPeerError, PeerError
from sprite.protocol.events import Started, ToolUse
from sprite.protocol.frames import (
    FrameDecoder,
    decode_client,
    decode_relayed,
    decode_server,
    decode_visitor,
    encode,
    json_schema,
)
from sprite.protocol.messages import (
    CLIENT_TYPES,
    MAX_FRAME_BYTES,
    RELAYED_TYPES,
    SERVER_TYPES,
    VISITOR_TYPES,
    Auth,
    ClientPayload,
    Mission,
    Ping,
    ServerPayload,
)
from tests.wire_values import messages, values

#: One valid payload per type: the required fields of the wire document.
CLIENT_PAYLOADS: dict[str, dict[str, Any]] = {
    "auth": {
        "token": "t",
        "protocol": 1,
        "client": "c",
        "resume": {"epoch": "e", "last_seq": 4},
        "lease": {"owner": "b", "epoch": 2},
    },
    "mission": {"text": "hello", "stack_id": "s"},
    "heartbeat": {},
    "interrupt": {"mission_id": "m"},
    "canvas_interaction": {
        "action": "move_card",
        "card_id": "c",
        "position": {"x": 1, "y": 2.5},
        "size": {"width": 3, "height": 4},
    },
    "file_upload": {"upload_id": "u", "name": "n.txt", "index": 0, "last": True, "data": "aGk="},
    "memory": {"op": "search", "query": "dates", "limit": 5},
    "permission": {"request_id": "r", "decision": "always"},
    "system": {"action": "status"},
    "reach": {"revoke": "example.org"},
    "rule": {"action": "propose", "text": 'stop when tool "Bash"', "id": 3},
    "observe": {"source": "claude-code", "project": "/p", "turns": []},
    "ship": {"after": 7, "log": "l"},
    "ship_ack": {"through": 9},
    "ping": {},
}


def frame(type_: str, payload: Any = None, message_id: str = "id-1", **more: Any) -> bytes:
    return json.dumps({"type": type_, "id": message_id, "timestamp": 1, "payload": payload or {}, **more}).encode()


def frames_of(pieces: Iterable[bytes], limit: int = MAX_FRAME_BYTES) -> list[bytes]:
    decoder = FrameDecoder(limit)
    found = []
    for piece in pieces:
        decoder.feed(piece)
        while (one := decoder.next_frame()) is not None:
            found.append(one)
    return found


# Framing


def test_partial_line_yields_nothing_until_newline() -> None:
    decoder = FrameDecoder()
    decoder.feed(b'{"type":')
    assert decoder.next_frame() is None
    decoder.feed(b'"ping"}')
    assert decoder.next_frame() is None
    decoder.feed(b"\n")
    assert decoder.next_frame() == b'{"type":"ping"}'
    assert decoder.next_frame() is None


def test_frames_in_one_feed_keep_order() -> None:
    assert frames_of([b"1\n2\n3\n4"]) == [b"1", b"2", b"3"]


def test_blank_lines_are_skipped() -> None:
    assert frames_of([b"\n\r\n  \n1\n\n2\n"]) == [b"1", b"2"]


def test_windows_line_end_is_accepted() -> None:
    (one,) = frames_of([frame("ping") + b"\r\n"])
    assert isinstance(decode_client(one).payload, Ping)


@pytest.mark.parametrize("with_newline", [True, False])
def test_frame_limit_is_exact(*, with_newline: bool) -> None:
    assert frames_of([b"x" * 10 + b"\n"], limit=10) == [b"x" * 10]
    with pytest.raises(FatalPeerError, match="10 bytes") as refused:
        frames_of([b"x" * 11 + (b"\n" if with_newline else b"")], limit=10)
    assert refused.value.code == "frame_too_large"


def test_endless_line_is_refused_early() -> None:
    decoder = FrameDecoder(100)
    decoder.feed(b"x" * 100)
    assert decoder.next_frame() is None
    decoder.feed(b"x")
    with pytest.raises(FatalPeerError):
        decoder.next_frame()


def test_frames_large_only_together_pass() -> None:
    assert len(frames_of([b"x" * 9 + b"\n"] * 50, limit=10)) == 50
    assert len(frames_of([(b"x" * 9 + b"\n") * 50], limit=10)) == 50


def test_raised_limit_applies_to_buffered_bytes() -> None:
    decoder = FrameDecoder(10)
    decoder.feed(b"short\n" + b"x" * 50 + b"\n")
    assert decoder.next_frame() == b"short"
    decoder.raise_limit(100)
    assert decoder.next_frame() == b"x" * 50


@given(
    lines=st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"_"))),
    cuts=st.lists(st.integers(0, 400)),
)
def test_any_chunking_gives_same_frames(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    expected = [line for line in lines if line.strip()]
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    assert frames_of(pieces) == expected
    assert frames_of(data[i : i + 1] for i in range(len(data))) == expected


# Client messages


def test_examples_cover_every_client_type() -> None:
    assert set(CLIENT_PAYLOADS) == set(CLIENT_TYPES)


@pytest.mark.parametrize("name", CLIENT_PAYLOADS)
def test_client_message_is_decoded_with_all_fields(name: str) -> None:
    message = decode_client(frame(name, CLIENT_PAYLOADS[name]))
    assert (message.type, message.id) == (name, "id-1")
    read = msgspec.to_builtins(message.payload)
    assert {key: read.get(key) for key in CLIENT_PAYLOADS[name] if key in read} == {
        key: value for key, value in CLIENT_PAYLOADS[name].items() if key in read
    }
    assert isinstance(message.payload, CLIENT_TYPES[name])


@pytest.mark.parametrize("name", CLIENT_PAYLOADS)
def test_unknown_fields_are_ignored(name: str) -> None:
    plain = decode_client(frame(name, CLIENT_PAYLOADS[name]))
    with_more = decode_client(
        frame(name, {**CLIENT_PAYLOADS[name], "colour": "red", "deep": [{"er": 1}]}, future={"x": [1]})
    )
    assert with_more == plain


def test_everything_except_type_is_optional() -> None:
    message = decode_client(b'{"type": "heartbeat"}')
    assert (message.type, message.id) == ("heartbeat", "")


def test_unknown_type_is_peer_error_naming_message() -> None:
    with pytest.raises(PeerError, match="'dance'") as refused:
        decode_client(frame("dance"))
    assert not isinstance(refused.value, FatalPeerError)
    assert (refused.value.code, refused.value.reply_to) == ("unknown_type", "id-1")


def test_server_type_is_unknown_from_client() -> None:
    with pytest.raises(PeerError, match="Unknown"):
        decode_client(frame("ack", {"status": "done"}))


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("mission", {}),
        ("mission", {"text": 5}),
        ("mission", {"text": None}),
        ("auth", {"token": ["t"]}),
        ("auth", {"token": "t", "resume": {"epoch": "e"}}),
        ("canvas_interaction", {"action": "burn"}),
        ("canvas_interaction", {"action": "move_card", "position": {"x": "1", "y": 2}}),
        ("file_upload", {"upload_id": "u", "name": "n", "index": "0", "last": True, "data": ""}),
        ("memory", {"op": "drop"}),
        ("memory", {"op": "turn", "id": 1.5}),
        ("permission", {"request_id": "r", "decision": "maybe"}),
        ("system", {"action": "halt"}),
        ("ping", ["not", "an", "object"]),
        ("interrupt", "now"),
    ],
)
def test_invalid_payload_is_peer_error_naming_message(name: str, payload: Any) -> None:
    with pytest.raises(PeerError, match=name) as refused:
        decode_client(frame(name, payload))
    assert not isinstance(refused.value, FatalPeerError)
    assert (refused.value.code, refused.value.reply_to) == ("bad_payload", "id-1")


@pytest.mark.parametrize("name", ["x", "y", "width", "height"])
def test_card_outside_canvas_is_refused(name: str) -> None:
    places = {"position": {"x": 1, "y": 1}, "size": {"width": 9, "height": 9}}
    bad = frame("canvas_interaction", {"action": "move_card", "card_id": "c", **places})
    decode_client(bad)
    for number in ("1e308", "-1e308", "1000001", "NaN", "Infinity", "-Infinity", "1e400", "9" * 400):
        with pytest.raises(PeerError):
            decode_client(re.sub(rb'("%s": )\d+' % name.encode(), rb"\g<1>" + number.encode(), bad))


@pytest.mark.parametrize(
    "bad",
    [
        b'{"id": "a"}',
        b'{"type": 5}',
        b'{"type": "ping", "id": 7}',
        b'{"type": "ping", "timestamp": "noon"}',
        b'{"type": null, "payload": {}}',
    ],
)
def test_invalid_envelope_keeps_framing(bad: bytes) -> None:
    with pytest.raises(PeerError) as refused:
        decode_client(bad)
    assert not isinstance(refused.value, FatalPeerError)
    assert refused.value.code == "bad_message"


def test_lone_surrogate_is_refused_keeping_connection() -> None:
    """A browser may cut text inside a surrogate pair: valid JSON, but invalid text."""
    with pytest.raises(PeerError) as refused:
        decode_client(b'{"type": "mission", "id": "id-1", "payload": {"text": "\\ud83d"}}')
    assert not isinstance(refused.value, FatalPeerError)
    assert refused.value.reply_to == "id-1"


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello",
        b"[]",
        b"null",
        b'"type"',
        b"12",
        b"[" * 100_000,
        b"{",
        b'{"type": "ping"',
        b'{"type": "ping"} {"type": "ping"}',
        b'{"type": "ping", "payload": {]}',
        b'{"type": "ping", "timestamp": NaN}',
        b"\x00\x01\x02",
        b"\xff\xfe{}",
        b'\xef\xbb\xbf{"type": "ping"}',
        b'{"type": "\xff"}',
        b"GET / HTTP/1.1\r",
    ],
)
def test_non_object_line_breaks_framing(garbage: bytes) -> None:
    with pytest.raises(FatalPeerError) as refused:
        decode_client(garbage)
    assert refused.value.code == "bad_frame"


@pytest.mark.parametrize("place", ["payload", "unknown"])
def test_deep_nesting_is_refused_without_stack_overflow(place: str) -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    with pytest.raises(PeerError, match="nested too deeply"):
        decode_client(b'{"type": "ping", "id": "a", "' + place.encode() + b'": ' + deep + b"}")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_peer_errors(data: bytes) -> None:
    with contextlib.suppress(PeerError):
        decode_client(data)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(), st.lists, max_leaves=8))
def test_arbitrary_payload_raises_only_peer_errors(payload: Any) -> None:
    for name in CLIENT_TYPES:
        with contextlib.suppress(PeerError):
            decode_client(json.dumps({"type": name, "payload": payload}).encode())


# Both directions, for every type


#: Senders of each message type, and its decoder.
SIDES: dict[str, tuple[dict[str, Any], Callable[[bytes], Any]]] = {
    "client": (CLIENT_TYPES, decode_client),
    "server": (SERVER_TYPES, decode_server),
    "visitor": (VISITOR_TYPES, decode_visitor),
    "relayed": (RELAYED_TYPES, decode_relayed),
}
#: Every payload type of each side; tagged ones are listed individually.
MEMBERS = [
    (side, member)
    for side, (types, _) in SIDES.items()
    for payload in types.values()
    for member in get_args(payload) or (payload,)
]


def test_payload_round_trips_and_fits_schema() -> None:
    """Payloads shared by several sides are generated once, since generation dominates the time."""

    def survives(payload: Any, senders: list[str]) -> None:
        wire = encode(payload)
        sent = json.loads(wire)
        for side in senders:
            assert SIDES[side][1](wire[:-1]).payload == payload, side
            validator(side, sent["type"]).validate(sent["payload"])

    for member in dict.fromkeys(member for _, member in MEMBERS):
        senders = [side for side, found in MEMBERS if found is member]
        payloads = values(inspect.type_info(member))
        settings(max_examples=3)(given(payloads, st.just(senders))(survives))()


@given(messages(CLIENT_TYPES))
def test_client_message_round_trips(payload: ClientPayload) -> None:
    wire = encode(payload, message_id="m")
    assert wire.endswith(b"\n")
    assert wire.count(b"\n") == 1
    message = decode_client(wire[:-1])
    assert (message.id, message.payload) == ("m", payload)


@given(messages(SERVER_TYPES), st.none() | st.integers(0, 2**53), st.none() | st.text(min_size=1, max_size=9))
def test_server_message_round_trips(payload: ServerPayload, seq: int | None, reply_to: str | None) -> None:
    message = decode_server(encode(payload, seq=seq, reply_to=reply_to)[:-1])
    assert (message.payload, message.seq, message.reply_to) == (payload, seq, reply_to)


def test_frame_has_contract_envelope() -> None:
    sent = json.loads(encode(Mission("hello"), message_id="m-1"))
    assert set(sent) == {"type", "id", "timestamp", "payload"}
    assert (sent["type"], sent["id"], sent["payload"]) == ("mission", "m-1", {"text": "hello"})
    assert sent["timestamp"] > 1_700_000_000_000, "milliseconds"
    assert len({json.loads(encode(Ping()))["id"] for _ in range(20)}) == 20, "each frame has a unique id"


def test_durable_event_has_seq_and_answer_reply_to() -> None:
    sent = json.loads(encode(Started("m"), seq=7, reply_to="r"))
    assert (sent["seq"], sent["reply_to"]) == (7, "r")


def test_token_is_read_as_written() -> None:
    payload = decode_client(frame("auth", {"token": 'å\u2028 \\ " '})).payload
    assert isinstance(payload, Auth)
    assert payload.token == 'å\u2028 \\ " '


@pytest.mark.parametrize("broken", ["\ud800", "ok \udfff ok"])
def test_non_unicode_text_is_sent_with_replacement(broken: str) -> None:
    """Text of a tool or model may contain a lone surrogate; the event must still be sent."""
    event = ToolUse("m", "t", broken, {broken: [broken]})
    payload = decode_server(encode(event, seq=1)[:-1]).payload
    assert isinstance(payload, ToolUse)
    assert payload.name == broken.encode("utf-8", "replace").decode()


# The schema


SCHEMA = json_schema()


@functools.cache
def validator(side: str, name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**SCHEMA[side][name], "$defs": SCHEMA["$defs"]})


def test_schema_is_valid_and_has_every_type() -> None:
    assert {side: set(SCHEMA[side]) for side in SIDES} == {side: set(types) for side, (types, _) in SIDES.items()}
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    jsonschema.Draft202012Validator.check_schema({"$defs": SCHEMA["$defs"]})
    for side in SIDES:
        for schema in SCHEMA[side].values():
            jsonschema.Draft202012Validator.check_schema(schema)


def test_schema_requires_exactly_mandatory_fields() -> None:
    required = {name: set(schema.get("required", [])) for name, schema in SCHEMA["$defs"].items()}
    # An older sprite does not send the newest two.
    assert required["StateSync"] == set(SCHEMA["$defs"]["StateSync"]["properties"]) - {"next_due", "tz"}
    assert required["Card"] == set(SCHEMA["$defs"]["Card"]["properties"])
    assert required["FileResult"] == {"op", "name", "content", "version"}
    assert required["SearchHit"] == {"kind", "id", "type", "at", "session_id", "turn_id", "text"}
    assert required["Ack"] == {"status"}
    assert required["LearningsRequest"] == {"op"}


def test_schema_discriminates_tagged_types() -> None:
    memory = SCHEMA["$defs"][SCHEMA["client"]["memory"]["$ref"].rpartition("/")[2]]
    assert memory["title"] == "MemoryRequest"
    assert memory["discriminator"]["propertyName"] == "op"
    assert memory["discriminator"]["mapping"]["file"] == "#/$defs/FileRequest"
    assert SCHEMA["visitor"]["memory"] == SCHEMA["client"]["memory"]
    with pytest.raises(jsonschema.ValidationError):
        validator("client", "memory").validate({"op": "file"})


@pytest.mark.parametrize(
    ("name", "payload"), [("mission", {}), ("mission", {"text": 5}), ("system", {"action": "halt"})]
)
def test_schema_refuses_same_values_as_decoder(name: str, payload: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator("client", name).validate(payload)
