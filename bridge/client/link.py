"""A client's connection to the bridge: a WebSocket that resumes without loss or duplicates."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Self

import aiohttp

from sprite.common.tasks import Service, TaskSet, backoff
from sprite.protocol import messages
from sprite.protocol.frames import FatalPeerError, PeerError, RelayedMessage, decode_relayed, encode
from sprite.protocol.outbox import Position

#: Opens a WebSocket to the bridge. Raises BridgeUnreachableError, ConnectionError or TimeoutError.
Connect = Callable[[], Awaitable[aiohttp.ClientWebSocketResponse]]
#: Does not include waking a sprite: a running bridge answers sooner, and another address may work.
_CONNECT_SECONDS = 10.0
#: Time that an answer may take. The end of a session and a flush wait for one or more model calls.
LOOK_SECONDS, MODEL_SECONDS = 15.0, 180.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.25, 8.0
#: At the first connection, a wrong address is likelier than a temporary failure.
_ATTEMPTS_AT_A_STRANGER = 4
#: Backpressure: a slower reader makes TCP slow the bridge, which then disconnects it. The reader can resume.
_QUEUE_LENGTH = 1000
#: Resent on each new connection until answered.
_MUST_ARRIVE = (messages.Mission, messages.Permission)
#: Close code for revoked persons, for whom a retry is useless.
_POLICY_VIOLATION = 1008


class BridgeUnreachableError(Exception):
    """The bridge cannot be reached; the message is for people. `for_good`: a retry is useless."""

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        super().__init__(message)
        self.for_good = for_good


class NotConnectedError(Exception):
    """There is no connection at the moment; the link is reconnecting."""


class BridgeLink(Service):
    """Keep a connection to the bridge: `async with BridgeLink(connect) as link:`, then `async for message in link:`.

    Iteration yields every message that does not answer an `ask`, including `link` messages about an unreachable bridge.
    It raises BridgeUnreachableError if a retry is useless, or if the bridge was unreachable for more than
    `patience_seconds` (None: no limit).
    """

    def __init__(self, connect: Connect, *, patience_seconds: float | None = None) -> None:
        self._connect = connect
        self._patience_seconds = patience_seconds
        self._items: asyncio.Queue[RelayedMessage | Exception] = asyncio.Queue(_QUEUE_LENGTH)
        self._outbox: asyncio.Queue[bytes] | None = None
        self._unanswered: dict[str, bytes] = {}
        self._asked: dict[str, asyncio.Future[RelayedMessage]] = {}
        self._position = Position()
        #: Whether a state has to arrive. The bridge sends none to a client that resumes.
        self._awaits_state = False
        self._attempts = 0
        #: Start of the disconnected time, in monotonic seconds.
        self._lost_at: float | None = None
        #: Whether the sprite receives a posted message at once.
        self.is_ready = False

    async def _open(self, stack: AsyncExitStack) -> None:
        tasks = await stack.enter_async_context(TaskSet())
        tasks.start(self._run(), "bridge-link")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RelayedMessage:
        item = await self._items.get()
        if isinstance(item, Exception):
            raise item
        return item

    def post(self, payload: messages.ClientPayload) -> str:
        """Send a message without waiting and return its id.

        Missions and permission answers are resent on new connections until answered. Other messages raise
        NotConnectedError while disconnected.
        """
        used = str(uuid.uuid4())
        frame = encode(payload, message_id=used)[:-1]
        if isinstance(payload, _MUST_ARRIVE):
            self._unanswered[used] = frame
        elif self._outbox is None:
            raise NotConnectedError
        if self._outbox is not None:
            self._outbox.put_nowait(frame)
        return used

    async def ask(self, payload: messages.ClientPayload, *, timeout_seconds: float) -> RelayedMessage:
        """Send a message, and return its answer. NotConnectedError or TimeoutError if none comes."""
        answer: asyncio.Future[RelayedMessage] = asyncio.get_running_loop().create_future()
        used = self.post(payload)
        self._asked[used] = answer
        try:
            async with asyncio.timeout(timeout_seconds):
                return await answer
        finally:
            del self._asked[used]

    async def _run(self) -> None:
        try:
            await self._stay_connected()
        except Exception as error:  # noqa: BLE001 - whoever reads this link gets it, traceback and all
            await self._items.put(error)

    async def _stay_connected(self) -> None:
        while True:
            self._lost_at = self._lost_at or time.monotonic()
            try:
                await self._one_connection()
            except (BridgeUnreachableError, FatalPeerError, aiohttp.ClientError, OSError, TimeoutError) as error:
                self._attempts += 1
                hopeless = isinstance(error, BridgeUnreachableError) and error.for_good
                if hopeless or (self._position.epoch is None and self._attempts >= _ATTEMPTS_AT_A_STRANGER):
                    raise BridgeUnreachableError(_describe(error), for_good=True) from error
                self._lose_patience(error)
                await self._items.put(RelayedMessage("link", "", messages.LinkState("unavailable", _describe(error))))
            await asyncio.sleep(backoff(max(self._attempts - 1, 0), _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS))

    def _lose_patience(self, error: Exception) -> None:
        now = time.monotonic()
        away = now - (self._lost_at or now)
        if self._patience_seconds is not None and away >= self._patience_seconds:
            text = f"The bridge has been unreachable for {away:.0f} seconds. Your last messages may still have arrived."
            raise BridgeUnreachableError(text, for_good=True) from error

    async def _one_connection(self) -> None:
        async with asyncio.timeout(_CONNECT_SECONDS):
            socket = await self._connect()
        outbox: asyncio.Queue[bytes] = asyncio.Queue()
        resume = messages.ResumeFrom()
        if self._position.epoch is not None and not self._awaits_state:
            resume = messages.ResumeFrom(self._position.epoch, self._position.last_seq)
        for frame in (encode(resume)[:-1], *self._unanswered.values()):
            outbox.put_nowait(frame)
        self._outbox = outbox
        sending = asyncio.create_task(_send(socket, outbox), name="bridge-send")
        try:
            await self._read(socket)
        finally:
            self._outbox = None
            self.is_ready = False
            sending.cancel()
            await asyncio.wait([sending])
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(NotConnectedError())
            with suppress(OSError, aiohttp.ClientError):
                await socket.close()

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for frame in socket:
            if frame.type is not aiohttp.WSMsgType.TEXT:
                continue
            self._attempts = 0
            self._lost_at = None
            try:
                message = decode_relayed(frame.data.encode())
            except FatalPeerError:
                raise
            except PeerError:
                # A newer bridge may send unknown messages; its next event has a higher seq.
                continue
            await self._deliver(message)
        if socket.close_code == _POLICY_VIOLATION:
            words = "The bridge closed this connection, because your access was revoked."
            raise BridgeUnreachableError(words, for_good=True)
        raise BridgeUnreachableError("The bridge closed the connection.")

    async def _deliver(self, message: RelayedMessage) -> None:
        if message.seq is not None and not self._position.advance(message.seq):
            return
        match message.payload:
            case messages.LinkState(state=state):
                self.is_ready = state == "ready"
            case messages.AuthOk() as welcome:
                self._awaits_state |= not self._position.welcome(welcome.epoch, welcome.last_seq)
                return
            case messages.Gap() | messages.StateSync() as payload if message.reply_to is None:
                self._awaits_state = isinstance(payload, messages.Gap)
                self._position.skip()
            case _:
                pass
        answer = self._asked.get(message.reply_to or "")
        if answer is None:
            if isinstance(message.payload, messages.Ack | messages.Error):
                self._unanswered.pop(message.reply_to or "", None)
            await self._items.put(message)
        elif not answer.done():
            answer.set_result(message)


async def _send(socket: aiohttp.ClientWebSocketResponse, outbox: asyncio.Queue[bytes]) -> None:
    # The reading side notices a lost connection and resends.
    with suppress(OSError, aiohttp.ClientError):
        while True:
            await socket.send_frame(await outbox.get(), aiohttp.WSMsgType.TEXT)


def _describe(error: Exception) -> str:
    if isinstance(error, BridgeUnreachableError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "The bridge does not answer in time."
    return "The bridge cannot be reached."
