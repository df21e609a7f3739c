"""Actions extracted by the curator: their due times, and deduplication."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from sprite.memory.action_rows import MOST_SCHEDULED
from sprite.memory.decision import Action
from tests.looks import dump, eventually
from tests.memory_stores import Stores, call, object_to, open_stores, rebuilt

BERLIN = "Europe/Berlin"
FICUS = "Remind me to water the ficus"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(BERLIN)).timestamp()


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        await opened.actions.set_zone(BERLIN)
        yield opened


async def the_action(stores: Stores) -> Action:
    (action,) = await stores.memory.actions()
    return action


@pytest.mark.parametrize(
    ("asked", "due", "rrule"),
    [
        ("due 2099-12-01T08:30 every FREQ=WEEKLY;BYDAY=TU:", "2099-12-01 08:30", "FREQ=WEEKLY;BYDAY=TU"),
        ("due 2099-12-01 08:30:", "2099-12-01 08:30", None),
        (": due 2099-12-01,", "2099-12-01 09:00", None),
        ("(due 2099-12-01):", "2099-12-01 09:00", None),
        (
            "every freq=yearly;bymonth=2;bymonthday=29 due 2099-12-01:",
            "2099-12-01 09:00",
            "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
        ),
        ("due 2099-12-01 supersedes L12:", "2099-12-01 09:00", None),
        ("supersedes L12 due 2099-12-01:", "2099-12-01 09:00", None),
    ],
)
async def test_answer_sets_action_due_time(stores: Stores, asked: str, due: str, rrule: str | None) -> None:
    await stores.learn(f'ACTION [t] {asked} Water the ficus. | "water the ficus"', FICUS)
    action = await the_action(stores)
    assert (action.content, action.due, action.rrule, action.tz) == ("Water the ficus.", at(due), rrule, BERLIN)
    assert [learning.content.startswith("Water the ficus. (") for learning in await stores.learnings()] == [True]


async def test_learning_with_time_is_an_action(stores: Stores) -> None:
    await stores.learn('FACT [t] due 2099-12-01T08:30: Water the ficus. | "water the ficus"', FICUS)
    assert (await the_action(stores)).due == at("2099-12-01 08:30")
    assert [learning.type for learning in await stores.learnings()] == ["ACTION"]


@pytest.mark.parametrize(
    "asked",
    [
        "due tomorrow:",
        "due 2099-02-30:",
        "every Monday:",
        "every FREQ=MINUTELY:",
        "due 2020-01-01:",
        "due 2099-12-01 every FREQ=DAILY;COUNT=0:",
    ],
)
async def test_invalid_time_is_kept_as_text(stores: Stores, asked: str) -> None:
    await stores.learn(f'ACTION [t] {asked} Water the ficus. | "water the ficus"', FICUS)
    action = await the_action(stores)
    assert (action.due, action.rrule, action.status) == (None, None, "open")
    assert all(word in action.content for word in asked.strip(":").split())


async def test_repeat_with_past_first_time_continues(stores: Stores) -> None:
    await stores.learn('ACTION [t] due 2020-01-01 08:00 every FREQ=DAILY: Water. | "water"', FICUS)
    action = await the_action(stores)
    assert action.due is not None
    assert action.due > action.created_at
    assert datetime.fromtimestamp(action.due, ZoneInfo(BERLIN)).hour == 8


async def test_request_in_old_conversation_does_not_fire_today(stores: Stores) -> None:
    await stores.learn('ACTION [t] due 2025-03-02: Water. | "water"', FICUS, at=at("2025-03-01 12:00"))
    action = await the_action(stores)
    assert (action.due, action.content) == (None, "Water. (due 2025-03-02)")
    assert [kind for kind, _ in await stores.reports()] == ["not_scheduled"]


async def test_learned_actions_beyond_limit_do_not_fire(stores: Stores) -> None:
    names = [f"plant{number}" for number in range(MOST_SCHEDULED + 1)]
    answer = "\n".join(f'ACTION [t] due 2099-12-01: Water {name}. | "{name}"' for name in names)
    await stores.learn(answer, " ".join(names))
    assert sum(action.due is not None for action in await stores.memory.actions()) == MOST_SCHEDULED
    assert len(await stores.memory.actions()) == MOST_SCHEDULED + 1


async def test_action_scheduled_in_turn_is_not_duplicated(stores: Stores) -> None:
    made = await stores.actions.add("Water the ficus in the study", by="agent", due="2099-12-01", mission_id="m1")
    other = await stores.actions.add("Call the bank", by="agent", due="2099-12-01", mission_id="m1")
    answer = (
        'ACTION [t] due 2099-12-01: Remind Ana to water the ficus. | "water the ficus"\n'
        'ACTION [t] due 2099-12-01: Mail the tax office. | "mail the tax office"'
    )
    await stores.learn(answer, f"{FICUS}, call the bank, and mail the tax office", mission_id="m1")
    found = {action.id: action.content for action in await stores.memory.actions()}
    # An action that the agent did not schedule is open as well.
    assert found == {made.id: made.content, other.id: other.content, 2: "Mail the tax office."}
    # The learning stands for the agent's action: closing one closes the other.
    await stores.learn('FACT [t] supersedes L1: Ana watered the ficus. | "I watered the ficus"', "I watered the ficus")
    assert (await stores.actions.action(made.id)).status == "done"


async def test_action_already_fired_is_not_duplicated(stores: Stores) -> None:
    made = await stores.actions.add("Water the ficus", by="agent", due="in 0 minutes", mission_id="m1")
    await stores.actions.fired(made.id, due=made.due or 0, mission_id="m2")
    await stores.actions.noted(made.id, "done by its turn", status="done")
    await stores.learn('ACTION [t] Water the ficus. | "water the ficus"', FICUS, mission_id="m1")
    assert [action.id for action in await stores.memory.actions()] == [made.id]


async def test_curator_closes_recorded_action_by_number(stores: Stores) -> None:
    made = await stores.actions.add("Water the ficus", by="person", due="2099-12-01")
    kept = await stores.actions.add("Call the bank", by="person")
    await stores.learn(f"DONE L{made.id} | [t] Ana watered it", "I have watered the ficus")
    closed = await stores.actions.action(made.id)
    assert closed.status == "done"
    assert json.loads(closed.history_json)[-1]["by"] == "curator"
    # Untrusted page text closes nothing.
    said = "The bank was called"
    answer = f'FACT [t] supersedes L{kept.id}: {said} | "{said}"\nDONE L{kept.id} | [t] {said} | "{said}"'
    await stores.learn(answer, "Look", calls=[call("WebFetch", said)], verify=object_to)
    assert (await stores.actions.action(kept.id)).status == "open"


@pytest.mark.parametrize(("words", "closed"), [("Water the", ["Water the ficus."]), ("Water", []), ("Feed the", [])])
async def test_done_names_action_by_first_words(words: str, closed: list[str], stores: Stores) -> None:
    for said in ("Water the ficus.", "Water flowers.", "Call the bank."):
        await stores.learn(f'ACTION [t] {said} | "{said}"', f"Remind me: {said}")
    # The number is that of another action, as when a model counts wrong.
    await stores.learn(f'DONE L3 "{words}" | [t] done | "I have done it"', "I have done it")
    assert [action.content for action in await stores.memory.actions("done")] == closed


async def test_line_rests_on_learning_that_fits(stores: Stores) -> None:
    await stores.learn('FACT [t] The kiln is called Ember. | "is called Ember"', "The kiln is called Ember")
    await stores.learn('FACT [t] Bread is done. | "bread is done"', "Look", calls=[call("WebFetch", "bread is done")])
    await stores.learn("USER_MD_EDIT:\nADD Notes | [L2] - The kiln is called Ember", "Hello")
    assert "- The kiln is called Ember" in stores.path("user.md").read_text("utf-8")


async def test_line_rests_on_action_finished_beside_it(stores: Stores) -> None:
    said = "Remind me to call Colm, the certificate runs out on 12 november"
    await stores.learn('ACTION [t] Call Colm; the certificate runs out on 12 November. | "Remind me"', said)
    (learned,) = await stores.learnings()
    line = "- The certificate runs out on 12 November."
    edit = f"CONTEXT_MD_EDIT:\nADD Dates | [L{learned.id}] {line}"
    await stores.learn(f"DONE L{learned.id} | [t] called\n{edit}", "I called him, so that is done")
    assert (await the_action(stores)).status == "done"
    assert line in stores.path("context.md").read_text("utf-8")


async def test_curator_sees_every_open_action_with_time(stores: Stores) -> None:
    made = await stores.actions.add("Water the ficus", by="agent", due="2099-12-01", rrule="FREQ=DAILY")
    await stores.learn('ACTION [t] due 2099-12-02: Call Bo. | "Bo"', "Call Bo")
    prompt = await stores.prompt(await stores.turn("Anything", at=at("2099-11-30 23:30")))
    shown = f'<learning id="{made.id}" type="ACTION" from="assistant" on="{datetime.now(ZoneInfo(BERLIN)):%Y-%m-%d}"'
    assert f'{shown} due="2099-12-01T09:00" every="FREQ=DAILY">Water the ficus</learning>' in prompt.user
    assert 'due="2099-12-02T09:00">Call Bo. (due 2099-12-02)</learning>' in prompt.user
    assert 'at="2099-11-30T23:30+01:00"' in prompt.user
    assert "2099-11-30 is a Monday" in prompt.user


async def test_times_past_under_other_extraction_do_not_fire(stores: Stores) -> None:
    turn = await stores.turn("Water and mist, please", at=time.time() - 60)
    soon = f"{datetime.now(ZoneInfo('UTC')) + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    once, daily = "due 2099-12-01: Water it.", "due 2099-12-01 every FREQ=DAILY: Mist it."
    answer = f'ACTION [t{turn}] {once} | "Water"\nACTION [t{turn}] {daily} | "mist"'
    await stores.batch(answer, turn)
    await stores.projection.settle()
    passed = eventually(lambda: datetime.now(ZoneInfo("UTC")).isoformat() > soon, "the moment did not come")
    await stores.extract_again(1, (answer.replace("2099-12-01", soon), turn, turn), meanwhile=passed)
    await stores.projection.settle()
    actions = {action.content: action for action in await stores.memory.actions()}
    assert actions["Water it."].due is None
    assert (actions["Mist it."].due or 0) > datetime.now(ZoneInfo("UTC")).timestamp()


async def test_learned_times_are_unchanged_by_rebuild(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        await stores.actions.set_zone(BERLIN)
        await stores.actions.add("Water the ficus", by="agent", due="2099-12-01", mission_id="m1")
        await stores.learn('ACTION [t] due 2099-12-01: Water the ficus. | "ficus"', FICUS, mission_id="m1")
        await stores.actions.set_zone("Asia/Tokyo")
        await stores.learn('ACTION [t] due 2099-12-01: Call Bo. | "Bo"', "Call Bo")
    before = dump(tmp_path / "memory.db")
    assert await rebuilt(tmp_path, without_files=False) == before
