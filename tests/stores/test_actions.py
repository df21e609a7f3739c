"""Actions: permissions and mutations, logged before they apply, with the same list after every rebuild."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sprite.errors import PeerError
from sprite.log.curations import Curation
from sprite.memory.action_rows import MOST_SCHEDULED
from sprite.memory.actions import Actions
from sprite.memory.decision import HISTORY_KEPT, MADE_IDS, Action
from tests.looks import dump
from tests.memory_stores import Stores, open_stores, rebuilt

BERLIN = "Europe/Berlin"


def at(text: str, tz: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp()


NOW = at("2026-11-22 12:00")


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        yield opened


class Clock:
    """A clock that advances only when told to."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def acting(stores: Stores, clock: Clock | None = None) -> Actions:
    return Actions(stores.projection, stores.memory, clock=clock or Clock())


def history(action: Action) -> list[tuple[str, str]]:
    return [(entry["by"], entry["what"]) for entry in json.loads(action.history_json)]


async def log_row(stores: Stores, row: Any) -> None:
    await stores.projection.settle()
    change = Curation("action", row if isinstance(row, str) else json.dumps(row))
    await stores.transcript.curations.append_event(await stores.judge.decided(change))


async def test_action_due_time_uses_persons_zone(stores: Stores) -> None:
    actions = acting(stores)
    assert await actions.zone() == "UTC"
    before = await actions.add("Pay the rent", by="person", due="2026-12-01")
    await actions.set_zone(BERLIN)
    after = await actions.add("Water the ficus", by="person", due="2026-12-01 08:00", rrule="freq=weekly;byday=tu")
    assert (before.due, before.tz) == (at("2026-12-01 09:00", "UTC"), "UTC")
    assert (after.due, after.tz, after.rrule) == (at("2026-12-01 08:00"), BERLIN, "FREQ=WEEKLY;BYDAY=TU")
    assert history(after) == [("person", "made: Tue 2026-12-01 08:00 Europe/Berlin, then every Tuesday")]
    assert (await actions.next_due()) is not None
    assert [action.id for action in await actions.scheduled()] == [after.id, before.id]


async def test_repeat_without_due_time_uses_first_occurrence(stores: Stores) -> None:
    actions = acting(stores)
    await actions.set_zone(BERLIN)
    made = await actions.add("Draw my open actions", by="person", rrule="FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=8")
    assert made.due == at("2026-11-23 08:00")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"content": " \n"}, "bad_request"),
        ({"content": "x" * 2001}, "too_long"),
        ({"content": "x", "due": "2026-11-21"}, "past"),
        ({"content": "x", "due": NOW - 3600}, "past"),
        ({"content": "x", "due": "2026-02-30"}, "bad_due"),
        ({"content": "x", "due": 1e300}, "bad_due"),
        ({"content": "x", "tz": "Mars/Olympus"}, "unknown_zone"),
        ({"content": "x", "rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "never"),
        ({"content": "x", "due": "2026-12-01", "rrule": "FREQ=DAILY;UNTIL=20261130"}, "never"),
        ({"content": "x", "rrule": "FREQ=MINUTELY"}, "too_often"),
        ({"content": "x", "rrule": "whenever"}, "bad_repeat"),
        ({"content": "x", "priority": 10**9}, "bad_request"),
    ],
)
async def test_invalid_action_is_refused_and_unlogged(stores: Stores, asked: dict[str, Any], code: str) -> None:
    with pytest.raises(PeerError) as refused:
        await acting(stores).add(by="person", **asked)
    assert refused.value.code == code
    assert await stores.transcript.curations.after(0) == []


async def test_action_limit_refuses_fifty_first_due_action(stores: Stores) -> None:
    actions = acting(stores)
    made = [await actions.add(f"Task {n}", by="agent", due="2026-12-01") for n in range(MOST_SCHEDULED)]
    undated = await actions.add("Some time", by="person")
    with pytest.raises(PeerError, match="finish or dismiss one first") as refused:
        await actions.add("One more", by="schedule", due="2026-12-01")
    assert refused.value.code == "too_many"
    with pytest.raises(PeerError, match="finish or dismiss one first"):
        await actions.update(undated.id, by="person", due="2026-12-01")
    await actions.resolve(made[0].id, "done", by="agent")
    await actions.add("One more", by="schedule", due="2026-12-01")
    with pytest.raises(PeerError):
        await actions.resolve(made[0].id, "open", by="person")


async def test_repeat_accepts_a_word(stores: Stores) -> None:
    made = await acting(stores).add("Stand up", by="agent", rrule="weekday")
    assert made.rrule == "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"


async def test_duplicate_request_creates_one_action(stores: Stores) -> None:
    actions = acting(stores)
    first = await actions.add("Water the ficus", by="agent", due="2026-12-01")
    assert await actions.add("Water the ficus!", by="person", due="2026-12-01 09:00") == first
    assert (await actions.add("Water the ficus", by="agent", due="2026-12-02")).id != first.id


