"""A program's mission: handed to a person's sprite, and everything that the sprite says of it until its end.

Not a page: it hears its own mission alone, has no state to draw, and nothing is replayed to it. Durable events come
once each, whatever breaks between bridge and sprite; pieces of text may be lost then, which it is told of (`Cut`). An
end that was missed is looked for in the chat.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from bridge.relay.link import LinkDownError
from sprite.common.tasks import TaskSet
from sprite.protocol.events import AgentEvent, Complete, Ending, Failed, Interrupted, TextDelta
from sprite.protocol.memory import ChatRequest, ChatResult
from sprite.protocol.messages import (
    CHAT_LIMIT,
    Ack,
    Error,
    Interrupt,
    Mission,
    PermissionRequest,
    PermissionResolved,
    StateSync,
)

if TYPE_CHECKING:
    from types import TracebackType

    from bridge.relay.link import LinkChange
    from bridge.relay.relay import Relay
    from bridge.relay.room import Room
    from sprite.protocol.frames import ServerMessage
    from sprite.protocol.messages import ServerPayload
    from sprite.protocol.shapes import ChatMessage

log = logging.getLogger(__name__)

#: What waits for a program that reads slowly; pieces of text that wait are one. Beyond it the program is given up.
_MAX_WAITING_CHARS, _MAX_WAITING = 8 * 2**20, 10_000
#: How far back in the chat the end of a mission is looked for.
_PAGES = 20
#: A mission that nobody waits for any more is stopped within this, or goes on.
_TAKE_BACK_SECONDS = 60.0
#: The ids of missions that programs gave keys for; no page's message has one of these.
_NAMED = uuid.UUID("8e7e0d57-9d0a-4c1b-9a5e-5b5b8c7a6a41")


@dataclass(frozen=True, slots=True)
class Taken:
    """The sprite has the mission; `position` missions are before it. `is_known`: it had it from an earlier call."""

    position: int = 0
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """The link to the sprite broke: the text that is growing has a hole from here on, until it comes whole."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing was heard for a while; the mission goes on, or waits for the sprite."""


#: An AgentEvent that is an Ending is the last.
Heard = Taken | Cut | Quiet | AgentEvent | PermissionRequest | PermissionResolved


class AskError(Exception):
    """The mission was not taken, or nothing more will be heard of it, in words. `code` is the sprite's, or ours."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


def mission_id_of(person: str, key: str | None) -> str:
    """A mission's id: a new one, or (by a program's own key) the same one for the same key."""
    if key is None:
        return str(uuid.uuid4())
    return str(uuid.uuid5(_NAMED, f"{person} {key}".encode(errors="replace").decode()))


class Asking:
    """`async with Asking(relay) as asking:`, then `asking.asked(...)` for each mission."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._tasks = TaskSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.close()

    @asynccontextmanager
    async def asked(
        self,
        person: str,
        text: str,
        mission_id: str,
        *,
        asked_by: str | None,
        goes_on: bool = False,
        quiet_seconds: float | None = None,
    ) -> AsyncIterator[AsyncIterator[Heard]]:
        """Hands a mission over, and yields what is heard of it until its ending; AskError where that will not come.

        `asked_by` names the program whose words these are; None only where they are the person's own.
        The VM is woken for it, and kept awake. Where the block is left before the end, the mission is stopped (or
        taken back, if it waits), unless it `goes_on`. With `quiet_seconds` there is something to yield that often.
        """
        ear = _Ear(mission_id)
        with self._relay.held(person) as room, room.heard_by(ear):
            ear.may_have_left = room.is_ready
            mission = Mission(text=text, asked_by=asked_by)
            asking = self._tasks.start(_hand_over(room, ear, mission), "hand over a mission")
            looking = self._tasks.start(_look_again(room, ear), "look for a mission's end")
            try:
                yield ear.all(quiet_seconds)
            finally:
                asking.cancel()
                looking.cancel()
                if not (ear.has_ended or goes_on) and ear.may_have_left:
                    self.stop(person, mission_id)

    def stop(self, person: str, mission_id: str) -> None:
        """Has a mission stopped, or taken back if it waits; returns at once."""
        self._tasks.start(self._stop(person, mission_id), "stop a mission")

    async def _stop(self, person: str, mission_id: str) -> None:
        with suppress(TimeoutError, LinkDownError):
            async with asyncio.timeout(_TAKE_BACK_SECONDS):
                with self._relay.held(person) as room:
                    await room.ask(Interrupt(mission_id))


