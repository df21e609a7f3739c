"""One page or terminal: a WebSocket with everything that is still to be sent over it, and what comes from it.

Owns the socket's two directions and their bounds. What a message means, and who hears what, is the room's business.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import WSMsgType

from bridge.token_bucket import TokenBucket
from sprite.protocol.frames import (
    FatalPeerError,
    PeerError,
    VisitorMessage,
    decode_visitor,
    encode,
)
from sprite.protocol.large_input import off_loop
from sprite.protocol.messages import (
    MAX_FRAME_BYTES,
    Error,
    Ping,
    ResumeFrom,
)
from sprite.protocol.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

    from sprite.protocol.messages import (
        AuthOk,
        LinkState,
        ServerPayload,
    )

#: The first frame says where to begin, and a client has it ready.
_FIRST_FRAME_SECONDS = 10.0
#: A client that has let this much pile up is cut off; it can resume.
_MAX_OUTBOX_BYTES = 8 * 1024 * 1024
#: What the outbox holds while a long replay goes at the client's pace.
_REPLAY_BYTES = 1024 * 1024
#: Faster than any person, and than an upload's chunks; what comes faster is read slower, until TCP slows it.
_FRAMES_PER_SECOND, _FRAMES_BURST = 100.0, 500.0
_FAREWELL_SECONDS = 2.0
#: A client that nothing was sent to for so long is told that somebody is there: a page sees none of WebSocket's own
#: pings, and would look at a connection that leads nowhere for ever.
QUIET_SECONDS = 10.0


class Subscriber:
    """Sends in order and never blocks who sends; `messages` yields what the client says until it is gone."""

    def __init__(
        self,
        websocket: web.WebSocketResponse,
        transport: asyncio.Transport | None,
        *,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        """`transport` is the one below the WebSocket; None where that has gone."""
        self._socket = websocket
        self._transport = transport
        self._clock = asyncio.get_running_loop().time
        self._quiet_seconds = quiet_seconds
        #: When something was last sent.
        self._sent_at = self._clock()
        self._outbox = Outbox(_MAX_OUTBOX_BYTES, self.cut)
        self._filled = asyncio.Event()
        #: Whether `send_all` waits for something to send.
        self._has_sent_all = False
        self._sent = asyncio.Event()
        #: Where the client says it left off, and what it has got since by a replay; None until its first frame came.
        self.resume: ResumeFrom | None = None
        self._resume_id = ""
        #: The epoch that the client has been told of.
        self.told_epoch: str | None = None
        #: Requests that wait for the sprite's answer.
        self.waiting = 0
        self.answered = asyncio.Event()
        #: Set where another bridge has to serve the client from here on.
        self.is_passed_on = asyncio.Event()

    # --- out ---

    def say(self, payload: ServerPayload | LinkState, *, reply_to: str | None = None) -> None:
        """Sends an answer, or news of the bridge's own."""
        self.put(encode(payload, reply_to=reply_to)[:-1])

    def greet(self, welcome: AuthOk) -> None:
        """Answers `resume`: tells of the sequence that follows."""
        self.told_epoch = welcome.epoch
        self.say(welcome, reply_to=self._resume_id or None)

    def begin_anew(self, welcome: AuthOk) -> None:
        """Tells, in the live stream, that another sequence follows."""
        self.told_epoch = welcome.epoch
        self._outbox.begin_anew()
        self.event(encode(welcome)[:-1], None)

    def has_got(self, epoch: str, last_seq: int) -> None:
        """Notes that the client has everything up to an event: where it is cut off, the next replay goes on there."""
        self.resume = ResumeFrom(epoch, last_seq)

    def put(self, frame: bytes) -> None:
        """Sends a frame (without its newline), behind what waits."""
        self._outbox.put(frame)
        self._send()

    def event(self, frame: bytes, seq: int | None) -> None:
        """Sends an event of the live stream, or holds it back while the client catches up."""
        self._outbox.event(frame, seq)
        self._send()

    def hold(self) -> None:
        """Holds back the live stream from here on, in order."""
        self._outbox.hold()

    def drop_transient(self) -> None:
        """Forgets held events that are not durable: they are older than the state that the client is about to get."""
        self._outbox.drop_transient()

    def release(self, after: int) -> None:
        """Goes on with the live stream: the client has everything up to that event."""
        self._outbox.release(after)
        self._send()

    def discard(self) -> None:
        """Forgets what is held back."""
        self._outbox.discard()

    async def keeps_up(self) -> None:
        """Waits until a long replay has room for more."""
        while self._outbox.has_backlog(_REPLAY_BYTES):
            self._sent.clear()
            await self._sent.wait()

    def pass_on(self) -> None:
        """Has the connection closed: the client comes again, and is served by the bridge that has the sprite."""
        self.is_passed_on.set()

    def cut(self) -> None:
        """Ends the connection without another word: who does not read would not hear it."""
        self._outbox.cut()
        self._filled.set()
        self._sent.set()
        raw: socket.socket | None = self._socket.get_extra_info("socket")
        if raw is not None:
            with suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)

    async def send_all(self) -> None:
        """Sends what is put, until cancelled, cut, or (asked to leave) done."""
        while not self._outbox.is_finished:
            frame = self._outbox.take()
            if frame is None:
                self._filled.clear()
                await self._filled_or_quiet()
                continue
            try:
                await self._socket.send_frame(frame, WSMsgType.TEXT)
            except ConnectionError:
                # The reading side notices and ends the connection.
                self._outbox.cut()
            self._outbox.sent()
            self._sent_at = self._clock()
            self._sent.set()

    async def _filled_or_quiet(self) -> None:
        """Until something waits to be sent; who has heard nothing for long hears that somebody is there."""
        self._has_sent_all = True
        try:
            async with asyncio.timeout_at(self._sent_at + self._quiet_seconds):
                await self._filled.wait()
        except TimeoutError:
            # What was sent meanwhile woke nobody here.
            if self._clock() >= self._sent_at + self._quiet_seconds:
                self.put(encode(Ping())[:-1])
        finally:
            self._has_sent_all = False

    def _send(self) -> None:
        """Sends what is put here and now where the client keeps up: a turn of the loop for each costs as much again."""
        if not (self._has_sent_all and self._has_room()):
            self._filled.set()
            return
        while (frame := self._outbox.take()) is not None:
            sending = self._socket.send_frame(frame, WSMsgType.TEXT)
            try:
                sending.send(None)
            except StopIteration:
                pass
            except ConnectionError:
                self._outbox.cut()
                self._filled.set()
            else:
                # It is written, and waits for room, as whatever comes next does.
                sending.close()
            self._outbox.sent()
            self._sent_at = self._clock()
            if not self._has_room():
                self._filled.set()
                return

    def _has_room(self) -> bool:
        return self._transport is not None and not self._transport.get_write_buffer_size()

    async def leave(self, sender: asyncio.Task[None], code: int, reason: bytes = b"") -> None:
        """Says what is still to be said, and closes; both within a bound."""
        self._outbox.finish()
        self._filled.set()
        await asyncio.wait({sender}, timeout=0 if self._outbox.is_cut else _FAREWELL_SECONDS)
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._socket.close(code=code, message=reason)

    def request_sent(self) -> None:
        """One more of its requests waits."""
        self.waiting += 1

    def request_ended(self) -> None:
        """One of its requests does not wait any more."""
        self.waiting -= 1
        self.answered.set()

    # --- in ---

    async def first(self) -> None:
        """Waits for `resume`. FatalPeerError if anything else comes, or nothing."""
        try:
            async with asyncio.timeout(_FIRST_FRAME_SECONDS):
                frame = await self._frame()
        except TimeoutError:
            raise FatalPeerError(f"No resume message within {_FIRST_FRAME_SECONDS:.0f} s.", code="unexpected") from None
        if frame is None:
            raise ConnectionResetError
        try:
            message = decode_visitor(frame)
        except FatalPeerError:
            raise
        except PeerError as error:
            raise FatalPeerError(f"The first message must be resume: {error}", code="unexpected") from error
        if not isinstance(message.payload, ResumeFrom):
            raise FatalPeerError("The first message must be resume.", code="unexpected")
        self.resume, self._resume_id = message.payload, message.id

    async def messages(self) -> AsyncIterator[VisitorMessage]:
        """What the client says; what does not fit is answered here. FatalPeerError where the framing is broken."""
        allowance = TokenBucket(_FRAMES_PER_SECOND, _FRAMES_BURST)
        while (frame := await self._frame()) is not None:
            if pause := allowance.take(1):
                await asyncio.sleep(pause)
            try:
                message = await off_loop(len(frame), decode_visitor, frame)
            except FatalPeerError:
                raise
            except PeerError as error:
                self.say(Error(error.code, str(error)), reply_to=error.reply_to)
                continue
            if isinstance(message.payload, ResumeFrom):
                self.say(Error("unexpected", "This connection has begun already."), reply_to=message.id or None)
                continue
            yield message

    async def _frame(self) -> bytes | None:
        """The next frame, None when the client is gone."""
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            raise FatalPeerError("Messages are text frames.")
        if message.type is not WSMsgType.TEXT:
            return None
        text: str = message.data
        frame = text.encode()
        if len(frame) > MAX_FRAME_BYTES:
            raise FatalPeerError(
                f"A message may have {MAX_FRAME_BYTES:,} bytes at most, this one has {len(frame):,}; "
                "the connection is closed.",
                code="frame_too_large",
            )
        return frame
