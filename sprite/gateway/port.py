"""The TCP port: accept connections, limit their number, and evict unauthenticated ones.

Owns the listening sockets and the set of open connections. A connection knows nothing of the others.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from sprite.common.limits import ConnectionLimiter, accept_for_ever, room
from sprite.common.tasks import TaskSet, owned_task
from sprite.errors import OperatorError
from sprite.gateway.connection import Connection
from sprite.protocol.frames import encode
from sprite.protocol.messages import Error

#: Concurrent connections; a bridge needs one, a person's tools a few. Each may hold an outbox of some MiB.
MAX_CONNECTIONS = 512
#: Pending connections in the kernel's queue.
_BACKLOG = 256
_FULL = Error("too_many_connections", "Too many clients are connected; try again later.")
#: On a machine without IPv6, names may still resolve to both families.
_NO_SUCH_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})

#: Creates a client's connection; the last argument is called once the client is authenticated.
MakeConnection = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Callable[[], None]], Connection]


class Port:
    """The open port."""

    def __init__(self, listeners: list[socket.socket], accepting: AsyncExitStack) -> None:
        self._accepting = accepting
        #: Host and port; the first if there are several.
        self.address: tuple[str, int] = listeners[0].getsockname()[:2]

    async def close(self) -> None:
        """Stop accepting clients; connected ones stay."""
        await self._accepting.aclose()


@asynccontextmanager
async def listening(host: str, port: int, make: MakeConnection, on_death: Callable[[], None]) -> AsyncIterator[Port]:
    """Serve clients while the block runs, then close the connections. Raises OperatorError if it cannot listen."""
    async with TaskSet() as connections, AsyncExitStack() as accepting:
        clients = _Clients(make, connections)
        listeners = _bound(host, port)
        for listener in listeners:
            accepting.enter_context(listener)
        for listener in listeners:
            await accepting.enter_async_context(
                owned_task(accept_for_ever(listener, clients.take, clients.make_room), name="accept", on_death=on_death)
            )
        yield Port(listeners, accepting)


class _Clients:
    def __init__(self, make: MakeConnection, connections: TaskSet) -> None:
        self._make = make
        self._connections = connections
        self._arrivals: ConnectionLimiter[asyncio.StreamWriter] = ConnectionLimiter(*room(MAX_CONNECTIONS))

    async def take(self, connection: socket.socket) -> None:
        """Serve one more client."""
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._arrived)
        await loop.connect_accepted_socket(lambda: protocol, connection)

    def make_room(self) -> None:
        """Evict an unauthenticated client, if there is one, because its descriptor is needed."""
        if (gone := self._arrivals.give_way()) is not None:
            _send_away(gone)

    def _arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = self._arrivals.enter(writer)
        if gone is not None:
            _send_away(gone)
        if gone is not writer:
            connection = self._make(reader, writer, lambda: self._known(writer))
            serving = self._connections.start(connection.serve(), "connection")
            serving.add_done_callback(lambda _: self._arrivals.leave(writer))

    def _known(self, writer: asyncio.StreamWriter) -> None:
        # A client with the token acts for the sprite's person and may use all connections.
        self._arrivals.welcome(writer, "")


def _send_away(writer: asyncio.StreamWriter) -> None:
    writer.write(encode(_FULL))
    writer.close()


def _bound(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for each address of the host."""
    bound: list[socket.socket] = []
    failure: OSError | None = None
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                bound.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
            except OSError as error:
                if error.errno not in _NO_SUCH_FAMILY:
                    raise
                failure = error
        if not bound and failure is not None:
            raise failure
    except OSError as error:
        for listener in bound:
            listener.close()
        raise OperatorError(
            f"Cannot listen on {host}:{port} ({error.strerror}). Choose another --port; 0 takes a free one."
        ) from error
    return bound
