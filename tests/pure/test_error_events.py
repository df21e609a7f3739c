"""Upstream errors within a stream, as clients receive them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.proxy.errors import ErrorEvents, told

KEY = "sk-ant-planted-0123456789abcdef"
DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"an error: \\"error\\""}}\n\n'
BUSY = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
OWN = BUSY.replace(b"busy", b"The model's API is overloaded.")
TOLD = [
    b"event: error\ndata: " + json.dumps({"type": "error", "error": {"message": f"no {KEY}"}}).encode() + b"\n\n",
    b"event:error\r\ndata: " + json.dumps({"error": {"message": f"no {KEY}"}}).encode() + b"\r\n\r\n",
    b'data: {"error": "' + KEY.encode() + b'"}\n\n',
]


def fed(data: bytes, cuts: list[int]) -> bytes:
    events = ErrorEvents()
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return b"".join([*(events.feed(data[begin:end]) for begin, end in pairwise(marks)), events.finish()])


@given(st.lists(st.integers(0, 700), max_size=12), st.sampled_from(TOLD))
def test_error_event_shows_no_key_however_cut(cuts: list[int], told: bytes) -> None:
    for end in (told, told[:-2]):
        passed = fed(DELTA + BUSY + end, cuts)
        assert passed.startswith(DELTA + OWN + b"event: error\n")
        assert KEY.encode() not in passed


@given(st.lists(st.integers(0, 700), max_size=12), st.binary(max_size=100))
def test_other_events_pass_byte_for_byte(cuts: list[int], noise: bytes) -> None:
    before, after = DELTA + noise + b"\n\n", DELTA
    assert fed(before + BUSY + after, cuts) == before + OWN + after


@given(st.integers(1000, 400_000), st.sampled_from([b"\n\n", b"\r\n\r\n"]))
@settings(max_examples=settings().max_examples // 4)
def test_large_event_passes_as_it_arrives(size: int, end: bytes) -> None:
    events = ErrorEvents()
    large = b"data: " + b"an error " * 300_000 + end
    parts = [large[at : at + size] for at in range(0, len(large), size)]
    sent = [events.feed(part) for part in parts]
    assert b"".join(sent) == large
    assert max(map(len, sent)) < 2_000_000
    assert KEY.encode() not in events.feed(TOLD[0]) + events.finish()


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 199000 + 9000 > 200000",
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 9 bytes > 5 bytes",
    ],
)
def test_error_keeps_text_parsed_by_cli(words: str) -> None:
    refused = told({"error": {"type": "invalid_request_error", "message": f"{words} {KEY}"}}, 400)
    assert refused.words in words
    assert any(sign.isdigit() for sign in refused.words)


def test_error_has_own_text_for_its_type() -> None:
    for error in ({"error": {"type": "rate_limit_error", "message": KEY}}, {"error": KEY}, KEY, None, [KEY]):
        assert KEY not in told(error, 429).words
    assert "rate limit" in told({"error": {"type": "rate_limit_error", "message": KEY}}, 429).words
    assert "429" in told({"error": {"type": KEY}}, 429).words
