"""What people send to one sprite, and the way back of each answer.

Missions and a person's word are kept until they are answered, whatever breaks meanwhile. Everything else is answered
or refused: a request is open from when it is sent until its answer comes or the link breaks. Ids on the wire are the
bridge's own, so that two pages may use the same one; a mission's stays, since the sprite knows a mission by it.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.relay.kept import Kept, KeptMessages
from bridge.relay.link import Link, LinkDownError
from bridge.tasks import TaskSet
from sprite.protocol.frames import (
    ServerMessage,
    VisitorMessage,
    encode,
)
from sprite.protocol.messages import (
    Ack,
    AuthOk,
    Error,
    FileUpload,
    Interrupt,
    Mission,
    Permission,
)

if TYPE_CHECKING:
    from bridge.relay.subscriber import Subscriber

_LONGEST_ID = 200
#: The sprite works on 32 messages of one connection at once: some stay free for an interrupt and a person's word.
_MAX_REQUESTS, _MAX_REQUESTS_EACH = 28, 16
#: Chunks of a member's upload that are under way; the next ones wait in the client's socket.
_MAX_CHUNKS, _UPLOAD_SECONDS = 4, 60.0


@dataclass(frozen=True, slots=True)
class _Request:
    asker: Subscriber
    asked_as: str


class Correspondence:
    """`take` what people send, `answer` what the sprite replies; `came_back` and `broke` as the link does."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._requests: dict[str, _Request] = {}
        self._kept: KeptMessages[Subscriber] = KeptMessages()
        self._postponed: list[tuple[Subscriber, VisitorMessage]] = []
        self._errands = TaskSet()

    @property
    def has_undelivered(self) -> bool:
        """Whether something is kept."""
        return len(self._kept) > 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept, open or postponed."""
        return not self.has_undelivered and not self._requests and not self._postponed

    def kept(self) -> list[bytes]:
        """What a new connection has to be sent first."""
        return self._kept.frames()

    async def close(self) -> None:
        """Ends what still runs."""
        await self._errands.close()

    def leave(self, member: Subscriber) -> None:
        """Nobody waits for what this one has asked; what it wrote is still delivered."""
        self._postponed = [(asker, message) for asker, message in self._postponed if asker is not member]

    async def take(self, member: Subscriber, message: VisitorMessage) -> None:
        """Hands one message on to the sprite, at the sprite's pace."""
        if len(message.id) > _LONGEST_ID:
            member.say(Error("bad_message", f"An id may have {_LONGEST_ID} characters at most."))
        elif isinstance(message.payload, Mission):
            await self._keep(member, message, message.id)
        elif isinstance(message.payload, Permission):
            await self._keep(member, message, str(uuid.uuid4()))
        elif self._link.is_ready:
            await self._ask(member, message)
        elif self._link.change.state == "ready" and len(self._postponed) < _MAX_REQUESTS:
            # Asleep, and about to wake for this.
            self._postponed.append((member, message))
        else:
            member.say(self._unavailable(), reply_to=message.id or None)

    def answer(self, message: ServerMessage, wire_id: str, members: set[Subscriber]) -> None:
        """Sends an answer to whoever asked. One that nobody asked for, or whose asker is gone, is nobody's."""
        request = self._requests.pop(wire_id, None)
        if request is not None:
            request.asker.was_answered()
        elif isinstance(message.payload, Ack | Error) and (kept := self._kept.answered(wire_id)) is not None:
            request = _Request(kept.asker, kept.asked_as)
        if request is not None and request.asker in members and not isinstance(message.payload, AuthOk):
            frame = encode(message.payload, reply_to=request.asked_as or None, timestamp=message.timestamp)
            request.asker.put(frame[:-1])

    def came_back(self, members: set[Subscriber]) -> None:
        """The link is ready: what waited for it goes out."""
        postponed, self._postponed = self._postponed, []
        for member, message in postponed:
            if member in members:
                self._errands.start(self._ask(member, message), "postponed request")

    def broke(self) -> None:
        """The link is gone: who waits for an answer is told that none will come."""
        refused = self._unavailable()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.asker.was_answered()
            request.asker.say(refused, reply_to=request.asked_as or None)
        postponed, self._postponed = self._postponed, []
        for member, message in postponed:
            member.say(refused, reply_to=message.id or None)

    async def _keep(self, member: Subscriber, message: VisitorMessage, wire_id: str) -> None:
        if not wire_id:
            member.say(Error("bad_request", "A mission needs an id, by which a resend is known."))
            return
        frame = encode(message.payload, message_id=wire_id)
        if not self._kept.add(wire_id, Kept(frame, member, message.id)):
            words = "Too much waits for the sprite already; send this again when it is there."
            member.say(Error("queue_full", words), reply_to=message.id or None)
            return
        with suppress(LinkDownError):
            await self._link.send(frame)

    async def _ask(self, member: Subscriber, message: VisitorMessage) -> None:
        if isinstance(message.payload, FileUpload) and not await self._has_room(member):
            member.say(self._unavailable(), reply_to=message.id or None)
            return
        in_haste = isinstance(message.payload, Interrupt)
        if not in_haste and (len(self._requests) >= _MAX_REQUESTS or member.waiting >= _MAX_REQUESTS_EACH):
            member.say(Error("busy", "Too many questions at once; ask again in a moment."), reply_to=message.id or None)
            return
        wire_id = str(uuid.uuid4())
        self._requests[wire_id] = _Request(member, message.id)
        member.waiting += 1
        # What breaks meanwhile is told to everybody whose request is open, this one among them.
        with suppress(LinkDownError):
            await self._link.send(encode(message.payload, message_id=wire_id))

    async def _has_room(self, member: Subscriber) -> bool:
        """Waits until few of the member's chunks are under way; False if the link is gone, or that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_UPLOAD_SECONDS):
                while member.waiting >= _MAX_CHUNKS and self._link.is_ready:
                    member.answered.clear()
                    await member.answered.wait()
        return member.waiting < _MAX_CHUNKS and self._link.is_ready

    def _unavailable(self) -> Error:
        words = self._link.change.detail or "The sprite is not there yet; try again in a moment."
        return Error("unavailable", words)
