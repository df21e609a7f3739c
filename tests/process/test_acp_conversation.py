"""An editor session under lost connections, duplicates and late answers, over a real relay and a scripted sprite."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from sprite.protocol.events import AnyAgentEvent, Started, ToolUse, WholeText
from sprite.protocol.messages import (
    Ack,
    ChatSaid,
    Error,
    PermissionRequest,
    PermissionResolved,
    Running,
    SessionUpdate,
    Status,
)
from sprite.protocol.shapes import ChatMessage, Paused, UsedTool
from tests.acp_stage import acp_stage
from tests.chat_stand_in import state_sync


async def test_reply_continues_after_reconnect() -> None:
    """The editor shows no text twice, and the message ends once."""
    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("tell me")
        mission = await stage.taken("tell me")
        await stage.event("started", mission)
        await stage.event("text_delta", mission, text="Once upon ")
        await stage.until_shown("Once upon")
        stage.visitor.cut()
        stage.visitor = await stage.sprite.visitor()
        await stage.visitor.welcome(last_seq=2)
        # The deltas sent meanwhile are lost, but the whole text arrives.
        await stage.event("text_delta", mission, text="there")
        await stage.event("text", mission, text="Once upon a time there was")
        await stage.event("complete", mission, text="Once upon a time there was")
        assert await asked == "end_turn"
        assert stage.shown == "Once upon a time there was"


async def test_thinking_is_shown_once_per_thought() -> None:
    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("hello")
        mission = await stage.taken("hello")
        await stage.event("started", mission)
        for thought in ("Perhaps ", "a parrot."):
            await stage.event("thinking", mission, text=thought)
        await stage.event("text", mission, text="A bird.")
        await stage.event("thinking", mission, text="Or a bat?")
        await stage.event("complete", mission, text="A bird.")
        assert await asked == "end_turn"
        assert str(stage.editor.updates).count("Thinking …") == 2


async def test_gap_is_filled_from_state_sync() -> None:
    """The state contains the missed messages and the outcome of the turn."""
    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("hello")
        mission = await stage.taken("hello")
        await stage.event("started", mission)
        await stage.event("tool_use", mission, tool_use_id="t1", name="Bash", input={"command": "ls"})
        await stage.event("text_delta", mission, text="I was say")
        await stage.until_shown("I was say")
        tools = [UsedTool("Bash", "ls", False), UsedTool("Read", "a.txt", False)]
        told = [
            ChatMessage(1, "user", "hello", 1.0, mission, status="complete"),
            ChatMessage(2, "assistant", "I was saying hello.", 2.0, mission, tools=tools, status="complete"),
            ChatMessage(3, "user", "and from the page", 3.0, "m2", status="complete"),
            ChatMessage(4, "assistant", "Hello, page.", 4.0, "m2", status="complete"),
        ]
        await stage.reconnected(state_sync(chat=told))
        assert await asked == "end_turn"
        await stage.until_shown("Hello, page.")
        assert stage.shown == "I was saying hello.<and from the page>Hello, page."
        ends = {call.tool_call_id: call.status for call in stage.editor.calls(stage.session)}
        assert ends == {"t1": "completed", "past-1": "completed"}


async def test_running_turn_continues_after_gap() -> None:
    """The editor shows only text that it has not shown before."""
    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("hello")
        mission = await stage.taken("hello")
        await stage.event("started", mission)
        await stage.event("text", mission, text="First.")
        await stage.event("text_delta", mission, text="Sec")
        await stage.until_shown("Sec")
        events: list[AnyAgentEvent] = [
            Started(mission),
            WholeText(mission, "First."),
            WholeText(mission, "Second."),
            ToolUse(mission, "t1", "Bash", {"command": "ls"}),
        ]
        chat = [ChatMessage(1, "user", "hello", 1.0, mission, status="running")]
        await stage.reconnected(state_sync(chat=chat, running=Running(mission, events, "Thi")), epoch="e2")
        await stage.event("text_delta", mission, text="rd.")
        await stage.event("text", mission, text="Third.")
        await stage.event("complete", mission, text="all of it")
        assert await asked == "end_turn"
        assert stage.shown == "First.\n\nSecond.Third."


@pytest.mark.parametrize(
    ("status", "role", "words"),
    [("interrupted", "assistant", None), ("error", "error", "The model is busy"), (None, "", "no longer known")],
)
async def test_message_ended_during_gap_keeps_outcome(status: str | None, role: str, words: str | None) -> None:
    from acp.exceptions import RequestError

    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("hello")
        mission = await stage.taken("hello")
        # The editor learns first that the sprite accepted the message.
        await stage.event("started", mission)
        await stage.event("text_delta", mission, text="Well")
        await stage.until_shown("Well")
        told = [
            ChatMessage(1, "user", "hello", 1.0, mission, status=status),  # type: ignore[arg-type]
            ChatMessage(2, role, words or "", 2.0, mission, status=status),  # type: ignore[arg-type]
        ]
        await stage.reconnected(state_sync(chat=told if status else []))
        if words is None:
            assert await asked == "cancelled"
        else:
            with pytest.raises(RequestError, match=words):
                await asked


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ({"kind": "complete"}, "end_turn"),
        ({"kind": "interrupted"}, "cancelled"),
        ({"kind": "error", "code": "max_turns", "message": "Too many.", "retryable": False}, "max_turn_requests"),
    ],
)
async def test_turn_outcome_maps_to_stop_reason(ending: dict[str, object], reason: str) -> None:
    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("hello")
        fields = dict(ending)
        await stage.event(str(fields.pop("kind")), await stage.taken("hello"), **fields)
        assert await asked == reason


async def test_agent_error_and_rejection_show_message() -> None:
    from acp.exceptions import RequestError

    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("hello")
        mission = await stage.taken("hello")
        await stage.event("error", mission, code="overloaded", message="The model is busy.", retryable=True)
        with pytest.raises(RequestError, match="The model is busy"):
            await asked
        asked = stage.say("again")
        refused = await stage.visitor.receive("mission")
        await stage.visitor.send(Error("storage", "The disk is full."), reply_to=refused["id"])
        with pytest.raises(RequestError, match="The disk is full"):
            await asked


async def test_queued_message_ignores_other_turns_output() -> None:
    """The editor shows the queue position of the message."""
    async with acp_stage() as stage:
        await stage.begin()
        await stage.send(ChatSaid("m0", "user", "from the page", 1.0))
        await stage.event("started", "m0")
        await stage.event("text", "m0", text="To the page.")
        await stage.until_shown("To the page.")
        asked = stage.say("from here")
        mission = await stage.taken("from here", status="queued", position=1)
        await stage.until_shown("Queued at position 1")
        await stage.event("text", "m0", text="More for the page.")
        await stage.event("tool_use", "m0", tool_use_id="t1", name="Bash", input={})
        await stage.event("complete", "m0", text="")
        await stage.event("started", mission)
        await stage.event("text", mission, text="To you.")
        await stage.event("complete", mission, text="To you.")
        assert await asked == "end_turn"
        assert stage.shown == "<from the page>To the page.To you."
        assert stage.editor.calls(stage.session) == []


async def test_turn_queued_elsewhere_is_shown_after_own() -> None:
    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("from here")
        mission = await stage.taken("from here")
        await stage.event("started", mission)
        await stage.send(ChatSaid("m2", "user", "from the page", 1.0))
        await stage.event("complete", mission, text="To you.")
        assert await asked == "end_turn"
        await stage.event("started", "m2")
        await stage.event("complete", "m2", text="To the page.")
        await stage.until_shown("To the page.")
        assert stage.shown == "To you.<from the page>To the page."


async def test_unprompted_turn_shows_origin() -> None:
    async with acp_stage() as stage:
        await stage.begin()
        await stage.event("started", "own", origin="agent")
        await stage.event("text", "own", text="The build has ended.")
        await stage.event("complete", "own", text="The build has ended.")
        await stage.send(ChatSaid("due", "user", "Water the ficus", 1.0, origin="schedule"))
        await stage.event("started", "due", origin="schedule")
        await stage.event("error", "due", code="x", message="No water.", retryable=False)
        await stage.until_shown("No water.")
        await stage.send(ChatSaid("asked", "user", "Pay Kraken", 1.0, asked_by="planner"))
        await stage.event("started", "asked")
        await stage.event("error", "asked", code="x", message="No money.", retryable=False)
        await stage.until_shown("No money.")
        assert stage.shown == (
            "The build has ended.<By schedule: Water the ficus>✗ No water.<planner asks: Pay Kraken>✗ No money."
        )
        await stage.until_shown("Sprite, by itself")


async def test_offline_cancel_is_sent_after_reconnect() -> None:
    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("hello")
        mission = await stage.taken("hello")
        await stage.event("started", mission)
        await stage.event("text_delta", mission, text="A")
        await stage.until_shown("A")
        stage.visitor.cut()
        visitor = await stage.sprite.visitor()
        await stage.editor.connection.cancel(session_id=stage.session)
        assert await asked == "cancelled"
        await visitor.welcome(last_seq=2)
        stage.visitor = visitor
        assert (await visitor.receive("interrupt"))["payload"] == {"mission_id": mission}


async def test_message_waits_for_lost_bridge() -> None:
    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("hello")
        mission = await stage.taken("hello")
        await stage.event("started", mission)
        await stage.lose_bridge()
        await stage.until_shown("Nothing you sent is lost")
        stage.is_away = False
        await stage.caught_up()
        await stage.event("text", mission, text="Here I am.")
        await stage.event("complete", mission, text="Here I am.")
        assert await asked == "end_turn"
        assert "Here I am." in stage.shown


async def test_unanswered_question_stays_open() -> None:
    """An answer to a closed question is not an error."""
    async with acp_stage() as stage:
        await stage.begin()
        stage.editor.answer = "cancelled"
        request = PermissionRequest("r1", "elsewhere", "Bash", {"command": "ls"}, always="ls in this folder")
        await stage.send(request)
        await stage.editor.until(lambda: stage.editor.questions)
        _, _, options = stage.editor.questions[0]
        assert [(option.option_id, option.kind) for option in options] == [
            ("allow", "allow_once"),
            ("always", "allow_always"),
            ("deny", "reject_once"),
        ]
        assert options[1].name == "Always allow ls in this folder"
        await stage.send(PermissionResolved("r1", "deny"))
        await stage.editor.until(lambda: [c.status for c in stage.editor.calls(stage.session)] == ["pending", "failed"])
        # A redacted copy of a closed question is not asked; a repeated question is asked once.
        await stage.send(PermissionRequest("r2", None, "Bash", {}, redacted=True))
        stage.editor.answer = "always"
        for _ in range(2):
            await stage.send(PermissionRequest("r3", None, "Bash", {"command": "ls"}))
        answer = await stage.visitor.receive("permission")
        assert answer["payload"] == {"request_id": "r3", "decision": "always"}
        await stage.visitor.send(Error("not_found", "This question is not open any more."), reply_to=answer["id"])
        assert len(stage.editor.questions) == 2
        asked = stage.say("hello")
        await stage.event("complete", await stage.taken("hello"))
        assert await asked == "end_turn"


async def test_two_sessions_keep_questions_apart() -> None:
    """Each session shows the messages of the other one."""
    async with acp_stage() as stage:
        await stage.begin()
        opening = asyncio.create_task(stage.editor.new_session())
        other = await opening
        asked = stage.say("from the first")
        mission = await stage.taken("from the first")
        await stage.send(ChatSaid(mission, "user", "from the first", 1.0))
        await stage.event("started", mission)
        await stage.event("tool_use", mission, tool_use_id="t1", name="Bash", input={"command": "ls"})
        stage.editor.answer = "deny"
        # A question from elsewhere goes to the last active session, a question about a message to its sender.
        await stage.send(PermissionRequest("r1", "m9", "Bash", {"command": "pwd"}))
        assert (await stage.visitor.receive("permission"))["payload"]["request_id"] == "r1"
        await stage.send(PermissionRequest("r2", mission, "Bash", {"command": "ls"}))
        assert (await stage.visitor.receive("permission"))["payload"] == {"request_id": "r2", "decision": "deny"}
        assert [(session, call.tool_call_id) for session, call, _ in stage.editor.questions] == [
            (stage.session, "question-r1"),
            (stage.session, "t1"),
        ]
        await stage.event("tool_result", mission, tool_use_id="t1", is_error=True, summary="denied")
        await stage.event("text", mission, text="Then not.")
        await stage.event("complete", mission, text="Then not.")
        assert await asked == "end_turn"
        assert stage.shown == "Then not."
        assert stage.editor.shown(other) == "<from the first>Then not."


async def test_message_acked_twice_ends_once() -> None:
    async with acp_stage() as stage:
        await stage.begin()
        asked = stage.say("hello")
        sent = await stage.visitor.receive("mission")
        stage.visitor.cut()
        stage.visitor = await stage.sprite.visitor()
        await stage.visitor.welcome(last_seq=0)
        again = await stage.visitor.receive("mission")
        assert again["id"] == sent["id"]
        await stage.visitor.send(Ack(status="duplicate"), reply_to=again["id"])
        await stage.event("complete", again["id"])
        assert await asked == "end_turn"


async def test_paused_agent_is_shown_and_resumes() -> None:
    sync = state_sync()
    waits = replace(sync.session, paused=Paused("Five turns in a row.", "turns", 1.0))
    async with acp_stage() as stage:
        await stage.begin()
        await stage.send(SessionUpdate(waits))
        await stage.until_shown("Five turns in a row. /go-on resumes the agent.")
        asked = stage.say("/go-on")
        message = await stage.visitor.receive("system")
        assert message["payload"]["action"] == "go_on"
        await stage.visitor.send(Status("go_on", sync.session, sync.memory, None, "ask", None), reply_to=message["id"])
        assert await asked == "end_turn"
        await stage.until_shown("The agent continues.")


async def test_restarted_reminder_is_shown_again() -> None:
    async with acp_stage() as stage:
        await stage.begin()
        await stage.event("started", "s1", origin="schedule")
        await stage.event("text", "s1", text="Call the dentist.")
        await stage.event("started", "s1", origin="schedule", attempt=2)
        await stage.until_shown("Begun again")
        await stage.event("text", "s1", text="Call the dentist.")
        await stage.event("complete", "s1", text="Call the dentist.")
        await stage.editor.until(lambda: stage.shown.count("Call the dentist.") == 2)
