"""Bridges that share a database check each other, and log each misconfiguration once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from bridge.client.link import BridgeUnreachableError
from bridge.cluster.forward_header import RequestSigner
from bridge.cluster.peers import PATH, Peers, running
from bridge.db.open import Database, open_database
from bridge.terminal.endpoints import RemoteEndpoint
from tests.harness import PATIENCE
from tests.hop_stage import SECRET, Entrance, Places, door, entrance
from tests.inspection import eventually


async def nothing(_request: web.Request) -> web.Response:
    return web.Response(text="")


def died() -> None:
    raise AssertionError("a task died")


def looking(
    database: Database, at: str, seal: RequestSigner | None, keys: Callable[[], Sequence[str]] = tuple
) -> Peers:
    return Peers(database, at, seal, keys, died, look_seconds=0.02)


@asynccontextmanager
async def another(folder: Path, secret: str | None = SECRET) -> AsyncIterator[tuple[Database, Entrance]]:
    """Open a database and a reachable bridge over it."""
    async with (
        open_database(folder / "shared.db") as database,
        entrance(database, Places(), door(nothing), secret=secret) as there,
    ):
        yield database, there


async def test_matching_peers_report_no_trouble(tmp_path: Path) -> None:
    """A stopped bridge leaves the list of running bridges."""
    async with another(tmp_path) as (database, there):
        async with (
            looking(database, there.url, RequestSigner(SECRET), lambda: ("one", "old")),
            looking(database, "http://here", RequestSigner(SECRET), lambda: ("old", "one")) as here,
        ):
            async with asyncio.timeout(PATIENCE):
                while len(found := await running(database)) < 2:  # noqa: ASYNC110 - each says it when it looks
                    await asyncio.sleep(0.02)
            assert {(peer.address, peer.store_keys) for peer in found} == {
                ("http://here", ("old", "one")),
                (there.url, ("one", "old")),
            }
            assert here.troubles() == []
        assert await running(database) == []
        async with there.session.get(f"{there.url}{PATH}") as response:
            assert response.status == 403


@pytest.mark.parametrize(
    ("seal", "keys", "words"),
    [
        (RequestSigner("a secret of its own, alas"), (), "BRIDGE_CLUSTER_SECRET differs"),
        (RequestSigner(SECRET, lambda: time.time() + 60), (), "The clocks of this bridge and of the one at"),
        (None, (), "this one has no BRIDGE_CLUSTER_SECRET"),
        (RequestSigner(SECRET), ("another",), "set the same BRIDGE_STORE_KEY"),
    ],
)
async def test_misconfigured_peer_is_reported_once(
    seal: RequestSigner | None, keys: tuple[str, ...], words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.cluster.peers")
    async with (
        another(tmp_path) as (database, there),
        looking(database, there.url, RequestSigner(SECRET), lambda: ("one",)),
        looking(database, "http://here", seal, lambda: keys) as here,
    ):
        looks = 0

        def looked() -> bool:
            nonlocal looks
            looks += 1
            return looks > 5 and bool(here.troubles())

        await eventually(looked, "no trouble is reported")
        (said,) = here.troubles()
        assert words in said
        assert there.url in said
    assert [record.getMessage() for record in caplog.records if words in record.getMessage()] == [said]


async def test_unreachable_peer_is_reported_until_reachable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.cluster.peers")
    async with another(tmp_path) as (database, there), looking(database, "http://here", RequestSigner(SECRET)) as here:
        row = "INSERT INTO bridges (name, address, store_keys, seen_at) VALUES ('b', ?, '', db_now() + 1000)"
        await database.statement(row, ("http://127.0.0.1:9",))
        await eventually(lambda: bool(here.troubles()), "no trouble is reported")
        assert "The bridge at http://127.0.0.1:9 cannot be reached from here" in here.troubles()[0]
        await database.statement("UPDATE bridges SET address = ? WHERE name = 'b'", (there.url,))
        await eventually(lambda: not here.troubles(), "the trouble is still reported")
    assert "the bridge at http://127.0.0.1:9 does not run any more" in caplog.text


async def test_resolved_peer_trouble_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.cluster.peers")
    theirs = ["another"]
    async with (
        another(tmp_path) as (database, there),
        looking(database, there.url, RequestSigner(SECRET), lambda: theirs),
        looking(database, "http://here", RequestSigner(SECRET), lambda: ("one",)) as here,
    ):
        await eventually(lambda: bool(here.troubles()), "no trouble is reported")
        theirs[:] = ["one"]
        await eventually(lambda: not here.troubles(), "the trouble is still reported")
    assert f"all is well between this bridge and the one at {there.url}" in caplog.text


async def test_terminal_explains_refused_connection(tmp_path: Path) -> None:
    places = Places()
    async with (
        open_database(tmp_path / "shared.db") as database,
        entrance(database, places, sockets) as owner,
        entrance(database, places, sockets, secret="a secret of its own, alas") as other,
    ):
        _, token = await owner.people.add("ada")
        places.at["ada"] = (owner.url, 1)
        async with RemoteEndpoint(other.url, token) as terminal:
            for _ in range(3):
                with pytest.raises(
                    BridgeUnreachableError, match=r"does not believe .* BRIDGE_CLUSTER_SECRET"
                ) as refused:
                    await terminal.connect()
                assert not refused.value.for_good
        async with RemoteEndpoint(other.url, "wrong") as stranger:
            with pytest.raises(BridgeUnreachableError, match="does not know this token") as refused:
                await stranger.connect()
            assert refused.value.for_good
        # Pages use this route because a browser hides the reason of a refused WebSocket.
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as page,
            page.get(f"{other.url}/ws/why") as response,
        ):
            assert response.status == 502
            assert "BRIDGE_CLUSTER_SECRET" in (await response.json())["error"]["message"]


def sockets(here: Entrance) -> list[web.RouteDef]:
    """Return routes for authenticated callers only."""

    async def opened(request: web.Request) -> web.StreamResponse:
        caller = await here.authenticator.caller(request)
        return here.authenticator.logged_out(request) if caller is None else await nothing(request)

    return [web.get("/ws", opened), web.get("/ws/why", opened)]
