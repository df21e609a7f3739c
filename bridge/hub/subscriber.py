"""One page or terminal: a WebSocket with its queue of outgoing frames, and its incoming messages.

Owns the socket's two directions and their limits. The room interprets messages and routes events.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import WSMsgType, web

from bridge.hub.link import LinkError, Pace, Reach, SpriteConnection
from sprite.common.limits import TokenBucket
from sprite.common.tasks import off_loop
from sprite.protocol import messages
from sprite.protocol.frames import FatalPeerError, PeerError, VisitorMessage, decode_visitor, encode
from sprite.protocol.outbox import Outbox

#: The first frame is the resume point, which a client has ready.
_FIRST_FRAME_SECONDS = 10.0
#: A client with a larger backlog is disconnected; it can resume.
_MAX_OUTBOX_BYTES = 8 * 1024 * 1024
#: Backlog limit while a long replay goes at the client's pace.
_REPLAY_BYTES = 1024 * 1024
#: Above any person's rate, and that of upload chunks; faster clients are throttled through TCP.
_FRAMES_PER_SECOND, _FRAMES_BURST = 100.0, 500.0
_FAREWELL_SECONDS = 2.0
#: After this silence a ping message is sent: a page cannot see WebSocket pings, and would not notice a dead
#: connection.
_QUIET_SECONDS = 10.0


class Subscriber:
    """Send frames to one client in order without blocking; `messages` yields the client's messages."""

    def __init__(self, websocket: web.WebSocketResponse, transport: asyncio.Transport | None) -> None:
        """Create a subscriber; `transport` is the TCP transport of the WebSocket, None if the client has left."""
        self._socket = websocket
        self._transport = transport
        self._clock = asyncio.get_running_loop().time
        #: Time of the last sent frame.
        self._sent_at = self._clock()
        #: Frames to send; the live stream can be held back in it while the client catches up.
        self.outbox = Outbox(_MAX_OUTBOX_BYTES, self.cut)
        self._filled = asyncio.Event()
        #: Whether `send_all` waits for frames.
        self._has_sent_all = False
        self._sent = asyncio.Event()
        #: The client's resume point, advanced by a replay, or None before its first frame.
        self.resume: messages.ResumeFrom | None = None
        self._resume_id = ""
        #: The epoch that the client knows.
        self.told_epoch: str | None = None
        #: Requests that wait for the sprite's answer.
        self.waiting = 0
        self.answered = asyncio.Event()
        #: Set if the client must reconnect, to the bridge that owns the sprite.
        self.is_passed_on = asyncio.Event()

    # --- out ---

    def say(self, payload: messages.RelayedPayload, *, reply_to: str | None = None) -> None:
        """Send the client an answer (to a message with an id), or a message of the bridge itself."""
        self.put(encode(payload, reply_to=reply_to or None)[:-1])

    def greet(self, welcome: messages.AuthOk) -> None:
        """Answer the client's `resume`: announce the following event sequence."""
        self.told_epoch = welcome.epoch
        self.say(welcome, reply_to=self._resume_id)

    def begin_anew(self, welcome: messages.AuthOk) -> None:
        """Announce a new event sequence in the live stream, before the first event of the sequence."""
        self.told_epoch = welcome.epoch
        self.outbox.begin_anew()
        self.event(encode(welcome)[:-1], None)

    def put(self, frame: bytes) -> None:
        """Queue a frame (without its newline)."""
        self.outbox.put(frame)
        self._send()

    def event(self, frame: bytes, seq: int | None) -> None:
        """Send an event of the live stream, or hold it back while the client catches up."""
        self.outbox.event(frame, seq)
        self._send()

    def release(self, after: int) -> None:
        """Resume the live stream after an event that the client has."""
        self.outbox.release(after)
        self._send()

    async def keeps_up(self) -> None:
        """Wait until the client's queue has room, so that a long replay does not fill it."""
        while self.outbox.has_backlog(_REPLAY_BYTES):
            self._sent.clear()
            await self._sent.wait()

    def cut(self) -> None:
        """Cut the connection without a close frame, which a client that does not read would not receive."""
        self.outbox.cut()
        self._filled.set()
        self._sent.set()
        raw: socket.socket | None = self._socket.get_extra_info("socket")
        if raw is not None:
            with suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)

    async def send_all(self) -> None:
        """Send queued frames until cancelled, cut, or finished."""
        while not self.outbox.is_finished:
            frame = self.outbox.take()
            if frame is None:
                self._filled.clear()
                await self._filled_or_quiet()
                continue
            try:
                await self._socket.send_frame(frame, WSMsgType.TEXT)
            except ConnectionError:
                # The reading side notices and ends the connection.
                self.outbox.cut()
            self.outbox.sent()
            self._sent_at = self._clock()
            self._sent.set()

    async def _filled_or_quiet(self) -> None:
        """Wait for frames to send; after a long silence queue a ping."""
        self._has_sent_all = True
        try:
            async with asyncio.timeout_at(self._sent_at + _QUIET_SECONDS):
                await self._filled.wait()
        except TimeoutError:
            # Frames sent directly meanwhile did not wake this task.
            if self._clock() >= self._sent_at + _QUIET_SECONDS:
                self.put(encode(messages.Ping())[:-1])
        finally:
            self._has_sent_all = False

    def _send(self) -> None:
        """Send queued frames directly if the client keeps up: an extra loop iteration would double the cost."""
        if not (self._has_sent_all and self._has_room()):
            self._filled.set()
            return
        while (frame := self.outbox.take()) is not None:
            sending = self._socket.send_frame(frame, WSMsgType.TEXT)
            try:
                sending.send(None)
            except StopIteration:
                pass
            except ConnectionError:
                self.outbox.cut()
                self._filled.set()
            else:
                # The frame is written; the drain is left to the next frame.
                sending.close()
            self.outbox.sent()
            self._sent_at = self._clock()
            if not self._has_room():
                self._filled.set()
                return

    def _has_room(self) -> bool:
        return self._transport is not None and not self._transport.get_write_buffer_size()

    async def leave(self, sender: asyncio.Task[None], code: int, reason: bytes = b"") -> None:
        """Send the remaining frames and close the socket, both within a time limit; `sender` runs `send_all`."""
        self.outbox.finish()
        self._filled.set()
        await asyncio.wait({sender}, timeout=0 if self.outbox.is_cut else _FAREWELL_SECONDS)
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._socket.close(code=code, message=reason)

    def request_ended(self) -> None:
        """Note the end of one of the client's requests, so that another may be accepted."""
        self.waiting -= 1
        self.answered.set()

    # --- in ---

    async def first(self) -> None:
        """Wait for the client's `resume`. Raise FatalPeerError for another message or a timeout."""
        try:
            async with asyncio.timeout(_FIRST_FRAME_SECONDS):
                frame = await self._frame()
        except TimeoutError:
            raise FatalPeerError(f"No resume message within {_FIRST_FRAME_SECONDS:.0f} s.", code="unexpected") from None
        if frame is None:
            raise ConnectionResetError
        try:
            message = await off_loop(len(frame), decode_visitor, frame)
        except FatalPeerError:
            raise
        except PeerError as error:
            raise FatalPeerError(f"The client's first message must be `resume`: {error}", code="unexpected") from error
        if not isinstance(message.payload, messages.ResumeFrom):
            raise FatalPeerError("The client's first message must be `resume`.", code="unexpected")
        self.resume, self._resume_id = message.payload, message.id

    async def messages(self) -> AsyncIterator[VisitorMessage]:
        """Yield the client's messages; answer invalid ones here. Raise FatalPeerError if the framing is broken."""
        allowance = TokenBucket(_FRAMES_PER_SECOND, _FRAMES_BURST)
        while (frame := await self._frame()) is not None:
            if pause := allowance.take(1):
                await asyncio.sleep(pause)
            try:
                message = await off_loop(len(frame), decode_visitor, frame)
            except FatalPeerError:
                raise
            except PeerError as error:
                self.say(messages.Error(error.code, str(error)), reply_to=error.reply_to)
                continue
            if isinstance(message.payload, messages.ResumeFrom):
                self.say(messages.Error("unexpected", "This connection has already been resumed."), reply_to=message.id)
                continue
            yield message

    async def _frame(self) -> bytes | None:
        """Return the next frame, None when the client has disconnected."""
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            raise FatalPeerError("Messages must be text frames.")
        if message.type is not WSMsgType.TEXT:
            return None
        text: str = message.data
        frame = text.encode()
        if len(frame) > messages.MAX_FRAME_BYTES:
            raise FatalPeerError(
                f"A message may have at most {messages.MAX_FRAME_BYTES:,} bytes, this one has {len(frame):,}; the "
                "connection is closed.",
                code="frame_too_large",
            )
        return frame


