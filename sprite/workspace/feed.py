"""The event feed: write each event and its effects in one transaction, then send it to every client.

So no client sees an event that a crash undoes, unless the disk fails. Texts are redacted here. An open permission
question is sent unredacted, because a person must see all of it; its copy on disk is redacted. Tool inputs and results
arrive redacted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from sprite.common.tasks import WORDS, off_loop, owned_task, size_of, to_its_end
from sprite.errors import StorageError
from sprite.privacy.cutting import shown_input
from sprite.privacy.redaction import discreet, discreet_value
from sprite.protocol import events
from sprite.protocol.frames import encode
from sprite.protocol.messages import CanvasUpdate, Error, PermissionRequest, PermissionResolved, Running, ServerPayload
from sprite.protocol.shapes import Card, SlowWork
from sprite.workspace.database import CardSaved, ChatAdded, Effect, WorkspaceDB

#: Of a very long turn only the newest events are kept here; the log has all of them.
MAX_EVENTS = 200
MAX_PARTIAL_CHARS = 100_000


@dataclass(slots=True)
class _Age:
    began: float
    last: float
    tools: set[str] = field(default_factory=set)

    def work(self) -> list[SlowWork]:
        # While no tool runs, the turn waits for the model.
        return [SlowWork("turn", self.began), *([] if self.tools else [SlowWork("model_call", self.last)])]


class Underway:
    """Track what the running turn has shown so far, for clients that connect later. Pass every event as it is sent.

    At most one mission runs, and beside it at most one turn that the agent began by itself and for which it waits.
    """

    def __init__(self) -> None:
        self._mission: Running | None = None
        self._own: Running | None = None
        #: By turn: its start, its last event (Unix seconds), and the tools without a result.
        self._ages: dict[str, _Age] = {}

    def take(self, payload: ServerPayload, at: float | None = None) -> None:
        """Record an event that was sent at the time `at` (Unix seconds; by default now)."""
        if not isinstance(payload, events.AgentEvent) or payload.mission_id is None:
            return
        self._note(payload, payload.mission_id, time.time() if at is None else at)
        if isinstance(payload, events.Started):
            running = Running(payload.mission_id, [payload], "")
            if payload.origin == "agent":
                self._own = running
            else:
                self._mission = running
        elif self._own is not None and payload.mission_id == self._own.mission_id:
            self._own = _after(self._own, payload)
        elif self._mission is not None and payload.mission_id == self._mission.mission_id:
            self._mission = _after(self._mission, payload)

    def open_work(self) -> list[SlowWork]:
        """Return the running turns and model calls, with the times since when they run."""
        return [work for age in self._ages.values() for work in age.work()]

    def _note(self, event: events.AgentEvent, turn: str, at: float) -> None:
        if isinstance(event, events.Started):
            self._ages[turn] = _Age(at, at)
        elif isinstance(event, events.Ending):
            self._ages.pop(turn, None)
        elif (age := self._ages.get(turn)) is not None:
            age.last = at
            if isinstance(event, events.ToolUse):
                age.tools.add(event.tool_use_id)
            elif isinstance(event, events.ToolResult):
                age.tools.discard(event.tool_use_id)

    def shown(self) -> Running | None:
        """Return what a new client must see of the running turn, or None while no turn runs."""
        running = self._own or self._mission
        return running and Running(running.mission_id, list(running.events), running.partial)


def _after(running: Running, event: events.AnyAgentEvent) -> Running | None:
    if isinstance(event, events.Ending):
        return None
    if isinstance(event, events.Thinking | events.ToolOutput):
        return running
    if isinstance(event, events.TextDelta):
        partial = f"{running.partial}{event.text}"[-MAX_PARTIAL_CHARS:]
        return Running(running.mission_id, running.events, partial)
    # A complete text replaces the partial text.
    partial = "" if isinstance(event, events.WholeText) else running.partial
    return Running(running.mission_id, [*running.events[-MAX_EVENTS + 1 :], event], partial)


log = logging.getLogger(__name__)

#: Receives a frame and its sequence number (None if it is not durable); must not block.
Subscriber = Callable[[bytes, int | None], None]
#: Old events are deleted after this many new ones.
PRUNE_EVERY = 1000


_Drawn = TypeVar("_Drawn", CanvasUpdate, Card)


@dataclass(frozen=True, slots=True)
class _Published:
    payload: ServerPayload | None
    #: The stored form.
    kept: ServerPayload | None
    effects: Sequence[Effect]
    durable: bool


class Feed:
    """Publish events to all clients, from anywhere in the event loop; a subscriber gets all later events."""

    def __init__(self, workspace: WorkspaceDB, last_seq: int, discreet: Callable[[str], str] = discreet) -> None:
        self._workspace = workspace
        self._discreet = discreet
        #: The newest event that is written (or sent, while the disk fails).
        self.last_seq = last_seq
        #: Events of the running mission, as far as they were sent.
        self.underway = Underway()
        self._pending: list[_Published] = []
        self._unsaved_events: list[tuple[int, bytes]] = []
        self._unsaved_effects: list[Effect] = []
        self._subscribers: set[Subscriber] = set()
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._until_prune = PRUNE_EVERY
        #: Open questions by id: the event's number, and its frame as sent.
        self._questions: dict[str, tuple[int, bytes]] = {}
        #: Whether the disk failed last time; clients are warned once.
        self._refused = False

    @property
    def epoch(self) -> str:
        """Id of the sequence of event numbers. Numbers of different epochs do not compare."""
        return self._workspace.epoch

    @property
    def audience(self) -> int:
        """Number of subscribers."""
        return len(self._subscribers)

    def publish(self, payload: ServerPayload | None, effects: Sequence[Effect] = (), *, durable: bool = True) -> None:
        """Store an event and its effects, then send it to everyone; with None, only store the effects.

        With `durable` false, the event is sent and not stored.
        """
        self._pending.append(_Published(payload, payload, effects, durable))
        self._wake.set()

    def warn(self, code: str, message: str) -> None:
        """Send a warning to everyone connected; it is not stored."""
        log.warning("%s: %s", code, message)
        self._hand_out(encode(Error(code, self._discreet(message))), None)

    def _discreet_item(self, item: _Published) -> _Published:
        """Return a published event with redacted copies: one to send, one to store."""
        if not item.durable:
            return item
        kept, effects = self._discreet_event(item.payload), [self._discreet_effect(each) for each in item.effects]
        payload = item.payload if isinstance(item.payload, PermissionRequest) else kept
        return _Published(payload, kept, effects, durable=True)

    def _discreet_event(self, payload: ServerPayload | None) -> ServerPayload | None:
        match payload:
            case events.TextDelta() | events.Thinking() | events.WholeText() | events.Complete():
                return msgspec.structs.replace(payload, text=self._discreet(payload.text))
            case events.Failed():
                message, details = self._discreet(payload.message), self._discreet(payload.details)
                return msgspec.structs.replace(payload, message=message, details=details)
            case CanvasUpdate():
                return self._discreet_card(payload)
            case PermissionRequest():
                return msgspec.structs.replace(
                    payload,
                    input=shown_input(payload.input, self._discreet),
                    folder=None,
                    real_path=None,
                    # They count the characters of the whole input.
                    foreign=[],
                    always=None,
                    session=None,
                    redacted=True,
                )
        return payload

    def _discreet_effect(self, effect: Effect) -> Effect:
        if isinstance(effect, ChatAdded):
            return replace(effect, text=self._discreet(effect.text))
        return replace(effect, card=self._discreet_card(effect.card)) if isinstance(effect, CardSaved) else effect

    def _discreet_card(self, card: _Drawn) -> _Drawn:
        blocks = [
            msgspec.structs.replace(block, data=discreet_value(block.data, self._discreet)) for block in card.blocks
        ]
        return msgspec.structs.replace(card, title=self._discreet(card.title), blocks=blocks)

    @asynccontextmanager
    async def standing_still(self) -> AsyncIterator[int]:
        """Yield the newest event's number, and block the writing of events while the block runs.

        So no event is lost between reading the state and subscribing.
        """
        async with self._writing:
            yield self.last_seq

    @asynccontextmanager
    async def rewritten(self) -> AsyncIterator[None]:
        """Block the writing of events while the block runs, which may delete some; later numbers stay larger."""
        async with self._writing:
            try:
                yield
            finally:
                self.last_seq = max(self.last_seq, await self._workspace.last_seq())

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Pass all following events to a subscriber in order; return a function that unsubscribes it."""
        self._subscribers.add(subscriber)
        return lambda: self._subscribers.discard(subscriber)

    async def events_after(self, seq: int) -> list[tuple[int, bytes]]:
        """Return the next stored events with numbers above `seq`, oldest first; empty if there are no more."""
        whole = dict(self._questions.values())
        return [(number, whole.get(number, frame)) for number, frame in await self._workspace.events_after(seq)]

    async def oldest_seq(self) -> int:
        """Return the number of the oldest event that can be replayed, 0 if there is none."""
        return await self._workspace.oldest_seq()

    async def drain(self) -> None:
        """Store and send everything published so far."""
        await to_its_end(self._write_pending(), name="feed drain")

    @asynccontextmanager
    async def running(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """Run the writer while the block runs; events published until then are still written."""
        async with owned_task(self._write_for_ever(), name="feed", on_death=on_death):
            try:
                yield
            finally:
                await self.drain()

    async def _write_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._write_pending()

    async def _write_pending(self) -> None:
        async with self._writing:
            batch, self._pending = self._pending, []
            try:
                await self._write(batch)
            except Exception:
                # One bad event must not block the following ones. It is a bug, so log its traceback.
                log.exception("events could not be written")

    async def _write(self, batch: list[_Published]) -> None:
        frames: list[tuple[bytes, int | None]] = []
        for published in batch:
            try:
                item = await off_loop(WORDS * _size_of(published), self._discreet_item, published)
            except (TypeError, ValueError, RecursionError):
                log.exception("an event could not be read; it is neither sent nor kept")
                continue
            self._unsaved_effects.extend(item.effects)
            if item.payload is None or item.kept is None:
                continue
            number = self.last_seq + 1 if item.durable else None
            try:
                frame = encode(item.payload, seq=number)
                kept = frame if item.kept is item.payload else encode(item.kept, seq=number)
            except (TypeError, ValueError, RecursionError):
                # One bad event must not block the others. It is a bug, so log the part that may be stored.
                log.exception("an event could not be encoded: %s", _shown(item.kept))
                continue
            if number is not None:
                self.last_seq = number
                self._unsaved_events.append((number, kept))
                if isinstance(item.payload, PermissionRequest):
                    self._questions[item.payload.request_id] = (number, frame)
                elif isinstance(item.payload, PermissionResolved):
                    self._questions.pop(item.payload.request_id, None)
            self.underway.take(item.payload)
            frames.append((frame, number))
        await self._save()
        for frame, seq in frames:
            self._hand_out(frame, seq)

    async def _save(self) -> None:
        if not self._unsaved_events and not self._unsaved_effects:
            return
        written = len(self._unsaved_events)
        try:
            await self._workspace.record(self._unsaved_events, self._unsaved_effects)
        except StorageError as error:
            # Clients come first: send the events now and write them when the disk works again.
            if not self._refused:
                self.warn(error.code, f"{error} Events wait to be written.")
            self._refused = True
            return
        except Exception:
            # Events that cannot be written must not block later ones for ever. It is a bug, so log its traceback.
            log.exception("left out: %d events and %.500r", written, self._unsaved_effects)
        self._refused = False
        self._until_prune -= written
        self._unsaved_events, self._unsaved_effects = [], []
        if self._until_prune <= 0:
            self._until_prune = PRUNE_EVERY
            await self._workspace.prune_events()

    def _hand_out(self, frame: bytes, seq: int | None) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(frame, seq)


def _size_of(item: _Published) -> int:
    """Return the approximate length of an event's text, which decides where it is redacted."""
    match item.payload:
        case (
            events.TextDelta(text=text)
            | events.Thinking(text=text)
            | events.WholeText(text=text)
            | events.Complete(text=text)
            | events.Failed(message=text)
        ):
            return len(text)
        case CanvasUpdate(blocks=blocks) | PermissionRequest(input=blocks):
            return size_of(blocks)
    return 0


def _shown(payload: ServerPayload) -> str:
    try:
        return repr(payload)[:500]
    except RecursionError:
        return f"{type(payload).__name__}, nested too deeply"