async def test_update_keeps_unnamed_and_clears_empty_fields(stores: Stores) -> None:
    actions = acting(stores)
    await actions.set_zone(BERLIN)
    made = await actions.add("Water", by="person", due="2026-12-01", rrule="FREQ=DAILY", priority=2)
    moved = await actions.update(made.id, by="person", due="2026-12-02 07:00")
    assert (moved.content, moved.due, moved.rrule, moved.priority) == ("Water", at("2026-12-02 07:00"), "FREQ=DAILY", 2)
    once = await actions.update(made.id, by="agent", rrule="", content="Water the ficus")
    assert (once.content, once.due, once.rrule) == ("Water the ficus", at("2026-12-02 07:00"), None)
    none = await actions.update(made.id, by="person", due="")
    assert (none.due, none.rrule) == (None, None)
    assert [by for by, _ in history(none)] == ["person", "person", "agent", "person"]
    with pytest.raises(PeerError, match="no action 7"):
        await actions.update(7, by="person", content="x")


async def test_firing_advances_repeat_past_now(stores: Stores) -> None:
    clock = Clock()
    actions = acting(stores, clock)
    await actions.set_zone(BERLIN)
    made = await actions.add("Water", by="person", due="2026-12-01 09:00", rrule="FREQ=DAILY")
    clock.now = at("2027-06-01 10:00")
    fired = await actions.fired(made.id, due=at("2026-12-01 09:00"), mission_id="m1", late_by=3 * 3600)
    assert fired.due == at("2027-06-02 09:00")
    assert fired.status == "open"
    assert fired.fired_at is not None
    assert history(fired)[-1] == ("sprite", "fired, 3 hours late (was due Tue 2026-12-01 09:00 Europe/Berlin)")


async def test_bounded_repeat_fires_its_count(stores: Stores) -> None:
    clock = Clock()
    actions = acting(stores, clock)
    made = await actions.add("Water", by="person", due="2026-12-01 09:00", rrule="FREQ=DAILY;COUNT=3")
    times = []
    action = made
    while action.due is not None:
        times.append(action.due)
        clock.now = action.due + 1
        action = await actions.fired(made.id, due=action.due, mission_id=f"m{len(times)}")
    assert [(then - times[0]) / 86_400 for then in times] == [0, 1, 2]


async def test_due_time_set_while_firing_is_kept(stores: Stores) -> None:
    clock = Clock()
    actions = acting(stores, clock)
    made = await actions.add("Call", by="person", due="2026-12-01 09:00")
    await actions.update(made.id, by="person", due="2026-12-05 09:00")
    fired = await actions.fired(made.id, due=at("2026-12-01 09:00", "UTC"), mission_id="m")
    assert fired.due == at("2026-12-05 09:00", "UTC")


async def test_reopened_action_past_due_does_not_fire(stores: Stores) -> None:
    actions = acting(stores)
    once = await actions.add("Call", by="person", due="2026-12-01 09:00")
    daily = await actions.add("Water", by="person", due="2026-12-01 09:00", rrule="FREQ=DAILY")
    for made in (once, daily):
        await actions.resolve(made.id, "done", by="agent", note="as asked")
    assert await actions.next_due() is None
    assert history(await actions.action(once.id))[-1] == ("agent", "done: as asked")
    # The log's clock decides: the row is dated long after the due time.
    rows = [{"op": "noted", "action": made.id, "by": "sprite", "what": "", "due": 1000.0} for made in (once, daily)]
    for row in rows:
        await log_row(stores, row)
    for made in (once, daily):
        await actions.resolve(made.id, "open", by="person")
    assert (await actions.action(once.id)).due is None
    again = (await actions.action(daily.id)).due
    assert again is not None
    assert again > 1000.0


async def test_done_occurrence_leaves_repeat_open(stores: Stores) -> None:
    actions = acting(stores)
    daily = await actions.add("Water", by="person", due="2026-12-01 09:00", rrule="FREQ=DAILY")
    done = await actions.resolve(daily.id, "done", by="agent", once=True, note="watered")
    assert (done.status, done.due) == ("open", daily.due)
    assert history(done)[-1] == ("agent", "done this time: watered")
    plain = await actions.add("Call", by="person")
    assert (await actions.resolve(plain.id, "done", by="agent", once=True)).status == "done"


