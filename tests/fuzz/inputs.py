"""Attack inputs: valid messages, mutated ones, and invalid bytes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st

from sprite.protocol.frames import encode
from sprite.protocol.messages import MAX_AUTH_FRAME_BYTES, MAX_FRAME_BYTES
from tests.wire_values import messages

ODD_TEXTS = [
    *("", " ", "\0", "\r\n", "\ud800", "\udfff\ud83d", "\u202e\u2066", "\ufeff", "../../etc/passwd", "null", "-1"),
    *("'; DROP TABLE observations; --", "<script>alert(1)</script>", "```", "<!-- pin -->", "é" * 300, "x" * 70_000),
]
ODD_NUMBERS = [0, -1, 1.5, 2**31, 2**53, 2**63, -(2**63) - 1, 10**400, 1e308, -1e308, float("nan"), float("inf"), -0.0]
ODD_VALUES: list[Any] = [*ODD_TEXTS, *ODD_NUMBERS, None, True, [], {}, [[]], {"": {}}, [None] * 3000]
DEEP = 20_000
#: Values to hit: by field, placeholders for ids that only the stage knows (see `with_ids`), and names.
STACK, CARD = "00000000-stack-known", "00000000-card-known"
KNOWN: dict[str, list[Any]] = {
    "stack_id": [STACK],
    "card_id": [CARD],
    "name": ["user.md", "context.md", "soul.md"],
    "turn": [1, 2],
    "id": [1, 2],
    "query": ["Hello", "type:TURN hello", "around:1"],
    "text": ["Hello"],
}
#: Whole frames that no mutation would reach.
ODD_FRAMES = [
    b"",
    b"\0",
    b"\r",
    b"{}",
    b"[]",
    b"null",
    b"NaN",
    b'"ping"',
    b"[" * DEEP,
    b'{"type":' * DEEP,
    b'{"type": "mission", "id": "a", "payload": ' + b'{"text":' * DEEP + b"1" + b"}" * DEEP + b"}",
    b'{"type": "ping", "type": "mission", "id": 1, "id": "a", "payload": {}, "payload": []}',
    b'{"type": "ping", "payload": {"a": ' + b"9" * 5000 + b"}}",
    b'{"type": "ping", "timestamp": 1e999}',
    b'{"type": "\\ud800", "id": "\\udfff"}',
    b'{"type": "ping", "id": "' + b"x" * (MAX_FRAME_BYTES - 100) + b'"}',
    b'{"type": "ping", "id": "' + b"x" * (MAX_AUTH_FRAME_BYTES + 1) + b'"}',
    b"x" * (MAX_FRAME_BYTES + 1),
    b"\xff\xfe" + '{"type": "ping"}'.encode("utf-16-le"),
    b"\xef\xbb\xbf" + b'{"type": "ping"}',
    b'{"type": "ping", "id": "\xc3\x28\xed\xa0\x80"}',
    b"GET / HTTP/1.1\r\nHost: sprite\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


@st.composite
def tampered(draw: st.DrawFn, value: Any) -> Any:
    """Generate a JSON value with one mutation."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    how = draw(st.sampled_from(["into", "into", "into", "drop", "replace", "add"])) if keys else "replace"
    if how == "replace":
        return draw(st.sampled_from(ODD_VALUES) | st.text(st.characters(), max_size=20))
    key = draw(st.sampled_from(keys))
    changed = dict(value) if isinstance(value, dict) else list(value)
    if how == "into":
        changed[key] = draw(tampered(changed[key]))
    elif how == "drop":
        del changed[key]
    elif isinstance(changed, dict):
        changed[draw(st.sampled_from(ODD_TEXTS))] = changed[key]
    else:
        changed = changed * draw(st.sampled_from([2, 500]))
    return changed


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Generate bytes with a few mutations."""
    for _ in range(draw(st.integers(1, 3))):
        at, to = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        middle = draw(
            st.sampled_from([b"", b"", data[at:to] * 3, b"\xff", b"\n", b'"', b"\\", b"{"]) | st.binary(max_size=4)
        )
        data = data[:at] + middle + data[draw(st.sampled_from([at, to])) :]
    return data


def frames(types: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
    """Generate frames of one side, without their newlines."""
    # Built once: a strategy for every type is expensive.
    return _frames(messages(dict(types)))


@st.composite
def _frames(draw: st.DrawFn, payloads: st.SearchStrategy[Any]) -> bytes:
    kind = draw(st.sampled_from(["valid", "valid", "tampered", "tampered", "tampered", "damaged", "odd", "noise"]))
    if kind == "odd":
        return draw(st.sampled_from(ODD_FRAMES))
    if kind == "noise":
        return draw(st.binary(max_size=60))
    message_id = draw(st.sampled_from("abc") | st.uuids().map(str))
    # The time would change the inputs of the same seed.
    message = msgspec.json.decode(encode(draw(payloads), message_id=message_id, timestamp=1))
    for name in filter(message["payload"].__contains__, KNOWN):
        if draw(st.booleans()):
            message["payload"][name] = draw(st.sampled_from(KNOWN[name]))
    if kind == "tampered":
        message = draw(tampered(message))
    frame = json.dumps(message).encode()
    return draw(damaged(frame)) if kind == "damaged" else frame


def with_ids(data: bytes, stack: str, card: str) -> bytes:
    """Fill in the ids of an existing stack and card."""
    return data.replace(STACK.encode(), stack.encode()).replace(CARD.encode(), card.encode())


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut the data at these places."""
    places = [0, *sorted({place % (len(data) + 1) for place in cuts}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]
