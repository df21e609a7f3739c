"""Metering of response bodies in transit: independent of chunking, and safe on malformed input."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.proxy.usage_meter import TOP_TOKENS_PER_SECOND, JsonMeter, PromptSizes, Reading, SseMeter
from sprite.common.prices import Usage
from tests import api_grammar
from tests import api_wire as wire
from tests.cut_answers import cut_answer

CUTS = st.lists(st.integers(0, 2000), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut the data at some places; pieces may be empty."""
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(marks)]


# --- usage of a stream ---


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


def read(data: bytes, cuts: list[int], seconds: float = 1000.0) -> tuple[Reading, bool]:
    """Meter a stream that was requested the given time ago and arrived at once."""
    meter = SseMeter(0.0, lambda: seconds)
    for piece in pieces(data, cuts):
        meter.feed(piece)
    return meter.read(), meter.at_boundary


@given(cuts=CUTS, carriage_returns=st.booleans())
def test_stream_usage_is_independent_of_chunking(cuts: list[int], *, carriage_returns: bool) -> None:
    data = (WHOLE.replace("\n", "\r\n") if carriage_returns else WHOLE).encode()
    assert read(data, cuts) == (Reading(FINAL, "claude-haiku-4-5", is_final=True, has_prompt=True), True)


@given(CUTS, st.integers(0, len(WHOLE.encode())))
def test_broken_stream_estimate_is_independent_of_chunking(cuts: list[int], end: int) -> None:
    data = WHOLE.encode()[:end]
    reading, at_boundary = read(data, cuts)
    assert (reading, at_boundary) == read(data, [])
    assert at_boundary == (data == b"" or data.endswith(b"\n\n"))
    assert reading.usage.input == (11 if reading.has_prompt else 0)
    assert reading.usage.output >= 1


@given(st.binary(max_size=300), CUTS)
@example(b'data: {"type":"message_start","message":{"usage":{"input_tokens":"many"}}}\n\n', [])
@example(b'data: {"type":"message_start","message":{"usage":{"input_tokens":-5}}}\n\n', [])
@example(b'data: {"type":"message_delta","usage":7}\n\n', [])
def test_bytes_without_usage_are_ignored(noise: bytes, cuts: list[int]) -> None:
    meter = SseMeter()
    for piece in pieces(noise + b"\n\n" + WHOLE.encode(), cuts):
        meter.feed(piece)
    assert meter.read().usage == FINAL


@pytest.mark.parametrize("stop", api_grammar.STOPS)
def test_meter_reads_usage_of_each_stop_reason(stop: str) -> None:
    data = api_grammar.stream(api_grammar.STOPS[stop], input_tokens=900, output_tokens=70, cache_read_input_tokens=5)
    reading, at_boundary = read(data, [100, 200])
    assert reading == Reading(Usage(900, 70, 5), api_grammar.MODEL, is_final=True, has_prompt=True)
    assert at_boundary


@pytest.mark.parametrize("broken", api_grammar.BREAKS)
def test_meter_reads_usage_before_stream_break(broken: str) -> None:
    step = api_grammar.BREAKS[broken]
    reading, _ = read(api_grammar.stream(step, input_tokens=900, output_tokens=70), [])
    if step["at"] == "before_start":
        assert (reading.has_prompt, reading.is_refused) == (False, "stream_error" in step)
    elif step["at"] == "after_delta":
        assert reading == Reading(Usage(900, 70), api_grammar.MODEL, is_final=True, has_prompt=True)
    else:
        assert (reading.usage.input, reading.has_prompt, reading.is_final, reading.is_refused) == (
            900,
            True,
            False,
            False,
        )


def test_hidden_thinking_costs_seconds_at_top_rate() -> None:
    """Time counts from one second before the first event; the prompt was processed until then."""
    now = [60.0]
    meter = SseMeter(0.0, lambda: now[0])
    meter.feed(api_grammar.stream({"blocks": [api_grammar.HIDDEN], "at": "after_start"}, input_tokens=900))
    now[0] += 3.0
    assert meter.read().usage.output == 4 * TOP_TOKENS_PER_SECOND


@pytest.mark.parametrize("said", [b"", b": waiting\n\n", wire.event("ping")], ids=["nothing", "comment", "ping"])
def test_waiting_for_stream_costs_one_second(said: bytes) -> None:
    """No output exists while the prompt is processed; at most the first event may be on its way."""
    meter = SseMeter(0.0, lambda: 600.0)
    meter.feed(said)
    assert meter.read() == Reading(Usage(output=int(TOP_TOKENS_PER_SECOND)))


