"""Who is connected: counted from before the handshake on, and ended also where it is not over."""

from __future__ import annotations

from aiohttp import web

from bridge.auth.admission import OpenSockets


async def test_one_that_is_about_to_come_in_counts_and_is_told_when_its_person_is_revoked() -> None:
    open_sockets = OpenSockets()
    with open_sockets.inside("ada", None, web.WebSocketResponse()) as coming:
        assert open_sockets.counts() == {"ada": 1}
        await open_sockets.end_person("bo")
        assert not coming.is_ended
        await open_sockets.end_person("ada")
        assert coming.is_ended
    assert open_sockets.counts() == {}
