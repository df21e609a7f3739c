"""Tracking of open sockets: counted before the handshake, and closed during it as well."""

from __future__ import annotations

from aiohttp import web

from bridge.auth.admission import OpenSockets


async def test_socket_in_handshake_is_closed_on_revocation() -> None:
    open_sockets = OpenSockets()
    with open_sockets.inside("ada", None, web.WebSocketResponse()) as coming:
        assert open_sockets.counts() == {"ada": 1}
        await open_sockets.end_person("bo")
        assert not coming.is_ended
        await open_sockets.end_person("ada")
        assert coming.is_ended
    assert open_sockets.counts() == {}
