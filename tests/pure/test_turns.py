"""The fold of wire messages into turns, checked with the page's vectors, and its text reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client.turns import Began, Call, Grew, Over, Part, Reader, Text, Turn, Turns
from sprite.protocol.events import (
    AnyAgentEvent,
    Complete,
    Failed,
    ModelChanged,
    Started,
    TextDelta,
    ToolResult,
    ToolUse,
    WholeText,
)
from sprite.protocol.frames import decode_relayed
from sprite.protocol.messages import LinkState, PermissionRequest
from sprite.protocol.shapes import ChatMessage, UsedTool

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/turns.json").read_text())
CUT = LinkState("unavailable", "")


def part_of(part: Part, status: str) -> dict[str, Any]:
    match part:
        case Text(text=text, is_done=is_done):
            return {"text": text, "done": is_done}
        case ModelChanged(text=text):
            return {"note": text}
        case PermissionRequest(request_id=request_id):
            return {"question": request_id}
        case UsedTool(name=name, is_error=is_error):
            return {"tool": name, "over": True, "stopped": False, "error": is_error, "summary": None}
        case Call(use=use, result=result, is_over=is_over):
            return {
                "tool": use.name,
                "over": is_over,
                "stopped": is_over and result is None and status != "complete",
                "error": result is not None and result.is_error,
                "summary": None if result is None else result.summary,
            }


def turn_of(turn: Turn) -> dict[str, Any]:
    return {
        "text": turn.text,
        "origin": turn.origin,
        "asked_by": turn.asked_by,
        "status": turn.status,
        "error": turn.ending.message if isinstance(turn.ending, Failed) else None,
        "parts": [part_of(part, turn.status) for part in turn.parts],
    }


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_log_folds_into_turns(vector: dict[str, Any]) -> None:
    turns = Turns()
    for number, message in enumerate(vector["log"]):
        envelope = {"id": str(number), "timestamp": number, **message}
        turns.hear(decode_relayed(msgspec.json.encode(envelope)).payload)
    assert {turn.id: turn_of(turn) for turn in turns.turns.values()} == vector["turns"]
    assert list(turns.questions) == vector["questions"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_reader_shows_each_part_once(vector: dict[str, Any]) -> None:
    turns, readers, pieces = Turns(), dict[str, Reader](), dict[str, list[str]]()
    calls, over = dict[str, int](), 0
    for number, message in enumerate(vector["log"]):
        envelope = {"id": str(number), "timestamp": number, **message}
        for turn in turns.hear(decode_relayed(msgspec.json.encode(envelope)).payload):
            for news in readers.setdefault(turn.id, Reader()).news(turn):
                if isinstance(news, Began) and news.is_again:
                    pieces[turn.id] = []
                if isinstance(news, Grew):
                    pieces.setdefault(turn.id, []).append(news.piece)
                if isinstance(news, Call):
                    calls[news.use.tool_use_id] = calls.get(news.use.tool_use_id, 0) + 1
                over += isinstance(news, Over)
    assert set(calls.values()) <= {1}
    assert over == sum(call.is_over for turn in turns.turns.values() for call in turn.calls)
    for turn in turns.turns.values():
        assert "".join(pieces.get(turn.id, [])).startswith("".join(turn.texts)[:3])


@given(st.lists(st.text(max_size=5), max_size=8), st.integers(0, 8))
def test_text_is_read_once_despite_losses(deltas: list[str], cut: int) -> None:
    turns, reader, whole, shown = Turns(), Reader(), "".join(deltas), ""
    turn = turns.send("m", "hello")
    for number, delta in enumerate(deltas):
        if number == cut:
            turns.hear(CUT)
            continue
        turns.hear(TextDelta("m", delta))
        shown += "".join(news.piece for news in reader.news(turn) if isinstance(news, Grew))
        assert whole.startswith(shown)
    turns.hear(WholeText("m", whole))
    shown += "".join(news.piece for news in reader.news(turn) if isinstance(news, Grew))
    assert shown == whole


def test_text_with_gap_waits_for_whole() -> None:
    text = Text("Hel", has_gap=True)
    assert text.after("Hel") == ""
    text.text, text.is_done = "Hello there", True
    assert text.after("Hel") == "lo there"
    # Without a word in common, the text is repeated rather than lost.
    assert Text("xyz", is_done=True, has_gap=True).after("abc") == "xyz"


def test_trimmed_final_text_is_not_repeated() -> None:
    assert Text("One.\n\nTwo.", is_done=True).after("\n\nOne.\n\nTwo.") == ""
    assert Text("One.\n\nTwo is here.", is_done=True).after("\n\nOne.\n\nTw") == "o is here."


def test_turn_begun_during_outage_waits_for_whole() -> None:
    turns, reader = Turns(), Reader()
    turns.hear(CUT)
    turns.hear(Started("m"))
    turns.hear(TextDelta("m", "lo"))
    (turn,) = turns.hear(WholeText("m", "Hello"))
    assert [news.piece for news in reader.news(turn) if isinstance(news, Grew)] == ["Hello"]


def test_waking_sprite_leaves_no_gap() -> None:
    turns, reader = Turns(), Reader()
    turn = turns.send("m", "hello")
    turns.hear(LinkState("waking", ""))
    turns.hear(TextDelta("m", "Hel"))
    assert [news.piece for news in reader.news(turn) if isinstance(news, Grew)] == ["Hel"]


def test_skipped_turn_shows_growing_text_from_its_start() -> None:
    turns, reader = Turns(), Reader()
    events: list[AnyAgentEvent] = [Started("m"), ToolUse("m", "t", "Bash", {}), TextDelta("m", "Hel")]
    for event in events:
        turns.hear(event)
    reader.skip(turns.turns["m"])
    (turn,) = turns.hear(TextDelta("m", "lo"))
    (news,) = reader.news(turn)
    assert isinstance(news, Grew)
    assert (news.piece, news.begins) == ("Hello", True)


def test_unfinished_turn_is_completed_from_chat() -> None:
    turns = Turns()
    events: list[AnyAgentEvent] = [ToolUse("m", "t", "Bash", {}), WholeText("m", "One."), TextDelta("m", "Tw")]
    for event in events:
        turns.hear(event)
    tools = [UsedTool("Bash", "", is_error=False), UsedTool("Read", "a.txt", is_error=False)]
    line = ChatMessage(2, "assistant", "One.\n\nTwo.\n\nThree.", 2.0, "m", tools=tools, status="complete")
    (turn,) = turns.read([ChatMessage(1, "user", "hello", 1.0, "m"), line])
    assert (turn.text, turn.texts, turn.status) == ("hello", ["One.", "Two.\n\nThree."], "complete")
    assert [part for part in turn.parts if isinstance(part, UsedTool)] == tools[1:]


def test_ended_turns_are_forgotten_oldest_first() -> None:
    turns = Turns()
    for number in range(300):
        turns.hear(Started(f"m{number}"))
        turns.hear(Complete(f"m{number}", "Done.", None, None, 1))
    assert list(turns.turns) == [f"m{number}" for number in range(100, 300)]


def test_result_without_call_changes_nothing() -> None:
    assert Turns().hear(ToolResult("m", "t", is_error=False, summary="a")) == []
