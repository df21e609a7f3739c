"""The terminal's connection to the bridge: a WebSocket, resume after a cut, nothing typed is lost or sent twice.

Owns the socket, the reconnecting and the messages that must arrive. Knows nothing of what the messages mean to a
person, and of how a bridge is found: it is handed what opens the socket.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import aiohttp

from sprite.common.retry import backoff
from sprite.protocol.canvas import CreateCard
from sprite.protocol.frames import (
    FatalPeerError,
    PeerError,
    RelayedMessage,
    decode_relayed,
    encode,
)
from sprite.protocol.messages import (
    Ack,
    AuthOk,
    ClientPayload,
    Error,
    Gap,
    LinkState,
    Mission,
    Permission,
    ResumeFrom,
    ServerPayload,
    StateSync,
)
from sprite.protocol.position import Position

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    #: Opens a WebSocket to the bridge. BridgeUnreachableError, ConnectionError or TimeoutError where it cannot.
    Connect = Callable[[], Awaitable[aiohttp.ClientWebSocketResponse]]

#: No sprite is waited for: a bridge that lives answers sooner, and behind another door there may be one that does.
_CONNECT_SECONDS = 10.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.25, 8.0
#: Before a bridge was ever reached, a wrong address is likelier than a nap.
_ATTEMPTS_AT_A_STRANGER = 4
#: A reader that falls behind by so much lets TCP slow the bridge, which then cuts it off; it can resume.
_QUEUE_LENGTH = 1000
#: What is resent on a new connection until it is answered.
_MUST_ARRIVE = (Mission, Permission, CreateCard)
#: The bridge closes so when a person was revoked: trying again would not help.
_POLICY_VIOLATION = 1008


class BridgeUnreachableError(Exception):
    """The bridge cannot be reached, in words; `for_good` where trying again would not help."""

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        super().__init__(message)
        self.for_good = for_good


class NotConnectedError(Exception):
    """There is no connection at this moment; it is being renewed."""


class BridgeLink:
    """`async with BridgeLink(connect) as link:` then `async for message in link:`.

    Iterating yields every message that is not the answer to an `ask`, `link` among them, also where the bridge itself
    is away; it raises BridgeUnreachableError when there is no hope, or when the bridge was away for longer than
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
        #: A state has to come. The bridge sends none to a client that resumes.
        self._awaits_state = False
        self._attempts = 0
        #: Since when there is no bridge, in seconds of the monotonic clock.
        self._lost_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        #: Whether what is posted now reaches the sprite at once.
        self.is_ready = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="bridge-link")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            # What ended the task was already told to the reader.
            await asyncio.wait([self._task])
            self._task = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RelayedMessage:
        item = await self._items.get()
        if isinstance(item, Exception):
            raise item
        return item

    def post(self, payload: ClientPayload) -> str:
        """Sends without waiting; the id it went out with.

        Missions, permissions and notes are kept until they are answered, and resent with the same id on every new
        connection; anything else raises NotConnectedError while there is none.
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

    async def ask(self, payload: ClientPayload, *, timeout_seconds: float) -> RelayedMessage:
        """Send, and return the message that answers. NotConnectedError or TimeoutError if none comes."""
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
                await self._say(LinkState("unavailable", _describe(error)))
            await asyncio.sleep(_wait_seconds(self._attempts))

    def _lose_patience(self, error: Exception) -> None:
        if self._patience_seconds is None or self._lost_at is None:
            return
        away = time.monotonic() - self._lost_at
        if away >= self._patience_seconds:
            problem = f"The bridge has been away for {away:.0f} seconds. What was sent may still have been taken."
            raise BridgeUnreachableError(problem, for_good=True) from error

    async def _one_connection(self) -> None:
        async with asyncio.timeout(_CONNECT_SECONDS):
            socket = await self._connect()
        outbox: asyncio.Queue[bytes] = asyncio.Queue()
        epoch = self._position.epoch
        resume = ResumeFrom() if epoch is None or self._awaits_state else ResumeFrom(epoch, self._position.last_seq)
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
                # A newer bridge may say more than we understand; its next event carries a higher seq.
                continue
            await self._deliver(message)
        if socket.close_code == _POLICY_VIOLATION:
            raise BridgeUnreachableError("The bridge has ended this connection: you may not come in.", for_good=True)
        raise BridgeUnreachableError("The bridge has ended the connection.")

    async def _say(self, state: LinkState) -> None:
        await self._items.put(RelayedMessage("link", "", state))

    async def _deliver(self, message: RelayedMessage) -> None:
        if message.seq is not None and not self._position.advance(message.seq):
            return
        match message.payload:
            case LinkState(state=state):
                self.is_ready = state == "ready"
            case AuthOk() as welcome:
                self._awaits_state |= not self._position.welcome(welcome.epoch, welcome.last_seq)
                return
            case Gap() | StateSync() as payload if message.reply_to is None:
                self._awaits_state = isinstance(payload, Gap)
                self._position.skip()
            case _:
                pass
        if message.reply_to is not None and self._is_answer(message, message.payload, message.reply_to):
            return
        await self._items.put(message)

    def _is_answer(self, message: RelayedMessage, payload: ServerPayload | LinkState, reply_to: str) -> bool:
        if (answer := self._asked.get(reply_to)) is not None:
            if not answer.done():
                answer.set_result(message)
            return True
        if isinstance(payload, Ack | Error):
            self._unanswered.pop(reply_to, None)
        return False


async def _send(socket: aiohttp.ClientWebSocketResponse, outbox: asyncio.Queue[bytes]) -> None:
    # The reading side notices the end of a connection, and resends what must arrive.
    with suppress(OSError, aiohttp.ClientError):
        while True:
            await socket.send_frame(await outbox.get(), aiohttp.WSMsgType.TEXT)


def _describe(error: Exception) -> str:
    if isinstance(error, BridgeUnreachableError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "The bridge does not answer in time."
    return "The bridge cannot be reached."


def _wait_seconds(attempts: int) -> float:
    return backoff(max(attempts - 1, 0), _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
