"""`serve --provider sprites` and `deploy` against the emulator, from no VM to the first conversation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bridge_harness import bridge_environment, run_bridge, running_bridge
from tests.emulator import Emulator
from tests.emulator.api import TOKEN
from tests.ports import free_port
from tests.vms import Disk


async def test_deployed_vm_answers_its_person(tmp_path: Path, disk: Disk) -> None:
    """The deploy prints its steps, and a second deploy changes nothing."""
    port = free_port()
    async with Emulator(tmp_path / "vms") as emulator:
        emulator.image = disk.packages
        settings: dict[str, Any] = {
            "TESTS_SPRITES_URL": emulator.url,
            "SPRITES_TOKEN": TOKEN,
            # The emulator's machines run on this machine.
            "BRIDGE_PUBLIC_URL": f"http://127.0.0.1:{port}",
            "SPRITE_DAILY_USD": "2.5",
        }
        data = tmp_path / "data"
        environment = bridge_environment(**settings)
        added = await run_bridge("users", "add", "ada", "--data", str(data), environment=environment)
        token = added[1].split("token")[-1].split()[0]
        # The deploy needs no running bridge.
        status, out, err = await run_bridge(
            "deploy", "ada", "--provider", "sprites", "--data", str(data), environment=environment
        )
        assert status == 0, err
        assert len(out.splitlines()) > 3
        assert "ada is deployed" in out
        async with running_bridge(data, "--provider", "sprites", port=port, **settings) as bridge:
            async with bridge.page(token=token) as page:
                await page.link("ready")
                health = (await page.ask("memory", {"op": "health"}))["payload"]["health"]
                assert health["daily_cap_usd"] == 2.5, "the setting did not reach the VM"
                done = await page.mission("make a table card of apples 3, pears 5")
                assert done["event"] == "complete", done
                assert any(message["type"] == "canvas_update" for message in page.received)
            rows = json.loads((await bridge.run("status", "--json"))[1])
            (ada,) = [row for row in rows if row["sprite"] == "ada"]
            assert ada["state"] == "running"
            assert ada["version"]
            # Without changes, the deploy sends three requests.
            emulator.calls.clear()
            assert (await bridge.run("deploy", "ada"))[0] == 0
            calls = [(call.method, call.path.rpartition("/")[2]) for call in emulator.calls]
            assert calls == [("GET", "ada"), ("GET", "exec"), ("GET", "proxy")]
            assert TOKEN not in bridge.log


async def test_missing_provider_setting_is_named(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    for environment, words in (
        (bridge_environment(), "SPRITES_TOKEN"),
        (bridge_environment(SPRITES_TOKEN="secret-of-ours"), "BRIDGE_PUBLIC_URL"),
    ):
        status, out, err = await run_bridge(
            "serve", "--port", "0", "--provider", "sprites", "--data", data, environment=environment
        )
        assert (status, out) == (2, "")
        assert words in err
        assert "secret-of-ours" not in err


async def test_impossible_deploy_fails_with_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.providers.machine._FIRST_PAUSE_SECONDS", 0.02)
    environment = bridge_environment(
        TESTS_SPRITES_URL="http://127.0.0.1:9", SPRITES_TOKEN=TOKEN, BRIDGE_PUBLIC_URL="http://127.0.0.1:9"
    )
    status, out, _ = await run_bridge(
        "deploy", "ada", "--provider", "sprites", "--data", str(tmp_path / "data"), environment=environment
    )
    assert status == 1
    assert "failed" in out
