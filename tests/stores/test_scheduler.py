"""Due actions fire once, despite clock changes and kills, and record their outcome."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sprite.agent.mission_end import left_open, rows
from sprite.boot.prompt import open_actions
from sprite.errors import PeerError
from sprite.memory.action_rows import Maker
from sprite.memory.decision import Action, ProjectedActions
from sprite.scheduler.scheduler import TRIED_AGAIN_SECONDS, mission_id_of
from tests.memory_stores import rebuilt
from tests.scheduling import DAY, HOUR, MINUTE, NINE, Clock, Scheduling, history, scheduling

DAILY = "FREQ=DAILY;BYHOUR=9"


async def next_told(here: Scheduling) -> list[float | None]:
    """Return the announced due times in order."""
    await here.feed.drain()
    told = [message["payload"]["next_due"] for message in here.published if message["type"] == "schedule_update"]
    return [None if due is None else due["at"] for due in told]


async def test_due_action_fires_once_and_completes(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add(after=HOUR)
        await here.look()
        assert await here.waiting() == []
        await here.look(later=HOUR)
        await here.look()
        (mission,) = await here.waiting()
        assert mission.id == mission_id_of(action.id, NINE + HOUR)
        assert (mission.origin, mission.action_id) == ("schedule", action.id)
        assert "<due_action" in mission.text
        assert "Water the plants" in mission.text
        fired = await here.action(action)
        assert (fired.status, fired.due) == ("open", None)
        await here.end()
        await here.look()
        done = await here.action(action)
        assert done.status == "done"
        assert history(done)[-1] == "done"
        await here.look(later=DAY)
        assert await here.runs() == ["Water the plants"]
        assert await next_told(here) == [NINE + HOUR, None]


async def test_repeat_fires_each_time_and_stays_open(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add(after=0, rrule=DAILY)
        for day in range(3):
            await here.look(later=DAY if day else 0)
            await here.end()
            await here.look()
        repeat = await here.action(action)
        assert (repeat.status, repeat.due) == ("open", NINE + 3 * DAY)
        assert len(await here.runs()) == 3
        assert history(repeat)[-1] == "ran"


async def test_missed_occurrences_fire_once_with_delay(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add("Look at the kiln", after=0, rrule="FREQ=MINUTELY;INTERVAL=5")
        # More than ten thousand of its occurrences.
        await here.look(later=10_000 * 5 * MINUTE + 1)
        (mission,) = await here.waiting()
        assert "34 days late" in mission.text
        assert "missed" in mission.text
        await here.end()
        await here.look()
        assert len(await here.runs()) == 1
        assert "34 days late" in (await here.runs())[0]
        assert (await here.action(action)).due == NINE + 10_001 * 5 * MINUTE


async def test_slow_repeat_does_not_pile_up(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        await here.add(after=0, rrule="FREQ=MINUTELY;INTERVAL=5")
        for _ in range(4):
            await here.look(later=6 * MINUTE)
        assert len(await here.waiting()) == 1
        await here.end()
        await here.look()
        assert len(await here.waiting()) == 1


async def test_due_actions_fire_sequentially_in_order(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        for minutes in (30, 10, 20):
            await here.add(f"At {minutes}", after=minutes * MINUTE)
        await here.look(later=HOUR)
        for _ in range(3):
            assert len(await here.waiting()) == 1
            await here.end()
            await here.look()
        assert [run.split("\n")[0] for run in await here.runs()] == ["At 10", "At 20", "At 30"]


async def test_persons_mission_precedes_due_actions(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        for number in range(3):
            await here.add(f"Due {number}", after=0)
        await here.look(later=MINUTE)
        assert await here.runtime.submit("11111111-2222-4333-8444-555555555555", "Hello", None) is not None
        origins = [mission.origin for mission in await here.waiting()]
        assert origins == ["schedule", "person"]


async def test_clock_set_back_fires_nothing_twice(tmp_path: Path) -> None:
    """A clock that is set forward fires late."""
    async with scheduling(tmp_path) as here:
        once, repeat = await here.add(after=0), await here.add("Sweep", after=MINUTE, rrule=DAILY)
        for later in (MINUTE, -2 * HOUR, HOUR, HOUR, 0):
            await here.look(later=later)
            if await here.waiting():
                await here.end()
            await here.look()
        assert sorted(run.split("\n")[0] for run in await here.runs()) == ["Sweep", "Water the plants"]
        assert (await here.action(once)).status == "done"
        await here.look(later=30 * DAY)
        await here.end()
        await here.look()
        assert len(await here.runs()) == 3
        assert (await here.action(repeat)).due is not None


# --- changes by people before and during firing ---


@pytest.mark.parametrize("status", ["done", "dismissed"])
async def test_action_closed_early_never_fires(tmp_path: Path, status: str) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add(after=HOUR)
        await here.look()
        await here.actions.resolve(action.id, status, by="person")
        await here.look(later=2 * HOUR)
        assert await here.runs() == []
        assert await next_told(here) == [NINE + HOUR, None]


@pytest.mark.parametrize("change", ["dismissed", "moved", "forgotten"])
async def test_action_changed_while_queued_is_withdrawn(tmp_path: Path, change: str) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add(after=0)
        await here.look()
        (mission,) = await here.waiting()
        if change == "dismissed":
            await here.actions.resolve(action.id, "dismissed", by="person")
        elif change == "moved":
            await here.actions.update(action.id, by="person", due=NINE + DAY)
        else:
            await here.stores.memory.apply(lambda tx: ProjectedActions(tx).change(action.id, id=77), cursor=0)
        assert here.runtime.inbox.queued() == [mission.id]
        await here.look()
        assert here.runtime.inbox.queued() == []
        await here.end("interrupted")
        await here.look()
        if change == "moved":
            assert (await here.action(action)).status == "open"
            await here.look(later=DAY)
            assert len(await here.waiting()) == 1
        elif change == "dismissed":
            assert (await here.action(action)).status == "dismissed"


async def test_action_completed_by_agent_is_left_alone(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add(after=0)
        await here.look()
        await here.actions.resolve(action.id, "done", by="schedule", note="watered")
        await here.end()
        await here.look()
        done = await here.action(action)
        assert (done.status, history(done)[-1]) == ("done", "done: watered")


# --- killed ---


class KilledError(Exception):
    """Simulates the end of the process."""


async def _killed_at(here: Scheduling, step: str) -> None:
    """Run the scheduler, and die at the start or the end of the step."""
    before, name = step.split(" ")
    owner = here.actions if hasattr(here.actions, name) else here.workspace
    real: Callable[..., Awaitable[object]] = getattr(owner, name)

    async def dies(*args: object, **more: object) -> None:
        if before == "after":
            await real(*args, **more)
        raise KilledError

    object.__setattr__(owner, name, dies)
    with pytest.raises(KilledError):
        await here.scheduler.look()


@pytest.mark.parametrize("step", ["before accept_mission", "after accept_mission", "before fired", "after fired"])
@pytest.mark.parametrize("rrule", [None, DAILY])
async def test_kill_during_firing_still_fires_once(tmp_path: Path, step: str, rrule: str | None) -> None:
    clock = Clock()
    async with scheduling(tmp_path, clock) as here:
        action = await here.add(after=0, rrule=rrule)
        await _killed_at(here, step)
    for _ in range(3):
        async with scheduling(tmp_path, clock) as here:
            await here.look(later=MINUTE)
            assert len(await here.waiting()) == 1
            assert (await here.action(action)).due == (None if rrule is None else NINE + DAY)
    async with scheduling(tmp_path, clock) as here:
        await here.look()
        mission = await here.end()
        await here.look()
        assert mission.id == mission_id_of(action.id, NINE)
        await here.look(later=HOUR)
        assert len(await here.runs()) == 1
        assert (await here.action(action)).status == ("done" if rrule is None else "open")
        assert len([what for what in history(await here.action(action)) if what.startswith("fired")]) == 1


@pytest.mark.parametrize("step", ["before noted", "after noted", "before mark_told", "after mark_told"])
async def test_kill_during_completion_records_it_once(tmp_path: Path, step: str) -> None:
    clock = Clock()
    async with scheduling(tmp_path, clock) as here:
        action = await here.add(after=0, rrule=DAILY)
        await here.look()
        await here.end()
        await _killed_at(here, step)
    async with scheduling(tmp_path, clock) as here:
        await here.look()
        await here.look()
        assert [what for what in history(await here.action(action)) if what == "ran"] == ["ran"]
        assert await here.workspace.scheduled_missions() == []


async def test_mission_killed_midway_is_not_repeated(tmp_path: Path) -> None:
    """The action records the kill."""
    clock = Clock()
    async with scheduling(tmp_path, clock) as here:
        action = await here.add(after=0)
        await here.look()
        (mission,) = await here.waiting()
        event = left_open(mission.id, None, "schedule")
        await here.workspace.record([], rows(mission.id, "crashed", "", event, origin="schedule"))
    async with scheduling(tmp_path, clock) as here:
        await here.look(later=HOUR)
        failed = await here.action(action)
        assert (failed.status, failed.due) == ("failed", None)
        assert history(failed)[-1] == "the sprite was stopped in the middle of it"
        assert len(await here.runs()) == 1


async def test_rebuild_keeps_actions_and_histories(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        await here.add(after=0)
        repeat = await here.add("Sweep", after=MINUTE, rrule=DAILY)
        for later in (0, MINUTE, DAY):
            await here.look(later=later)
            await here.end()
            await here.look()
        before = [await here.actions.action(action.id) for action in await here.stores.memory.actions()]
        assert len(history(await here.action(repeat))) > 3
    await rebuilt(tmp_path, without_files=True)
    async with scheduling(tmp_path) as here:
        assert await here.stores.memory.actions() == before


# --- errors ---


async def test_stopped_mission_stays_listed_as_failed(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add(after=0)
        await here.look()
        await here.end("interrupted")
        await here.look()
        failed = await here.action(action)
        assert (failed.status, history(failed)[-1]) == ("failed", "stopped before it had ended")


@pytest.mark.parametrize("code", ["budget_used_up", "rate_limited", "agent_error"])
async def test_unavailable_model_is_retried_with_backoff_then_abandoned(tmp_path: Path, code: str) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add(after=0)
        for seconds in TRIED_AGAIN_SECONDS:
            await here.look()
            await here.end("error", code=code, cost=0.0)
            await here.look()
            waiting = await here.action(action)
            assert (waiting.status, waiting.due) == ("open", here.clock.now + seconds)
            assert "tried again" in history(waiting)[-1]
            assert "The model said no." in history(waiting)[-1]
            await here.look(later=seconds - 1)
            assert await here.waiting() == []
            here.clock.now += 1
        await here.look()
        await here.end("error", code=code, cost=0.0)
        await here.look()
        failed = await here.action(action)
        assert (failed.status, failed.due) == ("failed", None)
        assert f"given up after {len(TRIED_AGAIN_SECONDS) + 1} tries" in history(failed)[-1]


async def test_successful_retry_resets_backoff_and_keeps_schedule(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add(after=0, rrule=DAILY)
        await here.look()
        await here.end("error", code="budget_used_up")
        await here.look()
        assert (await here.action(action)).due == NINE + TRIED_AGAIN_SECONDS[0]
        await here.look(later=TRIED_AGAIN_SECONDS[0])
        await here.end()
        await here.look()
        assert (await here.action(action)).due == NINE + DAY
        # The next failure starts a new count.
        await here.look(later=DAY)
        await here.end("error", code="budget_used_up")
        await here.look()
        assert (await here.action(action)).due == here.clock.now + TRIED_AGAIN_SECONDS[0]


async def test_repeat_due_before_retry_is_not_retried(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add(after=0, rrule="FREQ=MINUTELY;INTERVAL=5")
        await here.look()
        await here.end("error", code="rate_limited")
        await here.look()
        repeat = await here.action(action)
        assert repeat.due == NINE + 5 * MINUTE
        assert "tried again" not in history(repeat)[-1]


async def test_other_error_is_not_retried(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        action = await here.add(after=0)
        await here.look()
        await here.end("error", code="agent")
        await here.look()
        assert (await here.action(action)).status == "failed"


async def test_daily_share_exhausted_defers_to_tomorrow(tmp_path: Path) -> None:
    clock = Clock(time.time())
    async with scheduling(tmp_path, clock, daily_usd=4.0) as here:
        for number in range(3):
            await here.add(f"Due {number}", after=number)
        await here.look(later=10)
        await here.end(cost=1.0)
        await here.look()
        assert await here.waiting() == []
        assert len(await here.runs()) == 1
        midnight = clock.now - clock.now % DAY + DAY
        held = [action for action in await here.actions.scheduled() if action.status == "open"]
        assert [action.due for action in held] == [midnight, midnight]
        assert all("$1.00 of $1.00" in history(action)[-1] for action in held)
        warned = [message for message in here.published if message["type"] == "error"]
        assert {message["payload"]["code"] for message in warned} == {"schedule_budget"}
        clock.now = midnight
        await here.look()
        assert len(await here.waiting()) == 1


async def test_schedules_without_cap_run_offline(tmp_path: Path) -> None:
    for number, cap in enumerate((0.0, None)):
        async with scheduling(tmp_path / str(number), daily_usd=cap, is_offline=cap is not None) as here:
            await here.add(after=0)
            await here.look()
            assert len(await here.waiting()) == 1


async def test_full_queue_defers_firing(tmp_path: Path) -> None:
    clock = Clock()
    async with scheduling(tmp_path, clock) as here:
        action = await here.add(after=0)
        for number in range(100):
            await here.runtime.submit(f"m-{number}", "Hello", None)
        await here.look()
        assert (await here.action(action)).due == NINE
        await here.end()
    async with scheduling(tmp_path, clock) as here:
        await here.look(later=MINUTE)
        assert [mission.action_id for mission in await here.waiting()][-1] == action.id


# --- limits ---


async def test_scheduled_missions_cannot_multiply_actions(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        with pytest.raises(PeerError, match="cannot repeat"):
            await here.add("Look again", after=HOUR, by="schedule", rrule=DAILY)
        with pytest.raises(PeerError, match="5 minutes at the soonest"):
            await here.add("Look again", after=MINUTE, by="schedule")
        own = [await here.add(f"Look again {n}", after=HOUR + n, by="schedule") for n in range(5)]
        with pytest.raises(PeerError, match="open already") as refused:
            await here.add("Look once more", after=HOUR, by="schedule")
        assert refused.value.code == "within_schedule"
        # An action without a time is only listed, and the limit does not apply to a person's conversation.
        await here.add("Tell the person", by="schedule", due="")
        await here.add("Sweep", after=HOUR, by="agent", rrule=DAILY)
        await here.actions.resolve(own[0].id, "done", by="schedule")
        await here.add("Look once more", after=HOUR, by="schedule")


# --- reminders whose time is over ---


async def fired_in_vain(here: Scheduling, action: Action) -> None:
    """Let an action fire without a mission that would close it."""
    assert action.due is not None
    await here.actions.fired(action.id, due=action.due, mission_id="lost")


@pytest.mark.parametrize("by", ["person", "agent", "schedule"])
async def test_fired_reminder_closes_after_seven_days(tmp_path: Path, by: Maker) -> None:
    clock = Clock(time.time())
    async with scheduling(tmp_path, clock) as here:
        action = await here.add(after=HOUR, by=by)
        await fired_in_vain(here, action)
        await here.look(later=7 * DAY + HOUR - MINUTE)
        assert (await here.action(action)).status == "open"
        rows_before = await here.stores.transcript.curations.count()
        await here.look(later=2 * MINUTE)
        closed = await here.action(action)
        assert (closed.status, history(closed)[-1]) == ("dismissed", "closed 7 days after it was due")
        (row,) = await here.stores.transcript.curations.before(None, 1)
        assert (row.kind, await here.stores.transcript.curations.count()) == ("action", rows_before + 1)
        assert await boot_actions(here) == ""
        await here.look(later=DAY)
        assert await here.stores.transcript.curations.count() == rows_before + 1


async def test_fired_reminder_closes_after_weeks_off(tmp_path: Path) -> None:
    clock = Clock(time.time())
    async with scheduling(tmp_path, clock) as here:
        once = await here.add(after=HOUR)
        ended = await here.add("Sweep", after=HOUR, rrule="FREQ=DAILY;COUNT=2")
        repeat = await here.add("Mop", after=2 * HOUR, rrule=DAILY)
        for action in (once, ended, ended):
            await fired_in_vain(here, await here.action(action))
    clock.now += 30 * DAY
    async with scheduling(tmp_path, clock) as here:
        await here.look()
        statuses = [(await here.action(action)).status for action in (once, ended, repeat)]
        assert statuses == ["dismissed", "dismissed", "open"]


async def test_unfired_reminder_still_fires_after_weeks_off(tmp_path: Path) -> None:
    clock = Clock(time.time())
    async with scheduling(tmp_path, clock) as here:
        first, second = await here.add(after=HOUR), await here.add("Sweep", after=2 * HOUR)
    clock.now += 30 * DAY
    async with scheduling(tmp_path, clock) as here:
        for action in (first, second):
            await here.look()
            assert "30 days late" not in (await here.action(action)).history_json
            assert (await here.waiting())[0].action_id == action.id
            await here.end()
        await here.look()
        assert [(await here.action(action)).status for action in (first, second)] == ["done", "done"]


async def test_reminder_held_for_budget_closes(tmp_path: Path) -> None:
    clock = Clock(time.time())
    async with scheduling(tmp_path, clock, daily_usd=0.0) as here:
        action = await here.add(after=0)
        for _ in range(6):
            await here.look(later=DAY)
            await here.look()
            assert (await here.action(action)).status == "open"
        await here.look(later=DAY)
        await here.look()
        assert (await here.action(action)).status == "dismissed"


async def test_reopened_reminder_stays_open(tmp_path: Path) -> None:
    clock = Clock(time.time())
    async with scheduling(tmp_path, clock) as here:
        action = await here.add(after=HOUR)
        await fired_in_vain(here, action)
        await here.look(later=8 * DAY)
        await here.actions.resolve(action.id, "open", by="person")
        await here.look(later=30 * DAY)
        assert (await here.action(action)).status == "open"
        moved = await here.actions.update(action.id, by="person", due=clock.now + HOUR)
        await fired_in_vain(here, moved)
        await here.look(later=8 * DAY)
        assert (await here.action(action)).status == "dismissed"


async def test_closed_reminders_are_same_after_rebuild(tmp_path: Path) -> None:
    clock = Clock(time.time())
    async with scheduling(tmp_path, clock) as here:
        await here.stores.learn('ACTION [t] due 2099-12-01: Water. | "water"', "water it")
        learned = (await here.stores.memory.actions())[0]
        await fired_in_vain(here, learned)
        clock.now = (learned.due or 0.0) + 8 * DAY
        await here.look()
        before = await here.stores.memory.actions()
        assert [action.status for action in before] == ["dismissed"]
    await rebuilt(tmp_path, without_files=True)
    async with scheduling(tmp_path, clock) as here:
        assert await here.stores.memory.actions() == before


async def boot_actions(here: Scheduling) -> str:
    """Return the open actions in the boot prompt of a new session."""
    return "\n".join(await open_actions(here.stores.memory, 1_000))
