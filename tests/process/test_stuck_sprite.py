"""A suspended or slow sprite: the commands report it, within seconds."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.bridge_harness import Bridge, bridge_process
from tests.command_line import command
from tests.harness import Message, sprite_process
from tests.scripted_model import OfflineModel
from tests.shifted_clock import ShiftedClock

PROBE_SECONDS = 5.0


async def test_suspended_sprite_is_reported_within_seconds(workspace: Path, model: OfflineModel) -> None:
    seconds = {}
    async with sprite_process(workspace, model.url) as sprite:
        os.kill(sprite.pid, signal.SIGSTOP)
        try:
            for name in ("status", "doctor"):
                began = time.monotonic()
                code, out, _ = await command(workspace, name, model_url=model.url)
                seconds[name] = time.monotonic() - began
                assert "gave no answer in 5 s" in out
                assert code == (0 if name == "status" else 1)
                assert "needs attention" in out or name == "doctor"
        finally:
            os.kill(sprite.pid, signal.SIGCONT)
        for name, taken in seconds.items():
            began = time.monotonic()
            _, out, _ = await command(workspace, name, model_url=model.url)
            assert "gave no answer" not in out
            # One probe, and the command's own time, which depends on the load of the machine.
            assert taken < PROBE_SECONDS + max(4.0, 3 * (time.monotonic() - began))


async def test_slow_work_is_reported(tmp_path: Path, model: OfflineModel) -> None:
    """The sprite reports it to pages and commands, the bridge in its status and metrics."""
    clock, go_on = ShiftedClock(tmp_path), tmp_path / "go-on"
    model.script.agent({"text": "Done.", "until": str(go_on)})
    settings: dict[str, Any] = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "a key", **clock.environment}
    async with (
        bridge_process(tmp_path / "data", forks_sprites=True, **settings) as bridge,
        bridge.page(await bridge.login()) as page,
    ):
        await page.send("mission", {"text": "Take your time."})
        await page.until(lambda m: m["payload"].get("event") == "started")
        await model.seen(lambda request: "Take your time." in str(request.body))
        second = await page.send("mission", {"text": "And this?"})
        assert (await page.reply(second))["type"] == "ack"
        assert json.loads((await command(bridge.workspace, "status", "--json"))[1])["slow"] == []
        assert (await slow_of(bridge), await gauges(bridge)) == ([], set())
        clock.jump_to(time.time() + 200)
        figures = ["turn", "queue", "model_call"]
        await page.until(lambda m: m["type"] == "session_update" and slow_in(m) == figures)
        for name in ("status", "doctor"):
            _, out, _ = await command(bridge.workspace, name, "--without-model" if name == "doctor" else "--json")
            for words in ("a turn has been", "a message has been", "a call of the model has had"):
                assert words in out
        assert await slow_of(bridge) == figures
        assert await gauges(bridge) == {f"bridge_slow_{kind}_seconds" for kind in figures}
        _, out, _ = await bridge.run("status")
        assert "a turn has been running for" in out
        go_on.touch()
        await page.until(lambda m: m["type"] == "session_update" and not slow_in(m))
        assert (await slow_of(bridge), await gauges(bridge)) == ([], set())


def slow_in(message: Message) -> list[str]:
    """Return the kinds of slow work in a session update."""
    return [work["kind"] for work in message["payload"]["session"]["slow"]]


async def slow_of(bridge: Bridge) -> list[str]:
    code, out, err = await bridge.run("status", "--json")
    assert code == 0, err
    return [work["kind"] for work in json.loads(out)[0]["slow"]]


async def gauges(bridge: Bridge) -> set[str]:
    """Return the names of the metrics of slow work."""
    async with bridge.http() as session, session.get("/metrics", headers=bridge.operator) as response:
        lines = (await response.text()).splitlines()
    return {line.partition("{")[0] for line in lines if line.startswith("bridge_slow_")}
