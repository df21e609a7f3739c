"""A program's mission: sent to a person's sprite, with the events that follow until its end.

A program receives only its mission's turn, without state and replay. A missed end is looked up in the chat.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from bridge.client.turns import Turn, Turns
from bridge.hub.hub import Relay
from bridge.hub.link import LinkChange, LinkDownError
from bridge.hub.room import HubListener, SpriteHub
from sprite.common.tasks import Service, TaskSet
from sprite.protocol import messages
from sprite.protocol.events import AgentEvent, TextDelta, ToolResult, ToolUse, WholeText
from sprite.protocol.frames import ServerMessage
from sprite.protocol.memory import ChatRequest, ChatResult
from sprite.protocol.pasted import Spans
from sprite.protocol.shapes import ChatMessage

#: Limits of a turn for a program: characters of text received, and parts. Beyond them the request fails.
_MAX_CHARS, _MAX_PARTS = 8 * 2**20, 10_000
#: Pages of the chat to search for the end of a mission.
_PAGES = 20
#: Limit for stopping an abandoned mission; after that it goes on.
_TAKE_BACK_SECONDS = 60.0
_LOST = "The bridge lost its connection to the sprite. The agent continues; its answer will be on Sprite's page."


class AskError(Exception):
    """The mission was refused, or no more events will arrive. `code` comes from the sprite or the bridge."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class Asking(Service):
    """Send missions of programs: `async with Asking(relay) as asking:`, then `asking.asked(...)` for each mission."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._tasks = TaskSet()

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._tasks)

    @asynccontextmanager
    async def asked(
        self,
        person: str,
        text: str,
        mission_id: str,
        *,
        asked_by: str | None,
        pasted: Spans = (),
        quiet_seconds: float | None = None,
        watch: Callable[[messages.ServerPayload], None] | None = None,
    ) -> AsyncIterator[AsyncIterator[Turn | None]]:
        """Send a mission to the sprite and yield an iterator over the changes of its turn, up to the ending.

        The iterator yields the same turn again, or None after `quiet_seconds` of silence. It raises AskError if the
        ending will not arrive. `asked_by` names the program that wrote the text; None only for a person's own words,
        except for the `pasted` spans. Leaving the block early stops the mission. `watch` gets every message to all
        clients before the change that it makes.
        """
        ear = _Ear(mission_id, text, watch)
        with self._relay.held(person) as room, room.heard_by(ear):
            ear.may_have_left = room.is_ready
            mission = messages.Mission(text=text, asked_by=asked_by, pasted=list(pasted))
            asking = self._tasks.start(_hand_over(room, ear, mission), "hand over a mission")
            looking = self._tasks.start(_look_again(room, ear), "look for a mission's end")
            try:
                yield ear.all(quiet_seconds)
            finally:
                asking.cancel()
                looking.cancel()
                if not ear.turn.ending and ear.may_have_left:
                    self._tasks.start(self._stop(person, mission_id), "stop a mission")

    async def _stop(self, person: str, mission_id: str) -> None:
        with suppress(TimeoutError, LinkDownError):
            async with asyncio.timeout(_TAKE_BACK_SECONDS):
                with self._relay.held(person) as room:
                    await room.ask(messages.Interrupt(mission_id))


class _Ear(HubListener):
    """Collect the turn of one mission from the sprite's messages, for the program that sent the mission."""

    def __init__(self, mission_id: str, text: str, watch: Callable[[messages.ServerPayload], None] | None) -> None:
        self._watch = watch
        self.turns = Turns()
        self.turn = self.turns.send(mission_id, text)
        #: Whether the mission may have been sent to the sprite.
        self.may_have_left = False
        #: Set when events were missed, perhaps the end: a StateSync replaces them.
        self.has_hole = asyncio.Event()
        self._is_answered = False
        self._chars = 0
        self._fault: AskError | None = None
        self._changed = asyncio.Event()

    async def all(self, quiet_seconds: float | None) -> AsyncIterator[Turn | None]:
        """See `Asking.asked`."""
        has_ended = False
        while not has_ended:
            if self._fault is not None:
                raise self._fault
            try:
                async with asyncio.timeout(quiet_seconds):
                    await self._changed.wait()
            except TimeoutError:
                yield None
                continue
            self._changed.clear()
            # The turn may end while the caller takes this change.
            has_ended = self.turn.ending is not None
            yield self.turn

    def fail(self, code: str, words: str) -> None:
        """Make `all` raise an AskError with this code and message, unless the turn has ended."""
        if self.turn.ending is None:
            self._fault = self._fault or AskError(code, words)
            self._changed.set()

    def answered(self, answer: messages.ServerPayload) -> None:
        """Handle the sprite's answer to the mission. Only the first one counts."""
        if self._is_answered:
            return
        self._is_answered = True
        if isinstance(answer, messages.Ack):
            self.hear(answer, self.turn.id)
            if answer.status == "duplicate":
                self.turns.lose()
                self.has_hole.set()
        elif isinstance(answer, messages.Error):
            self.fail(answer.code, answer.message)
        else:
            self.fail("bad_answer", "The sprite's answer is invalid.")

    def hear(self, payload: messages.ServerPayload, reply_to: str | None = None) -> None:
        """Add a message to the turn, except tool calls, which no program gets. Fail if the answer is too long."""
        if isinstance(payload, TextDelta | WholeText):
            self._chars += len(payload.text)
        if self._chars > _MAX_CHARS or len(self.turn.parts) > _MAX_PARTS:
            self.fail("answer_too_long", "The answer is too long, so the rest of it is not sent.")
        elif self.turn.ending is None and not isinstance(payload, ToolUse | ToolResult):
            self.turns.hear(payload, reply_to)
        self._changed.set()

    def read(self, lines: list[ChatMessage]) -> None:
        """Complete the turn from the mission's chat lines, because some of its events were missed."""
        self.turns.read(lines)
        self._changed.set()

    def heard(self, message: ServerMessage) -> None:
        """Handle a message of the sprite: pass it to `watch`, and add it to the turn if it belongs to the mission."""
        payload = message.payload
        if message.reply_to == self.turn.id:
            # Handled here, so that it is applied before the events that follow it.
            self.answered(payload)
        if message.reply_to is not None:
            return
        if self._watch is not None:
            self._watch(payload)
        if isinstance(payload, messages.StateSync):
            self.has_hole.set()
        elif isinstance(payload, AgentEvent | messages.PermissionRequest) and payload.mission_id == self.turn.id:
            self.hear(payload)

    def changed(self, change: LinkChange) -> None:
        """Note that the mission may have been sent (link ready), or that events may be missing (link lost)."""
        if change.state == "ready":
            self.may_have_left = True
        elif self._is_answered:
            self.turns.lose()

    def ended(self) -> None:
        """Fail with an AskError, because the bridge receives no more from the sprite."""
        self.fail("stopping", _LOST)


async def _hand_over(room: SpriteHub, ear: _Ear, mission: messages.Mission) -> None:
    try:
        ear.answered(await room.ask(mission, ear.turn.id))
    except LinkDownError:
        ear.ended()


async def _look_again(room: SpriteHub, ear: _Ear) -> None:
    """Look up the mission's end in the chat whenever `ear` may have missed it."""
    while True:
        await ear.has_hole.wait()
        ear.has_hole.clear()
        try:
            lines = await _lines(room, ear.turn.id)
        except LinkDownError:
            ear.ended()
            return
        if not lines or lines[-1].status is None:
            ear.fail("gone", "This mission's result is no longer in the chat.")
        else:
            ear.read(lines)


async def _lines(room: SpriteHub, mission_id: str) -> list[ChatMessage]:
    """Return the mission's chat lines, oldest first; empty if it is not in the last pages of the chat."""
    before: int | None = None
    for _ in range(_PAGES):
        answer = await room.ask(ChatRequest(before=before, limit=messages.CHAT_LIMIT))
        if not isinstance(answer, ChatResult) or not answer.chat:
            return []
        if found := [line for line in answer.chat if line.mission_id == mission_id]:
            return found
        before = answer.chat[0].id
    return []
