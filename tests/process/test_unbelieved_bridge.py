"""A bridge that another one does not believe explains it to its clients."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from bridge.client.link import BridgeUnreachableError
from bridge.db.open import open_database
from bridge.terminal.endpoints import RemoteEndpoint
from tests.hop_stage import Entrance, Places, entrance


async def nothing(_request: web.Request) -> web.Response:
    return web.Response(text="")


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
                with pytest.raises(BridgeUnreachableError, match=r"does not trust .* BRIDGE_CLUSTER_SECRET") as refused:
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
