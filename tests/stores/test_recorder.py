"""Turns as they happen -> one observation each: TurnRecorder on a real log."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sprite.log.transcript import SCHEMA, Observation, TranscriptDB
from sprite.storage.connection import open_database
from tests.recording import SESSION, Recording, ids, recording

# A mission


async def test_a_mission_becomes_one_observation_with_all_that_happened(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "List my files")
    await rec.recorder.prompt_submitted("p", "List my files")
    rec.recorder.text("I look.")
    rec.recorder.tool_started("t1", "Bash", {"command": "t1"})
    await rec.tool("p", "t1", {"stdout": "a.txt", "stderr": ""})
    rec.recorder.tool_answered("t1", "a.txt", is_error=False)
    rec.recorder.text("There is a.txt.")
    await rec.recorder.stopped("p", "There is a.txt.")
    await rec.recorder.close_mission("complete")
    turn = await rec.turn()
    assert (turn.session_id, turn.mission_id, turn.trigger, turn.outcome) == (SESSION, "m-1", "user", "complete")
    assert (turn.user_message, turn.agent_response) == ("List my files", "I look.\n\nThere is a.txt.")
    assert turn.tool_calls == [
        {"tool_use_id": "t1", "name": "Bash", "input": {"command": "t1"}, "result": "a.txt", "is_error": False}
    ]
    assert (turn.notice, turn.processed) == ("", False)
    assert await rec.transcript.journal.entries() == [], "the journal goes with the turn"


async def test_a_mission_that_no_hook_ever_saw_is_kept_with_its_words(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Hello?")
    await rec.recorder.close_mission("error", "the agent's process would not start")
    turn = await rec.turn()
    assert (turn.user_message, turn.outcome, turn.notice) == (
        "Hello?",
        "error",
        "the agent's process would not start",
    )


async def test_closing_twice_writes_once(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Hello")
    await rec.recorder.close_mission("complete")
    await rec.recorder.close_mission("error")
    await rec.recorder.close_session()
    assert (await rec.turn()).outcome == "complete"


async def test_the_last_message_of_the_stop_hook_is_used_only_where_the_stream_brought_no_text(rec: Recording) -> None:
    for number, streamed in enumerate(["", "streamed"]):
        rec.recorder.open_mission(f"m-{number}", "Hello")
        await rec.recorder.prompt_submitted(f"p-{number}", "Hello")
        rec.recorder.text(streamed)
        await rec.recorder.stopped(f"p-{number}", "from the hook")
        await rec.recorder.close_mission("complete")
    assert [turn.agent_response for turn in await rec.turns()] == ["from the hook", "streamed"]


async def test_whitespace_that_the_cli_changes_does_not_hide_the_mission(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "  two\n\nlines ")
    await rec.recorder.prompt_submitted("p", "two lines")
    assert await rec.recorder.taken_up(0)
    await rec.recorder.close_mission("complete")
    turn = await rec.turn()
    assert (turn.user_message, turn.notice) == ("  two\n\nlines ", "")


async def test_a_notice_inside_a_mission_is_never_the_persons_words(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Wait for it")
    await rec.recorder.prompt_submitted("p", "Wait for it")
    await rec.recorder.prompt_submitted("p", "<task-notification>done</task-notification>")
    await rec.recorder.close_mission("complete")
    turn = await rec.turn()
    assert (turn.user_message, turn.notice) == ("Wait for it", "<task-notification>done</task-notification>")


# A turn of the CLI's own


async def test_a_turn_the_cli_begins_by_itself_is_marked_and_says_nothing_in_the_persons_name(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p", "<task-notification>")
    assert rec.recorder.in_task_turn
    rec.recorder.text("The build is done.")
    await rec.tool("p", "t1")
    await rec.recorder.close_task("complete")
    assert not rec.recorder.in_task_turn
    turn = await rec.turn()
    assert (turn.trigger, turn.user_message, turn.mission_id) == ("task", "", None)
    assert (turn.agent_response, turn.notice, ids(turn)) == ("The build is done.", "<task-notification>", ["t1"])


async def test_a_mission_merged_into_a_task_turn_ends_that_one_and_gets_what_follows(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p", "<task-notification>")
    rec.recorder.text("The build")
    await rec.tool("p", "t1")
    rec.recorder.open_mission("m-1", "And the tests?")
    rec.recorder.text(" is done.")
    assert rec.recorder.in_task_turn
    await rec.recorder.prompt_submitted("p", "And the tests?")
    assert not rec.recorder.in_task_turn
    await rec.tool("p", "t2")
    rec.recorder.text("They pass.")
    await rec.recorder.stopped("p", "They pass.")
    await rec.recorder.close_mission("complete")
    task, mission = await rec.turns()
    assert (task.trigger, task.user_message, task.agent_response, ids(task)) == (
        "task",
        "",
        "The build\n\n is done.",
        ["t1"],
    )
    assert (mission.trigger, mission.user_message, mission.agent_response, ids(mission)) == (
        "user",
        "And the tests?",
        "They pass.",
        ["t2"],
    )
    assert await rec.transcript.journal.entries() == []


async def test_a_mission_beside_a_task_turn_keeps_its_own_words(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "My question")
    await rec.recorder.prompt_submitted("p-task", "<task-notification>")
    rec.recorder.text("of the task")
    await rec.recorder.close_task("complete")
    await rec.recorder.prompt_submitted("p-mission", "My question")
    rec.recorder.text("of the mission")
    await rec.recorder.close_mission("complete")
    assert [(t.trigger, t.user_message, t.agent_response) for t in await rec.turns()] == [
        ("task", "", "of the task"),
        ("user", "My question", "of the mission"),
    ]


async def test_quiet_waits_for_the_end_of_a_task_turn_and_no_longer_than_asked(rec: Recording) -> None:
    await rec.recorder.quiet(0)
    await rec.recorder.prompt_submitted("p", "<task-notification>")
    await rec.recorder.quiet(0.01)
    assert rec.recorder.in_task_turn
    waiting = asyncio.create_task(rec.recorder.quiet(30))
    await asyncio.sleep(0)
    assert not waiting.done()
    await rec.recorder.close_task("complete")
    await waiting


async def test_what_is_open_when_the_session_ends_is_written_as_interrupted(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p-task", "<task-notification>")
    rec.recorder.open_mission("m-1", "Half")
    await rec.recorder.close_session()
    assert [(t.trigger, t.outcome) for t in await rec.turns()] == [("user", "interrupted"), ("task", "interrupted")]
    assert await rec.transcript.journal.entries() == []


async def test_turns_that_end_in_the_same_moment_are_each_written_once(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p-task", "<task-notification>")
    rec.recorder.open_mission("m-1", "Hello")
    await asyncio.gather(
        rec.recorder.close_task("complete"), rec.recorder.close_mission("interrupted"), rec.recorder.close_session()
    )
    assert sorted(t.trigger for t in await rec.turns()) == ["task", "user"]


# Tools that do not end well


async def test_a_tool_that_is_cut_off_is_kept_and_says_so(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Sleep")
    await rec.recorder.prompt_submitted("p", "Sleep")
    rec.recorder.tool_started("t1", "Bash", {"command": "sleep 60"})
    await rec.recorder.close_mission("interrupted")
    (call,) = (await rec.turn()).tool_calls
    assert (call["name"], call["input"]) == ("Bash", {"command": "sleep 60"})
    assert "no result" in call["result"]


async def test_a_denied_tool_is_kept_with_what_the_agent_was_told(rec: Recording) -> None:
    """No hook reports a denied call: the stream's answer is all there is."""
    rec.recorder.open_mission("m-1", "Delete it")
    await rec.recorder.prompt_submitted("p", "Delete it")
    rec.recorder.tool_started("t1", "Bash", {"command": "rm x"})
    rec.recorder.tool_answered("t1", [{"type": "text", "text": "The person said no to this."}], is_error=True)
    await rec.recorder.close_mission("complete")
    (call,) = (await rec.turn()).tool_calls
    assert (call["result"], call["is_error"]) == ("The person said no to this.", True)


