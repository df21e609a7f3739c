"""A program's mission: sent to a person's sprite, with the events that follow until its end.

A program receives only its mission's events, without state and replay. Durable events arrive exactly once,
even if the link to the sprite breaks. Text deltas may be lost then, which `Cut` reports. A missed end is looked up in
the chat.
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

#: Limits of the queue for a slow program, in which waiting text deltas are merged. Beyond them the request fails.
_MAX_WAITING_CHARS, _MAX_WAITING = 8 * 2**20, 10_000
#: Pages of the chat to search for the end of a mission.
_PAGES = 20
#: Limit for stopping an abandoned mission; after that it goes on.
_TAKE_BACK_SECONDS = 60.0
#: Namespace for the ids of missions with an idempotency key. Messages of the page have random ids.
_NAMED = uuid.UUID("8e7e0d57-9d0a-4c1b-9a5e-5b5b8c7a6a41")


@dataclass(frozen=True, slots=True)
class Taken:
    """The sprite accepted the mission, with `position` missions in front. `is_known`: from an earlier call."""

    position: int = 0
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """The link to the sprite broke: the current text has a gap until the whole text arrives."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """No event arrived for a while; the mission goes on, or waits for the sprite."""


#: An AgentEvent that is an Ending is the last one.
Heard = Taken | Cut | Quiet | AgentEvent | PermissionRequest | PermissionResolved


class AskError(Exception):
    """The mission was refused, or no more events will arrive. `code` comes from the sprite or the bridge."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


def mission_id_of(person: str, key: str | None) -> str:
    """Return a mission's id: a random one, or the same one for the same idempotency key of the person."""
    if key is None:
        return str(uuid.uuid4())
    return str(uuid.uuid5(_NAMED, f"{person} {key}".encode(errors="replace").decode()))


class Asking:
    """Missions of programs: `async with Asking(relay) as asking:`, then `asking.asked(...)` for each mission."""

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
        """Send a mission to the sprite and yield an iterator of its events up to the ending.

        The iterator raises AskError if the ending will not arrive. `asked_by` names the program that wrote the text;
        None only for a person's own words. The VM is woken and kept awake. Leaving the block early stops the mission,
        or withdraws it while it waits, unless `goes_on`. With `quiet_seconds`, a silent mission yields `Quiet` at that
        interval.
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
        """Start to stop a mission, or to withdraw it if it waits. Return at once."""
        self._tasks.start(self._stop(person, mission_id), "stop a mission")

    async def _stop(self, person: str, mission_id: str) -> None:
        with suppress(TimeoutError, LinkDownError):
            async with asyncio.timeout(_TAKE_BACK_SECONDS):
                with self._relay.held(person) as room:
                    await room.ask(Interrupt(mission_id))


class _Ear:
    """The queue of one mission's events, in order."""

    def __init__(self, mission_id: str) -> None:
        self.mission_id = mission_id
        #: Whether the mission may have been sent to the sprite.
        self.may_have_left = False
        self.has_ended = False
        #: Set when events were missed, perhaps the end: a StateSync replaces them.
        self.has_hole = asyncio.Event()
        self._is_answered = False
        self._questions: set[str] = set()
        self._waiting: deque[Heard] = deque()
        self._chars = 0
        self._fault: AskError | None = None
        self._filled = asyncio.Event()

    async def all(self, quiet_seconds: float | None) -> AsyncIterator[Heard]:
        """Yield the events up to the ending. Raises AskError if it will not arrive."""
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
        """Add an event. Events after an ending are dropped."""
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
        """End the events with an AskError."""
        if not self.has_ended and self._fault is None:
            self._fault = AskError(code, words)
            self._filled.set()

    def answered(self, answer: ServerPayload) -> None:
        """Handle the sprite's answer to the mission. Only the first one counts."""
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
                # Handled here, so that it is queued before the events that follow it.
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
    """Look up the mission's end whenever it may have been missed."""
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
    """Return the mission's chat lines, newest first; empty if it is not in the last pages of the chat."""
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
    """Return the ending of a mission from its lines, newest first; None while it runs."""
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
