"""The fake model and the canvas: resolving the intended card, also across sessions, and reading the canvas."""

from __future__ import annotations

import json
from typing import Any

from bridge.fake_model.agent import answer
from bridge.fake_model.request import Body, Message, understand
from sprite.boot.canvas import open_canvas
from sprite.protocol.framing import part
from sprite.protocol.shapes import Block, Card, Stack

TOOLS = [
    {"name": f"mcp__sprite__{name}", "input_schema": {}}
    for name in ("create_card", "update_card", "close_card", "read_canvas")
]
APPLES, PLAN = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def board() -> str:
    """Return the prompt part as a sprite writes it: the plan is newer than the list."""
    cards = [
        Card(PLAN, "s", 'The "big" plan (draft): x', "notes", None, None, [Block("n", "note", {})], archived=False),
        Card(
            APPLES,
            "s",
            "Shopping",
            "table",
            None,
            None,
            [Block("h", "text", {}), Block("t", "table", {})],
            archived=False,
        ),
    ]
    told = open_canvas([Stack("s", "Canvas", archived=False)], cards, 2)
    assert told is not None
    return part("open_canvas", told)


def calls(text: str, system: str = "", *earlier: Message) -> list[tuple[str, dict[str, Any]]]:
    body = Body("m", [*earlier, Message("user", text)], system=system, tools=TOOLS)
    blocks = answer(understand(body, {}))
    return [(b["name"].removeprefix("mcp__sprite__"), b["input"]) for b in blocks if b["type"] == "tool_use"]


def used(name: str, given: dict[str, Any], result: Any) -> list[Message]:
    """Return a call in the conversation, and its result."""
    call = {"type": "tool_use", "id": "1", "name": f"mcp__sprite__{name}", "input": given}
    told = {"type": "tool_result", "tool_use_id": "1", "content": json.dumps(result)}
    return [Message("assistant", [call]), Message("user", [told]), Message("assistant", "Done.")]


def test_earlier_sessions_card_is_updated_by_title() -> None:
    ((name, given),) = calls("update the shopping table with apples 4, pears 2", board())
    assert (name, given["card_id"]) == ("update_card", APPLES)
    assert [(block["id"], block["type"]) for block in given["blocks"]] == [("t", "table")]
    assert calls("close the note about the plan", board()) == [("close_card", {"card_id": PLAN})]


def test_untitled_request_targets_newest_card() -> None:
    assert calls("close the card", board()) == [("close_card", {"card_id": PLAN})]
    made = used("create_card", {"title": "Trip"}, {"card_id": "c9", "blocks": [{"id": "b1", "type": "note"}]})
    assert calls("close the card", board(), *made) == [("close_card", {"card_id": "c9"})]
    ((_, given),) = calls("update the card with call Bo", board(), *made)
    assert given == {"card_id": "c9", "blocks": [{"type": "note", "data": {"content": "call Bo"}, "id": "b1"}]}


def test_closed_card_is_no_target() -> None:
    closed = used("close_card", {"card_id": PLAN}, {"card_id": PLAN, "closed": True})
    assert calls("close the card", board(), *closed) == [("close_card", {"card_id": APPLES})]
    assert calls("close the card") == []


def test_canvas_question_reads_canvas() -> None:
    assert calls("What is on my canvas?") == [("read_canvas", {})]
