"""The open port and its connections: handshake, frames in, frames out. Sizes and times are limited here."""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import UNSET

from sprite import __version__
from sprite.common.limits import ConnectionLimiter, accept_for_ever, room
from sprite.common.tasks import TaskSet, off_loop, owned_task
from sprite.errors import (
    FatalPeerError,
    OperatorError,
    PeerError,
    ShortageError,
    SpriteError,
    StaleOwnerError,
    is_shortage,
)
from sprite.privacy.redaction import discreet
from sprite.protocol import messages
from sprite.protocol.frames import ClientMessage, FrameDecoder, decode_client, encode
from sprite.protocol.messages import Error
from sprite.protocol.outbox import Outbox
from sprite.protocol.replication import EPOCHS_AHEAD, Lease
from sprite.workspace.database import WorkspaceDB
from sprite.workspace.feed import Feed

log = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
#: A client with more than this queued is disconnected; it can resume.
MAX_OUTBOX_BYTES = 8 * 1024 * 1024
#: Time to send queued frames when a connection is closed.
FAREWELL_SECONDS = 2.0
#: Closing with unread bytes resets the connection, and a refused client that still sends would lose the reason. So
#: read this many of its bytes, for FAREWELL_SECONDS at most.
MAX_UNHEARD_BYTES = 16 * 1024 * 1024
#: Messages of one client that are handled concurrently.
MAX_CONCURRENT = 32


@dataclass(frozen=True, slots=True)
class Service:
    """The sprite's parts that each authenticated connection uses: token, feed, snapshot and message handler."""

    token: str
    feed: Feed
    snapshot: Callable[[], Awaitable[messages.StateSync]]
    handle: Callable[[Connection, ClientMessage], Awaitable[None]]
    on_welcome: Callable[[], None]
    leases: Leases


