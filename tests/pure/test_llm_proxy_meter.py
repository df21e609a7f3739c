"""What is read out of bodies while they pass by: the same whatever way they are cut, and nothing of broken ones."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.llm.usage_meter import JsonMeter, Reading, SseMeter
from sprite.prices import Usage

CUTS = st.lists(st.integers(0, 2000), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data cut at some places; empty pieces too."""
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(marks)]


# --- the usage of a stream ---


def event(name: str, **fields: Any) -> str:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n"


START = event(
    "message_start",
    message={
        "model": "claude-haiku-4-5",
        "usage": {
            "input_tokens": 11,
            "output_tokens": 1,
            "cache_read_input_tokens": 22,
            "cache_creation_input_tokens": 33,
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 30},
            "inference_geo": "us",
        },
    },
)
TALK = "".join(
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
    for text in ('says "usage" and {"usage": 1}', "event: message_delta\n\ndata: {}", "é" * 40)
)
SEARCHED = event("message_delta", delta={}, usage={"output_tokens": 5, "server_tool_use": {"web_search_requests": 2}})
END = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 99})
WHOLE = START + "event: ping\ndata: {}\n\n: a comment\n\n" + TALK + SEARCHED + TALK + END + event("message_stop")
FINAL = Usage(11, 99, 22, 33, 30, 2, is_us_only=True)


def read(data: bytes, cuts: list[int]) -> tuple[Reading, bool]:
    meter = SseMeter()
    for piece in pieces(data, cuts):
        meter.feed(piece)
    return meter.read(), meter.at_boundary


@given(cuts=CUTS, carriage_returns=st.booleans())
def test_a_stream_gives_the_same_usage_however_it_is_cut(cuts: list[int], *, carriage_returns: bool) -> None:
    data = (WHOLE.replace("\n", "\r\n") if carriage_returns else WHOLE).encode()
    assert read(data, cuts) == (Reading(FINAL, "claude-haiku-4-5", is_final=True), True)


@given(CUTS, st.integers(0, len(WHOLE.encode())))
def test_a_stream_that_breaks_off_gives_the_same_estimate_however_it_is_cut(cuts: list[int], end: int) -> None:
    data = WHOLE.encode()[:end]
    reading, at_boundary = read(data, cuts)
    assert (reading, at_boundary) == read(data, [])
    assert at_boundary == (data == b"" or data.endswith(b"\n\n"))
    if reading.usage is not None:
        assert reading.usage.input == 11
        assert reading.usage.output >= 1


@given(st.binary(max_size=300), CUTS)
@example(b'data: {"type":"message_start","message":{"usage":{"input_tokens":"many"}}}\n\n', [])
@example(b'data: {"type":"message_start","message":{"usage":{"input_tokens":-5}}}\n\n', [])
@example(b'data: {"type":"message_delta","usage":7}\n\n', [])
def test_bytes_that_are_no_usage_are_passed_over(noise: bytes, cuts: list[int]) -> None:
    meter = SseMeter()
    for piece in pieces(noise + b"\n\n" + WHOLE.encode(), cuts):
        meter.feed(piece)
    assert meter.read().usage == FINAL


def test_what_was_written_since_the_last_count_is_estimated() -> None:
    reading, _ = read((START + TALK).encode(), [])
    assert reading.usage is not None
    letters = sum(len(json.dumps(text)) for text in ("x" * 29, "x" * 32, "é" * 40))
    assert reading.usage.output == pytest.approx(1 + letters / 4, abs=15)
    assert not reading.is_final


def test_a_line_too_long_to_hold_usage_is_not_kept() -> None:
    meter = SseMeter()
    meter.feed(START.encode() + b'data: {"type":"content_block_start","content":"')
    for _ in range(100):
        meter.feed(b"a" * 65536)
    meter.feed(b'"}\n\n' + END.encode())
    reading = meter.read()
    assert reading.usage is not None
    assert (reading.usage.output, reading.is_final) == (99, True)


# --- the usage of one object ---


@given(CUTS)
def test_an_object_gives_the_same_usage_however_it_is_cut(cuts: list[int]) -> None:
    content = [{"type": "text", "text": '"usage": {"output_tokens": 5}'}, {"usage": {"input_tokens": 1}}]
    said = {"input_tokens": 7, "output_tokens": 8, "cache_creation": None, "service_tier": "standard"}
    data = json.dumps({"content": content, "model": "m", "usage": said}).encode()
    meter = JsonMeter()
    for piece in pieces(data, cuts):
        meter.feed(piece)
    assert meter.read() == Reading(Usage(7, 8), "m", is_final=True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"usage":null}',
        b'{"usage":{"input_tokens":-1}}',
        b"\x00",
        b'{"usage":{"input_tokens":1,"output_tokens":1},"model":7}',
        b'{"usage":{"input_tokens":1,"output_tokens":1},"model":"\xff"}',
        b'{"content":' + b"[" * 100_000,
        b'{"usage":{"input_tokens":1,"output_tokens":1}}' + b" " * (8 << 20),
    ],
    ids=lambda body: str(body[:60]),
)
def test_an_object_without_usage_gives_none(body: bytes) -> None:
    meter = JsonMeter()
    meter.feed(body)
    assert meter.read().usage is None
