"""Wake-ups by the bridge: once per due date, late rather than never, with bounded concurrency and frequency."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.admin.status import Row, drawn
from bridge.cluster.ownership import Ownership
from bridge.db.open import open_database
from bridge.wakeups.waker import DueDates, stored
from sprite.protocol.events import Complete, Started
from sprite.protocol.frames import ServerMessage
from sprite.protocol.messages import NextDue, ScheduleUpdate
from tests.bridge_harness import bridge_process, running_bridge
from tests.inspection import eventually, memory, prompts, workspace_db
from tests.waking_stage import QUICK, died, night
from tests.webhook_receiver import read_key, receiving

if TYPE_CHECKING:
    from tests.bridge_harness import BridgeProcess, BridgeServer
    from tests.scripted_model import OfflineModel
    from tests.waking_stage import Night


def said(next_due: NextDue | None) -> ServerMessage:
    return ServerMessage(type="schedule_update", id="", payload=ScheduleUpdate(next_due), timestamp=0)


async def looked(stage: Night, sprite: str, times: int = 1) -> None:
    await eventually(lambda: stage.sleepers.heartbeats[sprite] >= times, f"{sprite} was not checked")


async def test_due_sprite_is_woken_and_released(tmp_path: Path) -> None:
    async with night(tmp_path, "ada") as stage:
        await looked(stage, "ada")
        await eventually(lambda: stage.waker.wakes["looked"] == 1, "the wake-up did not end")
        await eventually(lambda: "ada" not in stage.sleepers.links, "the connection stays open")
        assert stage.sleepers.heartbeats["ada"] == 1
    async with open_database(tmp_path / "bridge.db") as database:
        (date,) = (await stored(database)).values()
    assert (date.at, date.is_open) == (None, False)


async def test_sprite_is_woken_after_clock_jump(tmp_path: Path) -> None:
    """A sprite is not woken before its due date."""
    now = 1000.0
    async with night(tmp_path, "ada", at=50_000.0, clock=lambda: now) as stage:
        # Another sprite becomes due first.
        stage.due.heard("bob", said(NextDue(1, 999.0)))
        await looked(stage, "bob")
        assert not stage.dorm.reached_names["ada"]
        now = 60_000.0
        await looked(stage, "ada")


async def test_busy_sprite_stays_connected_until_idle(tmp_path: Path) -> None:
    async with night(tmp_path, "ada") as stage:
        stage.sleepers.busy.add("ada")
        await looked(stage, "ada")
        await eventually(lambda: stage.sleepers.asked["ada"] > 3, "its state is not polled")
        assert not stage.waker.wakes
        assert "ada" in stage.sleepers.links
        stage.sleepers.busy.clear()
        await eventually(lambda: stage.waker.wakes["looked"] == 1, "the wake-up did not end")
        await eventually(lambda: "ada" not in stage.sleepers.links, "the connection stays open")
        assert stage.sleepers.heartbeats["ada"] == 1


async def test_running_turn_keeps_sprite_connected(
    tmp_path: Path,
) -> None:
    """The connection stays open although the sprite reports that it is idle."""
    async with night(tmp_path, "ada") as stage:
        stage.sleepers.says_at_look = Started("m1", origin="schedule")
        await eventually(lambda: stage.waker.wakes["looked"] == 1, "the wake-up did not end")
        link = stage.sleepers.links["ada"]
        await link.send(Complete("m1", text="", usage=None, cost_usd=None, duration_ms=1), seq=2)
        await eventually(lambda: "ada" not in stage.sleepers.links, "the connection stays open")


async def test_wakeup_reconnects_after_broken_link(tmp_path: Path) -> None:
    async with night(tmp_path, "ada") as stage:
        stage.sleepers.cuts = 3
        await looked(stage, "ada", times=4)
        await eventually(lambda: stage.waker.wakes["looked"] == 1, "the wake-up did not end")


async def test_unreachable_sprite_is_retried_with_backoff(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The status shows the failure; the log has it once."""
    caplog.set_level(logging.INFO, "bridge")
    async with night(tmp_path, "ada") as stage:
        stage.dorm.is_down = True
        await eventually(lambda: stage.waker.wakes["unreachable"] >= 3, "the wake-up is not retried")
        assert stage.waker.trouble("ada") == "could not be woken: Its machine does not start."
        assert sum("could not be woken" in record.message for record in caplog.records) == 1
        stage.dorm.is_down = False
        await looked(stage, "ada")
        await eventually(lambda: stage.waker.trouble("ada") == "", "the trouble is still reported")


