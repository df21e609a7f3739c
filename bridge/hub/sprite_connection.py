"""One connection to a sprite, from handshake to end. All input is untrusted until it is decoded.

Owns one channel, its rate limit, and the messages for its errors. It knows nothing of reconnecting and of listeners.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from bridge.providers.provider import Channel, Reached, Report
from bridge.providers.vm_scripts import printable
from sprite.common.limits import TokenBucket
from sprite.protocol.frames import FatalPeerError, FrameDecoder, PeerError, ServerMessage, decode_server, encode
from sprite.protocol.messages import PROTOCOL_VERSION, Auth, AuthOk, Error, Resume
from sprite.protocol.replication import Lease

#: Opens a channel to one sprite, waking and creating what is missing. Raises HostError.
Reach = Callable[[Report], Awaitable[Reached]]

#: A sprite keeps its frames under 1 MiB; a frame of twice that size is invalid.
_MAX_FRAME_BYTES = 2 * 1024 * 1024
#: The sprite answers `auth` immediately.
_HANDSHAKE_SECONDS = 10.0
#: Enough for a replay of 5,000 events or a large canvas at once, then for more than any agent sends. Faster sprites
#: are throttled through TCP, and may cut the connection.
_BYTES_PER_SECOND, _BYTES_BURST = 8 * 2**20, 32 * 2**20
_FRAMES_PER_SECOND, _FRAMES_BURST = 2_000.0, 20_000.0
#: JavaScript cannot represent larger numbers.
_LARGEST_SEQ = 2**53 - 1
_LATEST_TIMESTAMP = 2**53
#: Messages handled before other tasks get a turn.
_FRAMES_A_TURN = 32
_LONGEST_EPOCH = 200
_LONGEST_VERSION = 40
_MOST_LIMITS, _LONGEST_LIMIT = 32, 40
_LONGEST_WORDS = 300


class Pace:
    """Rate limit of a sprite over all its connections: a reconnect gives no new burst."""

    def __init__(self) -> None:
        self._bytes = TokenBucket(_BYTES_PER_SECOND, _BYTES_BURST)
        self._frames = TokenBucket(_FRAMES_PER_SECOND, _FRAMES_BURST)

    def take(self, size: int) -> float:
        """Count a frame of `size` bytes; return the seconds to wait before reading the next."""
        return max(self._bytes.take(size), self._frames.take(1))


class LinkError(Exception):
    """The sprite cannot be used; the message says why, `retryable` whether a retry soon may help."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class StaleOwnerError(LinkError):
    """The sprite knows a newer owner than this bridge, which used a lease of `epoch`.

    `newest` is the epoch that the sprite reports, which may be forged; 0 if it reports none.
    """

    def __init__(self, epoch: int, newest: int) -> None:
        super().__init__("Another bridge has this sprite.")
        self.epoch = epoch
        self.newest = newest


class SpriteConnection:
    """Create it with `open`; call `message` until it raises, then `close`."""

    def __init__(self, channel: Channel, pace: Pace, lease: Lease | None = None) -> None:
        self._channel = channel
        self._lease = lease
        self._decoder = FrameDecoder(_MAX_FRAME_BYTES)
        self._pace = pace
        self._turn = 0
        #: Time of the last bytes, by the monotonic clock.
        self.heard_at = time.monotonic()

    @classmethod
    async def open(
        cls, reach: Reach, report: Report, resume: Resume | None, pace: Pace, client: str = "bridge"
    ) -> tuple[SpriteConnection, AuthOk]:
        """Connect to the sprite and shake hands. Raise HostError, LinkError, OSError or TimeoutError."""
        reached = await reach(report)
        connection = cls(reached.channel, pace, reached.lease)
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                auth = Auth(token=reached.token, client=client, resume=resume, lease=reached.lease)
                reached.channel.write(encode(auth))
                await reached.channel.drain()
                return connection, await connection.welcome()
        except BaseException:
            await connection.close()
            raise

    async def welcome(self) -> AuthOk:
        """Return the answer to `auth`. Raise LinkError if it is a refusal or invalid."""
        welcome = (await self.message()).payload
        if isinstance(welcome, Error):
            raise LinkError(
                f"The sprite does not let the bridge in: {printable(welcome.message[:_LONGEST_WORDS])}",
                retryable=welcome.code != "unsupported_protocol",
            )
        if not isinstance(welcome, AuthOk) or welcome.protocol != PROTOCOL_VERSION:
            raise LinkError("What answers there is not a sprite that this bridge can talk to.")
        if len(welcome.epoch) > _LONGEST_EPOCH or not 0 <= welcome.last_seq <= _LARGEST_SEQ:
            raise LinkError("The sprite introduces itself in a way that makes no sense.")
        known = [(name, limit) for name, limit in welcome.limits.items() if len(name) <= _LONGEST_LIMIT]
        # Operators see the version in a terminal.
        version = printable(welcome.server_version[:_LONGEST_VERSION])
        return msgspec.structs.replace(welcome, server_version=version, limits=dict(known[:_MOST_LIMITS]))

    async def message(self) -> ServerMessage:
        """Return the next message, skipping unknown ones. Raise LinkError or OSError at the end."""
        while True:
            frame = self._next_frame()
            if frame is None:
                data = await self._channel.read()
                if not data:
                    raise LinkError("The sprite closed the connection.")
                self.heard_at = time.monotonic()
                self._decoder.feed(data)
                continue
            self._turn = (self._turn + 1) % _FRAMES_A_TURN
            pause = self._pace.take(len(frame))
            if pause or not self._turn:
                await asyncio.sleep(pause)
            try:
                message = decode_server(frame)
            except FatalPeerError as error:
                raise LinkError("The sprite sent what is no message.") from error
            except PeerError:
                # A newer sprite may send unknown messages; its next event carries a higher seq.
                continue
            if isinstance(message.payload, Error) and message.payload.code == "stale_owner" and self._lease is not None:
                raise StaleOwnerError(self._lease.epoch, message.payload.newest or 0)
            if message.seq is not None and not 0 < message.seq <= _LARGEST_SEQ:
                raise LinkError("The sprite counts its events in a way that makes no sense.")
            if not 0 <= message.timestamp < _LATEST_TIMESTAMP:
                # An invalid time: the bridge's own replaces it.
                message = msgspec.structs.replace(message, timestamp=0)
            return message

    def write(self, frame: bytes) -> None:
        """Queue a frame; connection errors appear in `drain` and `message`."""
        self._channel.write(frame)

    async def drain(self) -> None:
        """Wait while too much is queued. Raise OSError if the connection was cut."""
        await self._channel.drain()

    async def close(self) -> None:
        """Close within a bounded time; idempotent."""
        await self._channel.close()

    def _next_frame(self) -> bytes | None:
        try:
            return self._decoder.next_frame()
        except FatalPeerError as error:
            raise LinkError("The sprite sent a message that is far too large.") from error
