"""What is to be done, listed and closed from the terminal."""

from __future__ import annotations

from sprite.protocol.memory import ActionsResult, ResolveActionResult
from sprite.protocol.rows import ActionRow
from tests.chat_stage import in_a_pipe


def action(row_id: int, content: str, status: str = "open") -> ActionRow:
    return ActionRow(row_id, 1.0, content, 3, status, None)


async def test_actions_are_listed_and_closed_by_their_numbers() -> None:
    rows = [action(4, "Water the ficus"), action(7, "Call Zoltan"), action(9, "Long done", "done")]
    async with in_a_pipe() as chat:
        chat.type("/actions\n")
        asked = await chat.visitor.receive("memory")
        await chat.visitor.send(ActionsResult(rows), reply_to=asked["id"])
        await chat.until_seen("Call Zoltan")
        assert "Long done" not in chat.seen
        for word, status in (("done", "done"), ("dismiss", "dismissed")):
            chat.type(f"/actions {word} 4\n")
            asked = await chat.visitor.receive("memory")
            assert asked["payload"] == {"op": "resolve_action", "id": 4, "status": status}
            await chat.visitor.send(ResolveActionResult([]), reply_to=asked["id"])
        chat.type("/actions done ficus\n")
        await chat.until_seen("Which one, and how?")
        await chat.until_seen("Nothing to be done.")
