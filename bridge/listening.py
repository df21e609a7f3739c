"""Listening: the socket, before anything else is started, and an application served on it within bounds."""

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
#: A request's head has to have arrived by then, and an idle connection is closed.
_IDLE_SECONDS = 30.0
#: What is left of a refused body is read and dropped for so long, or the client would not see the answer.
_LINGERING_SECONDS = 2.0
#: Handlers have been told to end by then; what still runs is cut.
_CLEANUP_SECONDS = 5.0
#: Each client is a socket, each sprite another, and a local one two pipes.
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
    """Serves the application while the block runs. Where strangers can connect, it needs a `lobby`."""
    runner = web.AppRunner(
        application,
        access_log=None,
        keepalive_timeout=idle_seconds,
        lingering_time=_LINGERING_SECONDS,
        shutdown_timeout=_CLEANUP_SECONDS,
        # A model call ends with the client that waits for it, also while there is nothing to be sent.
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
        # Who connects now is refused at once, and does not wait in a queue that nobody looks at.
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
    """The listening socket, before anything else is started: a port that is taken is said at once."""
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
    """The host as it stands in a URL."""
    return f"[{host.strip('[]')}]" if ":" in host else host


def raise_file_limit() -> None:
    """Lets this process have as many connections as the machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
