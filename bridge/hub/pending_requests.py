"""Messages to one sprite that await an answer, and the client of each answer.

Missions, permissions, canvas edits and the bridge's own requests are resent until they are answered. Any other request
is refused when the link breaks. Ids on the wire are the bridge's own, except of missions and new cards: see `take`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.hub.link import Link, LinkDownError
from sprite.common.tasks import TaskSet
from sprite.protocol import messages
from sprite.protocol.frames import ServerMessage, VisitorMessage, encode

if TYPE_CHECKING:
    from bridge.hub.subscriber import Subscriber


#: A person reaches this only by pasting; more is refused, because it is held in memory.
MAX_MESSAGES = 100
MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A frame for the sprite: its sender (None: the bridge), the sender's id of it, and its arrival (Unix seconds)."""

    frame: bytes
    sender: Subscriber | None
    message_id: str
    at: float = field(default_factory=time.time)


class ResendBuffer:
    """Keep messages by their id on the wire; a repeated id is the same message and keeps its place."""

    def __init__(self) -> None:
        self._messages: dict[str, PendingMessage] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def waiting_since(self) -> float | None:
        """Return the arrival of the oldest message in Unix seconds, None if there is none."""
        return next((message.at for message in self._messages.values()), None)

    def add(self, wire_id: str, message: PendingMessage) -> bool:
        """Keep a message; return False if there is no room."""
        before = self._messages.get(wire_id)
        size = self._bytes + len(message.frame) - (len(before.frame) if before else 0)
        if size > MAX_BYTES or (before is None and len(self._messages) >= MAX_MESSAGES):
            return False
        self._messages[wire_id] = message
        self._bytes = size
        return True

    def answered(self, wire_id: str) -> PendingMessage | None:
        """Remove an answered message and return it, or None if it was not kept."""
        message = self._messages.pop(wire_id, None)
        if message is not None:
            self._bytes -= len(message.frame)
        return message

    def frames(self) -> list[bytes]:
        """Return all kept frames in their order of arrival."""
        return [message.frame for message in self._messages.values()]


_LONGEST_ID = 200
#: Another message of the page may have the same id as its new card.
_NEW_CARDS = uuid.UUID("0d1c6f0e-5a86-4a55-8a3b-6d2f6e1f8a35")
#: The sprite handles 32 messages of one connection at once: some stay free for interrupts and decisions.
_MAX_REQUESTS, _MAX_REQUESTS_EACH = 28, 16
#: Including interrupts: repeated ones without an answer are also held in memory.
_MAX_IN_HASTE = 32
#: Chunks of a member's upload in flight; the next ones wait in the client's socket.
_MAX_CHUNKS, _UPLOAD_SECONDS = 4, 60.0
_FULL = "Too many messages already wait for the sprite. Send this again when it is connected."


@dataclass(frozen=True, slots=True)
class _Request:
    sender: Subscriber
    message_id: str