@pytest.mark.parametrize(
    "said",
    [
        b"event: mess",
        wire.event("content_block_start", index=0, content_block={"type": "thinking"}),
        b"data: {what}\n\n",
    ],
    ids=["half a line", "a block", "no JSON"],
)
def test_stream_without_start_costs_all_its_time(said: bytes) -> None:
    meter = SseMeter(0.0, lambda: 600.0)
    meter.feed(said)
    assert meter.read().usage.output >= 600 * TOP_TOKENS_PER_SECOND


def test_shown_thinking_costs_byte_per_token() -> None:
    said = api_grammar.stream({"blocks": [api_grammar.THINKING], "at": "between_blocks"})
    assert read(said, [], seconds=0.0)[0].usage.output == len(str(api_grammar.THINKING["thinking"]))


def test_shown_text_costs_byte_per_token_at_most() -> None:
    """An hour of visible text is not charged as an hour of hidden thinking."""
    now = [0.0]
    meter = SseMeter(0.0, lambda: now[0])
    meter.feed(START.encode() + wire.event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
    for now[0] in range(3600):
        meter.feed(wire.event("content_block_delta", index=0, delta={"type": "text_delta", "text": "é" * 10}))
    assert 3600 * 20 <= meter.read().usage.output <= 3600 * 20 + 200


def test_search_is_charged_and_read_again() -> None:
    step = {"blocks": [api_grammar.SEARCH, api_grammar.FOUND, api_grammar.TEXT], "at": "in_block"}
    usage = read(api_grammar.stream(step, input_tokens=900, cache_read_input_tokens=50), [], seconds=0.0)[0].usage
    assert usage.web_searches == 1
    assert 900 + 950 + 300 < usage.input < 900 + 950 + 600
    whole = api_grammar.stream({"blocks": [api_grammar.SEARCH, api_grammar.FOUND]}, input_tokens=900)
    assert read(whole, [])[0].usage.input == 900, "the final usage counts"


@given(st.integers(0, 1 << 32))
def test_cut_answer_is_never_booked_below_truth(seed: int) -> None:
    """This holds for the shortest tokens and the fastest model as well."""
    cut = cut_answer(seed, speed=(20.0, 230.0), token_bytes=(1, 2))
    usage, truth = cut.reading.usage, cut.truth
    assert usage.output >= truth.output
    if cut.has_begun:
        assert (usage.input, usage.cache_read, usage.cache_write) == (truth.input, truth.cache_read, truth.cache_write)


def test_line_too_long_for_usage_is_dropped() -> None:
    meter = SseMeter()
    meter.feed(START.encode() + b'data: {"type":"content_block_start","content":"')
    for _ in range(100):
        meter.feed(b"a" * 65536)
    meter.feed(b'"}\n\n' + END.encode())
    reading = meter.read()
    assert (reading.usage.output, reading.is_final) == (99, True)


def test_prompt_size_bound_uses_density_of_last() -> None:
    sizes = PromptSizes()
    assert sizes.most("ada", "m", 100_000) == 100_000
    sizes.note("ada", "m", 80_000, 20_000)
    sizes.note("ada", "m", 3_000, 600)
    assert sizes.most("ada", "m", 100_000) == 31_250
    assert [sizes.most(*of, 100_000) for of in (("ada", "n"), ("bob", "m"))] == [100_000, 100_000]
    assert sizes.most("ada", "m", 3_000) == 3_000, "a small prompt is not representative"
    sizes.note("ada", "m", 80_000, 79_000)
    assert sizes.most("ada", "m", 100_000) == 100_000


# --- usage of a single object ---


@given(CUTS)
def test_object_usage_is_independent_of_chunking(cuts: list[int]) -> None:
    content = [{"type": "text", "text": '"usage": {"output_tokens": 5}'}, {"usage": {"input_tokens": 1}}]
    said = {"input_tokens": 7, "output_tokens": 8, "cache_creation": None, "service_tier": "standard"}
    data = json.dumps({"content": content, "model": "m", "usage": said}).encode()
    meter = JsonMeter()
    for piece in pieces(data, cuts):
        meter.feed(piece)
    assert meter.read() == Reading(Usage(7, 8), "m", is_final=True, has_prompt=True)


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
def test_object_without_usage_reports_nothing(body: bytes) -> None:
    meter = JsonMeter(0.0, lambda: 2.0)
    meter.feed(body)
    reading = meter.read()
    assert (reading.has_prompt, reading.is_final, reading.usage.prompt_tokens) == (False, False, 0)
    assert reading.usage.output >= 2 * TOP_TOKENS_PER_SECOND


@pytest.mark.parametrize("kind", api_grammar.ERRORS)
def test_error_in_place_of_object_is_free(kind: str) -> None:
    meter = JsonMeter()
    meter.feed(wire.error(api_grammar.ERRORS[kind], "no"))
    assert meter.read().is_refused
