"""What is read out of bodies while they pass by: the same whatever way they are cut, and nothing of broken ones."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.llm.json_scanner import MalformedError, TopLevelScanner
from bridge.llm.usage_meter import JsonMeter, Reading, SseMeter
from sprite.prices import Usage

WANTED = ("model", "max_tokens", "usage", "speed")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)
OBJECTS = st.dictionaries(st.sampled_from(WANTED) | st.text(), VALUES, max_size=8)
CUTS = st.lists(st.integers(0, 2000), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data cut at some places; empty pieces too."""
    marks = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(marks)]


def scanned(data: bytes, cuts: list[int]) -> dict[str, Any]:
    scanner = TopLevelScanner(WANTED)
    for piece in pieces(data, cuts):
        scanner.feed(piece)
    return {name: json.loads(raw) for name, raw in scanner.finish().items()}


# --- one JSON object ---


@given(value=OBJECTS, cuts=CUTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 1, "\t"]))
def test_the_wanted_values_are_found_in_any_object_however_it_is_cut(
    value: dict[str, Any], cuts: list[int], *, ascii_only: bool, indent: int | str | None
) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    assert scanned(data, cuts) == {name: found for name, found in value.items() if name in WANTED}


@given(OBJECTS, CUTS)
def test_every_byte_alone_says_the_same_as_all_at_once(value: dict[str, Any], cuts: list[int]) -> None:
    data = json.dumps(value).encode()
    assert scanned(data, list(range(len(data)))) == scanned(data, cuts)


@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\ntrue01 ', max_size=60).map(str.encode), CUTS)
@example(b'{"a":1,}', [])
@example(b'{"a" 1}', [])
@example(b"{,}", [])
@example(b'{"a":1 "b":2}', [])
@example(b'{"a":/* " */1}', [])
@example(b"{'model':'a'}", [])
@example(b'{"a":1}{"model":"b"}', [])
def test_whatever_it_accepts_a_strict_reader_accepts_with_the_same_values_or_not_at_all(
    data: bytes, cuts: list[int]
) -> None:
    try:
        scanner = TopLevelScanner(WANTED)
        for piece in pieces(data, cuts):
            scanner.feed(piece)
        found = scanner.finish()
    except MalformedError:
        return
    try:
        strict = json.loads(data)
    except ValueError:
        return
    assert {name: json.loads(raw) for name, raw in found.items()} == {
        name: value for name, value in strict.items() if name in WANTED
    }


@given(OBJECTS, CUTS, st.data())
def test_an_object_that_lacks_its_end_is_refused(value: dict[str, Any], cuts: list[int], data: st.DataObject) -> None:
    whole = json.dumps(value).encode()
    with pytest.raises(MalformedError):
        scanned(whole[: data.draw(st.integers(0, len(whole) - 1))], cuts)


@given(CUTS)
def test_a_name_that_is_said_twice_is_refused_also_where_it_is_written_with_escapes(cuts: list[int]) -> None:
    with pytest.raises(MalformedError, match="twice"):
        scanned(b'{"model":"a","x":{"model":"c"},"\\u006dodel":"b"}', cuts)


@pytest.mark.parametrize("name", ["Model", "MODEL", "\\u004dodel", "max_toKens", "max_to\u212aens", "\u017fpeed"])
@given(cuts=CUTS)
def test_a_wanted_name_in_another_case_is_refused_with_the_wanted_one_or_without(name: str, cuts: list[int]) -> None:
    for body in ('{"model":"a","x":1,"%s":"b"}', '{"%s":"b","model":"a"}', '{"x":1,"%s":"b"}'):
        with pytest.raises(MalformedError, match="is meant"):
            scanned((body % name).encode(), cuts)


def test_the_same_name_deeper_down_is_another() -> None:
    assert scanned(b'{"messages":[{"model":"deep"}],"model":"top","m":{"model":1}}', []) == {"model": "top"}


@pytest.mark.parametrize(
    "evil",
    [
        b'{"a":' + b"[" * 200_000,
        b'{"a":[' + b"[[]]," * 100_000,
        b"{" + b'"a":1,' * 100_000,
        b'{"model":"' + b"a" * 200_000,
        b'{"model":' + b" " * 200_000,
    ],
    ids=["brackets", "lists", "names", "long value", "space"],
)
def test_what_would_keep_the_loop_busy_is_refused(evil: bytes) -> None:
    with pytest.raises(MalformedError):
        scanned(evil, [])


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


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"usage":null}', b'{"usage":{"input_tokens":-1}}', b"\x00"])
def test_an_object_without_usage_gives_none(body: bytes) -> None:
    meter = JsonMeter()
    meter.feed(body)
    assert meter.read().usage is None
