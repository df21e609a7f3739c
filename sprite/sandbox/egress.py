"""The agent's way to the network: an HTTP proxy on a Unix socket, for CONNECT and `http://` URLs.

It resolves a host once and checks the address; a TLS client must name the same host. The rest is encrypted: a program
can name another site in its requests (domain fronting).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

import h11

from sprite.common.addresses import is_public
from sprite.common.tasks import TaskSet
from sprite.errors import StorageError
from sprite.sandbox.hosts import HostGate, HostRefusedError, Place, Reason
from sprite.sandbox.model_door import listening_socket, pump

log = logging.getLogger(__name__)
_T = TypeVar("_T")

MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 256
HEAD_SECONDS = 10.0
DNS_SECONDS = 5.0
#: Limit for one address of a host.
CONNECT_SECONDS = 10.0
FIRST_BYTE_SECONDS = 120.0
#: Limit for a connection on which nothing is sent in either direction.
IDLE_SECONDS = 900.0
#: Addresses of a host that are tried.
_MOST_ADDRESSES = 4
_LOOKUPS = 8
_PIECE_BYTES = 64 * 1024
_LINGER_SECONDS = 1.0
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
#: Headers about one connection only (RFC 9110, 7.6.1), and those for a proxy.
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"}
    | {b"te", b"trailer", b"upgrade"}
)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_HTTP_PORT, _HTTPS_PORT = 80, 443
_OK = 200
#: The first byte of a TLS record with a handshake, and that of a ClientHello in it.
_HANDSHAKE, _CLIENT_HELLO = b"\x16", b"\1"


class _BadRequestError(Exception):
    """The proxy answers a malformed or surplus request with this HTTP status."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(eq=False, slots=True)
class _Connection:
    """A connection through the proxy: host, reason why it is allowed, task, deadline, and counts of bytes."""

    place: Place
    reason: Reason | Literal["refused"]
    task: asyncio.Task[Any]
    clock: asyncio.Timeout
    sent: int = 0
    received: int = 0

    def count_sent(self, size: int) -> None:
        """Count bytes sent to the host, and postpone the connection's deadline."""
        self.sent += size
        self._renew()

    def count_received(self, size: int) -> None:
        """Count bytes received from the host, and postpone the connection's deadline."""
        self.received += size
        self._renew()

    def _renew(self) -> None:
        seconds = IDLE_SECONDS if self.received else FIRST_BYTE_SECONDS
        self.clock.reschedule(asyncio.get_running_loop().time() + seconds)