class _Ear:
    """What was heard of one mission, in order, until it is taken."""

    def __init__(self, mission_id: str) -> None:
        self.mission_id = mission_id
        #: Whether the sprite may have been sent it.
        self.may_have_left = False
        self.has_ended = False
        #: A state stands for events that were not heard: the end may be among them.
        self.has_hole = asyncio.Event()
        self._is_answered = False
        self._questions: set[str] = set()
        self._waiting: deque[Heard] = deque()
        self._chars = 0
        self._fault: AskError | None = None
        self._filled = asyncio.Event()

    async def all(self, quiet_seconds: float | None) -> AsyncIterator[Heard]:
        """Everything until the ending; AskError instead of it where it will not come."""
        heard: Heard | None = None
        while not isinstance(heard, Ending):
            heard = await self._next(quiet_seconds)
            yield heard

    async def _next(self, quiet_seconds: float | None) -> Heard:
        while not self._waiting:
            if self._fault is not None:
                raise self._fault
            self._filled.clear()
            try:
                async with asyncio.timeout(quiet_seconds):
                    await self._filled.wait()
            except TimeoutError:
                return Quiet()
        heard = self._waiting.popleft()
        self._chars -= _size(heard)
        return heard

    def put(self, heard: Heard) -> None:
        """The next one; nothing comes after an ending."""
        if self.has_ended or self._fault is not None:
            return
        last = self._waiting[-1] if self._waiting else None
        if isinstance(heard, TextDelta) and isinstance(last, TextDelta):
            self._waiting[-1] = TextDelta(heard.mission_id, last.text + heard.text)
        else:
            self._waiting.append(heard)
        self._chars += _size(heard)
        self.has_ended = isinstance(heard, Ending)
        if self._chars > _MAX_WAITING_CHARS or len(self._waiting) > _MAX_WAITING:
            self._waiting.clear()
            self.fail("too_slow", "The answer was not read, so it is not sent any more.")
        self._filled.set()

    def fail(self, code: str, words: str) -> None:
        """Nothing more will be heard."""
        if not self.has_ended and self._fault is None:
            self._fault = AskError(code, words)
            self._filled.set()

    def answered(self, answer: ServerPayload) -> None:
        """The sprite's answer to the mission; the first one counts."""
        if self._is_answered:
            return
        self._is_answered = True
        if isinstance(answer, Ack):
            is_known = answer.status == "duplicate"
            self.put(Taken(answer.position or 0, is_known))
            if is_known:
                self.has_hole.set()
        elif isinstance(answer, Error):
            self.fail(answer.code, answer.message)
        else:
            self.fail("bad_answer", "The sprite's answer makes no sense.")

    # --- what the room tells ---

    def heard(self, message: ServerMessage) -> None:
        """See Ear."""
        payload = message.payload
        if message.reply_to is not None:
            if message.reply_to == self.mission_id:
                # Here, where it stands before what follows it.
                self.answered(payload)
        elif isinstance(payload, StateSync):
            self.has_hole.set()
        elif isinstance(payload, PermissionResolved):
            if payload.request_id in self._questions:
                self._questions.discard(payload.request_id)
                self.put(payload)
        elif isinstance(payload, AgentEvent | PermissionRequest) and payload.mission_id == self.mission_id:
            if isinstance(payload, PermissionRequest):
                self._questions.add(payload.request_id)
            self.put(payload)

    def changed(self, change: LinkChange) -> None:
        """See Ear."""
        if change.state == "ready":
            self.may_have_left = True
        elif self._is_answered and not isinstance(self._waiting[-1] if self._waiting else None, Cut):
            self.put(Cut())

    def ended(self) -> None:
        """See Ear."""
        self.fail("stopping", "The bridge has stopped listening to the sprite. The mission goes on; see the page.")


def _size(heard: Heard) -> int:
    return len(heard.text) if isinstance(heard, TextDelta) else 0


async def _hand_over(room: Room, ear: _Ear, mission: Mission) -> None:
    try:
        answer = await room.ask(mission, ear.mission_id)
    except LinkDownError:
        ear.ended()
        return
    ear.answered(answer)


async def _look_again(room: Room, ear: _Ear) -> None:
    """Looks for the mission's end whenever it may have been missed."""
    while True:
        await ear.has_hole.wait()
        ear.has_hole.clear()
        try:
            lines = await _lines(room, ear.mission_id)
        except LinkDownError:
            ear.ended()
            return
        if not lines or lines[0].status is None:
            ear.fail("gone", "This mission is known, but what came of it is not in the chat any more.")
        elif (ending := _ending(ear.mission_id, lines)) is not None:
            ear.put(ending)


async def _lines(room: Room, mission_id: str) -> list[ChatMessage]:
    """The mission's lines of the chat, the newest first; none where it is not in the chat, or long ago."""
    before: int | None = None
    for _ in range(_PAGES):
        answer = await room.ask(ChatRequest(before=before, limit=CHAT_LIMIT))
        if not isinstance(answer, ChatResult) or not answer.chat:
            return []
        if found := [line for line in reversed(answer.chat) if line.mission_id == mission_id]:
            return found
        before = answer.chat[0].id
    return []


def _ending(mission_id: str, lines: list[ChatMessage]) -> Ending | None:
    """How a mission ended, by its lines, the newest first; None while it has not."""
    newest = next((line for line in lines if line.role != "user"), None)
    status = lines[0].status
    if status == "interrupted":
        return Interrupted(mission_id)
    if status == "error":
        words = newest.text if newest is not None and newest.role == "error" else "It did not end well."
        return Failed(mission_id, "failed", words, retryable=True)
    if status == "complete":
        return Complete(mission_id, "" if newest is None else newest.text, None, None, 0)
    return None
