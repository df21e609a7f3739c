"""`python -m bridge serve` as a process: the way to an agent, signals, kills and their leftovers."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.bridge_harness import bridge_environment, bridge_process, running_bridge
from tests.forking import fork_module
from tests.harness import PATIENCE, ROOT, observations
from tests.memory_stores import seed_turns
from tests.ports import free_port


async def test_stop_mid_turn_stores_and_curates_turns(tmp_path: Path) -> None:
    """The model proxy answers until the sprites have ended, because their last flush needs it."""
    await seed_turns(tmp_path / "data/workspaces/local", "Hello", "Hello", "Hello")
    async with bridge_process(tmp_path / "data", forks_sprites=True) as bridge:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            assert (await page.mission("make a table card of apples 3, pears 5"))["event"] == "complete"
            assert any(message["type"] == "canvas_update" for message in page.received)
            status, out, _ = await bridge.run("status")
            assert status == 0
            assert "running" in out
            assert "local" in out
            await page.mission("my name is Wilhelmina")
            await page.send("mission", {"text": "run `tail -f /dev/null`"})
            await page.until(lambda m: m["type"] == "agent_event" and m["payload"]["event"] == "tool_use")
            sprite = int((bridge.workspace / ".os/run/lock").read_text())
            bridge.process.send_signal(signal.SIGTERM)
            assert await page.closed() == 1001
        assert await bridge.ended() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(sprite, 0)
    assert [row["outcome"] for row in observations(bridge.workspace)] == [*["complete"] * 5, "crashed"]
    assert "Wilhelmina" in (bridge.workspace / ".os/memory/user.md").read_text()


async def test_daily_budget_flag_reaches_sprite(tmp_path: Path) -> None:
    async with (
        running_bridge(tmp_path / "data", "--daily-usd", "2.5") as bridge,
        bridge.page(await bridge.login()) as page,
    ):
        await page.link("ready")
        health = (await page.ask("memory", {"op": "health"}))["payload"]["health"]
        assert health["daily_cap_usd"] == 2.5


async def test_terminal_shows_text_and_logs_to_file(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    bridge = await fork_module(
        "bridge",
        "serve",
        "--port",
        "0",
        "--data",
        str(tmp_path / "data"),
        env=bridge_environment(),
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        async with asyncio.timeout(PATIENCE):
            seen = ""
            while "logged in" not in seen:
                seen += (await asyncio.to_thread(os.read, ours, 4096)).decode()
            first, second, *_ = seen.splitlines()
            assert first == "python -m bridge: starting; the first time takes a few seconds"
            assert second.startswith("bridge listening on http://127.0.0.1:")
            bridge.send_signal(signal.SIGINT)
            assert await bridge.wait() == 0
    finally:
        if bridge.returncode is None:
            bridge.kill()
            await bridge.wait()
        os.close(ours)
    file = tmp_path / "data/run/bridge.log"
    assert str(file) in "".join(seen.split("\r\n"))
    assert [line["message"].split()[0] for line in map(json.loads, file.read_text().splitlines())] == [
        "listening",
        "stopping",
    ]


async def test_make_run_prints_address_and_handles_ctrl_c(tmp_path: Path) -> None:
    make = await asyncio.create_subprocess_exec(
        "make",
        "run",
        f"ARGS=--port 0 --data {tmp_path / 'data'}",
        cwd=ROOT,
        env=bridge_environment(),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert make.stdout is not None
        async with asyncio.timeout(PATIENCE):
            lines = [(await make.stdout.readline()).decode() for _ in range(4)]
            assert "/login?token=" in lines[0]
            assert str(tmp_path / "data") in lines[1]
            assert "demo model" in lines[2]
            assert "browser" in lines[3]
            # Like a terminal, send the signal to the whole foreground group.
            os.killpg(make.pid, signal.SIGINT)
            await make.wait()
    finally:
        if make.returncode is None:
            os.killpg(make.pid, signal.SIGKILL)
            await make.wait()


async def test_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with bridge_process(tmp_path / "data") as bridge:
        bridge.process.send_signal(signal.SIGINT)
        bridge.process.send_signal(signal.SIGINT)
        # The bridge may already have ended after the first signal.
        assert await bridge.ended() in {0, 128 + signal.SIGINT}


async def test_kill_loses_no_data(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    async with bridge_process(data, port=port, forks_sprites=True) as bridge:
        _, out, _ = await bridge.run("users", "add", "ada")
        token = out.split("token")[-1].split()[0]
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            await page.ask("canvas_interaction", {"action": "create_stack", "name": "Wilhelmina"})
        await bridge.kill()
    async with bridge_process(data, port=port, forks_sprites=True) as bridge:
        async with bridge.page(cookie) as page:
            sync = await page.type("state_sync")
            assert "Wilhelmina" in [stack["name"] for stack in sync["stacks"]]
        async with bridge.http() as session, session.get("/", headers={"Authorization": f"Bearer {token}"}) as response:
            assert response.status == 200
    with closing(sqlite3.connect(data / "bridge.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
