"""`python -m sprite actions` with and without a running sprite."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sprite.common.due_times import moment_words
from sprite.memory.actions import Actions
from tests.command_line import command
from tests.harness import running_sprite
from tests.memory_stores import open_stores
from tests.scripted_model import OfflineModel


async def printed(workspace: Path, *arguments: str) -> Any:
    code, out, err = await command(workspace, "actions", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


async def test_actions_command_works_with_and_without_sprite(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with OfflineModel() as model, running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        asked = ["Water", "the", "ficus", "--due", "2099-12-01", "--every", "weekday", "--tz", "Europe/Berlin"]
        beside = await printed(workspace, "add", *asked)
        assert (beside["content"], beside["tz"], beside["origin"]) == ("Water the ficus", "Europe/Berlin", "person")
        assert beside["rrule"] == "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"
        told = await client.until(lambda m: m["type"] == "action_update")
        assert told["payload"]["action"] == beside
        assert (await printed(workspace, "done", "ficus"))["status"] == "done"
    alone = await printed(workspace, "add", "Call Bo", "--priority", "2")
    assert await printed(workspace, "list") == [alone]
    assert [action["status"] for action in await printed(workspace, "list", "--all")] == ["done", "open"]
    _, told_in_words, _ = await command(workspace, "actions", "list")
    assert told_in_words.splitlines() == ["Call Bo  (priority 2; by person)"]
    await printed(workspace, "add", "Call Bob")
    _, _, err = await command(workspace, "actions", "done", "call")
    assert "Several have these words: Call Bo; Call Bob." in err
    assert (await printed(workspace, "done", "bob"))["content"] == "Call Bob"
    assert (await printed(workspace, "dismiss", "call", "bo"))["id"] == alone["id"]
    for wrong, words in (
        (["add", "x", "--due", "2020-01-01"], "is in the past"),
        (["add", "x", "--every", "sometimes"], "is not a valid repeat"),
        (["add", "x", "--tz", "Mars/Olympus"], "no time zone"),
        (["done", "fly"], "No such action has these words"),
        (["done", str(alone["id"])], "No such action has these words"),
    ):
        code, _, err = await command(workspace, "actions", *wrong)
        assert code != 0
        assert words in err
        assert "Traceback" not in err


async def test_last_firing_uses_action_time_zone(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / ".os/memory").mkdir(parents=True)
    async with open_stores(workspace / ".os/memory") as stores:
        due = datetime(2099, 12, 1, 9, tzinfo=ZoneInfo("Asia/Tokyo")).timestamp()
        made = await Actions(stores.projection, stores.memory, clock=lambda: due).add(
            "Call Bo", by="person", due=due + 60, tz="Asia/Tokyo"
        )
        await stores.projection.settle()
        await stores.actions.fired(made.id, due=due + 60, mission_id="m")
        fired = (await stores.memory.actions())[0].fired_at
    assert fired is not None
    _, told, _ = await command(workspace, "actions", "list")
    assert f"last {moment_words(fired, 'Asia/Tokyo')}" in told
