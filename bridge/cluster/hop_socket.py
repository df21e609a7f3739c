"""A forwarded WebSocket. After the handshake, bytes pass in both directions at the pace of the slower side.

Messages, pings and closes with their codes pass unchanged between the client and the sprite's owner. This bridge only
tracks frame heads, for two tasks. It refuses messages that are too large. It also sends its own close frame between two
frames, when the owner has gone without a close or this bridge stops.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from aiohttp import WSCloseCode

from bridge.cluster.frame_heads import FrameHeads, close_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp
    from aiohttp import web

_CLOSE_SECONDS = 5.0
#: A side that takes none of the waiting bytes for this long is disconnected.
STALL_SECONDS = 60.0
#: Buffer of one read, shared by all connections: each read is copied out before the next one.
_READ = memoryview(bytearray(64 * 1024))
_GONE = "The bridge that has this sprite went away; come again."
_TOO_BIG = "The message is too big."


class PassedSocket:
    """One forwarded WebSocket after both handshakes. `over` returns or raises when it has ended."""

    def __init__(
        self,
        client: web.BaseRequest,
        owner: aiohttp.ClientResponse,
        *,
        max_message_bytes: int,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        """Take over both connections. Raises ConnectionResetError if the client has gone."""
        self._max_message_bytes = max_message_bytes
        self._client_heads, self._owner_heads = FrameHeads(), FrameHeads()
        #: This bridge's own close frame to the client, if any, and whether it was sent.
        self._farewell: bytes | None = None
        self._is_said = False
        self._is_ending, self._is_over = asyncio.Event(), asyncio.Event()
        to_client, connection = client.transport, owner.connection
        if to_client is None or connection is None:
            raise ConnectionResetError("one of the two has gone")
        self._client = to_client
        self._owner = connection.transport
        # Bytes that arrived right behind the handshakes.
        early, late = _Early(), _Early()
        cast("Any", client.protocol).set_parser(early)
        client.protocol.keep_alive(False)
        cast("Any", connection.protocol).set_parser(late, None)
        _Side(to_client, self._owner, self._from_client, self._client_gone, stall_seconds)
        if self._owner is not None:
            _Side(self._owner, to_client, self._from_owner, self._owner_gone, stall_seconds)
        self._from_owner(late.data)
        self._from_client(early.data)
        if self._owner is None:
            self._owner_gone()

    async def over(self) -> None:
        """Wait until either side ends it, then close the owner's connection."""
        try:
            await self._is_ending.wait()
            await self._left()
        finally:
            if self._owner is not None:
                self._owner.close()
                _abort_later(self._owner)

    async def close(self, code: int, reason: str) -> None:
        """Send the client a close frame with the reason and wait for its end, for at most 5 s. `reason` is ASCII."""
        self._end(code, reason)
        if self._owner is None or self._owner.is_closing():
            self._owner_gone()
        await self._left()

    async def _left(self) -> None:
        """Wait for the client's answer to the close frame, but not longer than the limit."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._is_over.wait()
        self._finish()
        if self._farewell is not None and not self._is_said:
            self._client.abort()
        # The request's handler closes the connection and would wait forever for a client that reads nothing.
        _abort_later(self._client)

    # --- what comes ---

    def _from_owner(self, data: bytes) -> None:
        ended = self._owner_heads.follow(data)
        if self._farewell is None:
            self._client.write(data)
        elif not self._is_said:
            # The owner may send its own close frame first.
            self._is_said = bool(ended) or self._owner_heads.has_closed
            self._client.write(data if self._owner_heads.has_closed or not ended else data[:ended] + self._farewell)

    def _from_client(self, data: bytes) -> None:
        self._client_heads.follow(data)
        if self._is_ending.is_set():
            if self._client_heads.has_closed:
                self._finish()
        elif self._client_heads.message_bytes > self._max_message_bytes:
            self._end(WSCloseCode.MESSAGE_TOO_BIG, _TOO_BIG)
        elif self._owner is not None:
            self._owner.write(data)

    def _client_gone(self) -> None:
        if self._owner is not None:
            self._owner.close()
        self._finish()

    def _owner_gone(self) -> None:
        if self._owner_heads.has_closed:
            # A close frame was sent already.
            self._finish()
        else:
            self._end(WSCloseCode.GOING_AWAY, _GONE)
            if not self._is_said:
                # The client got half a frame, so no close frame can follow.
                self._client.abort()
                self._finish()

    # --- how it ends ---

    def _end(self, code: int, reason: str) -> None:
        if self._farewell is None and not self._owner_heads.has_closed:
            self._farewell = close_frame(code, reason)
            if self._owner_heads.is_between:
                self._client.write(self._farewell)
                self._is_said = True
        self._is_ending.set()
        if self._client_heads.has_closed:
            self._finish()

    def _finish(self) -> None:
        self._is_ending.set()
        self._is_over.set()


class _Early:
    """A parser for aiohttp that receives the bytes it has already read. No bytes follow later."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Keep the bytes."""
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """Do nothing: there is nothing to finish."""


class _Side(asyncio.BufferedProtocol):
    """One side's connection, taken over from its HTTP protocol, which is still told about the end.

    All reads share one buffer. A new buffer per read, as large as asyncio makes it, costs as much as all the rest.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        source: asyncio.Transport | None,
        take: Callable[[bytes], None],
        gone: Callable[[], None],
        stall_seconds: float,
    ) -> None:
        self._transport = transport
        self._source = source
        self._take = take
        self._gone = gone
        self._stall_seconds = stall_seconds
        self._former = cast("asyncio.Protocol", transport.get_protocol())
        self._stalls: asyncio.TimerHandle | None = None
        transport.set_protocol(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer."""
        del sizehint
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the received bytes on."""
        self._take(bytes(_READ[:nbytes]))

    def eof_received(self) -> bool | None:
        """End this side: a side that stops sending does not read any more either."""
        self._gone()
        return self._former.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """End this side and tell the HTTP protocol."""
        self._no_stall()
        self._gone()
        self._former.connection_lost(error)

    def pause_writing(self) -> None:
        """Stop reading from the other side while this side's buffer is full, and watch for a stall."""
        self._former.pause_writing()
        if self._source is not None:
            self._source.pause_reading()
        self._watch()

    def resume_writing(self) -> None:
        """Resume reading from the other side."""
        self._former.resume_writing()
        if self._source is not None:
            self._source.resume_reading()
        self._no_stall()

    def _watch(self, before: int | None = None) -> None:
        waiting = self._transport.get_write_buffer_size()
        if before is not None and waiting >= before:
            self._transport.abort()
            return
        self._stalls = asyncio.get_running_loop().call_later(self._stall_seconds, self._watch, waiting)

    def _no_stall(self) -> None:
        if self._stalls is not None:
            self._stalls.cancel()
            self._stalls = None


def _abort_later(transport: asyncio.Transport) -> None:
    """Abort the connection after 5 s, which drops unsent bytes. Harmless if all were sent."""
    asyncio.get_running_loop().call_later(_CLOSE_SECONDS, transport.abort)
