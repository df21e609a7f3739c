"""A WebSocket that is passed on: after its handshake bytes go both ways as they come, at the pace of the slower side.

Nothing is unpacked: messages, pings, closes and their codes are between the client and the owner of the sprite. Only
the frames' heads are followed, for what this bridge does itself: it refuses a message that is too big, and says between
two frames why it ends where the owner has gone without a word, or where this bridge stops.
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
#: Who takes nothing of what waits for them for so long is not there any more.
STALL_SECONDS = 60.0
#: What one read may bring; it is taken out of there before anything else is read.
_READ = memoryview(bytearray(64 * 1024))
_GONE = "The bridge that has this sprite went away; come again."
_TOO_BIG = "The message is too big."


class PassedSocket:
    """One of them, from the moment at which both handshakes are done; `over` returns or raises when it has ended."""

    def __init__(
        self,
        client: web.BaseRequest,
        owner: aiohttp.ClientResponse,
        *,
        max_message_bytes: int,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        """Takes both connections over. ConnectionResetError where the client has gone by now."""
        self._max_message_bytes = max_message_bytes
        self._client_heads, self._owner_heads = FrameHeads(), FrameHeads()
        #: What this bridge has to say to the client instead of the owner, and whether it has been said.
        self._farewell: bytes | None = None
        self._is_said = False
        self._is_ending, self._is_over = asyncio.Event(), asyncio.Event()
        to_client, connection = client.transport, owner.connection
        if to_client is None or connection is None:
            raise ConnectionResetError("one of the two has gone")
        self._client = to_client
        self._owner = connection.transport
        # What came right behind the handshakes.
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
        """Waits for its end, by whichever side; then the owner's connection is closed."""
        try:
            await self._is_ending.wait()
            await self._left()
        finally:
            if self._owner is not None:
                self._owner.close()
                _abort_later(self._owner)

    async def close(self, code: int, reason: str) -> None:
        """Tells the client that it ends, and why, within a bound. `reason` is ASCII."""
        self._end(code, reason)
        if self._owner is None or self._owner.is_closing():
            self._owner_gone()
        await self._left()

    async def _left(self) -> None:
        """Waits for the client to answer what it was told, and then not any longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._is_over.wait()
        self._finish()
        if self._farewell is not None and not self._is_said:
            self._client.abort()
        # Whoever answers the request closes it, and would wait for ever for what the client does not take.
        _abort_later(self._client)

    # --- what comes ---

    def _from_owner(self, data: bytes) -> None:
        ended = self._owner_heads.follow(data)
        if self._farewell is None:
            self._client.write(data)
        elif not self._is_said:
            # The owner may be the first to say why.
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
            # Whatever was to be said has been said.
            self._finish()
        else:
            self._end(WSCloseCode.GOING_AWAY, _GONE)
            if not self._is_said:
                # Half a frame is all that the client will ever have of what comes next.
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
    """A parser to aiohttp, which gives it what it has read already; nothing is fed to it after that."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Keeps it."""
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """There is nothing to be finished."""


class _Side(asyncio.BufferedProtocol):
    """One side's connection, taken over from the protocol that spoke HTTP on it, which hears of its end.

    It reads into one place: a new one for each read, as large as asyncio makes it, costs as much as all of the rest.
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
        """See asyncio."""
        del sizehint
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio."""
        self._take(bytes(_READ[:nbytes]))

    def eof_received(self) -> bool | None:
        """See asyncio. Who says nothing more does not listen either."""
        self._gone()
        return self._former.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        self._no_stall()
        self._gone()
        self._former.connection_lost(error)

    def pause_writing(self) -> None:
        """See asyncio: nothing more is read of what this side does not take."""
        self._former.pause_writing()
        if self._source is not None:
            self._source.pause_reading()
        self._watch()

    def resume_writing(self) -> None:
        """See asyncio."""
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
    """What its side does not take within a bound is not sent any more; nothing comes of it where all was."""
    asyncio.get_running_loop().call_later(_CLOSE_SECONDS, transport.abort)