async def test_a_failed_tool_is_kept_as_failed_whatever_the_stream_adds(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Go")
    await rec.recorder.prompt_submitted("p", "Go")
    await rec.tool("p", "t1", "Exit code 1\nno such file", is_error=True)
    rec.recorder.tool_answered("t1", "something else", is_error=False)
    await rec.recorder.close_mission("complete")
    (call,) = (await rec.turn()).tool_calls
    assert (call["result"], call["is_error"]) == ("Exit code 1\nno such file", True)


async def test_an_answer_to_a_call_nobody_knows_changes_nothing(rec: Recording) -> None:
    rec.recorder.tool_answered("t9", "x", is_error=False)
    rec.recorder.text("to nobody")
    rec.recorder.tool_started("t8", "Bash", {})
    await rec.recorder.stopped("p", "x")
    await rec.recorder.close_session()
    assert await rec.turns() == []


# Hooks and stream are two tasks: their events interleave as they like

Step = Callable[[Recording], Awaitable[object] | None]
#: What the stream brings of a turn with two parallel calls, a denied one and one that never ends.
STREAM: Sequence[Step] = [
    lambda r: r.recorder.text("I look."),
    lambda r: r.recorder.tool_started("a", "Bash", {"command": "a"}),
    lambda r: r.recorder.tool_started("b", "Bash", {"command": "b"}),
    lambda r: r.recorder.tool_answered("b", "B", is_error=False),
    lambda r: r.recorder.tool_answered("a", "stream's A", is_error=True),
    lambda r: r.recorder.tool_started("denied", "Write", {"file_path": "/etc/x"}),
    lambda r: r.recorder.tool_answered("denied", "no", is_error=True),
    lambda r: r.recorder.tool_started("cut", "Bash", {"command": "sleep 60"}),
    lambda r: r.recorder.text("Done."),
]
#: What the hooks report of the same turn, the parallel calls in either order.
HOOKS: Sequence[Step] = [
    lambda r: r.recorder.prompt_submitted("p", "Go"),
    lambda r: r.tool("p", "b", {"stdout": "B"}),
    lambda r: r.tool("p", "a", "hook's A", is_error=True),
    lambda r: r.recorder.stopped("p", "Done."),
]


async def play(steps: Sequence[Step]) -> Observation:
    with tempfile.TemporaryDirectory() as folder:
        async with recording(Path(folder)) as rec:
            rec.recorder.open_mission("m-1", "Go")
            for step in steps:
                if (awaitable := step(rec)) is not None:
                    await awaitable
            await rec.recorder.close_mission("complete")
            return await rec.turn()


@st.composite
def interleavings(draw: st.DrawFn) -> list[Step]:
    stream, hooks = list(STREAM), list(HOOKS)
    if draw(st.booleans()):
        hooks[1], hooks[2] = hooks[2], hooks[1]
    steps = []
    while stream or hooks:
        source = stream if stream and (not hooks or draw(st.booleans())) else hooks
        steps.append(source.pop(0))
    return steps


def told(turn: Observation) -> dict[str, Any]:
    return {key: value for key, value in asdict(turn).items() if key not in {"id", "timestamp"}}


@settings(max_examples=settings().max_examples // 2)
@given(interleavings())
async def test_hooks_and_stream_in_any_order_tell_the_same_turn(steps: list[Step]) -> None:
    assert told(await play(steps)) == told(await play([*STREAM, *HOOKS]))


async def test_the_turn_they_tell_is_the_true_one() -> None:
    turn = await play([*HOOKS, *STREAM])
    assert turn.agent_response == "I look.\n\nDone."
    assert [(c["tool_use_id"], c["result"][:8], c["is_error"]) for c in turn.tool_calls] == [
        ("a", "hook's A", True),
        ("b", "B", False),
        ("denied", "no", True),
        ("cut", "[no resu", False),
    ]


@given(st.permutations([*STREAM, *HOOKS[1:]]))
async def test_no_order_at_all_loses_the_words_or_makes_a_second_turn(steps: list[Step]) -> None:
    turn = await play([HOOKS[0], *steps])
    assert turn.user_message == "Go"
    assert sorted(ids(turn)) == ["a", "b", "cut", "denied"]


# The disk refuses


async def test_a_full_disk_is_said_and_the_turn_is_written_when_there_is_room(tmp_path: Path) -> None:
    async with open_database(tmp_path / "transcript.db", SCHEMA) as database:
        rec = Recording(TranscriptDB(database))
        await rec.transcript.start_session(SESSION)
        pages = await database.fetch_value("PRAGMA page_count")
        await database.execute(f"PRAGMA max_page_count = {pages}")
        for number in range(2):
            rec.recorder.open_mission(f"m-{number}", "Remember this " + "x" * 50_000)
            await rec.recorder.prompt_submitted(f"p-{number}", "Remember this " + "x" * 50_000)
            await rec.recorder.close_mission("complete")
        assert await rec.turns() == []
        assert rec.complaints
        assert all("disk" in words for words in rec.complaints)
        await database.execute("PRAGMA max_page_count = 100000")
        rec.recorder.open_mission("m-2", "Is there room?")
        await rec.recorder.close_mission("complete")
        assert [turn.mission_id for turn in await rec.turns()] == ["m-0", "m-1", "m-2"]
