"""The bridge's key is recognised in an upstream's words whatever way they are written, and nothing else is."""

from __future__ import annotations

import base64
import gzip
import html
import json
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.llm.error_events import ErrorEvents
from bridge.llm.key_traces import KeyTraces

KEY = "sk-ant-planted-real-key-4071/93+QxVbWmRtZjKd"
TRACES = KeyTraces([KEY, None, ""])
INSTEAD = b"event: error\ndata: {}\n\n"

WRITTEN = {
    "plain": KEY,
    "upper case": KEY.upper(),
    "a part": KEY[16:36],
    "spaced": " ".join(KEY),
    "in two lines": f"{KEY[:18]}\n{KEY[18:]}",
    "JSON": json.dumps({"headers": {"x-api-key": KEY}}),
    "JSON in JSON": json.dumps(json.dumps({"x-api-key": KEY})),
    "escapes": "".join(f"\\u{ord(letter):04x}" for letter in KEY),
    "escaped escapes": json.dumps("".join(f"\\u{ord(letter):04X}" for letter in KEY)),
    "x escapes": "".join(f"\\x{ord(letter):02x}" for letter in KEY),
    "octal escapes": "".join(f"\\{ord(letter):03o}" for letter in KEY),
    "percent": "".join(f"%{ord(letter):02X}" for letter in KEY),
    "percent twice": quote("".join(f"%{ord(letter):02x}" for letter in KEY)),
    "entities": "".join(f"&#{ord(letter)};" for letter in KEY),
    "hexadecimal entities": html.escape("".join(f"&#x{ord(letter):x};" for letter in KEY), quote=False),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 for addresses": base64.urlsafe_b64encode(b"?" + KEY.encode()).decode().rstrip("="),
    "base64 of a header": "Basic " + base64.b64encode(f"user:{KEY}".encode()).decode(),
    "base64 in lines": "\n".join(
        base64.b64encode(f"x-api-key: {KEY}".encode()).decode()[at : at + 20] for at in range(0, 90, 20)
    ),
    "base64 twice": base64.b64encode(base64.b64encode(KEY.encode())).decode(),
    "base64 in an address": "next=" + quote(base64.b64encode(KEY.encode()).decode()),
    "hexadecimal": KEY.encode().hex(),
    "hexadecimal upper": KEY.encode().hex(" ").upper(),
    "hexadecimal with marks": ", ".join(f"0x{byte:02x}" for byte in KEY.encode()),
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_the_key_is_recognised_however_it_is_written(written: str) -> None:
    for around in ("@", 'the key "@" is wrong', "abc@", '{"error":{"message":"@"}}'):
        assert TRACES.in_any(around.replace("@", written).encode()), around


def test_the_key_is_recognised_in_packed_and_wide_words() -> None:
    words = f'{{"error":"{KEY}"}}'
    assert TRACES.in_any(gzip.compress(words.encode()))
    assert TRACES.in_any(words.encode("utf-16"))
    assert TRACES.in_any(words.encode("utf-32-be"))


@pytest.mark.parametrize(
    "words",
    [
        "",
        '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_011CSHoEeqs5C35"}',
        "prompt is too long: 210000 tokens > 200000 maximum",
        "invalid x-api-key: a key begins with sk-ant-",
        base64.b64encode(bytes(range(200))).decode(),
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        KEY[:8] + "..." + KEY[-4:],
    ],
)
def test_words_without_the_key_are_let_through(words: str) -> None:
    assert not TRACES.in_any(words.encode())


@given(st.binary(max_size=400))
def test_any_bytes_can_be_looked_at(noise: bytes) -> None:
    TRACES.in_any(noise)
    assert not KeyTraces([]).in_any(noise)


# --- errors within a stream ---

DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"an error: \\"error\\""}}\n\n'
HARMLESS = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
TOLD = [
    b"event: error\ndata: " + json.dumps({"type": "error", "error": {"message": KEY}}).encode() + b"\n\n",
    b"event:error\r\ndata: " + json.dumps({"error": {"message": WRITTEN["escapes"]}}).encode() + b"\r\n\r\n",
    b'data: { "type" : "error", "message": "' + WRITTEN["base64"].encode() + b'"}\n\n',
    b'data: {"error": "' + KEY.encode() + b'"}\r\r',
]


def fed(data: bytes, cuts: list[int]) -> list[bytes]:
    events = ErrorEvents(TRACES, INSTEAD)
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [*(events.feed(data[begin:end]) for begin, end in pairwise(marks)), events.finish()]


@given(st.lists(st.integers(0, 700), max_size=12), st.sampled_from(TOLD))
def test_an_error_event_with_the_key_is_replaced_however_it_is_cut(cuts: list[int], told: bytes) -> None:
    assert b"".join(fed(DELTA + HARMLESS + told + DELTA, cuts)) == DELTA + HARMLESS + INSTEAD + DELTA
    assert b"".join(fed(DELTA + told[:-2], cuts)) == DELTA + INSTEAD, "a stream that ends within it"


@given(st.lists(st.integers(0, 700), max_size=12), st.binary(max_size=100))
def test_all_else_passes_byte_for_byte_however_it_is_cut(cuts: list[int], noise: bytes) -> None:
    whole = DELTA + noise + b"\n\n" + HARMLESS + DELTA
    assert b"".join(fed(whole, cuts)) == whole


@given(st.integers(len("event: c"), len(DELTA)))
def test_of_a_line_that_is_no_error_nothing_is_kept_back(cut: int) -> None:
    first, *_ = fed(DELTA, [cut])
    kept = DELTA[len(first) : cut]
    assert kept in b'data: {"t' or kept in b'data: {"type":"'


def test_an_error_without_end_is_not_kept_for_ever() -> None:
    events = ErrorEvents(TRACES, INSTEAD)
    passed = events.feed(b"event: error\ndata: ")
    for _ in range(100):
        passed += events.feed(b"a" * 10_000 + KEY.encode())
    passed += events.feed(b"\n\n" + DELTA)
    assert KEY.encode() not in passed
    assert passed.endswith(DELTA)
