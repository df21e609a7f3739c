"""The terminal's display of turns and background work without a person's message, and handling of short answers."""

from __future__ import annotations

import re
import time
from typing import Literal

import pytest
from msgspec.structs import replace

from bridge.terminal.conversation import Conversation
from bridge.terminal.drawing import MARK
from bridge.terminal.terminal import state_line
from sprite.protocol.events import Started, ToolUse
from sprite.protocol.memory import RetryResult
from sprite.protocol.messages import Ack, PermissionRequest, PermissionResolved, Running, SessionUpdate, Status
from sprite.protocol.shapes import (
    BackgroundWork,
    ChatMessage,
    MemoryState,
    Paused,
    QuarantinedTurn,
    SessionState,
    Stopped,
    UsedTool,
)
from tests.chat_stage import in_a_pipe, in_a_terminal
from tests.chat_stand_in import state_sync


def session(*work: BackgroundWork) -> SessionState:
    return SessionState("s1", 1.0, 3, None, 0, background=list(work))


def npm_test() -> BackgroundWork:
    return BackgroundWork("b1", "command", "npm test", time.time() - 42)


def running(conversation: Conversation) -> str | None:
    return conversation.turn.id if conversation.turn is not None else None


async def test_background_turn_is_labelled_and_stoppable() -> None:
    async with in_a_terminal() as chat:
        await chat.event("started", "t1", origin="agent")
        await chat.until_seen("Sprite, by itself")
        assert "working…" in state_line(chat.conversation)
        chat.type("\x03")
        assert (await chat.visitor.receive("interrupt"))["payload"] == {"mission_id": "t1"}
        await chat.event("interrupted", "t1")
        await chat.until_seen("■ stopped")
        await chat.until(lambda now: "idle" in state_line(now))


async def test_mission_continues_after_background_turn() -> None:
    async with in_a_terminal() as chat:
        mission = await chat.mission("hello")
        await chat.event("started", "t1", origin="agent")
        await chat.until(lambda now: running(now) == "t1")
        await chat.answer("t1", "First this.")
        await chat.until(lambda now: running(now) == mission)
        await chat.answer(mission, "Then that.")
        await chat.until(lambda now: now.turn is None)


async def test_ctrl_c_stops_background_work() -> None:
    """The state line shows the work and its duration."""
    async with in_a_terminal() as chat:
        await chat.visitor.send(SessionUpdate(session(npm_test())))
        await chat.until(lambda now: bool(now.background))
        since = re.search(r"in the background: npm test, (\d+):(\d\d)", state_line(chat.conversation))
        assert since is not None
        assert int(since[1]) * 60 + int(since[2]) >= 42
        # With text on the line, Ctrl-C only clears the line.
        chat.type("half a mess\x03")
        chat.type("\x03")
        message = await chat.visitor.receive("interrupt")
        assert message["payload"] == {}
        await chat.visitor.send(Ack("done", stopped=[Stopped("b1", "command")]), reply_to=message["id"])
        await chat.until_seen("stopped in the background: \x1b[0m\x1b[2mnpm test")
        await chat.visitor.send(SessionUpdate(session()))
        await chat.until(lambda now: "idle" in state_line(now))


async def test_background_message_during_gap_is_shown_once() -> None:
    before = ChatMessage(1, "assistant", "Long ago.", 1.0, "t0", origin="agent")
    tools = [UsedTool("Bash", "ls", is_error=False)] * 2 + [UsedTool("Read", "x", is_error=True)]
    meanwhile = ChatMessage(2, "assistant", "It is green.", 2.0, "t1", origin="agent", tools=tools)
    async with in_a_pipe(state_sync(chat=[before])) as chat:
        await chat.until_seen("Sprite, by itself")
        for epoch in ("e2", "e3"):
            await chat.reconnected(state_sync(chat=[before, meanwhile]), epoch=epoch)
        await chat.until_seen("It is green.")
        chat.type("/help\n")
        await chat.until_seen("/status")
    assert "Bash x2, Read (failed)" in chat.seen
    assert chat.seen.count("It is green.") == chat.seen.count("Long ago.") == 1


async def test_missed_messages_and_tools_are_shown() -> None:
    """They are shown once after a gap."""
    tool = UsedTool("Read", "x", is_error=False)
    elsewhere = [
        ChatMessage(1, "user", "from the page", 1.0, "m1", status="interrupted"),
        ChatMessage(2, "assistant", "Half of it", 2.0, "m1", tools=[tool], status="interrupted"),
    ]
    async with in_a_pipe() as chat:
        mission = await chat.mission("ours")
        seen = ToolUse(mission, "u1", "Bash", {"command": "seen before"})
        await chat.event("tool_use", mission, tool_use_id="u1", name="Bash", input=seen.input)
        await chat.until_seen("seen before")
        missed = ToolUse(mission, "u2", "Bash", {"command": "was missed"})
        running = Running(mission, [Started(mission), seen, missed], "")
        ours = ChatMessage(3, "user", "ours", 3.0, mission, status="running")
        await chat.reconnected(state_sync(chat=[*elsewhere, ours], running=running))
        await chat.until_seen("■ stopped")
        await chat.answer(mission, "All done.")
        await chat.until_seen("All done.")
    for words in (f"{MARK}from the page", "Half of it", "▸ Read", "was missed", "seen before", f"{MARK}ours"):
        assert chat.seen.count(words) == 1, words


