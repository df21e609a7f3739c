"""The sprite's side of the wire for tests of hub and terminal: a real server, scripted line by line by the test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import msgspec

from sprite.protocol.frames import FrameDecoder, encode
from sprite.protocol.messages import AuthOk, ServerPayload, StateSync
from sprite.protocol.shapes import LearningRow, MemoryState, SessionState
from tests.in_thread import PATIENCE

if TYPE_CHECKING:
    from types import TracebackType

TOKEN = "planted-token"


def state_sync(**changes: Any) -> StateSync:
    session = SessionState(session_id="s1", started_at=1.0, turns=3, running_mission_id=None, queued=0)
    memory = MemoryState(files=[], learnings=0, turns=3, waiting=0, spend_usd=0.0)
    empty = StateSync([], [], [], session, memory, permissions=[], running=None, queued=[], model=None)
    return msgspec.structs.replace(empty, **changes)


def learned(row_id: int, type_: str, content: str, superseded_by: int | None = None) -> LearningRow:
    """Return a learning as the sprite sends it."""
    return LearningRow(
        id=row_id,
        created_at=float(row_id),
        session_id="s1",
        type=type_,
        content=content,
        source_observation_id=1,
        confidence=0.9,
        curation_id=1,
        origin="user",
        evidence=content,
        superseded_by=superseded_by,
        seen=1,
        last_seen=float(row_id),
    )


class Visitor:
    """One connection of a client; `receive` skips messages of other types."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder(4 * 2**20)
        self.ended = asyncio.Event()

    async def receive(self, kind: str) -> dict[str, Any]:
        """Return the next message of this type, as plain JSON."""
        async with asyncio.timeout(PATIENCE):
            while (message := await self.next()) is not None:
                if message["type"] == kind:
                    return message
        raise AssertionError(f"the client left before it sent a {kind}")

    async def left(self) -> None:
        """Wait until the client has closed the connection."""
        async with asyncio.timeout(PATIENCE):
            while await self.next() is not None:
                pass

    async def next(self) -> dict[str, Any] | None:
        """Return the next message, None at the end."""
        while (frame := self._decoder.next_frame()) is None:
            try:
                data = await self._reader.read(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self._decoder.feed(data)
        message: dict[str, Any] = msgspec.json.decode(frame)
        return message

    async def send(self, payload: ServerPayload, *, seq: int | None = None, reply_to: str | None = None) -> None:
        await self.send_bytes(encode(payload, seq=seq, reply_to=reply_to))

    async def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def welcome(
        self, *, epoch: str = "e1", last_seq: int = 0, sync: StateSync | None = None, version: str = "0.0"
    ) -> dict[str, Any]:
        """Admit the client; return the payload of its `auth`."""
        auth = await self.receive("auth")
        await self.send(AuthOk(1, version, epoch, last_seq, {}), reply_to=auth["id"])
        if sync is not None:
            await self.send(sync)
        payload: dict[str, Any] = auth["payload"]
        return payload

    def cut(self) -> None:
        """End the connection like a broken network."""
        self._writer.transport.abort()


class StandIn:
    """Listens on a free port; `visitor` is the next client that connects."""

    def __init__(self) -> None:
        self._open_sockets: asyncio.Queue[Visitor] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._arrive, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def visitor(self) -> Visitor:
        async with asyncio.timeout(PATIENCE):
            return await self._open_sockets.get()

    def is_alone(self) -> bool:
        """Return whether no client has connected since the last visitor."""
        return self._open_sockets.empty()

    async def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        await self._open_sockets.put(Visitor(reader, writer))
