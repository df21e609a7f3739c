"""Recovery offers for a sprite that does not start, or that came back with another log.

An offer is applied only with consent.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bridge.config import Settings
from bridge.replicas.sealed_store import open_store
from tests.bridge_harness import Bridge, PageClient, running_bridge
from tests.chat_stand_in import StandIn, state_sync
from tests.harness import observations
from tests.relay_stage import Street, stage
from tests.shipping_by_hand import ship

AT = 1_700_000_000.0
READY = {"state": "ready", "detail": "", "offer": None, "as_of": None}


async def test_open_offer_reaches_current_and_new_pages() -> None:
    async with StandIn() as sprite, stage(Street(sprite.port)) as bridge, bridge.page() as page:
        link = await sprite.visitor()
        await link.welcome(sync=state_sync())
        await page.link("ready")
        room = bridge.relay.room_of("local")
        assert room is not None
        room.advise("Which version should continue?", AT)
        told = await page.link("ready")
        assert (told["detail"], told["offer"], told["as_of"]) == ("Which version should continue?", "choose", AT)
        async with bridge.page() as another:
            assert (await another.link("ready"))["offer"] == "choose"
            room.advise("")
            assert (await another.link("ready"))["offer"] is None
        assert (await page.link("ready"))["detail"] == ""


# Tests with a real bridge and a real sprite.


async def ask(bridge: Bridge, cookie: str, how: str) -> tuple[int, str]:
    async with (
        bridge.http() as session,
        session.post(f"/restore?how={how}", headers={"Cookie": cookie, "Origin": bridge.url}) as response,
    ):
        body = await response.json()
        return response.status, body.get("message") or body["error"]["message"]


async def offered(page: PageClient) -> dict[str, Any]:
    found: dict[str, Any] = (await page.until(lambda m: m["type"] == "link" and m["payload"].get("offer")))["payload"]
    return found


@pytest.mark.parametrize("way", ["over", "keep"])
async def test_older_sprite_log_waits_for_decision(way: str, curated: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    workspace = shutil.copytree(curated, data / "workspaces/local")
    async with open_store(Settings(data), None) as store:
        await ship(store, "local", workspace)
        # The replica belongs to another log, as after a restore elsewhere.
        await store.shelf.write(
            "local", lambda tx: tx.execute("UPDATE stored_positions SET log = 'another', through = through + 9")
        )
    before = len(observations(workspace))
    async with running_bridge(data) as bridge:
        cookie = await bridge.login()
        async with bridge.page(cookie, resume={}) as page:
            told = await offered(page)
            assert (told["state"], told["offer"]) == ("ready", "choose")
            assert "Its replica is as of" in told["detail"]
            for how in ("restore", "nonsense"):
                assert (await ask(bridge, cookie, how))[0] == 409
            status, words = await ask(bridge, cookie, way)
            assert status == 200, words
            await page.until(lambda m: m["type"] == "link" and m["payload"] == READY)
            assert len(observations(workspace)) == before
        asides = list(workspace.parent.glob("local.before-*"))
        assert len(asides) == (1 if way == "over" else 0)
        _, log, _ = await bridge.run("audit")
        act = "restore local (over yes)" if way == "over" else "store accept local"
        assert act in log