class EgressProxy:
    """Proxy the agent's network connections, which `gate` allows or refuses and its tables log.

    `always` is the model's endpoint, which is allowed without a question. `never` are hosts that no rule allows.
    `inside` allows private addresses, for tests.
    """

    def __init__(
        self,
        path: Path,
        gate: HostGate,
        *,
        always: tuple[str, int] | None = None,
        never: frozenset[str] = frozenset(),
        inside: bool = False,
    ) -> None:
        self.gate = gate
        self._path = path
        self._always = Place.of(*always) if always else None
        self._never = never
        self._inside = inside
        # Separate from the loop's threads, which a slow DNS server would occupy.
        self._threads = ThreadPoolExecutor(_LOOKUPS, "dns")
        self._tasks = TaskSet()
        self._open: set[_Connection] = set()
        #: When the last connection to each host ended (Unix seconds).
        self._ended: dict[str, float] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on the socket, which only this user can open."""
        listener = listening_socket(self._path)
        self._server = await asyncio.start_unix_server(self._accept, sock=listener)

    async def stop(self) -> None:
        """Close the socket and all connections. May be called twice."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
            self._server = None
        await self._tasks.close()
        await self.gate.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def revoke(self, key: str) -> bool:
        """Delete the person's permission for a host, and close its connections. Return False if there was none."""
        is_revoked = await self.gate.revoke(key)
        for connection in tuple(self._open):
            if connection.place.key == key and connection.reason in {"always", "session", "turn"}:
                connection.task.cancel()
        return is_revoked

    def open_to(self, host: str, port: int, decision: str) -> tuple[int, int, int]:
        """Return the number of open connections to a host for this reason, and their bytes sent and received."""
        found = [each for each in self._open if each.place == Place(host, port) and each.reason == decision]
        return len(found), sum(each.sent for each in found), sum(each.received for each in found)

    def hosts_since(self, at: float) -> list[str]:
        """Return the hosts, except the model's, that had an open connection at or after `at` (Unix seconds)."""
        now_open = {each.place.host for each in self._open if each.reason not in {"model", "refused"}}
        return sorted(now_open | {host for host, ended in self._ended.items() if ended >= at})

    async def fetch(self, url: str, most_bytes: int) -> bytes:
        """Return at most `most_bytes` of a page that the sprite itself fetches under the agent's permissions.

        Raises HostRefusedError if the host is not allowed, ValueError or OSError if there is no page.
        """
        parts = urlsplit(quote(url, safe="%/:=&?~#+!$,;'@()*[]"))
        place = Place.of(parts.hostname or "", parts.port or (_HTTPS_PORT if parts.scheme == "https" else _HTTP_PORT))
        await self._log(place, await self._admit(place), self.gate.now().turn)
        async with asyncio.timeout(FIRST_BYTE_SECONDS):
            reader, writer = await self._connected(place, is_model=False)
            try:
                if parts.scheme == "https":
                    await writer.start_tls(ssl.create_default_context(), server_hostname=place.host)
                peer = Peer(h11.CLIENT, reader, writer)
                target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
                headers = [("Host", place.key), ("User-Agent", "sprite"), ("Connection", "close")]
                status, content = await answer_of(peer, "GET", target, headers, most=most_bytes)
            except h11.ProtocolError as error:
                raise OSError("the host does not speak HTTP") from error
            finally:
                writer.close()
        if status != _OK:
            raise ValueError(f"the host answered with status {status}")
        return content

    # --- a connection ---

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(self._run(Peer(h11.SERVER, reader, writer)), "egress connection")

    async def _run(self, client: Peer) -> None:
        try:
            await self._serve(client)
        except HostRefusedError as error:
            await client.refuse(403, str(error))
        except _BadRequestError as error:
            await client.refuse(error.status, str(error))
        except h11.RemoteProtocolError as error:
            await client.refuse(error.error_status_hint, f"Sprite cannot read this request: {error}.")
        except TimeoutError:
            await client.refuse(504, "The host or the program took too long.")
        except OSError as error:
            await client.refuse(502, f"The host cannot be reached: {error.strerror or error}.")
        finally:
            client.close()

    async def _serve(self, client: Peer) -> None:
        if len(self._tasks) > MAX_CONNECTIONS:
            raise _BadRequestError(503, "The agent has too many connections open. Close some of them.")
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                request = await client.next_event()
        except TimeoutError:
            raise _BadRequestError(408, "The request did not arrive in time.") from None
        if not isinstance(request, h11.Request):
            return
        place, path = _target(request)
        turn = self.gate.now().turn
        try:
            reason = await client.unless_gone(self._admit(place))
        except HostRefusedError:
            await self._log(place, "refused", turn)
            raise
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is a coroutine
        connection = _Connection(place, reason, task, asyncio.timeout(FIRST_BYTE_SECONDS))
        # From here on, before anything is awaited, a revoked rule closes it.
        self._open.add(connection)
        number = await self._log(place, reason, turn)
        try:
            async with connection.clock:
                await self._carry(client, request, path, connection)
        except HostRefusedError:
            connection.reason = "refused"
            raise
        finally:
            self._open.discard(connection)
            if connection.reason not in {"model", "refused"}:
                self._ended.pop(place.host, None)
                self._ended[place.host] = time.time()
                if len(self._ended) > MAX_CONNECTIONS:
                    del self._ended[next(iter(self._ended))]
            if number is not None:
                with suppress(StorageError):
                    await self.gate.tables.ended(number, connection.sent, connection.received, connection.reason)

    async def _admit(self, place: Place) -> Reason:
        if place == self._always:
            return "model"
        if place.host in self._never:
            raise HostRefusedError(f"Sprite does not let the agent reach {place.key}.")
        address = place.address
        is_inside = place.is_local_name if address is None else not is_public(address)
        if is_inside and not self._inside:
            raise HostRefusedError(f"{place.key} is on this machine or in a private network, which Sprite refuses.")
        return await self.gate.admit(place)

    async def _log(self, place: Place, decision: str, turn: str | None) -> int | None:
        try:
            return await self.gate.tables.began(place, decision, turn)
        except StorageError as error:
            # A full disk must not stop a turn that may free it.
            log.warning("a connection to %s:%d is not logged: %s", place.host, place.port, error)
            return None

    async def _carry(self, client: Peer, request: h11.Request, path: bytes, connection: _Connection) -> None:
        connecting = self._connected(connection.place, is_model=connection.reason == "model")
        reader, writer = await client.unless_gone(connecting)
        try:
            if request.method == b"CONNECT":
                await _tunnel(client, reader, writer, connection)
            else:
                await _forward(client, _outgoing(request, connection.place, path), reader, writer, connection)
        finally:
            writer.close()

    async def _connected(self, place: Place, *, is_model: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Resolve a host's name once, check the addresses, and connect to an allowed one."""
        async with asyncio.timeout(DNS_SECONDS):
            found = [ipaddress.ip_address(text) for text in await self._look_up(place.host, place.port)]
        # The operator chose the model's endpoint, which may be in a private network.
        addresses = [each for each in found if is_model or self._inside or is_public(each)]
        if not addresses:
            raise HostRefusedError(f"{place.host} leads to a private or local address, which Sprite refuses.")
        failure: OSError = OSError("no address")
        for address in addresses[:_MOST_ADDRESSES]:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await asyncio.open_connection(str(address), place.port)
            except OSError as error:
                failure = error
        raise failure

    async def _look_up(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(info[4][0]) for info in found]


class Peer:
    """One end of an HTTP connection: the agent's program (as client) or the host (as server)."""

    def __init__(
        self, role: type[h11.CLIENT | h11.SERVER], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD_BYTES)
        self.reader = reader
        self.writer = writer
        #: Whether anything was sent; then a refusal would be taken for a part of the answer.
        self._has_begun = False

    async def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """Read from the peer until h11 has the next event of the message; return it (never NEED_DATA)."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.reader.read(_PIECE_BYTES))
        return event

    async def send(self, event: h11.Event) -> None:
        """Send a part of an HTTP message, as an h11 event."""
        await self.write(self.http.send(event) or b"")

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        self._has_begun = True
        self.writer.write(data)
        await self.writer.drain()

    async def unless_gone(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of `work`; if the peer closes the connection meanwhile, raise ConnectionResetError."""
        task = asyncio.create_task(work, name="egress work")
        heard = asyncio.create_task(self.reader.read(_PIECE_BYTES), name="egress hang-up")
        try:
            await asyncio.wait({task, heard}, return_when=asyncio.FIRST_COMPLETED)
            if heard.done():
                self.http.receive_data(data := heard.result())
                if not data and not task.done():
                    raise ConnectionResetError
            return await task
        finally:
            heard.cancel()
            task.cancel()
            await asyncio.wait({heard, task})

    async def refuse(self, status: int, words: str) -> None:
        """Answer with an error status and a sentence, in the status line, too: many programs show nothing else."""
        if self._has_begun:
            return
        reason = words.encode("ascii", "replace").replace(b"\r", b" ").replace(b"\n", b" ")
        body = f"{words}\n".encode()
        head = b"HTTP/1.1 %d %b\r\nContent-Type: text/plain; charset=utf-8\r\n" % (status, reason)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                await self.write(head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
                self.writer.write_eof()
                # Closing with unread input would reset the connection before the peer has read the answer.
                while await self.reader.read(_PIECE_BYTES):
                    pass

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


async def _tunnel(
    client: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection
) -> None:
    await client.write(_ESTABLISHED)
    # If one fails, the other ends with the closed connections.
    await asyncio.gather(_upload(client, writer, connection), pump(reader, client.writer, connection.count_received))


async def _upload(client: Peer, writer: asyncio.StreamWriter, connection: _Connection) -> None:
    early, _ = client.http.trailing_data
    early = early or await client.reader.read(_PIECE_BYTES)
    # Other protocols, and connections to an address, name no host.
    if early[:1] == _HANDSHAKE and connection.place.address is None:
        early = await _checked_hello(early, client.reader, connection.place)
    writer.write(early)
    connection.count_sent(len(early))
    await pump(client.reader, writer, connection.count_sent)


async def _checked_hello(early: bytes, reader: asyncio.StreamReader, place: Place) -> bytes:
    """Read a TLS ClientHello to its end and return its bytes, which begin with `early`.

    Raises HostRefusedError if it is invalid or names another host than the one that the proxy checked.
    """
    names: list[str | None] = []
    context, received = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.MemoryBIO()
    # The host decides which versions it takes. OpenSSL would refuse old ones before it reads the name.
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.sni_callback = lambda _connection, name, _context: names.append(name)
    handshake = context.wrap_bio(received, ssl.MemoryBIO(), server_side=True)
    hello, piece = b"", early
    while piece and not names and len(hello) <= MAX_HEAD_BYTES:
        hello += piece
        received.write(piece)
        if hello[5:6] not in {b"", _CLIENT_HELLO}:
            break
        try:
            handshake.do_handshake()
        except ssl.SSLWantReadError:
            if not names:
                piece = await reader.read(_PIECE_BYTES)
        except ssl.SSLError:
            # No handshake ends without a certificate. That of a whole ClientHello fails after its name.
            break
    with suppress(ValueError):
        if names and (names[0] is None or Place.of(names[0], place.port) == place):
            return hello
    raise HostRefusedError(f"The program names another host than {place.key} in its TLS connection.")


async def _forward(
    client: Peer,
    request: h11.Request,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    connection: _Connection,
) -> None:
    host = Peer(h11.CLIENT, reader, writer)
    await host.send(request)
    uploading = asyncio.create_task(_body(client, host, connection.count_sent), name="egress upload")
    try:
        while not isinstance(event := await host.next_event(), h11.Response | h11.ConnectionClosed):
            if isinstance(event, h11.InformationalResponse):
                await client.send(h11.InformationalResponse(status_code=event.status_code, headers=[]))
        if isinstance(event, h11.ConnectionClosed):
            raise ConnectionResetError("the peer closed the connection")
        connection.count_received(1)
        headers = [*_end_to_end(list(event.headers)), (b"Connection", b"close")]
        await client.send(h11.Response(status_code=event.status_code, headers=headers, reason=event.reason))
        await _body(host, client, connection.count_received)
    finally:
        uploading.cancel()
        with suppress(OSError, h11.ProtocolError, asyncio.CancelledError):
            await uploading


async def _body(source: Peer, target: Peer, count: Callable[[int], None]) -> None:
    while isinstance(event := await source.next_event(), h11.Data):
        await target.send(h11.Data(event.data))
        count(len(event.data))
    await target.send(h11.EndOfMessage())


async def answer_of(
    peer: Peer, method: str, target: str, headers: list[tuple[str, str]], content: bytes = b"", *, most: int
) -> tuple[int, bytes]:
    """Send an HTTP request. Return the status of the answer and at most `most` bytes of its content."""
    parts = h11.Request(method=method, target=target, headers=headers), h11.Data(content), h11.EndOfMessage()
    await peer.write(b"".join(peer.http.send(part) or b"" for part in parts))
    status, body = 0, bytearray()
    while len(body) < most and not isinstance(
        event := await peer.next_event(), h11.EndOfMessage | h11.ConnectionClosed
    ):
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
    return status, bytes(body[:most])


def _target(request: h11.Request) -> tuple[Place, bytes]:
    """Return the place that a request names, and the path to request there. Raises _BadRequestError."""
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise _BadRequestError(400, "The request has two lengths.")
    try:
        # It is ASCII: h11 refuses anything else.
        target = request.target.decode("ascii")
        return (_of_authority(target), b"") if request.method == b"CONNECT" else _of_url(target)
    except ValueError as error:
        raise _BadRequestError(400, f"Sprite cannot read the host of this request: {error}.") from error


def _of_authority(target: str) -> Place:
    found = _AUTHORITY.fullmatch(target)
    if found is None or not found[2]:
        raise ValueError("it is not HOST:PORT")
    return Place.of(found[1].strip("[]"), int(found[2]))


def _of_url(target: str) -> tuple[Place, bytes]:
    scheme, _, rest = target.partition("://")
    authority, _, path = rest.partition("/")
    found = _AUTHORITY.fullmatch(authority)
    if scheme.lower() != "http" or found is None or "#" in path:
        raise ValueError("it is not http://HOST/PATH without a user name")
    return Place.of(found[1].strip("[]"), int(found[2] or _HTTP_PORT)), f"/{path}".encode()


def _outgoing(request: h11.Request, place: Place, path: bytes) -> h11.Request:
    """Return the request to send to the host, with a Host header made from the checked host."""
    host = f"[{place.host}]" if ":" in place.host else place.host
    own = host if place.port == _HTTP_PORT else f"{host}:{place.port}"
    headers = [(name, value) for name, value in _end_to_end(list(request.headers)) if name != b"host"]
    return h11.Request(
        method=request.method, target=path, headers=[(b"Host", own.encode()), *headers, (b"Connection", b"close")]
    )


def _end_to_end(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    named = b",".join(value for name, value in headers if name == b"connection").lower().split(b",")
    left_out = _HOP_BY_HOP | {name.strip() for name in named} - {b"transfer-encoding", b"content-length", b"host"}
    return [(name, value) for name, value in headers if name not in left_out]
