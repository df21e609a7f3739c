"""TurnRecorder on a real log: one observation per turn."""

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


async def test_mission_becomes_one_complete_observation(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "List my files")
    await rec.recorder.prompt_submitted("p", "List my files")
    await rec.recorder.text("I look.")
    await rec.recorder.tool_started("t1", "Bash", {"command": "t1"})
    await rec.tool("p", "t1", {"stdout": "a.txt", "stderr": ""})
    await rec.recorder.tool_answered("t1", "a.txt", is_error=False)
    await rec.recorder.text("There is a.txt.")
    await rec.recorder.stopped("p", "There is a.txt.")
    await rec.recorder.close_mission("complete")
    turn = await rec.turn()
    assert (turn.session_id, turn.mission_id, turn.trigger, turn.outcome) == (SESSION, "m-1", "user", "complete")
    assert (turn.user_message, turn.agent_response) == ("List my files", "I look.\n\nThere is a.txt.")
    assert turn.tool_calls == [
        {"tool_use_id": "t1", "name": "Bash", "input": {"command": "t1"}, "result": "a.txt", "is_error": False}
    ]
    assert (turn.notice, turn.processed) == ("", False)
    assert await rec.transcript.journal.entries() == [], "the journal is deleted with the turn"


async def test_mission_without_hooks_keeps_its_text(rec: Recording) -> None:
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


async def test_stop_hook_message_is_used_without_stream_text(rec: Recording) -> None:
    for number, streamed in enumerate(["", "streamed"]):
        rec.recorder.open_mission(f"m-{number}", "Hello")
        await rec.recorder.prompt_submitted(f"p-{number}", "Hello")
        await rec.recorder.text(streamed)
        await rec.recorder.stopped(f"p-{number}", "from the hook")
        await rec.recorder.close_mission("complete")
    assert [turn.agent_response for turn in await rec.turns()] == ["from the hook", "streamed"]


async def test_whitespace_changed_by_cli_still_matches_mission(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "  two\n\nlines ")
    await rec.recorder.prompt_submitted("p", "two lines")
    assert rec.recorder.taken_up.is_set()
    await rec.recorder.close_mission("complete")
    turn = await rec.turn()
    assert (turn.user_message, turn.notice) == ("  two\n\nlines ", "")


