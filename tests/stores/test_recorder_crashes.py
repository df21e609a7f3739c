"""Recovery of the journal of a killed process: it becomes observations at the next start."""

from __future__ import annotations

from pathlib import Path

from sprite.capture.recorder import TurnRecorder
from sprite.capture.turn_buffer import TurnBuffer
from tests.recording import SESSION, Recording, crash_and_recover


async def test_killed_turn_is_recovered_from_journal(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        rec.recorder.open_mission("m-1", "List my files")
        await rec.recorder.prompt_submitted("p", "List my files")
        await rec.recorder.text("I look.")
        await rec.tool("p", "t1", {"stdout": "a.txt"})
        await rec.recorder.prompt_submitted("p", "<task-notification>")
        await rec.recorder.text("There is a.txt.")
        await rec.tool("p", "t2", "boom", is_error=True, agent_id="agent-1")

    (turn,) = await crash_and_recover(tmp_path, before=before)
    assert (turn.outcome, turn.mission_id, turn.trigger, turn.session_id) == ("crashed", "m-1", "user", SESSION)
    assert (turn.user_message, turn.notice) == ("List my files", "<task-notification>")
    assert turn.agent_response == "I look.\n\nThere is a.txt."
    assert [(c["tool_use_id"], c["result"], c["is_error"], c.get("agent_id")) for c in turn.tool_calls] == [
        ("t1", "a.txt", False, None),
        ("t2", "boom", True, "agent-1"),
    ]


async def test_turn_killed_after_last_text_keeps_it(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        rec.recorder.open_mission("m-1", "Hello")
        await rec.recorder.prompt_submitted("p", "Hello")
        await rec.recorder.stopped("p", "Hello to you")

    (turn,) = await crash_and_recover(tmp_path, before=before)
    assert (turn.outcome, turn.agent_response) == ("crashed", "Hello to you")


async def test_killed_turns_are_recovered_once_in_order(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        for number in range(4):
            # A new recorder for each: four processes that were killed one after the other.
            crashed = TurnRecorder(rec.transcript, rec.complaints.append)
            crashed.session_id = SESSION
            crashed.open_mission(f"m-{number}", f"Mission {number}")
            await crashed.prompt_submitted(f"p-{number}", f"Mission {number}")
        await rec.tool("p-0", "late")

    turns = await crash_and_recover(tmp_path, before=before)
    assert [t.user_message for t in turns] == ["Mission 0", "Mission 1", "Mission 2", "Mission 3", ""]
    assert [t.trigger for t in turns] == ["user"] * 4 + ["task"]
    assert {t.outcome for t in turns} == {"crashed"}
    assert [t.timestamp for t in turns] == sorted(t.timestamp for t in turns), "dated by their last activity"


async def test_task_turn_killed_before_merge_is_recovered_separately(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        await rec.recorder.prompt_submitted("p", "<task-notification>")
        rec.recorder.open_mission("m-1", "And then?")
        await rec.recorder.prompt_submitted("p", "And then?")
        await rec.tool("p", "t2")

    turns = await crash_and_recover(tmp_path, before=before)
    assert [(t.trigger, t.outcome) for t in turns] == [("task", "complete"), ("user", "crashed")]


async def test_hook_after_turn_end_does_not_block_start(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        rec.recorder.open_mission("m-1", "Hello")
        await rec.recorder.prompt_submitted("p", "Hello")
        await rec.recorder.close_mission("complete")
        late = TurnBuffer(SESSION, "user", "m-1", "Hello")
        await rec.transcript.journal.append(late.key, SESSION, "stop", {**late.snapshot(), "message": "too late"})

    (turn,) = await crash_and_recover(tmp_path, before=before)
    assert turn.outcome == "complete"


async def test_clean_shutdown_leaves_nothing_to_recover(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", "Hello")
    await rec.recorder.prompt_submitted("p", "Hello")
    await rec.recorder.close_mission("complete")
    await rec.recorder.recover()
    assert (await rec.turn()).outcome == "complete"
