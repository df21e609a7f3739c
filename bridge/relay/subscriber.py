"""One page or terminal: a WebSocket with everything that is still to be sent over it, and what comes from it.

Owns the socket's two directions and their bounds. What a message means, and who hears what, is the room's business.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import WSMsgType

from bridge.relay.token_bucket import TokenBucket
from sprite.protocol.frames import (
    FatalPeerError,
    PeerError,
    VisitorMessage,
    decode_visitor,
    encode,
)
from sprite.protocol.messages import (
    MAX_FRAME_BYTES,
    Error,
    ResumeFrom,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

    from sprite.protocol.messages import (
        LinkState,
        ServerPayload,
    )

#: The first frame says where to begin; nobody needs long for it.
_FIRST_FRAME_SECONDS = 10.0
#: A client that has let this much pile up is cut off; it can resume.
_MAX_OUTBOX_BYTES = 8 * 1024 * 1024
#: What the outbox holds while a long replay goes at the client's pace.
_REPLAY_BYTES = 1024 * 1024
#: Faster than any person, and than an upload's chunks; what comes faster is read slower, until TCP slows it.
_FRAMES_PER_SECOND, _FRAMES_BURST = 100.0, 500.0
_FAREWELL_SECONDS = 2.0


class Subscriber:
    """Sends in order and never blocks who sends; `messages` yields what the client says until it is gone."""

    def __init__(self, websocket: web.WebSocketResponse) -> None:
        self._socket = websocket
        self._outbox: deque[bytes] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._sent = asyncio.Event()
        self._held: list[tuple[int | None, bytes]] | None = None
        self._leaving = False
        self.is_cut = False
        #: The client's first frame and its id, None until it came.
        self.resume: ResumeFrom | None = None
        self.resume_id = ""
        #: The epoch that the client has been told of.
        self.told_epoch: str | None = None
        #: Requests that wait for the sprite's answer.
        self.waiting = 0
        self.answered = asyncio.Event()

    # --- out ---

    def say(self, payload: ServerPayload | LinkState, *, reply_to: str | None = None) -> None:
        """Sends an answer, or news of the bridge's own."""
        self.put(encode(payload, reply_to=reply_to)[:-1])

    def put(self, frame: bytes) -> None:
        """Sends a frame (without its newline), behind what waits."""
        if self.is_cut or self._leaving:
            return
        self._outbox.append(frame)
        self._grow(len(frame))
        self._filled.set()

    def event(self, frame: bytes, seq: int | None) -> None:
        """Sends an event of the live stream, or keeps it back while the client catches up."""
        if self._held is None:
            self.put(frame)
        elif not self.is_cut:
            self._held.append((seq, frame))
            self._grow(len(frame))

    def hold(self) -> None:
        """The live stream is kept back from here on, in order."""
        self.let_go()
        self._held = []

    def drop_passing(self) -> None:
        """What is kept back and not durable is older than the state that the client is about to get."""
        held = self._held or []
        self._bytes -= sum(len(frame) for seq, frame in held if seq is None)
        self._held = [(seq, frame) for seq, frame in held if seq is not None]

    def release(self, after: int) -> None:
        """The client has everything up to that event: the live stream goes on from there."""
        held, self._held = self._held or [], None
        self._bytes -= sum(len(frame) for _, frame in held)
        for seq, frame in held:
            if seq is None or seq > after:
                self.put(frame)

    def let_go(self) -> None:
        """What is kept back will not be needed."""
        self._bytes -= sum(len(frame) for _, frame in self._held or [])
        self._held = None

    async def keeps_up(self) -> None:
        """Waits until a long replay has room for more."""
        while self._bytes > _REPLAY_BYTES and self._outbox and not self.is_cut:
            self._sent.clear()
            await self._sent.wait()

    def _grow(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _MAX_OUTBOX_BYTES:
            self.cut()

    def cut(self) -> None:
        """Ends the connection without another word: whoever does not read would not hear it."""
        self.is_cut = True
        self._outbox.clear()
        self._held = None
        self._filled.set()
        self._sent.set()
        raw: socket.socket | None = self._socket.get_extra_info("socket")
        if raw is not None:
            with suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)

    async def send_all(self) -> None:
        """Sends what is put, until cancelled, cut, or (asked to leave) done."""
        while not self.is_cut:
            if not self._outbox:
                if self._leaving:
                    return
                self._filled.clear()
                await self._filled.wait()
                continue
            frame = self._outbox.popleft()
            try:
                await self._socket.send_frame(frame, WSMsgType.TEXT)
            except ConnectionError:
                # The reading side notices and ends the connection.
                self.is_cut = True
                self._sent.set()
                return
            self._bytes -= len(frame)
            self._sent.set()

    async def leave(self, sender: asyncio.Task[None], code: int, words: bytes = b"") -> None:
        """Says what is still to be said, and closes; both within a bound."""
        self._leaving = True
        self._filled.set()
        await asyncio.wait({sender}, timeout=0 if self.is_cut else _FAREWELL_SECONDS)
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._socket.close(code=code, message=words)

    def was_answered(self) -> None:
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
        self.resume, self.resume_id = message.payload, message.id

    async def messages(self) -> AsyncIterator[VisitorMessage]:
        """What the client says; what does not fit is answered here. FatalPeerError where the framing is broken."""
        allowance = TokenBucket(_FRAMES_PER_SECOND, _FRAMES_BURST)
        while (frame := await self._frame()) is not None:
            if pause := allowance.take(1):
                await asyncio.sleep(pause)
            try:
                message = decode_visitor(frame)
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