class Connection:
    """Serve one client from the first byte to the last."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        service: Service,
        on_known: Callable[[], object],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._service = service
        self._on_known = on_known
        #: Set when a bridge with a newer lease connected: no more messages of this client are started.
        self._replaced: FatalPeerError | None = None
        self._reading: asyncio.Timeout | None = None
        self._decoder = FrameDecoder(messages.MAX_AUTH_FRAME_BYTES)
        self._outbox = Outbox(MAX_OUTBOX_BYTES, self._cut_off)
        self._outbox_changed = asyncio.Event()
        self._outbox_sent = asyncio.Event()
        self._working = TaskSet()
        # There is no subscription until the handshake is done.
        self._unsubscribe: Callable[[], None] = lambda: None

    async def serve(self) -> None:
        """Run the connection to its end. It returns for any behaviour of the peer."""
        try:
            async with owned_task(
                self._send_for_ever(),
                name="connection sender",
                on_death=self._cut,
                finish=self._say_goodbye,
                finish_seconds=FAREWELL_SECONDS,
                may_return=True,
            ):
                is_refused = await self._hear()
            if is_refused:
                await self._let_finish()
        finally:
            await self._close()

    async def _hear(self) -> bool:
        """Handle frames until the client's end. Return True if it broke the protocol, and may still be sending."""
        try:
            await self._handshake()
            async for frame in self._frames():
                await self._take(frame)
        except FatalPeerError as error:
            newest = error.newest if isinstance(error, StaleOwnerError) else UNSET
            self.send(messages.Error(error.code, str(error), newest=newest), reply_to=error.reply_to)
            return True
        except (ConnectionError, TimeoutError):
            log.debug("a client is gone")
        except Exception as error:  # noqa: BLE001 - where the state cannot be read, its client hears why
            self.send(_refusal(error, "the handshake"))
            return True
        finally:
            self._service.leases.leave(self._end)
            self._unsubscribe()
            await self._working.close()
        return False

    def _end(self, error: FatalPeerError) -> None:
        """End the connection with an error, because of a newer lease. Messages not yet begun are not handled."""
        self._replaced = error
        if self._reading is not None:
            self._reading.reschedule(0)

    def send(self, payload: messages.ServerPayload, *, reply_to: str | None = None) -> None:
        """Queue an answer to this client; one that does not fit a frame becomes an error."""
        if isinstance(payload, messages.Error):
            # Messages of the CLI or a library can quote the text that they failed on.
            payload = msgspec.structs.replace(payload, message=discreet(payload.message))
        frame = encode(payload, reply_to=reply_to)
        if len(frame) > messages.MAX_FRAME_BYTES:
            words = (
                f"The answer has {len(frame):,} bytes, but a message holds {messages.MAX_FRAME_BYTES:,}: ask for "
                "less of it."
            )
            frame = encode(messages.Error("too_large", words), reply_to=reply_to)
        self._put(frame)

    # --- in ---

    async def _frames(self) -> AsyncIterator[bytes]:
        while not self._outbox.is_cut:
            if self._replaced is not None:
                raise self._replaced
            frame = self._decoder.next_frame()
            if frame is not None:
                yield frame
                continue
            try:
                async with asyncio.timeout(None) as self._reading:
                    data = await self._reader.read(READ_BYTES)
            except TimeoutError as error:
                raise (self._replaced or error) from None
            finally:
                self._reading = None
            if not data:
                return
            self._decoder.feed(data)

    async def _take(self, frame: bytes) -> None:
        try:
            message = await off_loop(len(frame), decode_client, frame)
        except FatalPeerError:
            raise
        except PeerError as error:
            self.send(messages.Error(error.code, str(error)), reply_to=error.reply_to)
            return
        if message.type == "mission":
            # Handled here and not in a task, so that missions keep their order.
            await self._work(message)
            return
        while len(self._working) >= MAX_CONCURRENT:
            await asyncio.wait(self._working, return_when=asyncio.FIRST_COMPLETED)
        if self._replaced is not None:
            return
        self._working.start(self._work(message), f"message {message.type}")

    async def _work(self, message: ClientMessage) -> None:
        try:
            await self._service.handle(self, message)
        except Exception as error:  # noqa: BLE001 - one message that we cannot handle must not end the connection
            self.send(_refusal(error, message.type), reply_to=message.id or None)

    # --- handshake ---

    async def _handshake(self) -> None:
        try:
            async with asyncio.timeout(messages.AUTH_TIMEOUT_SECONDS):
                auth = await self._first_frame()
        except TimeoutError:
            raise FatalPeerError(
                f"No auth message within {messages.AUTH_TIMEOUT_SECONDS:.0f} s.", code="unauthorized"
            ) from None
        expected, given = self._service.token.encode(), auth.token.encode("utf-8", "replace")
        if not hmac.compare_digest(expected, given):
            raise FatalPeerError("The token is wrong.", code="unauthorized")
        self._on_known()
        if auth.protocol != messages.PROTOCOL_VERSION:
            raise FatalPeerError(
                f"This sprite speaks protocol {messages.PROTOCOL_VERSION}, not {auth.protocol}.",
                code="unsupported_protocol",
            )
        if auth.lease is not None:
            await self._service.leases.enter(auth.lease, self._end)
        self._decoder.raise_limit(messages.MAX_FRAME_BYTES)
        if auth.client in {messages.STORE, messages.PROBE}:
            # It wants neither state nor events, so skip the preparation for missions.
            self._say_welcome(self._service.feed.last_seq)
            return
        await self._welcome(auth.resume)
        self._service.on_welcome()

    async def _first_frame(self) -> messages.Auth:
        async for frame in self._frames():
            try:
                payload = decode_client(frame).payload
            except FatalPeerError:
                raise
            except PeerError as error:
                raise FatalPeerError(f"The first message must be auth: {error}", code="unauthorized") from error
            if not isinstance(payload, messages.Auth):
                break
            return payload
        raise FatalPeerError("The first message must be auth.", code="unauthorized")

    async def _welcome(self, resume: messages.Resume | None) -> None:
        async with self._service.feed.standing_still() as last_seq:
            self._say_welcome(last_seq)
            seen = await self._replayable(resume, last_seq)
            if seen is None:
                self.send(await self._service.snapshot())
            else:
                self._outbox.hold()
            self._unsubscribe = self._service.feed.subscribe(self._on_event)
        if seen is not None:
            await self._replay(seen, last_seq)

    def _say_welcome(self, last_seq: int) -> None:
        self.send(
            messages.AuthOk(
                protocol=messages.PROTOCOL_VERSION,
                server_version=__version__,
                epoch=self._service.feed.epoch,
                last_seq=last_seq,
                limits={
                    "frame_bytes": messages.MAX_FRAME_BYTES,
                    "mission_chars": messages.MAX_MISSION_CHARS,
                    "upload_chunk_bytes": messages.UPLOAD_CHUNK_BYTES,
                    "upload_bytes": messages.MAX_UPLOAD_BYTES,
                },
            )
        )

    async def _replayable(self, resume: messages.Resume | None, last_seq: int) -> int | None:
        """Return the number of the event after which to replay, or None if the client needs a `state_sync`."""
        if resume is None or resume.epoch != self._service.feed.epoch or not 0 <= resume.last_seq <= last_seq:
            return None
        oldest = await self._service.feed.oldest_seq()
        if resume.last_seq < min(oldest - 1, last_seq):
            self.send(messages.Gap(oldest_seq=oldest))
            return None
        return resume.last_seq

    async def _replay(self, after: int, last_seq: int) -> None:
        """Send the missed events, then those that arrived meanwhile."""
        while after < last_seq and not self._outbox.is_cut and (events := await self._service.feed.events_after(after)):
            for seq, frame in events:
                if seq <= last_seq:
                    self._put(frame)
                after = seq
                # A long replay runs at the client's pace, so that it cannot overflow the outbox for live events.
                while self._outbox.has_backlog(MAX_OUTBOX_BYTES // 2):
                    self._outbox_sent.clear()
                    await self._outbox_sent.wait()
        self._outbox.release(last_seq)
        self._outbox_changed.set()

    def _on_event(self, frame: bytes, seq: int | None) -> None:
        self._outbox.event(frame, seq)
        self._outbox_changed.set()

    # --- out ---

    def _put(self, frame: bytes) -> None:
        self._outbox.put(frame)
        self._outbox_changed.set()

    def _cut_off(self) -> None:
        log.warning("a client reads too slowly and is cut off")
        self._cut()

    def _cut(self) -> None:
        self._outbox.cut()
        self._outbox_sent.set()
        self._writer.transport.abort()

    async def _send_for_ever(self) -> None:
        try:
            while not self._outbox.is_finished:
                if self._outbox.is_empty:
                    self._outbox_changed.clear()
                    await self._outbox_changed.wait()
                    continue
                self._writer.write(self._outbox.take_all())
                await self._writer.drain()
                self._outbox.sent()
                self._outbox_sent.set()
        except ConnectionError:
            # The reading side notices this and ends the connection.
            self._outbox.cut()
            self._outbox_sent.set()

    def _say_goodbye(self) -> None:
        self._outbox.finish()
        self._outbox_changed.set()

    async def _let_finish(self) -> None:
        """Close the sending direction, then read and drop the client's remaining bytes."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                self._writer.write_eof()
                left = MAX_UNHEARD_BYTES
                while left > 0 and (data := await self._reader.read(READ_BYTES)):
                    left -= len(data)

    async def _close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._writer.wait_closed()


def _refusal(error: Exception, what: str) -> messages.Error:
    """Return the error to send for an exception. An internal error is logged in full and sent without details."""
    if is_shortage(error):
        error = ShortageError()
    if isinstance(error, SpriteError):
        return messages.Error(error.code, str(error))
    log.error("handling %s failed", what, exc_info=error)
    return messages.Error("internal", "Something went wrong inside the sprite; see its log.")


#: Start of 2026 in Unix seconds: lower bound for a machine whose clock is not set yet.
_EARLIEST_NOW: Final = 1_767_225_600.0
#: Limit for the bridge's name, which is stored with the newest lease.
_LONGEST_OWNER = 200
_REPLACED = "Another bridge has this sprite now; this connection is of an older lease (epoch {}, now {})."
_STALE = "Another bridge has this sprite: the lease has epoch {}, but epoch {} was already used here."
_TWO_OWNERS = "Another bridge has this sprite by a lease with the same epoch, {}."

#: Ends a connection with an error; its remaining messages are not started.
End = Callable[[FatalPeerError], None]


class Leases:
    """Store the newest bridge lease durably, and end the connections of bridges with older ones."""

    def __init__(self, workspace: WorkspaceDB, newest: Lease | None, clock: Callable[[], float] = time.time) -> None:
        self._workspace = workspace
        self._clock = clock
        if newest is not None and newest.epoch > self._largest():
            # The machine's clock was ahead when it came.
            log.warning("the stored lease is invalid: the next one is accepted", extra={"epoch": newest.epoch})
            newest = None
        self._newest = newest
        self._connected: set[End] = set()
        self._lock = asyncio.Lock()

    async def enter(self, lease: Lease, end: End) -> None:
        """Admit a connection by its bridge's lease; `end` is called if a newer lease arrives.

        FatalPeerError for a lease that is invalid or not the newest. A newer one is on disk before this returns.
        """
        self._check(lease)
        async with self._lock:
            newest = self._newest
            if newest is not None and lease.epoch < newest.epoch:
                raise StaleOwnerError(_STALE.format(lease.epoch, newest.epoch), newest.epoch)
            if newest is not None and lease.epoch == newest.epoch and lease.owner != newest.owner:
                raise StaleOwnerError(_TWO_OWNERS.format(lease.epoch), newest.epoch)
            if newest is None or lease.epoch > newest.epoch:
                await self._workspace.keep_lease(lease)
                self._newest = lease
                self._end_older(newest, lease)
            self._connected.add(end)

    def leave(self, end: End) -> None:
        """Remove the connection that entered with this `end`."""
        self._connected.discard(end)

    def _end_older(self, older: Lease | None, newest: Lease) -> None:
        if older is None:
            return
        ended, self._connected = self._connected, set()
        if ended:
            log.info("another bridge has this sprite now", extra={"epoch": newest.epoch, "count": len(ended)})
        for end in ended:
            end(StaleOwnerError(_REPLACED.format(older.epoch, newest.epoch), newest.epoch))

    def _largest(self) -> int:
        """Return the largest epoch that a lease of any bridge can have by now."""
        return int(max(self._clock(), _EARLIEST_NOW)) + EPOCHS_AHEAD

    def _check(self, lease: Lease) -> None:
        if not 0 < lease.epoch <= self._largest():
            words = "The epoch of the lease is invalid: bridges count from 1, or from the time in seconds."
            raise FatalPeerError(words, code="bad_payload")
        if not 0 < len(lease.owner) <= _LONGEST_OWNER or not lease.owner.isprintable():
            words = f"A lease must name its bridge with 1 to {_LONGEST_OWNER} printable characters."
            raise FatalPeerError(words, code="bad_payload")


#: Concurrent connections; a bridge needs one, a person's tools a few. Each may hold an outbox of some MiB.
MAX_CONNECTIONS = 512
#: Pending connections in the kernel's queue.
_BACKLOG = 256
_FULL = Error("too_many_connections", "Too many clients are connected; try again later.")
#: On a machine without IPv6, names may still resolve to both families.
_NO_SUCH_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


@dataclass(frozen=True, slots=True)
class Port:
    """The open port: its (first) address, and a function that stops accepting clients. Connected ones stay."""

    address: tuple[str, int]
    close: Callable[[], Awaitable[None]]


@asynccontextmanager
async def listening(host: str, port: int, service: Service, on_death: Callable[[], None]) -> AsyncIterator[Port]:
    """Serve clients while the block runs, then close the connections. Raises OperatorError if it cannot listen."""
    async with TaskSet() as connections, AsyncExitStack() as accepting:
        clients = _Clients(service, connections)
        listeners = _bound(host, port)
        for listener in listeners:
            accepting.enter_context(listener)
        for listener in listeners:
            await accepting.enter_async_context(
                owned_task(accept_for_ever(listener, clients.take, clients.make_room), name="accept", on_death=on_death)
            )
        yield Port(listeners[0].getsockname()[:2], accepting.aclose)


class _Clients:
    def __init__(self, service: Service, connections: TaskSet) -> None:
        self._service = service
        self._connections = connections
        self._arrivals: ConnectionLimiter[asyncio.StreamWriter] = ConnectionLimiter(*room(MAX_CONNECTIONS))

    async def take(self, connection: socket.socket) -> None:
        """Serve a newly accepted client."""
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._arrived)
        await loop.connect_accepted_socket(lambda: protocol, connection)

    def make_room(self) -> None:
        """Close one unauthenticated client, if there is one, to free its file descriptor."""
        if (gone := self._arrivals.give_way()) is not None:
            _send_away(gone)

    def _arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = self._arrivals.enter(writer)
        if gone is not None:
            _send_away(gone)
        if gone is not writer:
            # A client with the token acts for the sprite's person and may use all connections.
            connection = Connection(reader, writer, self._service, lambda: self._arrivals.welcome(writer, ""))
            serving = self._connections.start(connection.serve(), "connection")
            serving.add_done_callback(lambda _: self._arrivals.leave(writer))


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
