"""Fuzz a page's WebSocket, as messages or as bytes: the bridge and the sprite behind it keep serving."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import struct
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from hypothesis import strategies as st

from sprite.protocol.messages import VISITOR_TYPES
from tests.bridge_harness import BridgeProcess, PageClient, bridge_process
from tests.fuzz.campaign import attack
from tests.fuzz.health import Health
from tests.fuzz.inputs import cut, frames, with_ids
from tests.harness import PATIENCE

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@dataclass(frozen=True, slots=True)
class Piece:
    """One WebSocket frame (RFC 6455); `length` is the declared length if it is wrong."""

    payload: bytes
    opcode: int = TEXT
    is_final: bool = True
    reserved: int = 0
    is_masked: bool = True
    length: int | None = None

    def wire(self, stack_id: str, card_id: str) -> bytes:
        """Return the frame's bytes, with existing ids."""
        payload = with_ids(self.payload, stack_id, card_id)
        length = len(payload) if self.length is None else self.length
        head = bytes([self.is_final << 7 | self.reserved << 4 | self.opcode])
        masked = self.is_masked << 7
        if length < 126:
            head += bytes([masked | length])
        elif length < 2**16:
            head += bytes([masked | 126]) + struct.pack(">H", length)
        else:
            head += bytes([masked | 127]) + struct.pack(">Q", length)
        # A mask of zeros leaves the payload unchanged.
        return head + b"\0\0\0\0" * self.is_masked + payload


PAYLOADS = frames(VISITOR_TYPES)
PIECES = st.one_of(
    st.builds(Piece, PAYLOADS),
    st.builds(Piece, PAYLOADS),
    st.builds(Piece, PAYLOADS, opcode=st.sampled_from([TEXT, BINARY]), is_masked=st.booleans()),
    st.builds(Piece, PAYLOADS, opcode=st.sampled_from([0, TEXT]), is_final=st.booleans()),
    st.builds(Piece, st.binary(max_size=130), opcode=st.sampled_from([CLOSE, PING, PONG])),
    st.builds(Piece, st.binary(max_size=40), opcode=st.integers(0, 15), reserved=st.integers(0, 7)),
    st.builds(Piece, st.just(b"{}"), length=st.sampled_from([0, 1, 100, 2**20 + 1, 2**31, 2**63 - 1, 2**64 - 1])),
)


@dataclass(frozen=True, slots=True)
class Visit:
    """One WebSocket: the sent data, its pieces, and whether it is closed properly."""

    pieces: list[Piece]
    cuts: list[int]
    is_closed: bool


VISITS = st.builds(
    Visit,
    pieces=st.lists(PIECES, min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 2**21), max_size=5),
    is_closed=st.booleans(),
)


class Stage:
    """A bridge with its sprite, and an honest client whose page stays open. A dead process is replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = AsyncExitStack()
        self._lives = 0
        self._bridge: BridgeProcess
        self._cookie: str
        self._honest: PageClient
        self._ids = "", ""
        self._healths: list[Health]

    async def start(self) -> None:
        self._lives += 1
        data = self._folder / f"life{self._lives}" / "data"
        self._bridge = bridge = await self._stack.enter_async_context(bridge_process(data))
        self._cookie = await bridge.login()
        self._honest = await self._stack.enter_async_context(bridge.page(self._cookie))
        await self._honest.link("ready")
        mission = await self._honest.send("mission", {"text": "Make a table of apples 3, pears 5"})
        drawn = await self._honest.type("canvas_update")
        self._ids = drawn["stack_id"], drawn["card_id"]
        await self._honest.end_of(mission)
        sprite = int((bridge.workspace / ".os/run/lock").read_text())
        # The sprite's own log is among the bridge's lines.
        self._healths = [Health(bridge.process.pid, bridge.stderr), Health(sprite, bridge.stderr)]

    async def visit(self, visit: Visit) -> None:
        if self._bridge.process.returncode is not None:
            await self.start()
        async with asyncio.timeout(PATIENCE):
            await self._play(visit)
        for health in self._healths:
            health.check()
        answer = await self._honest.ask("memory", {"op": "files"})
        assert answer["type"] == "memory_result", answer
        self._honest.received.clear()

    async def _play(self, visit: Visit) -> None:
        address = urlsplit(self._bridge.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        with contextlib.suppress(OSError):
            writer.write(
                f"GET /ws HTTP/1.1\r\nHost: {address.netloc}\r\nOrigin: {self._bridge.url}\r\n"
                f"Cookie: {self._cookie}\r\n"
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101"), head
            for piece in cut(b"".join(piece.wire(*self._ids) for piece in visit.pieces), visit.cuts):
                writer.write(piece)
                await writer.drain()
            if visit.is_closed:
                writer.write(Piece(struct.pack(">H", 1000), opcode=CLOSE).wire(*self._ids))
            writer.write_eof()
            while await reader.read(2**16):
                pass
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def end(self) -> None:
        await self._honest.websocket.close()
        for health in self._healths:
            await health.check_size()
        await self._stack.aclose()
        assert self._bridge.process.returncode == 0


def test_arbitrary_websocket_data_harms_neither_bridge_nor_sprite(tmp_path: Path) -> None:
    attack("messages", VISITS, Stage(tmp_path))