async def test_past_due_date_is_retried_with_backoff(tmp_path: Path) -> None:
    """A used-up budget or a slow clock makes the sprite report the same due date again."""
    patient = replace(QUICK, longest_pause=10_000.0, apart=0.01)
    async with night(tmp_path, "ada", pace=patient) as stage:
        stage.sleepers.after_look = lambda _: None
        # The pause doubles after each wake-up: 0.02 s, 0.04 s, ... ten seconds at the tenth, hours at the twentieth.
        await looked(stage, "ada", times=3)
        await eventually(lambda: "ada" not in stage.sleepers.links, "the connection stays open")
        vain = stage.waker.wakes["looked"]
        # A new due date does not wait for the backoff of the old one.
        stage.sleepers.next_due["ada"] = NextDue(8, 2.0)
        stage.due.heard("ada", said(NextDue(8, 2.0)))
        await looked(stage, "ada", times=vain + 1)


async def test_wakeups_of_compromised_sprite_are_rate_limited(tmp_path: Path) -> None:
    """The sprite reports a new due date all the time, some of them invalid."""
    slow = replace(QUICK, apart=10_000.0)
    async with night(tmp_path, "mallory", pace=slow) as stage:
        stage.sleepers.after_look = lambda _: None
        await looked(stage, "mallory")
        await eventually(lambda: stage.waker.wakes["looked"] == 1, "the wake-up did not end")
        for number in range(20_000):
            stage.due.heard("mallory", said(NextDue(number, float(number))))
        for at in (-5.0, 0.0, 253402300800.0, float("inf"), float("nan"), -float("inf")):
            stage.due.heard("mallory", said(NextDue(2**70, at)))
        stage.due.heard("mallory", said(NextDue(-1, time.time())))
        stage.due.heard("ada", said(NextDue(1, 1.0)))
        await looked(stage, "ada")
        assert stage.sleepers.heartbeats["mallory"] == 1
        await eventually(lambda: not stage.due.rows.is_behind, "the due dates are not written")


async def test_frequent_due_dates_are_written_in_batches(tmp_path: Path) -> None:
    async with open_database(tmp_path / "bridge.db") as database:
        before = await database.read(lambda db: db.execute("PRAGMA data_version").fetchone()[0])
        async with DueDates(database, died, Ownership()) as due:
            for number in range(20_000):
                due.heard("mallory", said(NextDue(number, float(number))))
                if number % 1000 == 0:
                    await asyncio.sleep(0)
            await eventually(lambda: not due.rows.is_behind, "the due dates are not written")
            after = await database.read(lambda db: db.execute("PRAGMA data_version").fetchone()[0])
        assert 0 < after - before < 50
        assert (await stored(database))["mallory"].at == 19_999.0


async def test_simultaneous_wakeups_are_limited_and_all_run(tmp_path: Path) -> None:
    names = [f"sprite-{number}" for number in range(12)]
    async with night(tmp_path, *names, pace=replace(QUICK, at_once=3)) as stage:
        # Long runs do not occupy a wake-up slot.
        stage.sleepers.busy.update(names)
        for name in names:
            await looked(stage, name)
        assert stage.dorm.most_at_once <= 3
        stage.sleepers.busy.clear()
        await eventually(lambda: stage.waker.wakes["looked"] == 12, "not every wake-up ended")


async def test_revoked_person_is_not_woken_for(tmp_path: Path) -> None:
    """Revoking a person also ends a wake-up in progress."""
    revoked = {"bob"}
    async with night(tmp_path, "ada", "bob", may_wake=lambda name: name not in revoked) as stage:
        stage.sleepers.busy.add("ada")
        await looked(stage, "ada")
        assert not stage.dorm.reached_names["bob"]
        revoked.add("ada")
        stage.waker.forget("ada")
        await eventually(lambda: "ada" not in stage.sleepers.links, "the connection stays open")


async def test_reported_due_date_is_stored(tmp_path: Path) -> None:
    async with open_database(tmp_path / "bridge.db") as database, DueDates(database, died, Ownership()) as due:
        due.opened("ada")
        due.heard("ada", said(NextDue(3, 1e9)))
        await eventually(lambda: not due.rows.is_behind, "the due date is not written")
        # A new bridge finds this row after a kill.
        (date,) = (await stored(database)).values()
        assert (date.at, date.is_open) == (1e9, True)


