"""Record the conversation between bridges and a sprite in order, with the lease of each message.

The forwarder feeds it: a frame before it is forwarded, and an answer once it has arrived. A bridge's messages after the
sprite admitted a newer lease are thus separated reliably from earlier ones. `forwarding` records a sprite process; the
emulated proxy (`Machine.overheard`) records one on a VM.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sprite.protocol.frames import Envelope
from sprite.protocol.messages import Auth
from tests.connections import connections, until_one_ends

if TYPE_CHECKING:
    from sprite.protocol.replication import Lease

_READ_BYTES = 1 << 16
_FRAME = msgspec.json.Decoder(Envelope)
_AUTH = msgspec.json.Decoder(Auth)


@dataclass(frozen=True, slots=True)
class Said:
    """A bridge's frame. `at` is its arrival here in Unix seconds."""

    at: float
    lease: Lease
    what: str


@dataclass
class Wiretap:
    """The conversation of one sprite and all bridges; call `conversation` for each connection to it."""

    #: Frames of admitted bridges, in order.
    said: list[Said] = field(default_factory=list)
    #: The leases that the sprite admitted, in order, with repeats.
    welcomed: list[Lease] = field(default_factory=list)
    #: The sprite's answers to frames under a lease that was no longer the newest, as text.
    out_of_turn: list[str] = field(default_factory=list)
    #: The number of leases that the sprite refused, or whose older connection it closed.
    refusals: int = 0

    def conversation(self) -> Conversation:
        """Start recording one connection."""
        return Conversation(self)

    @property
    def newest(self) -> int:
        """Return the epoch of the lease admitted last; 0 before the first."""
        return self.welcomed[-1].epoch if self.welcomed else 0


class Conversation:
    """One connection of a bridge, fed with its bytes in arbitrary pieces."""

    def __init__(self, tap: Wiretap) -> None:
        self._tap = tap
        self._lease: Lease | None = None
        self._is_welcome = False
        #: Frames sent after the sprite admitted a newer lease, by id, with their type.
        self._late: dict[str, str] = {}
        self._inwards, self._outwards = bytearray(), bytearray()

    def to_sprite(self, data: bytes) -> None:
        """Record a bridge's bytes."""
        for line in _lines(self._inwards, data):
            self._from_bridge(line)

    def from_sprite(self, data: bytes) -> None:
        """Record the sprite's bytes."""
        for line in _lines(self._outwards, data):
            self._from_sprite(line)

    def _from_bridge(self, line: bytes) -> None:
        frame = _FRAME.decode(line)
        if frame.type == "auth":
            self._lease = _AUTH.decode(frame.payload).lease
            return
        if self._lease is None:
            return
        if self._is_welcome:
            self._tap.said.append(Said(time.time(), self._lease, frame.type))
        if self._tap.newest > self._lease.epoch:
            self._late[frame.id] = frame.type

    def _from_sprite(self, line: bytes) -> None:
        frame = _FRAME.decode(line)
        if frame.type == "auth_ok" and self._lease is not None:
            self._is_welcome = True
            if self._tap.newest > self._lease.epoch:
                self._tap.out_of_turn.append(f"{self._lease} was welcomed after {self._tap.welcomed[-1]}")
            else:
                self._tap.welcomed.append(self._lease)
        if frame.type == "error" and b'"stale_owner"' in line:
            self._tap.refusals += 1
        elif frame.reply_to in self._late:
            self._tap.out_of_turn.append(f"{self._late[frame.reply_to]} of {self._lease} was answered by {frame.type}")


@asynccontextmanager
async def forwarding(tap: Wiretap, sprite_port: int) -> AsyncIterator[int]:
    """Forward to the sprite at a port while the block runs, and yield the port for bridges."""
    async with connections(partial(_forward, tap, sprite_port)) as port:
        yield port


async def _forward(tap: Wiretap, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    conversation = tap.conversation()
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await until_one_ends(
                _pass(reader, far_writer, conversation.to_sprite), _pass(far_reader, writer, conversation.from_sprite)
            )
        finally:
            far_writer.close()
    except ConnectionError:
        # The sprite is not listening, so the proxy looks the same to its client.
        return
    finally:
        writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_READ_BYTES):
            note(data)
            writer.write(data)
            await writer.drain()


def _lines(unfinished: bytearray, data: bytes) -> list[bytes]:
    """Return the lines that end with this piece; the remainder stays in `unfinished`."""
    unfinished += data
    if b"\n" not in data:
        return []
    *lines, rest = bytes(unfinished).split(b"\n")
    unfinished[:] = rest
    return lines