async def test_background_question_outlives_turn() -> None:
    async with in_a_terminal() as chat:
        mission = await chat.mission("begin it")
        await chat.visitor.send(PermissionRequest("r1", mission, "Bash", {"command": "make"}, background=True))
        await chat.until_seen("May the agent use")
        await chat.answer(mission, "It goes on.")
        await chat.until(lambda now: now.turn is None)
        chat.type("y\r")
        answer = await chat.visitor.receive("permission")
        assert answer["payload"] == {"request_id": "r1", "decision": "allow"}


async def test_piped_line_answers_question_without_mission() -> None:
    question = PermissionRequest("r1", "m0", "Bash", {"command": "make"})
    async with in_a_pipe(state_sync(permissions=[question])) as chat:
        await chat.until_seen("May the agent use")
        chat.type("n\n")
        answer = await chat.visitor.receive("permission")
        assert answer["payload"] == {"request_id": "r1", "decision": "deny"}


@pytest.mark.parametrize(("typed_before", "typed_after"), [("", "y\r"), ("y", "\r")])
async def test_answer_to_closed_question_is_not_sent(typed_before: str, typed_after: str) -> None:
    async with in_a_terminal() as chat:
        mission = await chat.mission("run it")
        await chat.visitor.send(PermissionRequest("r1", mission, "Bash", {"command": "make"}))
        await chat.until_seen("May the agent use")
        chat.type(typed_before)
        await chat.until(lambda now: now.asked == "r1")
        await chat.visitor.send(PermissionResolved("r1", None))
        await chat.until(lambda now: not now.questions)
        chat.type(typed_after)
        await chat.until_seen("not open any more: nothing was sent")
        # With a leading space, the text is a message.
        chat.type(" y\r")
        assert (await chat.visitor.receive("mission"))["payload"]["text"] == "y"


async def test_text_typed_before_question_is_not_answer() -> None:
    async with in_a_terminal() as chat:
        mission = await chat.mission("run it")
        chat.type("ye")
        await chat.until_seen("ye")
        await chat.visitor.send(PermissionRequest("r1", mission, "Bash", {"command": "make"}))
        await chat.until_seen("May the agent use")
        chat.type("s\r")
        await chat.until_seen("a question came while you typed: nothing was sent")
        chat.type("n\r")
        answer = await chat.visitor.receive("permission")
        assert answer["payload"] == {"request_id": "r1", "decision": "deny"}


async def test_quarantined_turn_is_shown_and_retried() -> None:
    aside = [QuarantinedTurn(12, "The model refused it.", 1.0)]
    memory = MemoryState([], 0, 12, 0, 0.0, quarantined=aside)
    async with in_a_pipe() as chat:
        chat.type("/status\n")
        asked = await chat.visitor.receive("system")
        await chat.visitor.send(Status("status", session(), memory, None, "ask", None), reply_to=asked["id"])
        await chat.until_seen("turn 12: The model refused it. (/retry 12 tries again)")
        chat.type("/retry 12\n")
        asked = await chat.visitor.receive("memory")
        assert asked["payload"] == {"op": "retry", "turn_id": 12}
        await chat.visitor.send(RetryResult([]), reply_to=asked["id"])
        await chat.until_seen("turn 12 waits to be learned from again")


async def test_restarted_reminder_replaces_partial_reply() -> None:
    async with in_a_terminal() as chat:
        await chat.event("started", "s1", origin="schedule")
        await chat.event("text_delta", "s1", text="Call the")
        await chat.until_seen("Call the")
        await chat.event("started", "s1", origin="schedule", attempt=2)
        await chat.until_seen("Begun again: Sprite was stopped before it had done anything.")
        await chat.answer("s1", "Call the dentist.")
        await chat.until_seen("Call the dentist.")
        await chat.until(lambda now: now.turn is None)


@pytest.mark.parametrize(("by", "raises"), [("turns", False), ("budget", True), ("month", False)])
async def test_paused_agent_shows_reason_and_resumes(by: Literal["turns", "budget", "month"], raises: bool) -> None:
    waits = replace(session(), paused=Paused("Five turns in a row.", by, 1.0))
    async with in_a_terminal() as chat:
        chat.type("/go-on\r")
        await chat.until_seen("nothing is paused")
        await chat.visitor.send(SessionUpdate(waits))
        await chat.until_seen("Five turns in a row.")
        assert "paused (/go-on)" in state_line(chat.conversation)
        chat.type("/go-on\r")
        message = await chat.visitor.receive("system")
        asked = message["payload"]
        assert (asked["action"], asked.get("raise_limit", False)) == ("go_on", raises)
        await chat.visitor.send(SessionUpdate(session()))
        await chat.until(lambda now: now.paused is None)
