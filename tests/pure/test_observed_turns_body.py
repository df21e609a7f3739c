"""The body of `POST /v1/observations`: its conversion to frames for the sprite, and its validation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.api.observations import Calls
from bridge.auth.admission import DoorError
from sprite.protocol.frames import encode
from sprite.protocol.messages import MAX_FRAME_BYTES
from sprite.protocol.observing import MAX_OBSERVED_BYTES, MAX_OBSERVED_TURNS


def turn(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {"external_id": f"t{number}", "session": "a", "at": 1795000000, "user": "Hello", "reply": "Hi."} | fields


def calls(*turns: Any, **fields: Any) -> Calls:
    return Calls(json.dumps({"source": "my-program", "project": "/p", "turns": list(turns)} | fields).encode())


def test_small_body_is_one_frame() -> None:
    (frame,) = calls(turn(1), turn(2)).frames()
    assert [each.external_id for each in frame.turns] == ["t1", "t2"]
    assert (frame.source, frame.project) == ("my-program", "/p")


def test_large_body_is_split_into_ordered_frames() -> None:
    body = calls(*(turn(number, reply="ö" * 8_000) for number in range(MAX_OBSERVED_TURNS)))
    frames = list(body.frames())
    assert len(frames) > 5
    assert all(len(encode(frame)) < MAX_FRAME_BYTES for frame in frames)
    assert [each.external_id for frame in frames for each in frame.turns] == [f"t{n}" for n in range(500)]
    assert body.refused == []


def test_long_tool_output_is_cut_to_fit_frame() -> None:
    tool = {"name": "Read", "input": {"deep": [{"path": "y" * 10**6}]}, "result": "x" * (3 * 10**6)}
    body = calls(turn(1, tools=[tool]))
    (frame,) = body.frames()
    assert len(encode(frame)) < MAX_FRAME_BYTES
    # Far more than a sprite keeps or examines.
    assert frame.turns[0].tools[0].result.startswith("x" * 65_536)
    assert body.refused == []


def test_turn_too_large_after_cut_is_refused_alone() -> None:
    body = calls(turn(1), turn(2, reply="x" * (2 * 10**6)), turn(3))
    (frame,) = body.frames()
    assert [each.external_id for each in frame.turns] == ["t1", "t3"]
    (refused,) = body.refused
    assert refused.external_id == "t2"
    assert "too large" in refused.why


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (7, "turn 2"),
        (None, "turn 2"),
        ([], "turn 2"),
        ({}, "turn 2"),
        ({"external_id": 5}, "turn 2"),
        ({"external_id": "x"}, "x"),
        (turn(2, outcome="splendid"), "t2"),
        (turn(2, at="yesterday"), "t2"),
        (turn(2, tools=[{}]), "t2"),
        (turn(2, user=None), "t2"),
    ],
)
def test_invalid_turn_is_refused_others_accepted(wrong: Any, name: str) -> None:
    body = calls(turn(1), wrong, turn(3))
    (frame,) = body.frames()
    assert [each.external_id for each in frame.turns] == ["t1", "t3"]
    (refused,) = body.refused
    assert refused.external_id == name
    assert refused.why.startswith("Turn 2 cannot be read: ")


def test_surrogates_are_replaced_and_huge_numbers_refused() -> None:
    """A number out of range invalidates its own turn only."""
    good = json.dumps(turn(2))
    half = '{"external_id": "x", "session": "a", "at": 1, "user": "\\ud83d", "tools": [{"name": "\\udc00"}]}'
    (frame,) = Calls(f'{{"source": "p", "turns": [{half}, {good}]}}'.encode()).frames()
    assert [each.user for each in frame.turns] == ["?", "Hello"]
    for number in ("9" * 4_000, "1e999", "-1e999"):
        huge = f'{{"external_id": "x", "session": "a", "at": {number}}}'
        body = Calls(f'{{"source": "p", "turns": [{huge}, {good}]}}'.encode())
        (frame,) = body.frames()
        assert "t2" in {each.external_id for each in frame.turns}


def test_nul_and_control_characters_are_passed_on() -> None:
    """The sprite validates them."""
    (frame,) = calls(turn(1, user="a\0b\u202e", session="../..", project="x")).frames()
    assert frame.turns[0].user == "a\0b\u202e"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b'{"source": "x", "turns": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}", 400),
        (b'{"source": "x", "turns": [' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]}", 400),
        (b'{"source": "x", "turns": [NaN, "\\ud83d"]}', 400),
        (b"null", 422),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"source": "x"}', 422),
        (b'{"source": 1, "turns": []}', 422),
        (b'{"source": "x", "turns": {}}', 422),
        (json.dumps({"source": "x", "turns": [{}] * (MAX_OBSERVED_TURNS + 1)}).encode(), 413),
        (json.dumps({"source": "x" * 41, "turns": []}).encode(), 422),
        (json.dumps({"source": "x", "project": "/" + "x" * 10**6, "turns": []}).encode(), 422),
    ],
)
def test_invalid_body_is_refused_in_words(body: bytes, status: int) -> None:
    with pytest.raises(DoorError) as error:
        Calls(body)
    assert error.value.status == status
    assert str(error.value)


def test_largest_body_is_read() -> None:
    # Many small tool calls: the most expensive body.
    tools = [{"name": "T", "input": {"a": [1, {"b": "c"}]}, "result": "r"}] * 200
    turns = [turn(number, tools=tools) for number in range(MAX_OBSERVED_TURNS)]
    body = json.dumps({"source": "p", "turns": turns}).encode()
    assert len(body) > MAX_OBSERVED_BYTES / 2
    assert sum(len(frame.turns) for frame in Calls(body).frames()) == MAX_OBSERVED_TURNS
