"""The resilient connection to one sprite: TCP, NDJSON, resume after a cut, nothing sent twice.

Owns the socket, the handshake, the reconnecting and the messages that must arrive. Knows nothing of what
the messages mean to a person. A client on another transport offers the same five verbs: `async with`,
`async for`, `post`, `ask` and `is_ready`.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from sprite.protocol import (
    Ack,
    Auth,
    AuthOk,
    ClientPayload,
    Error,
    FatalPeerError,
    FrameDecoder,
    Gap,
    Mission,
    PeerError,
    Permission,
    Resume,
    ServerMessage,
    decode_server,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

#: A sprite's `state_sync` carries the whole canvas, so more is read than a client may send.
_MAX_READ_BYTES = 16 * 1024 * 1024
_CONNECT_SECONDS = 10.0
#: The server answers `auth` without waiting for anything.
_HANDSHAKE_SECONDS = 10.0
_FIRST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 8.0
#: Before a sprite was ever reached, a wrong address is likelier than a nap.
_ATTEMPTS_AT_A_STRANGER = 4
#: A reader that falls behind by so much lets TCP slow the sprite, which then cuts it off; it can resume.
_QUEUE_LENGTH = 1000
_READ_BYTES = 1 << 16
#: What is resent on a new connection until it is answered.
_MUST_ARRIVE = (Mission, Permission)


class LinkError(Exception):
    """The sprite cannot be reached."""


class LinkRefusedError(LinkError):
    """The sprite does not let this client in; trying again would not help."""


class LinkDownError(LinkError):
    """There is no connection to the sprite at this moment; it is being renewed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a sprite listens, and the word that opens it."""

    host: str
    port: int
    token: str


@dataclass(frozen=True, slots=True)
class LinkChange:
    """The connection's state; `detail` says in words why it is not there."""

    state: Literal["connecting", "ready", "unavailable"]
    detail: str = ""


class SpriteConnection:
    """`async with SpriteConnection(locate) as link:` then `async for item in link:`.

    `locate` is asked before every attempt, since a sprite that was started again has another port. Iterating
    yields every `ServerMessage` that is not the answer to an `ask`, and a `LinkChange` whenever the state
    changes; it raises LinkRefusedError, or whatever `locate` raised, when there is no hope.
    """

    def __init__(self, locate: Callable[[], Awaitable[Endpoint]], *, client: str = "chat") -> None:
        self._locate = locate
        self._client = client
        self._items: asyncio.Queue[ServerMessage | LinkChange | Exception] = asyncio.Queue(_QUEUE_LENGTH)
        self._writer: asyncio.StreamWriter | None = None
        self._kept: dict[str, bytes] = {}
        self._asked: dict[str, asyncio.Future[ServerMessage]] = {}
        self._epoch: str | None = None
        self._last_seq = 0
        self._newest_seq = 0
        self._attempts = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether a message posted now goes out at once."""
        return self._writer is not None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="sprite-link")
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

    async def __anext__(self) -> ServerMessage | LinkChange:
        item = await self._items.get()
        if isinstance(item, Exception):
            raise item
        return item

    def post(self, payload: ClientPayload, *, message_id: str | None = None) -> str:
        """Send without waiting; the id it went out with.

        Missions and permissions are kept until they are answered, and resent with the same id on every new
        connection; anything else raises LinkDownError while there is none.
        """
        used = message_id or str(uuid.uuid4())
        frame = encode(payload, message_id=used)
        if isinstance(payload, _MUST_ARRIVE):
            self._kept[used] = frame
        elif self._writer is None:
            raise LinkDownError
        if self._writer is not None:
            # Not drained: a person types less than a socket's buffer holds.
            self._writer.write(frame)
        return used

    async def ask(self, payload: ClientPayload, *, timeout_seconds: float) -> ServerMessage:
        """Send, and return the message that answers. LinkDownError or TimeoutError if none comes."""
        answer: asyncio.Future[ServerMessage] = asyncio.get_running_loop().create_future()
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
            await self._items.put(LinkChange("connecting"))
            try:
                await self._one_connection()
            except LinkRefusedError:
                raise
            except (LinkError, FatalPeerError, OSError, TimeoutError) as error:
                self._attempts += 1
                if self._epoch is None and self._attempts >= _ATTEMPTS_AT_A_STRANGER:
                    raise _in_words(error) from error
                await self._items.put(LinkChange("unavailable", str(_in_words(error))))
            await asyncio.sleep(_wait_seconds(self._attempts))

    async def _one_connection(self) -> None:
        endpoint = await self._locate()
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        try:
            incoming = _Incoming(reader)
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                await self._shake_hands(endpoint.token, incoming, writer)
            self._attempts = 0
            self._writer = writer
            for frame in self._kept.values():
                writer.write(frame)
            await self._items.put(LinkChange("ready"))
            while True:
                await self._deliver(await incoming.message())
        finally:
            self._writer = None
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(LinkDownError())
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _shake_hands(self, token: str, incoming: _Incoming, writer: asyncio.StreamWriter) -> None:
        resume = None if self._epoch is None else Resume(epoch=self._epoch, last_seq=self._last_seq)
        writer.write(encode(Auth(token=token, client=self._client, resume=resume)))
        welcome = (await incoming.message()).payload
        if isinstance(welcome, Error):
            refused = welcome.code in {"unauthorized", "unsupported_protocol"}
            raise (LinkRefusedError if refused else LinkError)(welcome.message)
        if not isinstance(welcome, AuthOk):
            raise LinkError("What answers there is not a sprite.")
        if welcome.epoch != self._epoch:
            # Another log than the one we knew: the sync that follows is where we stand.
            self._epoch = welcome.epoch
            self._last_seq = welcome.last_seq
        self._newest_seq = welcome.last_seq

    async def _deliver(self, message: ServerMessage) -> None:
        if message.seq is not None:
            if message.seq <= self._last_seq:
                return
            self._last_seq = message.seq
        if isinstance(message.payload, Gap):
            self._last_seq = max(self._last_seq, self._newest_seq)
        if message.reply_to is not None:
            answer = self._asked.get(message.reply_to)
            if answer is not None:
                if not answer.done():
                    answer.set_result(message)
                return
            if isinstance(message.payload, Ack | Error):
                self._kept.pop(message.reply_to, None)
        await self._items.put(message)


class _Incoming:
    """The messages of one connection; what this client does not know is passed over."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._decoder = FrameDecoder(_MAX_READ_BYTES)

    async def message(self) -> ServerMessage:
        while True:
            frame = self._decoder.next_frame()
            if frame is None:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    raise LinkError("The sprite closed the connection.")
                self._decoder.feed(data)
                continue
            try:
                return decode_server(frame)
            except FatalPeerError:
                raise
            except PeerError:
                # A newer sprite may say more than we understand; its next event carries a higher seq.
                continue


def _in_words(error: Exception) -> LinkError:
    if isinstance(error, LinkError):
        return error
    if isinstance(error, ConnectionRefusedError):
        return LinkError("No sprite answers there.")
    if isinstance(error, TimeoutError):
        return LinkError("The sprite does not answer in time.")
    return LinkError(str(error) or type(error).__name__)


def _wait_seconds(attempts: int) -> float:
    longest: float = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** min(max(attempts - 1, 0), 10))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads the callers, keeps no secret
