"""The listening socket, bound before anything else starts, and the HTTP server with its limits."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

from aiohttp import web

from bridge.door.lobby import Counted, Lobby
from bridge.errors import OperatorError
from sprite.common.arrivals import accept_for_ever
from sprite.common.tasks import owned_task

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
    lobby: Lobby | None = None,
    idle_seconds: float = _IDLE_SECONDS,
) -> AsyncIterator[None]:
    """Serve the application while the block runs. Pass a `lobby` if unauthenticated clients can connect."""
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
        return server() if lobby is None else Counted(server(), lobby)

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
        raise OperatorError(
            f"Cannot listen on {host}:{port} ({error.strerror or error}). Choose another --port; 0 takes a free one."
        ) from error
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
