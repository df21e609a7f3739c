"""What bridges and a sprite say to each other, noted in the order in which it passes, with the lease it is said by.

Stands where bridges look for the sprite. A frame is noted before it is passed on, and an answer once it has come: so
what a bridge said after the sprite had welcomed a newer lease is told for certain from what it said before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from sprite.protocol.frames import Envelope
from sprite.protocol.messages import Auth
from tests.connections import connections, until_one_ends

if TYPE_CHECKING:
    from sprite.protocol.shipping import Lease

_READ_BYTES = 1 << 16
_FRAME = msgspec.json.Decoder(Envelope)
_AUTH = msgspec.json.Decoder(Auth)


@dataclass(slots=True)
class Conversation:
    """One connection of a bridge's."""

    lease: Lease | None = None
    is_welcome: bool = False
    #: Frames that were said after the sprite had welcomed a newer lease, by id: what they are.
    late: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """A bridge's frame. `at` is Unix seconds, when it had come as far as this."""

    at: float
    lease: Lease
    what: str


class Wiretap:
    """Forwards to the sprite at a port; `port` is where bridges are to come."""

    def __init__(self, sprite_port: int) -> None:
        self._sprite_port = sprite_port
        self.port = 0
        #: What bridges said that had been welcomed, in order.
        self.said: list[Said] = []
        #: The leases that the sprite welcomed, in order, each as often as it did.
        self.welcomed: list[Lease] = []
        #: What the sprite answered though it was said by a lease that was the newest no longer, in words.
        self.out_of_turn: list[str] = []
        #: How often the sprite refused a lease, or had a connection of an older one end.
        self.refusals = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listens while the block runs."""
        async with connections(self._arrive) as port:
            self.port = port
            yield

    async def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = Conversation()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._sprite_port)
            try:
                await until_one_ends(
                    _pass(reader, far_writer, lambda line: self._to_sprite(conversation, line)),
                    _pass(far_reader, writer, lambda line: self._from_sprite(conversation, line)),
                )
            finally:
                far_writer.close()
        except ConnectionError:
            # The sprite is not there: that is how it looks from here, too.
            return
        finally:
            writer.close()

    def _to_sprite(self, conversation: Conversation, line: bytes) -> None:
        frame = _FRAME.decode(line)
        if frame.type == "auth":
            conversation.lease = _AUTH.decode(frame.payload).lease
            return
        lease = conversation.lease
        if lease is None:
            return
        if conversation.is_welcome:
            self.said.append(Said(time.time(), lease, frame.type))
        if self.welcomed and self.welcomed[-1].epoch > lease.epoch:
            conversation.late[frame.id] = frame.type

    def _from_sprite(self, conversation: Conversation, line: bytes) -> None:
        frame = _FRAME.decode(line)
        lease = conversation.lease
        if frame.type == "auth_ok" and lease is not None:
            conversation.is_welcome = True
            if self.welcomed and self.welcomed[-1].epoch > lease.epoch:
                self.out_of_turn.append(f"{lease} was welcomed after {self.welcomed[-1]}")
            else:
                self.welcomed.append(lease)
        if frame.type == "error" and b'"stale_owner"' in line:
            self.refusals += 1
        elif frame.reply_to in conversation.late:
            self.out_of_turn.append(f"{conversation.late[frame.reply_to]} of {lease} was answered by {frame.type}")


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]) -> None:
    unfinished = bytearray()
    with suppress(ConnectionError):
        while data := await reader.read(_READ_BYTES):
            unfinished += data
            *lines, rest = bytes(unfinished).split(b"\n") if b"\n" in data else (bytes(unfinished),)
            for line in lines:
                note(line)
            if lines:
                unfinished = bytearray(rest)
            writer.write(data)
            await writer.drain()