async def test_action_list_is_byte_identical_after_rebuild(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        actions = acting(stores)
        await actions.set_zone(BERLIN)
        await stores.learn('ACTION [t] Call Bo. | "Bo"', "Please call Bo")
        made = await actions.add("Water", by="agent", due="2026-12-01", rrule="FREQ=DAILY", mission_id="m1")
        await actions.update(1, by="person", due="2026-12-03", content="Call Bo at home")
        await actions.fired(made.id, due=made.due or 0, mission_id="m2")
        await actions.noted(made.id, "its turn ended with an error", status="failed")
        await actions.resolve(1, "dismissed", by="person")
    before = dump(tmp_path / "memory.db")
    assert len(before["pending_actions"]) == 2
    assert await rebuilt(tmp_path, without_files=False) == before


@pytest.mark.parametrize(
    "row",
    [
        "no json",
        "[]",
        "{}",
        "[" * 100_000,
        '{"op": "add", "by": "person", "content": "\\ud800"}',
        {"op": "burn", "action": 1},
        {"op": "add", "by": "person"},
        {"op": "add", "by": "person", "content": ""},
        {"op": "add", "by": "nobody", "content": "x"},
        {"op": "add", "by": "person", "content": "x" * 5000},
        {"op": "add", "by": "person", "content": "x", "due": 1e300, "tz": "UTC"},
        {"op": "add", "by": "person", "content": "x", "due": 1e9, "tz": "../etc"},
        {"op": "add", "by": "person", "content": "x", "due": 1e9, "rrule": "FREQ=SECONDLY"},
        {"op": "update", "action": -1, "by": "person", "content": "x"},
        {"op": "update", "action": 10**30, "by": "person", "content": "x"},
        {"op": "resolve", "action": 1, "by": "person", "status": "burnt"},
        {"op": "resolve", "action": 99, "by": "person", "status": "done"},
        {"op": "fired", "action": 99, "by": "sprite", "due": 1e9},
        {"op": "zone", "tz": "Mars/Olympus"},
    ],
    ids=str,
)
async def test_damaged_or_hostile_row_is_reported_and_skipped(stores: Stores, row: Any) -> None:
    await log_row(stores, row)
    await log_row(stores, {"op": "add", "by": "person", "content": "Water the ficus"})
    await stores.projection.settle()
    assert [action.content for action in await stores.memory.actions()] == ["Water the ficus"]
    assert [kind for kind, _ in await stores.reports()] in (["damaged"], ["action_missing"])


async def test_learned_action_row_never_matches_another(stores: Stores) -> None:
    """A re-extraction renumbers its learnings; the row matches by the earlier identity."""
    first = await stores.turn("Please call Bo about the bicycles")
    second = await stores.turn("Please mail Ilse the numbers")
    await stores.batch(f'ACTION [t{first}] Call Bo about the bicycles. | "call Bo"', first)
    await stores.batch(f'ACTION [t{second}] Mail Ilse the numbers. | "mail Ilse"', second)
    await stores.projection.settle()
    actions = acting(stores)
    made = await actions.add("Water the ficus", by="person", due="2026-12-01")
    await actions.resolve(2, "dismissed", by="person")
    await actions.update(1, by="person", due="2026-12-02", priority=5)
    # The new extraction has one more learning, another order and other words; one batch ends after the rows' time.
    answer = (
        f'FACT [t{first}] Bo repairs bicycles. | "bicycles"\n'
        f'ACTION [t{second}] Send the numbers to Ilse by mail. | "mail Ilse the numbers"\n'
        f'ACTION [t{first}] Call Bo about his bicycles. | "call Bo about the bicycles"'
    )
    await stores.extract_again(1, (answer, first, second))
    await stores.projection.settle()
    found = {action.id: (action.content, action.status, action.priority) for action in await stores.memory.actions()}
    assert found == {
        3: ("Call Bo about his bicycles.", "open", 5),
        2: ("Send the numbers to Ilse by mail.", "dismissed", 0),
        made.id: ("Water the ficus", "open", 0),
    }
    assert await stores.reports() == []
    # The action was not learned again: the row matches nothing and is reported.
    await stores.extract_again(2, (f'ACTION [t{second}] Mail Ilse. | "mail Ilse"', second, second))
    await stores.projection.settle()
    assert {action.content: action.status for action in await stores.memory.actions()} == {
        "Mail Ilse.": "dismissed",
        "Water the ficus": "open",
    }


async def test_created_action_numbers_never_collide_with_learned(stores: Stores) -> None:
    made = await acting(stores).add("Water", by="person")
    await stores.learn('ACTION [t] Call Bo. | "Bo"', "Please call Bo")
    assert made.id > MADE_IDS
    assert [action.id for action in await stores.memory.actions()] == [1, made.id]


async def test_history_keeps_first_and_newest_entries(stores: Stores) -> None:
    actions = acting(stores)
    made = await actions.add("Water", by="person", due="2026-12-01", rrule="FREQ=DAILY")
    for n in range(HISTORY_KEPT + 5):
        await log_row(stores, {"op": "noted", "action": made.id, "by": "sprite", "what": f"time {n}"})
    await stores.projection.settle()
    told = history(await actions.action(made.id))
    assert len(told) == HISTORY_KEPT
    assert told[0][1].startswith("made")
    assert told[-1] == ("sprite", f"time {HISTORY_KEPT + 4}")


async def test_secret_in_action_is_redacted(stores: Stores) -> None:
    made = await acting(stores).add("Log in with password: hunter2-Blue-Whale!", by="agent")
    (row,) = await stores.transcript.curations.after(0)
    assert "hunter2" not in row.response + made.content
