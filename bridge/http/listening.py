"""The listening socket, bound before anything else starts, and the HTTP server with its limits."""

import asyncio
import errno
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from bridge.errors import OperatorError
from bridge.telemetry.logs import PERSON, SPRITE
from sprite.common.limits import ConnectionLimiter, accept_for_ever, room
from sprite.common.tasks import owned_task

#: Connections that one bridge can serve; fewer if the machine allows fewer file descriptors.
_MOST_CONNECTIONS = 32768
#: Per person or sprite: pages, downloads and model calls. The next one evicts an idle one.
_MOST_EACH = 128
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 61\r\n"
    b"Content-Type: text/plain\r\n\r\nToo many connections are open at once; try again in a moment."
)


class ConnectionLimitMiddleware:
    """Limit open connections: add `around` as a middleware, and `note` as an `on_response_prepare` signal."""

    def __init__(self) -> None:
        self._answering: set[asyncio.BaseTransport] = set()
        most, most_strangers = room(_MOST_CONNECTIONS)
        self._arrivals: ConnectionLimiter[asyncio.BaseTransport] = ConnectionLimiter(
            most, most_strangers, self._answering.__contains__, most_each=min(_MOST_EACH, most // 2)
        )

    def entered(self, transport: asyncio.Transport) -> None:
        """Count a new connection. If there are too many, close the one to evict, or the new one with status 503."""
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
        """Close an unauthenticated connection, if there is one, to free a file descriptor."""
        _close(self._arrivals.give_way())

    @web.middleware
    async def around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Track that the connection answers a request, as a middleware."""
        transport = request.transport
        if transport is None:
            return await handler(request)
        self._answering.add(transport)
        try:
            return await handler(request)
        finally:
            self._answering.discard(transport)

    async def note(self, request: web.Request, _response: web.StreamResponse) -> None:
        """Attribute a connection to its person or sprite, which are known when the answer starts."""
        name = f"person {request[PERSON]}" if PERSON in request else ""
        name = f"sprite {request[SPRITE]}" if SPRITE in request else name
        if request.transport is not None and name:
            _close(self._arrivals.welcome(request.transport, name))


def _close(transport: asyncio.BaseTransport | None) -> None:
    if isinstance(transport, asyncio.Transport):
        transport.abort()


class Counted:
    """Wrap a protocol so that the limiter counts its connection."""

    def __init__(self, protocol: asyncio.Protocol, lobby: ConnectionLimitMiddleware) -> None:
        self._protocol = protocol
        self._lobby = lobby
        self._transport: asyncio.Transport | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection and pass the call on."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a TCP connection has one
        self._transport = transport
        self._protocol.connection_made(transport)
        self._lobby.entered(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Remove the connection and pass the call on."""
        if self._transport is not None:
            self._lobby.left(self._transport)
        self._protocol.connection_lost(error)


_BACKLOG = 1024
#: Limit for the arrival of a request's head, and for an idle connection.
_IDLE_SECONDS = 30.0
#: Reads and drops the rest of a refused body for this long; otherwise the client would miss the answer.
_LINGERING_SECONDS = 2.0
#: Limit for handlers to end after shutdown began; then they are cancelled.
_CLEANUP_SECONDS = 5.0
#: Each client takes one socket, each sprite another, and a local sprite two pipes.
_WANTED_FILES = 65536


@asynccontextmanager
async def served(
    application: web.Application,
    listener: socket.socket,
    on_death: Callable[[], None],
    *,
    lobby: ConnectionLimitMiddleware | None = None,
    idle_seconds: float = _IDLE_SECONDS,
) -> AsyncIterator[None]:
    """Serve the application while the block runs. If anybody can connect, pass `lobby`, which limits connections."""
    runner = web.AppRunner(
        application,
        access_log=None,
        keepalive_timeout=idle_seconds,
        lingering_time=_LINGERING_SECONDS,
        shutdown_timeout=_CLEANUP_SECONDS,
        # Cancels a model call when its client disconnects, even while there is nothing to send.
        handler_cancellation=True,
    )
    await runner.setup()
    server = runner.server
    assert server is not None  # noqa: S101 - it is set up

    def protocol() -> asyncio.Protocol:
        return server() if lobby is None else cast("asyncio.Protocol", Counted(server(), lobby))

    async def take(connection: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(protocol, connection)

    def make_room() -> None:
        if lobby is not None:
            lobby.make_room()

    def died() -> None:
        # Refuses new connections at once; otherwise they would wait in a queue that is never read.
        listener.close()
        on_death()

    try:
        listener.listen(_BACKLOG)
        async with owned_task(accept_for_ever(listener, take, make_room), name="accept", on_death=died):
            yield
    finally:
        await runner.cleanup()


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Bind the listening socket before anything else starts, so that a taken port is reported at once."""
    name = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = f"Port {port} on {host} is taken. Choose another with --port (0: any free one)."
        else:
            why = f"Cannot listen on {host}:{port} ({error.strerror or error})."
        raise OperatorError(why) from error
    with closing(listener):
        yield listener


def in_url(host: str) -> str:
    """Return the host as written in a URL."""
    return f"[{host.strip('[]')}]" if ":" in host else host


def raise_file_limit() -> None:
    """Raise this process's open file limit to 65536, or to the hard limit if lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
