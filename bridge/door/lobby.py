"""Limit for the public port's connections, with separate limits for authenticated and unauthenticated clients.

A connection counts as authenticated from its first authenticated request. Until then it may be evicted (see arrivals).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from bridge.observing.request_keys import PERSON, SPRITE
from sprite.common.arrivals import Arrivals, room

#: Connections that one bridge can serve; fewer if the machine allows fewer file descriptors.
_MOST_CONNECTIONS = 32768
#: Per person or sprite: pages, downloads and model calls. The next one evicts an idle one.
_MOST_EACH = 128
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 61\r\n"
    b"Content-Type: text/plain\r\n\r\nToo many connections are open at once; try again in a moment."
)


class Lobby:
    """The connection limiter: add its `middleware` to the application, and `note` as `on_response_prepare` signal."""

    def __init__(self) -> None:
        self._answering: set[asyncio.BaseTransport] = set()
        most, most_strangers = room(_MOST_CONNECTIONS)
        self._arrivals: Arrivals[asyncio.BaseTransport] = Arrivals(
            most, most_strangers, self._is_answered, most_each=min(_MOST_EACH, most // 2)
        )

    def _is_answered(self, transport: asyncio.BaseTransport) -> bool:
        return transport in self._answering

    def entered(self, transport: asyncio.Transport) -> None:
        """Count a new connection. Closes the one to evict, or the new one with status 503."""
        gone = self._arrivals.enter(transport)
        if gone is transport:
            transport.write(_FULL)
            transport.close()
        else:
            _close(gone)

    def left(self, transport: asyncio.BaseTransport) -> None:
        """Remove an ended connection."""
        self._arrivals.leave(transport)

    def make_room(self) -> None:
        """Close an unauthenticated connection, if there is one, because its file descriptor is needed."""
        _close(self._arrivals.give_way())

    def middleware(self) -> Middleware:
        """Return the middleware that tracks which connections are answering a request."""

        @web.middleware
        async def around(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            transport = request.transport
            if transport is None:
                return await handler(request)
            self._answering.add(transport)
            try:
                return await handler(request)
            finally:
                self._answering.discard(transport)

        return around

    async def note(self, request: web.Request, _response: web.StreamResponse) -> None:
        """Attribute a connection to its person or sprite, which are known when the answer starts."""
        name = f"person {request[PERSON]}" if PERSON in request else ""
        name = f"sprite {request[SPRITE]}" if SPRITE in request else name
        if request.transport is not None and name:
            _close(self._arrivals.welcome(request.transport, name))


def _close(transport: asyncio.BaseTransport | None) -> None:
    if isinstance(transport, asyncio.Transport):
        transport.abort()


class Counted(asyncio.Protocol):
    """A protocol wrapper that counts its connection in the limiter."""

    def __init__(self, protocol: asyncio.Protocol, lobby: Lobby) -> None:
        self._protocol = protocol
        self._lobby = lobby
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection and pass the call on."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a TCP connection has one
        self._transport = transport
        self._protocol.connection_made(transport)
        self._lobby.entered(transport)

    def data_received(self, data: bytes) -> None:
        """Pass the call on."""
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the call on."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Pass the call on."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass the call on."""
        self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Remove the connection and pass the call on."""
        if self._transport is not None:
            self._lobby.left(self._transport)
        self._protocol.connection_lost(error)