#: Connecting, and 5,000 events at the pace of a slow phone.
_SECONDS = 60.0


async def caught_up(reach: Reach, member: Subscriber, welcome: messages.AuthOk | None, pace: Pace) -> int:
    """Send a client the events it missed; return the newest. Raise HostError, LinkError, OSError or TimeoutError.

    `welcome` is the link's: LinkError if the sprite has another epoch now. `member.resume` advances with each event, so
    that the next try continues after an error.
    """
    asked, resume = member.resume, None
    if asked is not None and asked.epoch is not None and asked.last_seq is not None:
        resume = messages.Resume(epoch=asked.epoch, last_seq=asked.last_seq)
    async with asyncio.timeout(_SECONDS):
        connection, now = await SpriteConnection.open(reach, lambda *_: None, resume, pace)
        try:
            if welcome is None or now.epoch != welcome.epoch:
                raise LinkError("The sprite's event sequence has restarted.")
            # Held transient events are older than the state that the client is about to get.
            member.outbox.drop_transient()
            # A replay that was cut off goes on where it was.
            if resume is None or not (resume.epoch == now.epoch == member.told_epoch):
                member.greet(now)
            if resume is None or resume.epoch != now.epoch or resume.last_seq != now.last_seq:
                await _copy(connection, member, now)
            member.resume = messages.ResumeFrom(now.epoch, now.last_seq)
            return now.last_seq
        finally:
            await connection.close()


async def _copy(connection: SpriteConnection, member: Subscriber, welcome: messages.AuthOk) -> None:
    """Forward every event up to the newest one of the welcome."""
    reached = 0
    while True:
        message = await connection.message()
        if isinstance(message.payload, messages.StateSync):
            member.put(encode(message.payload)[:-1])
            return
        if isinstance(message.payload, messages.Gap):
            member.say(welcome)
            member.say(message.payload)
        elif message.seq is not None and message.reply_to is None and reached < message.seq <= welcome.last_seq:
            reached = message.seq
            member.put(encode(message.payload, message_id=message.id, seq=reached, timestamp=message.timestamp)[:-1])
            # The next replay begins after it.
            member.resume = messages.ResumeFrom(welcome.epoch, reached)
            await member.keeps_up()
            if reached == welcome.last_seq:
                return
