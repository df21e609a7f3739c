"""Recovery offers for a sprite that does not start, or that came back with another log.

An offer is applied only with consent.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.cluster.ownership import NotOwnedError, Ownership
from bridge.config import Settings
from bridge.providers.machine import CommandError
from bridge.providers.provider import HostError, HostState, Report, State
from bridge.replicas.restore import moment
from bridge.replicas.sealed_store import open_store
from sprite.protocol.replication import Lease
from tests.bridge_harness import Bridge, PageClient, running_bridge
from tests.chat_stand_in import StandIn, state_sync
from tests.harness import observations
from tests.inspection import eventually
from tests.relay_stage import Stage, Street, stage
from tests.shipping_by_hand import ship

AT = 1_700_000_000.0
READY = {"state": "ready", "detail": "", "offer": None, "as_of": None}


async def kept(_sprite: str) -> tuple[str, float]:
    return f"What it knew is kept as of {moment(AT)}.", AT


async def nothing(_sprite: str) -> None:
    return None


class Failing(Street):
    """A host that reports a fixed state of its sprite."""

    def __init__(self, port: int, state: State) -> None:
        super().__init__(port)
        self._state = state

    async def state(self, sprite: str) -> HostState:  # noqa: ARG002 - there is one sprite
        return HostState(self._state)


@asynccontextmanager
async def failing(
    error: Exception, state: State = "running", **options: Any
) -> AsyncIterator[tuple[Stage, Street, StandIn]]:
    """Open a relay whose host answers, but whose sprite never starts."""
    async with StandIn() as sprite:
        street = Failing(sprite.port, state)

        async def refuse(_: Report) -> None:
            raise error

        street.before = refuse
        options = {"stuck_seconds": 0.05, "kept": kept, **options}
        async with stage(street, **options) as bridge:
            yield bridge, street, sprite


async def test_unreachable_sprite_with_replica_offers_replacement() -> None:
    async with failing(HostError("The port does not open.")) as (bridge, street, sprite), bridge.page() as page:
        told = await page.link("unavailable")
        while told["offer"] is None:
            told = await page.link("unavailable")
        assert (told["offer"], told["as_of"]) == ("replace", AT)
        for words in ("The port does not open.", "though its machine is there", "kept as of 2023-11-14 22:13 UTC"):
            assert words in told["detail"]
        assert bridge.relay.offer("local") == "replace"
        # The bridge keeps trying, and the sprite recovers without the offer.
        street.before = None
        await (await sprite.visitor()).welcome(sync=state_sync())
        assert (await page.link("ready"))["offer"] is None
        assert bridge.relay.offer("local") is None


class Without(Ownership):
    """Ownership whose database is unavailable."""

    async def own(self, sprite: str) -> Lease | None:
        raise NotOwnedError(f"The database is away: nobody can say who has {sprite}.")


@pytest.mark.parametrize(
    ("error", "state", "options"),
    [
        (HostError("The token is refused.", retryable=False), "running", {}),
        (CommandError("The machine answers, and something failed there."), "running", {}),
        (HostError("The host is away."), "unknown", {}),
        (HostError("There is none."), "absent", {}),
        (HostError("It does not come up."), "running", {"kept": nothing}),
        (HostError("It does not come up."), "running", {"ownership": Without()}),
        (HostError("It does not come up."), "running", {"stuck_seconds": 3600.0}),
    ],
)
async def test_unavailable_sprite_without_remedy_gets_no_offer(
    error: Exception, state: State, options: dict[str, Any]
) -> None:
    async with failing(error, state, **options) as (bridge, street, _), bridge.page() as page:
        assert (await page.link("unavailable"))["offer"] is None
        for _ in range(3):
            tried = street.reached
            bridge.relay.nudge("local")
            if "ownership" in options:
                await asyncio.sleep(0.1)
            else:
                await eventually(lambda tried=tried: street.reached > tried, "the bridge does not retry")  # type: ignore[misc]
            assert bridge.relay.offer("local") is None


async def test_open_offer_reaches_current_and_new_pages() -> None:
    async with StandIn() as sprite, stage(Street(sprite.port)) as bridge, bridge.page() as page:
        link = await sprite.visitor()
        await link.welcome(sync=state_sync())
        await page.link("ready")
        room = bridge.relay.room_of("local")
        assert room is not None
        room.advise("Which of the two goes on?", AT)
        told = await page.link("ready")
        assert (told["detail"], told["offer"], told["as_of"]) == ("Which of the two goes on?", "choose", AT)
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
            assert "What it knew is kept as of" in told["detail"]
            for how in ("replace", "restore", "nonsense"):
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