async def test_notice_in_mission_never_counts_as_persons(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Wait for it")
    await rec.recorder.prompt_submitted("p", "Wait for it")
    await rec.recorder.prompt_submitted("p", "<task-notification>done</task-notification>")
    await rec.recorder.close_mission("complete")
    turn = await rec.turn()
    assert (turn.user_message, turn.notice) == ("Wait for it", "<task-notification>done</task-notification>")


# Turns started by the CLI


async def test_cli_started_turn_is_marked_without_person(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p", "<task-notification>")
    assert rec.recorder.in_task_turn
    await rec.recorder.text("The build is done.")
    await rec.tool("p", "t1")
    await rec.recorder.close_task("complete")
    assert not rec.recorder.in_task_turn
    turn = await rec.turn()
    assert (turn.trigger, turn.user_message, turn.mission_id) == ("task", "", None)
    assert (turn.agent_response, turn.notice, ids(turn)) == ("The build is done.", "<task-notification>", ["t1"])


async def test_mission_merged_into_task_turn_takes_over(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p", "<task-notification>")
    await rec.recorder.text("The build")
    await rec.tool("p", "t1")
    rec.recorder.open_mission("m-1", "And the tests?")
    await rec.recorder.text(" is done.")
    assert rec.recorder.in_task_turn
    await rec.recorder.prompt_submitted("p", "And the tests?")
    assert not rec.recorder.in_task_turn
    await rec.tool("p", "t2")
    await rec.recorder.text("They pass.")
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


async def test_mission_beside_task_turn_keeps_its_text(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "My question")
    await rec.recorder.prompt_submitted("p-task", "<task-notification>")
    await rec.recorder.text("of the task")
    await rec.recorder.close_task("complete")
    await rec.recorder.prompt_submitted("p-mission", "My question")
    await rec.recorder.text("of the mission")
    await rec.recorder.close_mission("complete")
    assert [(t.trigger, t.user_message, t.agent_response) for t in await rec.turns()] == [
        ("task", "", "of the task"),
        ("user", "My question", "of the mission"),
    ]


async def test_quiet_waits_for_task_turn_until_timeout(rec: Recording) -> None:
    await rec.recorder.quiet(0)
    await rec.recorder.prompt_submitted("p", "<task-notification>")
    await rec.recorder.quiet(0.01)
    assert rec.recorder.in_task_turn
    waiting = asyncio.create_task(rec.recorder.quiet(30))
    await asyncio.sleep(0)
    assert not waiting.done()
    await rec.recorder.close_task("complete")
    await waiting


async def test_session_end_writes_open_turns_as_interrupted(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p-task", "<task-notification>")
    rec.recorder.open_mission("m-1", "Half")
    await rec.recorder.close_session()
    assert [(t.trigger, t.outcome) for t in await rec.turns()] == [("user", "interrupted"), ("task", "interrupted")]
    assert await rec.transcript.journal.entries() == []


async def test_turns_ending_together_are_written_once_each(rec: Recording) -> None:
    await rec.recorder.prompt_submitted("p-task", "<task-notification>")
    rec.recorder.open_mission("m-1", "Hello")
    await asyncio.gather(
        rec.recorder.close_task("complete"), rec.recorder.close_mission("interrupted"), rec.recorder.close_session()
    )
    assert sorted(t.trigger for t in await rec.turns()) == ["task", "user"]


# Tools that fail


async def test_interrupted_tool_is_kept_and_marked(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Sleep")
    await rec.recorder.prompt_submitted("p", "Sleep")
    await rec.recorder.tool_started("t1", "Bash", {"command": "sleep 60"})
    await rec.recorder.close_mission("interrupted")
    (call,) = (await rec.turn()).tool_calls
    assert (call["name"], call["input"]) == ("Bash", {"command": "sleep 60"})
    assert "no result" in call["result"]


async def test_denied_tool_is_kept_with_refusal(rec: Recording) -> None:
    """No hook reports a denied call: the stream's answer is the only source."""
    rec.recorder.open_mission("m-1", "Delete it")
    await rec.recorder.prompt_submitted("p", "Delete it")
    await rec.recorder.tool_started("t1", "Bash", {"command": "rm x"})
    await rec.recorder.tool_answered("t1", [{"type": "text", "text": "The person said no to this."}], is_error=True)
    await rec.recorder.close_mission("complete")
    (call,) = (await rec.turn()).tool_calls
    assert (call["result"], call["is_error"]) == ("The person said no to this.", True)


async def test_failed_tool_stays_failed_despite_stream(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Go")
    await rec.recorder.prompt_submitted("p", "Go")
    await rec.tool("p", "t1", "Exit code 1\nno such file", is_error=True)
    await rec.recorder.tool_answered("t1", "something else", is_error=False)
    await rec.recorder.close_mission("complete")
    (call,) = (await rec.turn()).tool_calls
    assert (call["result"], call["is_error"]) == ("Exit code 1\nno such file", True)


async def test_answer_to_unknown_call_is_ignored(rec: Recording) -> None:
    await rec.recorder.tool_answered("t9", "x", is_error=False)
    await rec.recorder.text("to nobody")
    await rec.recorder.tool_started("t8", "Bash", {})
    await rec.recorder.stopped("p", "x")
    await rec.recorder.close_session()
    assert await rec.turns() == []


# Hooks and stream are two tasks: their events interleave in any order

Step = Callable[[Recording], Awaitable[object]]
#: Stream events of a turn with two parallel calls, a denied call and an unfinished one.
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
#: Hook events of the same turn, with the parallel calls in either order.
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
                await step(rec)
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
async def test_interleaved_hooks_and_stream_give_same_turn(steps: list[Step]) -> None:
    assert told(await play(steps)) == told(await play([*STREAM, *HOOKS]))


async def test_interleaved_events_give_expected_turn() -> None:
    turn = await play([*HOOKS, *STREAM])
    assert turn.agent_response == "I look.\n\nDone."
    assert [(c["tool_use_id"], c["result"][:8], c["is_error"]) for c in turn.tool_calls] == [
        ("a", "hook's A", True),
        ("b", "B", False),
        ("denied", "no", True),
        ("cut", "[no resu", False),
    ]


@given(st.permutations([*STREAM, *HOOKS[1:]]))
async def test_arbitrary_event_order_keeps_text_and_single_turn(steps: list[Step]) -> None:
    turn = await play([HOOKS[0], *steps])
    assert turn.user_message == "Go"
    assert sorted(ids(turn)) == ["a", "b", "cut", "denied"]


# Disk errors


async def test_full_disk_is_reported_and_turn_written_later(tmp_path: Path) -> None:
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
