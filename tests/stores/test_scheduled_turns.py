"""A turn started by a schedule is recorded as such, and its prompt never counts as the person's words."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

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


async def test_schedule_prompt_is_stored_beside_turn_unattributed(tmp_path: Path) -> None:
    async with recording(tmp_path) as rec:
        rec.recorder.open_mission("m-1", WISH, "schedule")
        await rec.recorder.prompt_submitted("p", WISH)
        assert rec.recorder.taken_up.is_set()
        await rec.recorder.text("Noted.")
        await rec.recorder.close_mission("complete")
        turn = await rec.turn()
    assert (turn.trigger, turn.user_message, turn.notice, turn.mission_id) == ("schedule", "", WISH, "m-1")


async def test_killed_schedule_turn_keeps_its_source(tmp_path: Path) -> None:
    async def before(rec: Recording) -> None:
        rec.recorder.open_mission("m-1", WISH, "schedule")
        await rec.recorder.prompt_submitted("p", WISH)

    (turn,) = await crash_and_recover(tmp_path, before=before)
    assert (turn.trigger, turn.user_message, turn.notice, turn.outcome) == ("schedule", "", WISH, "crashed")


@pytest.mark.parametrize(("trigger", "is_wish"), [("user", True), ("schedule", False)])
async def test_schedule_text_proves_no_wish(tmp_path: Path, trigger: str, is_wish: bool) -> None:
    said: dict[str, Any] = {"user": WISH} if is_wish else {"user": "", "notice": WISH}
    async with open_stores(tmp_path) as stores:
        answer = (
            f'PREFERENCE [t] Prefers tea to coffee | "{WISH}"\nUSER_MD_UPDATE:\n# User\n\n- Prefers tea to coffee\n'
        )
        await stores.learn(answer, trigger=trigger, **said)
        learned = [learning.type for learning in await stores.learnings()]
    assert learned == (["PREFERENCE"] if is_wish else ["FACT"])
    assert ("tea" in (tmp_path / "user.md").read_text()) is is_wish


async def test_session_prompt_shows_schedule_as_source(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.turn("", "Done.", trigger="schedule", notice="Water the plants")
        text = await BootPrompt(stores.files, stores.memory, stores.transcript).text()
    assert "Schedule: Water the plants\nYou: Done." in text


# --- the inbox on disk ---


async def test_schedule_mission_is_accepted_and_resumed_once(tmp_path: Path) -> None:
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        assert await workspace.accept_mission(mission(1), "Water the plants, due at 9")
        assert not await workspace.accept_mission(mission(1), "again")
        (stored,) = await workspace.open_missions()
        (line,) = await workspace.chat(10)
    assert (stored.origin, stored.action_id, stored.due, stored.text) == ("schedule", 7, 100.0, "Water the plants")
    assert (line.text, line.origin, line.role) == ("Water the plants, due at 9", "schedule", "user")


async def test_mission_outcome_survives_restart(tmp_path: Path) -> None:
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        await workspace.accept_mission(mission(1))
        event = Failed("m-1", "budget_used_up", "Nothing is left for today.", retryable=False)
        await workspace.record([], rows("m-1", "error", "", event, origin="schedule", cost=(0.2, 0.0)))
        (end,) = await workspace.scheduled_missions()
        assert await workspace.failures_of(7, 5) == ["budget_used_up"]
        await workspace.mark_told("m-1")
        assert await workspace.scheduled_missions() == []
    assert (end.status, end.error_code, end.error) == ("error", "budget_used_up", "Nothing is left for today.")


async def test_daily_schedule_cost_is_counted_separately(tmp_path: Path) -> None:
    now = time.time()

    async def ends(workspace: WorkspaceDB, number: int, cost: float | None) -> None:
        await workspace.accept_mission(mission(number))
        event = Complete(f"m-{number}", "Done.", None, cost, 1)
        await workspace.record([], rows(f"m-{number}", "complete", "", event, origin="schedule", cost=(cost, 0.0)))

    async with open_workspace(tmp_path / "workspace.db") as workspace:
        assert await workspace.spent_by_schedules(0) == 0.0
        await workspace.record([], [TurnBegan("own", "agent", None), MissionMoved("own", "complete", cost_usd=5.0)])
        await ends(workspace, 1, 0.2)
        await ends(workspace, 2, 0.4)
        assert await workspace.spent_by_schedules(now - 1) == pytest.approx(0.6)
        # Interrupted before its cost was known: it counts as the average.
        await ends(workspace, 3, None)
        assert await workspace.spent_by_schedules(now - 1) == pytest.approx(0.9)
        assert await workspace.spent_by_schedules(time.time() + 60) == 0.0


def test_crashed_schedule_mission_is_not_offered_for_resend() -> None:
    event = left_open("m-1", None, "schedule")
    assert isinstance(event, Failed)
    assert (event.code, event.retryable) == ("crashed", False)
    assert "stopped in the middle" in event.message


async def test_killed_turn_without_tool_call_is_dropped(tmp_path: Path) -> None:
    """Context added to the prompt is no tool call; a mission that may not restart is written."""
    async with recording(tmp_path) as rec:
        rec.recorder.open_mission("m-1", WISH, "schedule")
        await rec.recorder.prompt_submitted("p", WISH)
        await rec.recorder.noted("p", "canvas", {}, "The canvas has one card.")
    async with recording(tmp_path) as rec:
        await rec.recorder.recover({"m-1"})
        assert await rec.transcript.journal.entries() == []
        assert await rec.turns() == []


async def test_killed_turn_with_tool_call_is_kept(tmp_path: Path) -> None:
    async with recording(tmp_path) as rec:
        rec.recorder.open_mission("m-1", WISH, "schedule")
        await rec.recorder.prompt_submitted("p", WISH)
        await rec.recorder.tool_starting("p", "t1", "Bash", {"command": "true"}, agent_id=None)
    async with recording(tmp_path) as rec:
        await rec.recorder.recover({"m-1"})
        assert (await rec.turn()).outcome == "crashed"


async def test_mission_begun_three_times_is_not_restarted(tmp_path: Path) -> None:
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        await workspace.accept_mission(mission(1))
        again = []
        for number in range(3):
            await workspace.record([(number + 1, b"{}")], [MissionMoved("m-1", "running", "s-1")])
            (begun,) = await workspace.open_missions()
            again.append((begun.attempt, begun.may_begin_again))
    assert again == [(1, True), (2, True), (3, False)]
