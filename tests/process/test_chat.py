"""The chat client over a real socket: in a pipe, and in a terminal whose keys and screen are in memory."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from rich.text import Text

from bridge.terminal.terminal import state_line
from sprite.protocol.memory import FilesResult, LearningsResult
from sprite.protocol.messages import (
    Ack,
    CanvasUpdate,
    ChatSaid,
    Error,
    MemoryUpdate,
    PermissionRequest,
    PermissionResolved,
    Status,
)
from sprite.protocol.shapes import Block, ChatMessage, FileState
from tests.chat_stage import in_a_pipe, in_a_terminal
from tests.chat_stand_in import learned, state_sync
from tests.harness import PATIENCE


async def test_streamed_reply_is_printed_once() -> None:
    async with in_a_pipe() as chat:
        await chat.answer(await chat.mission("hello"), "Hel", "lo the", "re.\nSecond ", "line.")
        await chat.until_seen("Second line.")
    assert chat.seen.count("Hello there.") == 1
    assert chat.seen.count("Second line.") == 1
    assert chat.seen.index("Welcome") < chat.seen.index("hello") < chat.seen.index("Hello there.")


async def test_reply_without_deltas_is_printed() -> None:
    """The reply arrives only with the `complete` event."""
    async with in_a_pipe() as chat:
        mission = await chat.mission("hello")
        await chat.event("complete", mission, text="All at once.")
        await chat.until_seen("All at once.")


async def test_piped_lines_are_sent_in_order() -> None:
    """The terminal sends each line after the previous answer, and end of input waits for the last answer."""
    async with in_a_pipe() as chat:
        chat.type("one\ntwo")
        first = await chat.visitor.receive("mission")
        await chat.visitor.send(Ack(status="accepted"), reply_to=first["id"])
        await chat.answer(first["id"], "first answer")
        chat.end_input()
        second = await chat.visitor.receive("mission")
        assert second["payload"]["text"] == "two"
        assert not chat.talking.done()
        await chat.answer(second["id"], "second answer")
        async with asyncio.timeout(PATIENCE):
            await chat.talking
    assert chat.seen.index("first answer") < chat.seen.index("two")


async def test_tools_cards_and_memory_are_shown_live() -> None:
    async with in_a_pipe() as chat:
        mission = await chat.mission("do it")
        await chat.event("tool_use", mission, tool_use_id="t1", name="Bash", input={"command": "ls"})
        await chat.event("tool_result", mission, tool_use_id="t1", is_error=False, summary="a.txt")
        await chat.event("tool_use", mission, tool_use_id="t2", name="Bash", input={"command": "false"})
        await chat.event("tool_use", mission, tool_use_id="t3", name="Read", input={"file_path": "/x"})
        await chat.event("tool_result", mission, tool_use_id="t2", is_error=True, summary="exit 1")
        table = Block("b", "table", {"columns": ["Item", "Price"], "rows": [["Tea", 3]]})
        await chat.visitor.send(CanvasUpdate("create_card", "c1", "s1", "Shopping", "table", [table]))
        await chat.visitor.send(MemoryUpdate(["user.md"], [learned(1, "FACT", "Likes tea")], curation_id=1))
        await chat.event("tool_use", mission, tool_use_id="t4", name="mcp__sprite__create_card", input={})
        await chat.event("tool_result", mission, tool_use_id="t4", is_error=False, summary='{"card_id":1}')
        await chat.answer(mission, "Done.")
        await chat.until_seen("Done.")
    assert "card_id" not in chat.seen
    for words in ("▸ Bash  ls", "✓ a.txt", "✗ Bash  exit 1", "Shopping", "Tea", "remembered 1 thing"):
        assert words in chat.seen


async def test_import_is_remembered_in_one_line() -> None:
    sync = state_sync()
    many = msgspec.structs.replace(sync.memory, waiting=60)
    async with in_a_pipe(state_sync(memory=many)) as chat:
        await chat.visitor.send(MemoryUpdate(["user.md"], [learned(1, "FACT", "Likes tea")], curation_id=1))
        await chat.visitor.send(MemoryUpdate(["user.md"], [learned(2, "FACT", "Likes rum")], curation_id=2))
        asked = await chat.visitor.receive("system")
        status = Status("status", sync.session, sync.memory, None, "ask", None)
        await chat.visitor.send(status, reply_to=asked["id"])
        await chat.until_seen("remembered 2 things · user.md updated")
    assert chat.seen.count("remembered") == 1


async def test_error_shows_message() -> None:
    async with in_a_pipe() as chat:
        mission = await chat.mission("hello")
        await chat.event("error", mission, code="overloaded", message="The model is busy.", retryable=True)
        await chat.until_seen("The model is busy.")
        chat.type("again\n")
        refused = await chat.visitor.receive("mission")
        await chat.visitor.send(Error(code="storage", message="The disk is full."), reply_to=refused["id"])
        await chat.until_seen("The disk is full.")
        await chat.mission("a line after a refused one")


async def test_piped_line_answers_permission_question() -> None:
    """Any answer other than yes denies the request."""
    async with in_a_pipe() as chat:
        chat.type("run it\ny\nnext\n")
        mission = await chat.visitor.receive("mission")
        for request_id, decision in (("r1", "allow"), ("r2", "deny")):
            await chat.visitor.send(PermissionRequest(request_id, mission["id"], "Bash", {"command": "ls"}))
            answer = await chat.visitor.receive("permission")
            assert answer["payload"] == {"request_id": request_id, "decision": decision}
        await chat.answer(mission["id"], "Done.")
        assert (await chat.visitor.receive("mission"))["payload"]["text"] == "next"


async def test_session_answer_is_for_hosts_only() -> None:
    """The line `s` is a message while a command is asked about."""
    async with in_a_pipe() as chat:
        chat.type("run it\ns\n")
        mission = await chat.visitor.receive("mission")
        host = PermissionRequest("r1", mission["id"], "network", {"host": "a.org"}, always="a.org", session="a.org")
        await chat.visitor.send(host)
        answer = await chat.visitor.receive("permission")
        assert answer["payload"] == {"request_id": "r1", "decision": "session"}
        await chat.until_seen("allowed in this session")
        chat.type("s\n")
        await chat.visitor.send(PermissionRequest("r2", mission["id"], "Bash", {"command": "ls"}))
        answer = await chat.visitor.receive("permission")
        assert answer["payload"] == {"request_id": "r2", "decision": "deny"}


async def test_host_question_shows_command_and_answers() -> None:
    """A letter that is no answer is not sent; a longer message is, and the screen says so."""
    async with in_a_terminal() as chat:
        mission = await chat.mission("fetch it")
        await chat.event("tool_use", mission, tool_use_id="t1", name="Bash", input={"command": "curl a.org"})
        host = PermissionRequest("r1", mission, "network", {"host": "a.org"}, always="a.org", session="a.org")
        await chat.visitor.send(host)
        await chat.until_seen("allow in this session")
        plain = Text.from_ansi(chat.seen).plain
        assert "Bash  curl a.org" in plain[plain.index("May the agent reach") :]
        assert "y allow · n deny · s this session · a always" in state_line(chat.conversation)
        chat.type("x\r")
        await chat.until_seen("x is not a possible answer")
        chat.type("why do you ask?\r")
        assert (await chat.visitor.receive("mission"))["payload"]["text"] == "why do you ask?"
        await chat.until_seen("question is still open")
        chat.type("s\r")
        assert (await chat.visitor.receive("permission"))["payload"]["decision"] == "session"


async def test_unknown_command_is_not_sent() -> None:
    async with in_a_pipe() as chat:
        chat.type("/memroy\n")
        await chat.until_seen("Did you mean /memory?")
        await chat.mission("the first thing that is sent")


async def test_memory_command_shows_files_and_learnings() -> None:
    async with in_a_pipe() as chat:
        chat.type("/memory\n")
        files = [FileState("user.md", 12, 200, "curated", None)]
        asked = await chat.visitor.receive("memory")
        await chat.visitor.send(FilesResult(files), reply_to=asked["id"])
        asked = await chat.visitor.receive("memory")
        assert asked["payload"] == {"op": "learnings", "newest": True, "limit": 8}
        rows = [learned(2, "CORRECTION", "Likes tea"), learned(1, "FACT", "Likes coffee", superseded_by=2)]
        await chat.visitor.send(LearningsResult(rows), reply_to=asked["id"])
        await chat.until_seen("Likes coffee")
        assert chat.seen.index("Likes tea") < chat.seen.index("Likes coffee")
        chat.type("/memory nope.md\n")
        asked = await chat.visitor.receive("memory")
        assert asked["payload"] == {"op": "file", "name": "nope.md"}
        await chat.visitor.send(Error("not_found", "There is no file nope.md."), reply_to=asked["id"])
        await chat.until_seen("There is no file nope.md.")
    assert "12/200" in chat.seen


async def test_missed_answer_is_shown_after_gap() -> None:
    """The terminal stops waiting for the turn and sends the next line."""
    async with in_a_pipe() as chat:
        mission = await chat.mission("hello")
        await chat.event("text_delta", mission, text="I was say")
        told = [
            ChatMessage(1, "user", "hello", 1.0, mission),
            ChatMessage(2, "assistant", "I was saying hello.", 2.0, mission),
        ]
        await chat.reconnected(state_sync(chat=told))
        await chat.until_seen("I was saying hello.")
        chat.type("more\n")
        assert (await chat.visitor.receive("mission"))["payload"]["text"] == "more"


async def test_plain_output_has_no_control_sequences() -> None:
    async with in_a_pipe() as chat:
        mission = await chat.mission("hello")
        await chat.event("tool_use", mission, tool_use_id="t", name="Bash", input={"command": "\x1b[2Jls"})
        await chat.answer(mission, "\x1b]0;title\x07", "[bold]text[/bold]\x1b[", "31m")
        await chat.until_seen("[bold]text[/bold]")
        chat.type("/help\n")
        await chat.until_seen("/search QUERY")
        await chat.until_seen("Ctrl-D")
    assert "\x1b" not in chat.seen
    lines = chat.seen[chat.seen.index("/new ") :].splitlines()
    assert all(line.startswith(("/", "Ctrl-", "Alt-")) for line in lines if line), "a command takes two lines"


async def test_history_is_shown_at_start() -> None:
    told = [ChatMessage(1, "user", "my name is Ada", 1.0, "m0")]
    async with in_a_pipe(state_sync(chat=told)) as chat:
        await chat.until_seen("my name is Ada")


async def test_ctrl_c_interrupts_running_turn() -> None:
    """Without a running turn, Ctrl-C prints how to leave."""
    async with in_a_terminal() as chat:
        chat.type("\x03")
        await chat.until_seen("Ctrl-D or /quit to leave")
        mission = await chat.mission("hello")
        chat.type("\x03")
        await chat.visitor.receive("interrupt")
        await chat.event("interrupted", mission)
        await chat.until_seen("■ stopped")
        await chat.until(lambda now: now.turn is None)


async def test_message_during_turn_is_queued() -> None:
    async with in_a_terminal() as chat:
        await chat.mission("first")
        chat.type("second\r")
        message = await chat.visitor.receive("mission")
        await chat.visitor.send(Ack(status="queued", position=1), reply_to=message["id"])
        await chat.until_seen("queued, position 1")


async def test_single_letter_answers_permission_question() -> None:
    """A longer message that begins with the same letter is sent as a mission."""
    async with in_a_terminal() as chat:
        mission = await chat.mission("run it")
        await chat.visitor.send(PermissionRequest("r1", mission, "Bash", {"command": "make"}))
        await chat.until_seen("May the agent use")
        chat.type("and then rest\r")
        assert (await chat.visitor.receive("mission"))["payload"]["text"] == "and then rest"
        chat.type("n\r")
        answer = await chat.visitor.receive("permission")
        assert answer["payload"] == {"request_id": "r1", "decision": "deny"}
        await chat.until_seen("denied")


async def test_resolved_question_is_removed() -> None:
    async with in_a_terminal() as chat:
        mission = await chat.mission("run it")
        await chat.visitor.send(PermissionRequest("r1", mission, "Bash", {"command": "make"}))
        await chat.until_seen("May the agent use")
        await chat.visitor.send(PermissionResolved("r1", "deny"))
        await chat.event("interrupted", mission)
        await chat.until(lambda now: "idle" in state_line(now))


async def test_partial_reply_is_shown_before_completion() -> None:
    async with in_a_terminal() as chat:
        mission = await chat.mission("tell me")
        await chat.event("text_delta", mission, text="Growing")
        await chat.until_seen("Growing")
        await chat.event("text_delta", mission, text=" text")
        await chat.event("text", mission, text="Growing text")
        await chat.event("complete", mission, text="Growing text")
        await chat.until_seen("Growing text")


@pytest.mark.parametrize("leaving", ["/quit\r", "/exit\r", "\x04"])
async def test_quit_exit_and_ctrl_d_leave(leaving: str) -> None:
    async with in_a_terminal() as chat:
        chat.type(leaving)
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([chat.talking])


async def test_message_from_other_page_is_shown_once() -> None:
    """The terminal does not repeat its own messages."""
    async with in_a_pipe() as chat:
        mission = await chat.mission("ours")
        await chat.visitor.send(ChatSaid(mission, "user", "ours", 1.0), seq=50)
        await chat.visitor.send(ChatSaid("other", "user", "from the page", 1.0), seq=51)
        await chat.until_seen("from the page")
    assert chat.seen.count("ours") == 1


async def test_open_question_is_asked_at_start() -> None:
    """The question disappears when another page answers it."""
    question = PermissionRequest("r1", "m1", "Bash", {"command": "make"})
    async with in_a_terminal(state_sync(permissions=[question])) as chat:
        await chat.until_seen("May the agent use")
        # The live stream may repeat the question.
        await chat.visitor.send(question, seq=50)
        await chat.visitor.send(PermissionResolved("r1", "allow"), seq=51)
        await chat.until(lambda now: not now.questions)
    assert chat.seen.count("May the agent use") == 1


async def test_running_command_shows_its_output() -> None:
    """The lines stand above the input, and go with the command."""
    async with in_a_terminal() as chat:
        mission = await chat.mission("build it")
        await chat.event("tool_use", mission, tool_use_id="t1", name="Bash", input={"command": "make"})
        await chat.event("tool_output", mission, tool_use_id="t1", text="\n".join(f"step {n}" for n in range(9)))
        await chat.until_seen("step 8")
        assert "step 2" not in chat.seen
        assert chat.conversation.output[0] == "step 3"
        await chat.event("tool_result", mission, tool_use_id="t1", is_error=False, summary="built")
        await chat.until(lambda conversation: not conversation.output)
