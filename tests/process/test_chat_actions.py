"""Action commands of the terminal: list, add, change and close actions, and show schedules."""

from __future__ import annotations

import time
from typing import Any

from bridge.terminal.terminal import state_line
from sprite.protocol.memory import ActionsResult, ResolveActionResult
from sprite.protocol.messages import ChatSaid, NextDue, ScheduleUpdate
from sprite.protocol.shapes import ActionChange, ActionRow, ChatMessage
from tests.chat_stage import Chat, in_a_pipe, in_a_terminal
from tests.chat_stand_in import state_sync


def action(row_id: int, content: str, status: str = "open", **more: Any) -> ActionRow:
    return ActionRow(row_id, 1.0, content, 3, status, None, **more)


async def asked(chat: Chat, line: str) -> dict[str, Any]:
    """Type a command and return the memory request that the terminal sends."""
    chat.type(f"{line}\n")
    message: dict[str, Any] = await chat.visitor.receive("memory")
    return message


async def test_actions_are_listed_without_numbers_and_closed() -> None:
    rows = [action(1000004, "Water the ficus"), action(1000007, "Call Zoltan"), action(9, "Long done", "done")]
    async with in_a_pipe() as chat:
        message = await asked(chat, "/actions")
        await chat.visitor.send(ActionsResult(rows), reply_to=message["id"])
        await chat.until_seen("Call Zoltan")
        assert "Long done" not in chat.seen
        assert "100000" not in chat.seen
        for word, status, row in (
            ("done", "done", rows[0]),
            ("dismiss", "dismissed", rows[0]),
            ("reopen", "open", rows[2]),
        ):
            message = await asked(chat, f"/actions {word} {row.content}")
            await chat.visitor.send(ActionsResult(rows), reply_to=message["id"])
            message = await chat.visitor.receive("memory")
            assert message["payload"] == {"op": "resolve_action", "id": row.id, "status": status, "version": 1}
            await chat.visitor.send(ResolveActionResult([]), reply_to=message["id"])
        chat.type("/actions undo ficus\n")
        await chat.until_seen("needs an action")
        await chat.until_seen("No open to-dos.")


async def test_action_is_closed_by_its_words() -> None:
    """Words of several actions list these."""
    rows = [action(4, "Water the ficus"), action(7, "Call Zoltan"), action(8, "Call Zoe"), action(9, "Call", "done")]
    async with in_a_pipe() as chat:
        message = await asked(chat, "/actions done zolt")
        await chat.visitor.send(ActionsResult(rows), reply_to=message["id"])
        message = await chat.visitor.receive("memory")
        assert message["payload"] == {"op": "resolve_action", "id": 7, "status": "done", "version": 1}
        await chat.visitor.send(ResolveActionResult([]), reply_to=message["id"])
        message = await asked(chat, "/actions done call")
        await chat.visitor.send(ActionsResult(rows), reply_to=message["id"])
        await chat.until_seen("Several have these words: Call Zoltan; Call Zoe.")
        message = await asked(chat, "/actions reopen call")
        await chat.visitor.send(ActionsResult(rows), reply_to=message["id"])
        assert (await chat.visitor.receive("memory"))["payload"]["id"] == 9


async def test_actions_are_sorted_by_due_time() -> None:
    """Each line shows the recurrence, and a failed action shows its reason."""
    now = time.time()
    rows = [
        action(1, "The attic"),
        action(2, "Report", due=now + 9 * 86_400, rrule="FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=8;BYMINUTE=0"),
        action(3, "Call Zoltan", due=now - 3600),
        action(4, "Photos", "failed", history=[ActionChange(1.0, "sprite", "the model was out")]),
        action(5, "Odd", due=now + 20 * 86_400, rrule="FREQ=MONTHLY;BYSETPOS=1;BYDAY=MO"),
    ]
    async with in_a_pipe() as chat:
        message = await asked(chat, "/actions")
        await chat.visitor.send(ActionsResult(rows), reply_to=message["id"])
        await chat.until_seen("The attic")
        places = [chat.seen.index(row.content) for row in (rows[3], rows[2], rows[1], rows[4], rows[0])]
        assert places == sorted(places)
        for words in ("did not work: the model was out", "overdue since", "every weekday at 08:00", "by the rule FREQ"):
            assert words in chat.seen


async def test_numbers_for_the_agent_are_not_shown() -> None:
    async with in_a_pipe() as chat:
        mission = await chat.mission("remind me")
        tools = [("schedule", {"content": "Call Bo", "due": "tomorrow"}), ("complete_action", {"id": 1000004})]
        for number, (name, given) in enumerate(tools):
            call = {"tool_use_id": str(number)}
            await chat.event("tool_use", mission, name=f"mcp__sprite__{name}", input=given, **call)
            await chat.event("tool_result", mission, is_error=False, summary="Its id: 1000004", **call)
        await chat.answer(mission, "Done.")
        await chat.until_seen("Done.")
    assert "▸ schedule  Call Bo" in chat.seen
    assert "1000004" not in chat.seen


async def test_scheduled_turn_is_labelled() -> None:
    """The label appears for live and past turns."""
    past = ChatMessage(1, "user", "Feed the cat", 1.0, "s0", origin="schedule")
    async with in_a_terminal(state_sync(chat=[past])) as chat:
        await chat.until_seen("by schedule: ")
        assert "Feed the cat" in chat.seen
        await chat.visitor.send(ChatSaid("s1", "user", "Water the ficus", 1.0, "schedule"))
        assert "Water the ficus" not in chat.seen
        await chat.event("started", "s1", origin="schedule")
        await chat.until_seen("Water the ficus")
        await chat.answer("s1", "It looks fine.")
        await chat.until_seen("It looks fine.")
        assert "as scheduled" not in chat.seen


async def test_program_mission_is_labelled_with_name() -> None:
    """The label appears for live and past missions."""
    past = ChatMessage(1, "user", "Feed the cat", 1.0, "p0", asked_by="feeder")
    async with in_a_terminal(state_sync(chat=[past])) as chat:
        await chat.until_seen("feeder asks: ")
        await chat.visitor.send(ChatSaid("p1", "user", "Water the ficus", 1.0, asked_by="planner"))
        await chat.until_seen("planner asks: ")
        assert "Water the ficus" in chat.seen


async def test_state_line_shows_next_due_action() -> None:
    soon = NextDue(4, time.time() + 60)
    async with in_a_terminal(state_sync(next_due=soon)) as chat:
        await chat.until(lambda now: "next: " in state_line(now))
        await chat.visitor.send(ScheduleUpdate(None))
        await chat.until(lambda now: now.next_due is None)
        assert "next: " not in state_line(chat.conversation)


async def test_time_zone_is_sent_when_it_differs() -> None:
    """The terminal sends its time zone once, before the first message."""
    async with in_a_terminal(zone="Europe/Berlin") as chat:
        chat.type("hello\r")
        told = await chat.visitor.receive("system")
        assert (told["payload"]["action"], told["payload"].get("tz")) == ("zone", "Europe/Berlin")
        await chat.visitor.receive("mission")
        chat.type("again\r")
        await chat.visitor.receive("mission")
    async with in_a_terminal(state_sync(tz="Europe/Berlin"), zone="Europe/Berlin") as chat:
        chat.type("hello\r")
        first = await chat.visitor.receive("mission")
        assert first["payload"]["text"] == "hello"
        assert chat.conversation.tz == "Europe/Berlin"
