"""Messages with turns of followed sessions: ordered, one project each, and within size limits."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from sprite.imports.follower import messages
from sprite.log.transcript import ImportedTurn, NewObservation
from sprite.protocol.observing import MAX_OBSERVED_TURNS, MOST_TURN_BYTES, Observe


def turn(key: str, *calls: dict[str, Any], project: str | None = "/code") -> ImportedTurn:
    observation = NewObservation("s", "Hello", calls, "Hi.", "complete", project=project, source="claude-code")
    return ImportedTurn(key, 1.0, 2.0, observation)


def call(tool_use_id: str = "t1", result: str = "done") -> dict[str, Any]:
    return {
        "tool_use_id": tool_use_id,
        "name": "Bash",
        "input": {"command": "make"},
        "result": result,
        "is_error": False,
    }


def keys(found: list[Observe]) -> list[str]:
    return [turn.external_id for message in found for turn in message.turns]


def test_message_has_one_project_and_keeps_order() -> None:
    found = list(messages([turn("1"), turn("2"), turn("3", project=None), turn("4")]))
    assert [(message.project, len(message.turns)) for message in found] == [("/code", 2), (None, 1), ("/code", 1)]
    assert keys(found) == ["1", "2", "3", "4"]


def test_message_stays_within_turn_and_byte_limits() -> None:
    many = [turn(str(number)) for number in range(1200)]
    assert [len(message.turns) for message in messages(many)] == [
        MAX_OBSERVED_TURNS,
        MAX_OBSERVED_TURNS,
        200,
    ]
    long = [turn(str(number), call(result="x" * 20_000)) for number in range(200)]
    found = list(messages(long))
    assert all(len(msgspec.json.encode(message.turns)) <= MOST_TURN_BYTES + 100 for message in found)
    assert keys(found) == [str(number) for number in range(200)]


def test_turn_larger_than_frame_is_shortened() -> None:
    long = turn("1", *(call(f"t{number}", "x" * 4000) for number in range(400)))
    endless = turn("2", *(call(f"t{number}") for number in range(20_000)))
    found = list(messages([long, endless]))
    assert all(len(msgspec.json.encode(message)) < MOST_TURN_BYTES + 1000 for message in found)
    first, second = (turn for message in found for turn in message.turns)
    assert len(first.tools) == 400
    assert "more characters]" in first.tools[7].result
    assert len(second.tools) == 5000
    assert second.notice == "15000 more tool calls of this turn are not kept."


def test_ids_with_lone_surrogates_are_sendable() -> None:
    (found,) = messages([turn("1", {**call("\ud800"), "agent_id": "\udfff"})])
    written = json.loads(msgspec.json.encode(found))
    assert written["turns"][0]["tools"][0]["tool_use_id"] == "?"