def asked(model: OfflineModel) -> int:
    return len(prompts(model, "due_action"))


async def remind(bridge: BridgeServer | BridgeProcess, content: str) -> None:
    """Add an action that is due at once, and close the page."""
    async with bridge.page(await bridge.login()) as page:
        await page.link("ready")
        answer = await page.ask("memory", {"op": "add_action", "content": content, "due": time.time() + 0.3})
        assert answer["type"] == "memory_result", answer


def action(data: Path) -> dict[str, Any]:
    (row,) = memory(data / "workspaces/local", "SELECT * FROM pending_actions")
    return row


@pytest.mark.parametrize("how", ["stop", pytest.param("kill", marks=pytest.mark.soak)])
async def test_reminder_survives_bridge_restart(model: OfflineModel, tmp_path: Path, how: str) -> None:
    """No page is open: the next bridge checks the sprite by itself."""
    model.script.agent({"match": "due_action", "on": "prompt", "hang": True})
    data = tmp_path / "data"
    upstream: dict[str, Any] = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "key"}
    async with bridge_process(data, forks_sprites=True, **upstream) as bridge:
        await remind(bridge, "run `echo once >> ran`")
        await eventually(lambda: asked(model) == 1, "the reminder does not start")
        await (bridge.stop() if how == "stop" else bridge.kill())
    async with running_bridge(data, **upstream):
        await eventually(lambda: action(data)["status"] == "done", "the reminder is not done")
    (mission,) = workspace_db(data / "workspaces/local", "SELECT attempt, status FROM missions")
    assert mission == {"attempt": 2, "status": "complete"}
    assert (data / "workspaces/local/ran").read_text() == "once\n"


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.soak), "kill"])
async def test_interrupted_reminder_is_reported_by_webhook(model: OfflineModel, tmp_path: Path, how: str) -> None:
    model.script.agent({"match": "due_action", "on": "result", "hang": True})
    data = tmp_path / "data"
    async with receiving() as receiver:
        upstream: dict[str, Any] = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "key"}
        upstream |= {"SPRITE_NOTIFY_URL": receiver.url}
        async with bridge_process(data, forks_sprites=True, **upstream) as bridge:
            receiver.key = read_key((await bridge.run("notify", "key"))[1])
            await remind(bridge, "run `echo once >> ran`")
            await eventually((data / "workspaces/local/ran").exists, "the command did not run")
            await eventually(lambda: kept(data) == [("local", None, 1)], "the open connection is not stored")
            await (bridge.stop() if how == "stop" else bridge.kill())
        async with running_bridge(data, **upstream) as again:
            await eventually(lambda: bool(receiver.messages), "no message was sent")
            await eventually(lambda: action(data)["status"] == "failed", "the action did not fail")
            # No page is open: the bridge checks the sprites that were connected before.
            await eventually(lambda: "a sprite was woken for a due action" in again.log, "the sprite is not checked")
            while 'bridge_wakes_total{outcome="looked"} 1.0' not in await metrics(again):  # noqa: ASYNC110 - polling
                await asyncio.sleep(0.05)
            (local,) = json.loads((await again.run("status", "--json"))[1])
            assert local["next_due"] is None
        assert [message["kind"] for message in receiver.messages] == ["ended"]
    lines = workspace_db(data / "workspaces/local", "SELECT role, text FROM chat_messages ORDER BY id DESC LIMIT 1")
    assert [line["role"] for line in lines] == ["error"]
    assert "stopped in the middle" in lines[0]["text"]
    assert (data / "workspaces/local/ran").read_text() == "once\n"


async def metrics(bridge: BridgeServer) -> str:
    async with bridge.http() as session, session.get("/metrics", headers=bridge.operator) as response:
        return await response.text()


def kept(data: Path) -> list[tuple[str, float | None, int]]:
    with closing(sqlite3.connect(data / "bridge.db")) as database:
        return database.execute("SELECT sprite, next_due, is_open FROM waking").fetchall()


def test_status_shows_time_until_due_date() -> None:
    row = Row("ada", "cold", None, None, "", 0, None, 0.0, 0.0, 0.0, 0)
    for due, words in (
        (None, " -  "),
        (50.0, "now"),
        (130.0, "in 1 min"),
        (100 + 7200.0, "in 2 h"),
        (100 + 3 * 86400.0, "in 3 d"),
        (1e300, "in years"),
    ):
        row.next_due = due
        assert words in drawn([row], now=100.0).splitlines()[1]
