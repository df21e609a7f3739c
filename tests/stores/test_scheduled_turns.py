"""A turn that a schedule begins is kept as one, and what it was told is never taken for the person's words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sprite.agent.mission_end import left_open, rows
from sprite.boot.prompt import BootPrompt
from sprite.protocol.events import Complete, Failed
from sprite.workspace.database import MissionMoved, StoredMission, TurnBegan, WorkspaceDB, open_workspace
from tests.memory_stores import open_stores
from tests.recording import Recording, crash_and_recover, recording

WISH = "I prefer tea to coffee, always."


def mission(number: int, action: int | None = 7) -> StoredMission:
    return StoredMission(f"m-{number}", "Water the plants", None, "queued", None, "schedule", action, 100.0)


async def test_what_a_schedule_asked_for_is_kept_beside_the_turn_and_is_nobodys_word(tmp_path: Path) -> None:
    async with recording(tmp_path) as rec:
        rec.recorder.open_mission("m-1", WISH, "schedule")
        await rec.recorder.prompt_submitted("p", WISH)
        assert rec.recorder.has_taken_up
        rec.recorder.text("Noted.")
        await rec.recorder.close_mission("complete")
        turn = await rec.turn()
    assert (turn.trigger, turn.user_message, turn.notice, turn.mission_id) == ("schedule", "", WISH, "m-1")


async def test_a_schedules_turn_that_was_killed_is_still_one(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        rec.recorder.open_mission("m-1", WISH, "schedule")
        await rec.recorder.prompt_submitted("p", WISH)

    (turn,) = await crash_and_recover(tmp_path, before=before)
    assert (turn.trigger, turn.user_message, turn.notice, turn.outcome) == ("schedule", "", WISH, "crashed")


@pytest.mark.parametrize(("trigger", "is_wish"), [("user", True), ("schedule", False)])
async def test_a_schedules_words_prove_no_wish_of_the_persons(tmp_path: Path, trigger: str, is_wish: bool) -> None:
    said = {"user": WISH} if is_wish else {"user": "", "notice": WISH}
    async with open_stores(tmp_path) as stores:
        answer = (
            f'PREFERENCE [t] Prefers tea to coffee | "{WISH}"\nUSER_MD_UPDATE:\n# User\n\n- Prefers tea to coffee\n'
        )
        await stores.learn(answer, trigger=trigger, **said)
        learned = [learning.type for learning in await stores.learnings()]
    assert learned == (["PREFERENCE"] if is_wish else ["FACT"])
    assert ("tea" in (tmp_path / "user.md").read_text()) is is_wish


async def test_a_new_session_is_told_that_it_was_the_schedule(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.turn("", "Done.", trigger="schedule", notice="Water the plants")
        text = await BootPrompt(stores.files, stores.memory, stores.transcript, tmp_path / "skills").text()
    assert "Schedule: Water the plants\nYou: Done." in text


# --- the inbox on disk ---


async def test_a_schedules_mission_is_taken_once_and_comes_back_as_one(tmp_path: Path) -> None:
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        assert await workspace.accept_mission(mission(1), "Water the plants, due at 9")
        assert not await workspace.accept_mission(mission(1), "again")
        (stored,) = await workspace.open_missions()
        (line,) = await workspace.chat(10)
    assert (stored.origin, stored.action_id, stored.due, stored.text) == ("schedule", 7, 100.0, "Water the plants")
    assert (line.text, line.origin, line.role) == ("Water the plants, due at 9", "schedule", "user")


async def test_how_a_mission_ended_outlives_the_process(tmp_path: Path) -> None:
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        await workspace.accept_mission(mission(1))
        event = Failed("m-1", "budget_used_up", "Nothing is left for today.", retryable=False)
        await workspace.record([], rows("m-1", "error", "", event, origin="schedule", cost_usd=0.2))
        (end,) = await workspace.scheduled_missions()
        assert await workspace.failures_of(7, 5) == ["budget_used_up"]
        await workspace.mark_told("m-1")
        assert await workspace.scheduled_missions() == []
    assert (end.status, end.error_code, end.error) == ("error", "budget_used_up", "Nothing is left for today.")


async def test_what_schedules_cost_today_is_counted_by_itself(tmp_path: Path) -> None:
    now = time.time()

    async def ends(workspace: WorkspaceDB, number: int, cost: float | None) -> None:
        await workspace.accept_mission(mission(number))
        event = Complete(f"m-{number}", "Done.", None, cost, 1)
        await workspace.record([], rows(f"m-{number}", "complete", "", event, origin="schedule", cost_usd=cost))

    async with open_workspace(tmp_path / "workspace.db") as workspace:
        assert await workspace.spent_by_schedules(0) == 0.0
        await workspace.record([], [TurnBegan("own", "agent", None), MissionMoved("own", "complete", cost_usd=5.0)])
        await ends(workspace, 1, 0.2)
        await ends(workspace, 2, 0.4)
        assert await workspace.spent_by_schedules(now - 1) == pytest.approx(0.6)
        # Cut off before it could say: it counts as what they cost on the average.
        await ends(workspace, 3, None)
        assert await workspace.spent_by_schedules(now - 1) == pytest.approx(0.9)
        assert await workspace.spent_by_schedules(time.time() + 60) == 0.0


def test_a_schedules_mission_that_crashed_is_not_for_the_person_to_send_again() -> None:
    event = left_open("m-1", None, "schedule")
    assert isinstance(event, Failed)
    assert (event.code, event.retryable) == ("crashed", False)
    assert "cut off" in event.message


async def test_killed_turn_without_a_tool_call_is_dropped(tmp_path: Path) -> None:
    """What was told with its prompt is no call of the agent's; a mission that may not begin again is written."""
    async with recording(tmp_path) as rec:
        rec.recorder.open_mission("m-1", WISH, "schedule")
        await rec.recorder.prompt_submitted("p", WISH)
        await rec.recorder.noted("p", "canvas", {}, "The canvas has one card.")
    async with recording(tmp_path) as rec:
        await rec.recorder.recover({"m-1"})
        assert await rec.transcript.journal.entries() == []
        assert await rec.turns() == []


async def test_killed_turn_with_a_tool_call_is_kept(tmp_path: Path) -> None:
    async with recording(tmp_path) as rec:
        rec.recorder.open_mission("m-1", WISH, "schedule")
        await rec.recorder.prompt_submitted("p", WISH)
        await rec.recorder.tool_starting("p", "t1", "Bash", {"command": "true"}, agent_id=None)
    async with recording(tmp_path) as rec:
        await rec.recorder.recover({"m-1"})
        assert (await rec.turn()).outcome == "crashed"


async def test_mission_begun_three_times_begins_no_more(tmp_path: Path) -> None:
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        await workspace.accept_mission(mission(1))
        again = []
        for number in range(3):
            await workspace.record([(number + 1, b"{}")], [MissionMoved("m-1", "running", "s-1")])
            (begun,) = await workspace.open_missions()
            again.append((begun.attempt, begun.may_begin_again))
    assert again == [(1, True), (2, True), (3, False)]