class PendingRequests:
    """Forward messages of clients to one sprite, and its answers back; call `link_up` and `link_down` on changes."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._requests: dict[str, _Request] = {}
        #: A new connection must send its frames first.
        self.resends = ResendBuffer()
        #: Futures of the bridge's own messages, by their ids on the wire.
        self._own: dict[str, asyncio.Future[messages.ServerPayload]] = {}
        self._waiting: list[tuple[Subscriber, VisitorMessage]] = []
        self._tasks = TaskSet()

    @property
    def is_empty(self) -> bool:
        """Return whether no message waits for an answer or the link."""
        return not (self.resends or self._requests or self._waiting)

    async def close(self) -> None:
        """Cancel the messages that are being forwarded; callers of `ask` get a LinkDownError."""
        await self._tasks.close()
        for answer in self._own.values():
            if not answer.done():
                answer.set_exception(LinkDownError())

    def leave(self, member: Subscriber) -> None:
        """Drop a client's requests that wait for the link; the client's missions are still delivered."""
        self._waiting = [(sender, message) for sender, message in self._waiting if sender is not member]

    async def take(self, member: Subscriber, message: VisitorMessage) -> None:
        """Forward one message to the sprite, at the sprite's pace.

        The sprite deduplicates by two kinds of ids: a mission's, which is the client's, and a new card's, which is
        derived from the client's id of that message.
        """
        if len(message.id) > _LONGEST_ID:
            member.say(messages.Error("bad_message", f"An id may have {_LONGEST_ID} characters at most."))
        elif isinstance(message.payload, messages.Mission):
            await self._deliver(member, message, message.id)
        elif isinstance(message.payload, messages.CreateCard) and message.id:
            await self._deliver(member, message, str(uuid.uuid5(_NEW_CARDS, message.id)))
        elif isinstance(message.payload, messages.Permission | messages.CreateCard | messages.UpdateBlock):
            await self._deliver(member, message, str(uuid.uuid4()))
        elif self._link.is_ready:
            await self._request(member, message)
        elif self._link.change.state == "ready" and len(self._waiting) < _MAX_REQUESTS:
            # The sprite sleeps and is about to wake for this.
            self._waiting.append((member, message))
        else:
            member.say(self._unavailable(), reply_to=message.id)

    async def ask(self, payload: messages.ClientPayload, wire_id: str | None = None) -> messages.ServerPayload:
        """Send a message of the bridge itself, repeat it after each cut, and return its answer.

        If the caller stops waiting, the message is withdrawn. Raise LinkDownError if no answer can arrive any more.
        """
        wire_id = wire_id or str(uuid.uuid4())
        frame = encode(payload, message_id=wire_id)
        if not self.resends.add(wire_id, PendingMessage(frame, None, wire_id)):
            return messages.Error("queue_full", _FULL)
        answer: asyncio.Future[messages.ServerPayload] = asyncio.get_running_loop().create_future()
        self._own[wire_id] = answer
        try:
            with suppress(LinkDownError):
                await self._link.send(frame)
            return await answer
        finally:
            del self._own[wire_id]
            self.resends.answered(wire_id)

    def answer(self, message: ServerMessage, wire_id: str, members: set[Subscriber]) -> None:
        """Send an answer to the member that asked; drop it if that member is gone, or there is none."""
        if (own := self._own.get(wire_id)) is not None:
            if not own.done():
                own.set_result(message.payload)
            return
        request = self._requests.pop(wire_id, None)
        if request is not None:
            request.sender.request_ended()
        elif isinstance(message.payload, messages.Ack | messages.Error):
            sent = self.resends.answered(wire_id)
            request = _Request(sent.sender, sent.message_id) if sent is not None and sent.sender is not None else None
        if request is not None and request.sender in members and not isinstance(message.payload, messages.AuthOk):
            frame = encode(message.payload, reply_to=request.message_id or None, timestamp=message.timestamp)
            request.sender.put(frame[:-1])

    def link_up(self, members: set[Subscriber]) -> None:
        """Send the requests that waited for the link."""
        waiting, self._waiting = self._waiting, []
        for member, message in waiting:
            if member in members:
                self._tasks.start(self._request(member, message), "request that waited")

    def link_down(self) -> None:
        """Refuse every open request: its answer cannot arrive any more."""
        refused = self._unavailable()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.sender.request_ended()
            request.sender.say(refused, reply_to=request.message_id)
        waiting, self._waiting = self._waiting, []
        for member, message in waiting:
            member.say(refused, reply_to=message.id)

    async def _deliver(self, member: Subscriber, message: VisitorMessage, wire_id: str) -> None:
        if not wire_id:
            words = "A mission needs an id, by which a repeated message is recognised."
            member.say(messages.Error("bad_request", words))
            return
        frame = encode(message.payload, message_id=wire_id)
        if not self.resends.add(wire_id, PendingMessage(frame, member, message.id)):
            member.say(messages.Error("queue_full", _FULL), reply_to=message.id)
            return
        with suppress(LinkDownError):
            await self._link.send(frame)

    async def _request(self, member: Subscriber, message: VisitorMessage) -> None:
        if isinstance(message.payload, messages.FileUpload) and not await self._has_room(member):
            member.say(self._unavailable(), reply_to=message.id)
            return
        in_haste = isinstance(message.payload, messages.Interrupt)
        most, most_each = (_MAX_IN_HASTE, _MAX_IN_HASTE) if in_haste else (_MAX_REQUESTS, _MAX_REQUESTS_EACH)
        if len(self._requests) >= most or member.waiting >= most_each:
            member.say(messages.Error("busy", "Too many requests at once. Try again in a moment."), reply_to=message.id)
            return
        wire_id = str(uuid.uuid4())
        self._requests[wire_id] = _Request(member, message.id)
        member.waiting += 1
        # If the link breaks meanwhile, every open request is refused, including this one.
        with suppress(LinkDownError):
            await self._link.send(encode(message.payload, message_id=wire_id))

    async def _has_room(self, member: Subscriber) -> bool:
        """Wait until few of the member's chunks are in flight; return False on a timeout or if the link is gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_UPLOAD_SECONDS):
                while member.waiting >= _MAX_CHUNKS and self._link.is_ready:
                    member.answered.clear()
                    await member.answered.wait()
        return member.waiting < _MAX_CHUNKS and self._link.is_ready

    def _unavailable(self) -> messages.Error:
        return messages.Error(
            "unavailable", self._link.change.detail or "The sprite is not connected yet. Try again in a moment."
        )
