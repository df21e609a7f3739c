"""Loss of a VM in the middle of a mission: a restore brings back everything replicated before it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from bridge.config import LOCAL_PERSON, Settings
from bridge.providers.provider import LOCK, LOG, SYSTEM
from bridge.replicas.sealed_store import SealedStore, open_store
from tests.bridge_harness import Bridge, running_bridge
from tests.delays import Delays
from tests.harness import observations, start_forked
from tests.inspection import eventually, journal, observation_of, workspace_db
from tests.memory_stores import seed_turns
from tests.scripted_model import OfflineModel

STEP = "the step before the end"
#: Rows at least this old when the VM is lost are never lost.
LOST_SECONDS = 2.0


def sprite_of(bridge: Bridge) -> int:
    """Return the process id of the bridge's only sprite."""
    return int((bridge.workspace / SYSTEM / LOCK).read_text())


async def has_whole(store: SealedStore, workspace: Path) -> bool:
    """Tell whether the store has the step's result and reports a complete replica."""
    if not (await store.position(LOCAL_PERSON)).is_whole:
        return False
    kept = [row async for row in store.rows(LOCAL_PERSON) if row.table == "log/journal.jsonl"]
    steps = [row for row in journal(workspace) if STEP in json.dumps(row, default=str)]
    return bool(steps) and {row["id"] for row in steps} <= {row.row["id"] for row in kept}


async def test_restore_after_vm_loss_keeps_replicated_steps(model: OfflineModel, tmp_path: Path) -> None:
    """The interrupted mission ends as crashed, with its steps, and does not run again."""
    model.script.agent(
        {"match": "work on", "on": "prompt", "tool": "Bash", "input": {"command": f"echo '{STEP}'"}},
        {"match": "work on", "hang": True, "times": -1},
    )
    await seed_turns(tmp_path / "data/workspaces/local", "My dog is Pim.")
    async with (
        running_bridge(
            tmp_path / "data",
            start_sprite=start_forked,
            ANTHROPIC_BASE_URL=model.url,
            ANTHROPIC_API_KEY="offline",
        ) as bridge,
        open_store(Settings(bridge.data), None) as store,
    ):
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            before = observations(bridge.workspace)
            mission = await page.send("mission", {"text": "work on"})
            await eventually(
                lambda: any(STEP in json.dumps(row, default=str) for row in journal(bridge.workspace)),
                "the mission logs no step",
            )
            while not await has_whole(store, bridge.workspace):
                await asyncio.sleep(0.1)
                # The page must keep reading, or the bridge drops its connection.
                await page.ask("system", {"action": "status"})
            sprite = sprite_of(bridge)
            bridge.workspace.rename(tmp_path / "destroyed")
            os.kill(sprite, signal.SIGKILL)
            told = await page.until(lambda m: m["type"] == "link" and m["payload"].get("offer") == "restore")
            assert "The machine of this agent is gone" in told["payload"]["detail"]
            # The CLI may have recreated its own folder during the kill, but no log may exist.
            assert not (bridge.workspace / SYSTEM / LOG).exists()
            async with (
                bridge.http() as session,
                session.post("/restore", headers={"Cookie": cookie, "Origin": bridge.url}) as done,
            ):
                assert done.status == 200, await done.text()
            await page.link("ready")
            await eventually(lambda: len(observations(bridge.workspace)) > len(before), "the mission does not end")
            crashed = observation_of(bridge.workspace, mission)
            assert crashed["outcome"] == "crashed"
            assert STEP in json.dumps(crashed["tool_calls"])
            assert observations(bridge.workspace)[: len(before)] == before
            shown = workspace_db(bridge.workspace, "SELECT status FROM missions WHERE id = ?", (mission,))
            assert shown == [{"status": "error"}]
            # The interrupted mission does not run again.
            said = [turn["user_message"] for turn in observations(bridge.workspace)]
            assert said.count("work on") == 1


@pytest.mark.soak
async def test_vm_loss_costs_two_seconds_at_most(model: OfflineModel, tmp_path: Path) -> None:
    """Journal rows older than two seconds at the kill are in the replica and in the restored turn."""
    model.script.agent({"match": "work on", "tool": "Bash", "input": {"command": f"echo '{STEP}'"}, "times": -1})
    async with (
        Delays() as delays,
        running_bridge(
            tmp_path / "data",
            start_sprite=start_forked,
            ANTHROPIC_BASE_URL=model.url,
            ANTHROPIC_API_KEY="offline",
        ) as bridge,
        open_store(Settings(bridge.data), None) as store,
    ):
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            mission = await page.send("mission", {"text": "work on"})
            began = time.time()
            # The mission never ends. Wait until some rows are old enough to be safe.
            while not [row for row in journal(bridge.workspace) if began < row["at"] < time.time() - 2 * LOST_SECONDS]:
                await page.next()
            sprite, ended = sprite_of(bridge), time.time()
            bridge.workspace.rename(tmp_path / "destroyed")
            os.kill(sprite, signal.SIGKILL)
            await page.until(lambda m: m["type"] == "link" and m["payload"].get("offer") == "restore")
            wanted = [
                row for row in journal(tmp_path / "destroyed") if row["at"] < ended - LOST_SECONDS - delays.longest
            ]
            kept = [row.row["id"] async for row in store.rows(LOCAL_PERSON) if row.table == "log/journal.jsonl"]
            assert wanted
            assert {row["id"] for row in wanted} <= set(kept)
            async with (
                bridge.http() as session,
                session.post("/restore", headers={"Cookie": cookie, "Origin": bridge.url}) as done,
            ):
                assert done.status == 200, await done.text()
            await page.link("ready")
            await eventually(lambda: observations(bridge.workspace) != [], "the mission does not end")
            crashed = observation_of(bridge.workspace, mission)
            steps = [row for row in wanted if row["event"] == "tool"]
            assert len(crashed["tool_calls"]) >= len(steps) > 1
