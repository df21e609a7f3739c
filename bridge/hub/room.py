"""One sprite and its clients: route events to all of them, and each answer to the client that asked.

A member waits until it has sent its resume point and the link is ready. Then it is brought up to date and joins the
live stream, with every durable event exactly once. All live members have the same events as the link.
"""

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Self

import msgspec

from bridge.cluster.ownership import NotOwnedError, OwnedElsewhere, Ownership
from bridge.hub import link
from bridge.hub.pending_requests import PendingRequests
from bridge.hub.subscriber import Subscriber, caught_up
from bridge.providers.provider import Host, HostError, Phase, Reached, Report
from sprite.common.limits import TokenBucket
from sprite.protocol import messages
from sprite.protocol.events import AgentEvent, Ending
from sprite.protocol.frames import ServerMessage, VisitorMessage, encode
from sprite.protocol.replication import Lease
from sprite.protocol.shapes import SessionState, SlowWork, oldest, slow

log = logging.getLogger(__name__)

_NOTED_MISSIONS = 100
#: A sender chooses the id, so only one that looks like a UUID is logged.
_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


#: A mission and background turns; a sprite that reports more turns is not believed.
_MOST_TURNS = 16
_LONGEST_ID = 200
_MOST_SLOW = 8


class WorkUnderWay:
    """Track whether the sprite works: pass every state and event; `goes_on` returns the result."""

    def __init__(self) -> None:
        #: Start of each turn in progress (Unix seconds): a mission's, and a background one.
        self.turns: dict[str, float] = {}
        #: Slow work that the sprite reports, except turns.
        self._slow: list[SlowWork] = []
        #: Time at which the sprite stops keeping its VM awake for background work.
        self._held_until: float | None = None

    @property
    def goes_on(self) -> bool:
        """Return whether a turn runs, or background work for which the sprite is kept awake."""
        return bool(self.turns) or (self._held_until is not None and time.time() < self._held_until)

    def state(self, sync: messages.StateSync) -> None:
        """Replace the known turns and other work by those of a complete state of the sprite."""
        self.turns = {}
        began = min((work.since for work in sync.session.slow[:_MOST_SLOW] if work.kind == "turn"), default=None)
        for turn in (None if sync.running is None else sync.running.mission_id, sync.session.running_mission_id):
            self._begin(turn, began)
        self._session(sync.session)

    def heard(self, payload: object) -> None:
        """Update the known turns and other work by an event of the sprite."""
        if isinstance(payload, messages.SessionUpdate):
            self._session(payload.session)
        elif isinstance(payload, AgentEvent) and payload.mission_id is not None:
            if isinstance(payload, Ending):
                self.turns.pop(payload.mission_id, None)
            else:
                self._begin(payload.mission_id)

    def open_work(self) -> list[SlowWork]:
        """Return the turns in progress and other slow work that the sprite reports."""
        return [*(SlowWork("turn", since) for since in self.turns.values()), *self._slow]

    def _session(self, session: SessionState) -> None:
        self._held_until = session.held_until
        self._slow = [work for work in session.slow[:_MOST_SLOW] if work.kind != "turn"]

    def _begin(self, turn: str | None, began: float | None = None) -> None:
        if turn and len(turn) <= _LONGEST_ID and len(self.turns) < _MOST_TURNS:
            now = time.time()
            self.turns.setdefault(turn, now if began is None else min(began, now))


#: Events for all members; other messages are answers to the member that asked.
_EVENTS = (
    messages.ActionUpdate,
    AgentEvent,
    messages.CanvasUpdate,
    messages.ChatSaid,
    messages.Error,
    messages.MemoryUpdate,
    messages.PermissionRequest,
    messages.PermissionResolved,
    messages.RuleApplied,
    messages.RuleOffered,
    messages.ScheduleUpdate,
    messages.SessionUpdate,
    messages.StackUpdate,
)
#: Extra connections for members that were away for longer.
_CATCH_UPS = 4
_CATCH_UP_AGAIN_SECONDS = 0.5
#: Time to wake the sprite and receive its state.
_STATE_SECONDS = 50.0
#: After this long without activity the sprite may sleep.
_IDLE_SECONDS = 300.0
#: After this time without an answer about leases, clients are sent away: another bridge may be able to serve them.
_UNASKED_SECONDS = 10.0
#: Longest time that a busy sprite keeps its room open without clients.
_LONGEST_WORK_SECONDS = 7200.0
_LET_GO = "Another bridge has your agent now or is taking it over. Looking for it."
#: Added while no message can be sent to the sprite.
_WAITS = "What you type now is sent as soon as your agent is connected."


class Observer:
    """Receives the events of every room. No method may block or raise; a sprite may send anything at any rate."""

    def opened(self, sprite: str) -> None:
        """Handle the opening of a sprite's room, because a client or the bridge needs the sprite."""

    def closed(self, sprite: str, *, at_rest: bool) -> None:
        """Handle the closing of a sprite's room. `at_rest`: the sprite had no work left."""

    def arrived(self, sprite: str) -> None:
        """Handle the connection of the first page or terminal to a sprite."""

    def left(self, sprite: str) -> None:
        """Handle the disconnection of the last page or terminal from a sprite."""

    def heard(self, sprite: str, message: ServerMessage) -> None:
        """Handle a message of the sprite: an event, a state, or an answer to any client."""


class HubListener:
    """Receives the messages of a room, for a program inside the bridge; no method may block or raise."""

    def heard(self, message: ServerMessage) -> None:
        """Handle the next message: each durable event once, in order; text deltas only while the link is up."""

    def changed(self, change: link.LinkChange) -> None:
        """Handle a new state of the link; transient messages are lost while it is not ready."""

    def ended(self) -> None:
        """Handle the final end of the room."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The relay's knowledge of a sprite; `last_seen_at` in Unix seconds, now while the link is ready.

    `slow` has the oldest turn, waiting message and model call, of those that take longer than a minute.
    """

    sprite: str
    state: str
    detail: str
    clients: int
    version: str | None
    last_seen_at: float | None
    slow: Sequence[SlowWork] = ()


class SpriteHub:
    """Relay between one sprite and its clients: `async with SpriteHub(host, sprite) as hub:`; call `enter` for each."""

    def __init__(
        self,
        host: Host,
        sprite: str,
        observers: Sequence[Observer] = (),
        *,
        ownership: Ownership,
        on_stale: Callable[[int, int], None],
        is_unshipped: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._host = host
        self._ownership = ownership
        self._on_stale = on_stale
        self._is_unshipped = is_unshipped
        self._observers = observers
        #: Since when the lease's holder is unknown.
        self._unasked_since: float | None = None
        self._sprite = sprite
        self._link = link.Link(sprite, self._reach, self)
        #: A decision that the person must make while the link is up.
        self._advice: link.LinkChange | None = None
        self._reaching = asyncio.Lock()
        #: Shared by all connections that bring members up to date.
        self._pace = link.Pace()
        self._pace_beside = link.Pace()
        self._complaints = TokenBucket(link.COMPLAINTS_PER_SECOND, link.COMPLAINTS_AT_ONCE)
        self._members: set[Subscriber] = set()
        self._live: set[Subscriber] = set()
        self._requests = PendingRequests(self._link)
        self._catching_up: dict[Subscriber, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_CATCH_UPS)
        #: Whether a `state_sync` must come before the live stream goes on. `_generation` counts the stream's restarts.
        self.awaits_state = True
        self._generation = 0
        self._work = WorkUnderWay()
        #: Missions whose start was logged, but not yet their end.
        self._noted: deque[str] = deque(maxlen=_NOTED_MISSIONS)
        self._active_at = time.monotonic()
        self._holds = 0
        self._ears: set[HubListener] = set()
        #: Since when there is neither a member nor a hold.
        self._alone_since = time.monotonic()
        self._seen_at: float | None = None
        #: Whether the link has ended for good, which only a bug can cause.
        self.has_died = False
        #: Set if another bridge has the sprite, or may have it: the clients must go there.
        self.is_elsewhere = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._link.__aenter__()
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self.is_elsewhere.is_set():
            for member in self._members:
                member.is_passed_on.set()
        elif self._members:
            # Only a bug ends a room with members; they reconnect to a new one.
            log.critical(
                "the room of %s ends while clients are in it", self._sprite, extra={"count": len(self._members)}
            )
            for member in self._members:
                member.cut()
        for ear in tuple(self._ears):
            ear.ended()
        tasks = list(self._catching_up.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._requests.close()
        await self._link.__aexit__(None, None, None)

    # --- as others see it ---

    @property
    def is_over(self) -> bool:
        """Return whether this room can never connect again, however long a client waits."""
        return self.has_died or self.is_elsewhere.is_set()

    @property
    def is_needed(self) -> bool:
        """Return whether it has members, undelivered messages, work (for a limited time) or a replica to complete."""
        is_at_work = self.is_at_work and time.monotonic() - self._alone_since < _LONGEST_WORK_SECONDS
        is_awaited = len(self._requests.resends) > 0 or is_at_work or self._is_unshipped(self._sprite)
        return bool(self._members or self._holds) or is_awaited

    @property
    def is_at_work(self) -> bool:
        """Return whether the sprite says that a turn or background work is in progress."""
        return self._work.goes_on

    @property
    def is_at_rest(self) -> bool:
        """Return whether neither side has work in progress."""
        return not self.is_at_work and self._requests.is_empty

    @property
    def is_ready(self) -> bool:
        """Return whether a message that is sent now goes out at once."""
        return self._link.is_ready

    @property
    def change(self) -> link.LinkChange:
        """Return the state of the link to the sprite."""
        return self._link.change

    def seen(self, past: Seen | None) -> Seen:
        """Return what is known of the sprite. `past` is the earlier state, for facts that the room lacks."""
        change, welcome = self._link.change, self._link.welcome
        version, seen_at = (past.version, past.last_seen_at) if past is not None else (None, None)
        work = self._work.open_work()
        if (since := self._requests.resends.waiting_since) is not None:
            work.append(SlowWork("queue", since))
        return Seen(
            sprite=self._sprite,
            state=change.state,
            detail=change.detail,
            clients=len(self._members),
            version=welcome.server_version if welcome else version,
            last_seen_at=time.time() if self._link.is_ready else self._seen_at or seen_at,
            slow=oldest(slow(work, time.time())),
        )

    # --- for the bridge itself ---

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the room open and the sprite awake while the block runs."""
        self._holds += 1
        self._act()
        try:
            yield
        finally:
            self._holds -= 1
            self._alone_since = time.monotonic()

    @contextmanager
    def heard_by(self, ear: HubListener) -> Iterator[None]:
        """Pass the sprite's messages and the link's state to `ear` while the block runs."""
        self._ears.add(ear)
        try:
            yield
        finally:
            self._ears.discard(ear)

    async def ask(self, payload: messages.ClientPayload, message_id: str | None = None) -> messages.ServerPayload:
        """Send a message, repeat it after each cut, and return its answer. Raise LinkDownError if none can arrive.

        A mission needs its `message_id`, because the sprite deduplicates by it.
        """
        self._act()
        if isinstance(payload, messages.Mission) and message_id is not None:
            self._note(message_id)
        return await self._requests.ask(payload, message_id)

    async def beside(self, client: str) -> link.SpriteConnection:
        """Open another connection to the sprite, beside the link; may raise as `SpriteConnection.open` does.

        Raise LinkDownError without a link, because connecting could wake a machine.
        """
        if not self._link.is_ready:
            raise link.LinkDownError
        async with asyncio.timeout(_STATE_SECONDS):
            connection, _ = await link.SpriteConnection.open(
                self._reach, lambda *_: None, None, self._pace_beside, client
            )
            return connection

    def report(self, phase: Phase, words: str) -> None:
        """Show waiting clients what another part of the bridge does with the sprite's machine."""
        self._link.report(phase, words)

    def advise(self, words: str, as_of: float | None = None) -> None:
        """Show clients a text while the link is up, "" for none; `as_of` is the replica's time in Unix seconds."""
        before, self._advice = self._advice, link.LinkChange("ready", words, "choose", as_of) if words else None
        if self._advice != before and self._link.change.state == "ready":
            frame = encode(self._told(self._link.change))[:-1]
            for member in tuple(self._members):
                member.put(frame)

    def tell(self, payload: messages.Error | messages.ConnectionUpdate) -> None:
        """Send a message of the bridge to all live members; it is not stored."""
        for member in tuple(self._live):
            member.say(payload)

    @property
    def offer(self) -> str | None:
        """Return what the person may do about the sprite's replica, `restore` or `choose`, or None; see LinkState."""
        return self._told(self._link.change).offer

    def nudge(self) -> None:
        """Retry the link to the sprite at once."""
        self._link.nudge()

    async def _reach(self, report: Report) -> Reached:
        """Connect to the sprite, one attempt at a time. Raise LinkError if this bridge does not have its lease."""
        async with self._reaching:
            try:
                lease = await self.own()
            except NotOwnedError as error:
                raise link.LinkError(self.why_silent if self._ownership.away else str(error)) from error
            reached = await self._host.reach(self._sprite, report)
            if lease is not None and self._ownership.epoch(self._sprite) != lease.epoch:
                await reached.channel.close()
                raise link.LinkError("This bridge lost the sprite while it was being woken.")
            return replace(reached, lease=lease)

    async def own(self) -> Lease | None:
        """Acquire or renew the lease of the sprite. Raise NotOwnedError."""
        try:
            lease = await self._ownership.own(self._sprite)
        except OwnedElsewhere:
            self.is_elsewhere.set()
            raise
        except NotOwnedError:
            now = time.monotonic()
            self._unasked_since = self._unasked_since or now
            if now - self._unasked_since > _UNASKED_SECONDS:
                self.is_elsewhere.set()
            raise
        self._unasked_since = None
        return lease

    async def look_whether_owned(self) -> None:
        """Take the free lease of a sleeping sprite again, so that no other bridge wakes it unnoticed."""
        if self._link.is_at_rest and not self.may_speak:
            with suppress(NotOwnedError):
                await self.own()

    def owner_changed(self) -> None:
        """End the link unless this bridge still has the sprite."""
        if not self.may_speak:
            self._link.let_go()

    # --- members ---

    def enter(self, member: Subscriber) -> None:
        """Add a member, send it the state of the link, and note activity."""
        if not self._members:
            for observer in self._observers:
                observer.arrived(self._sprite)
        self._members.add(member)
        self._act()
        member.say(self._told(self._link.change))

    def resumed(self, member: Subscriber) -> None:
        """Admit a member that has sent its resume point, if the link is ready."""
        if self._link.is_ready and not self.awaits_state:
            self._admit(member)

    def leave(self, member: Subscriber) -> None:
        """Remove a member; its messages are still delivered."""
        self._members.discard(member)
        self._live.discard(member)
        self._requests.leave(member)
        if (task := self._catching_up.get(member)) is not None:
            task.cancel()
        if not self._members:
            self._alone_since = time.monotonic()
            for observer in self._observers:
                observer.left(self._sprite)

    async def take(self, member: Subscriber, message: VisitorMessage) -> None:
        """Forward one message to the sprite, at the sprite's pace."""
        if isinstance(message.payload, messages.Ping):
            return
        self._act()
        if isinstance(message.payload, messages.Mission):
            self._note(message.id)
        await self._requests.take(member, message)

    def _note(self, mission_id: str) -> None:
        """Log a mission that a client has sent, once."""
        if _ID.fullmatch(mission_id) and mission_id not in self._noted:
            self._noted.append(mission_id)
            log.info("mission received", extra={"sprite": self._sprite, "mission_id": mission_id})

    def _act(self) -> None:
        self._active_at = time.monotonic()
        self._link.nudge()

    # --- what the link tells ---

    @property
    def rests(self) -> bool:
        """Return whether the room has been idle long enough, without work and undelivered messages."""
        idle = time.monotonic() - self._active_at > _IDLE_SECONDS
        return idle and not self._holds and self.is_at_rest and not self._is_unshipped(self._sprite)

    @property
    def may_speak(self) -> bool:
        """Return whether this bridge has the sprite now; otherwise nothing is sent to it."""
        return self._ownership.holds(self._sprite)

    @property
    def why_silent(self) -> str:
        """Return why this bridge may not send to the sprite, as a message for people."""
        return f"{away} {_WAITS}" if (away := self._ownership.away) else _LET_GO

    def stale(self, epoch: int, newest: int) -> None:
        """Give up a lease that the sprite has refused, because it knows a newer owner."""
        self._on_stale(epoch, newest)

    def died(self) -> None:
        """End the room, because a bug has ended its link."""
        self.has_died = True

    def changed(self, change: link.LinkChange) -> None:
        """Send the state of the link to all members."""
        self._seen_at = time.time() if change.state == "ready" else self._seen_at
        frame = encode(self._told(change))[:-1]
        for member in tuple(self._members):
            member.put(frame)
        for ear in tuple(self._ears):
            ear.changed(change)
        if change.state == "ready" and self._link.is_ready:
            self._requests.link_up(self._members)
            self._admit_waiting()
        elif change.state == "unavailable":
            self._requests.link_down()

    def welcomed(self, welcome: messages.AuthOk, *, continues: bool) -> Sequence[bytes]:
        """Continue for all members, or expect a state if the link cannot continue; return the frames to resend."""
        if not continues:
            self._begin_anew(welcome)
        return self._requests.resends.frames()

    def heard(self, message: ServerMessage) -> None:
        """Route an answer to the member that asked, an event to all."""
        for observer in self._observers:
            observer.heard(self._sprite, message)
        for ear in tuple(self._ears):
            ear.heard(message)
        if message.reply_to is not None:
            self._requests.answer(message, message.reply_to, self._members)
        elif isinstance(message.payload, messages.StateSync):
            self._state(message.payload)
        elif isinstance(message.payload, messages.Gap):
            if self._link.welcome is not None:
                self._begin_anew(self._link.welcome)
            self._broadcast(message)
        elif isinstance(message.payload, _EVENTS):
            self._work.heard(message.payload)
            if isinstance(message.payload, Ending) and (mission_id := message.payload.mission_id or "") in self._noted:
                self._noted.remove(mission_id)
                log.info("mission %s", message.payload.event, extra={"sprite": self._sprite, "mission_id": mission_id})
            self._broadcast(message)

    def _told(self, change: link.LinkChange) -> messages.LinkState:
        if change.state == "ready" and self._advice is not None:
            change = self._advice
        return messages.LinkState(state=change.state, detail=change.detail, offer=change.offer, as_of=change.as_of)

    def _begin_anew(self, welcome: messages.AuthOk) -> None:
        """Restart the live stream after a gap or with another sequence: a state for all members follows."""
        self._generation += 1
        self.awaits_state = True
        for member in self._live:
            member.begin_anew(welcome)

    def _state(self, sync: messages.StateSync) -> None:
        """Handle a state: a restart's end, or an update after a forget. Events before it are not replayed any more."""
        self._work.state(sync)
        if self.awaits_state:
            self.awaits_state = False
        else:
            self._generation += 1
        frame = encode(sync)[:-1]
        for member in tuple(self._live):
            member.event(frame, None)
        welcome = self._link.welcome
        assert welcome is not None  # noqa: S101 - it came before the state
        for member in self._waiting():
            if member.resume is None or member.resume.epoch != welcome.epoch:
                if member.told_epoch != welcome.epoch:
                    member.greet(msgspec.structs.replace(welcome, last_seq=self._link.last_seq))
                member.put(frame)
                self._live.add(member)
        self._admit_waiting()

    def _broadcast(self, message: ServerMessage) -> None:
        id_, at = message.id[:_LONGEST_ID], message.timestamp
        frame = encode(message.payload, message_id=id_, seq=message.seq, timestamp=at)[:-1]
        for member in tuple(self._live):
            member.event(frame, message.seq)

    # --- bringing members up to date ---

    def _waiting(self) -> list[Subscriber]:
        return [
            member
            for member in self._members
            if member.resume is not None and member not in self._live and member not in self._catching_up
        ]

    def _admit_waiting(self) -> None:
        if self.awaits_state:
            return
        for member in self._waiting():
            self._admit(member)

    def _admit(self, member: Subscriber) -> None:
        """Send a client the missed events over a separate connection and add it to the live stream."""
        task = asyncio.create_task(self._catch_up(member), name=f"catch up {self._sprite}")
        self._catching_up[member] = task
        task.add_done_callback(lambda done: self._caught_up(member, done))

    async def _catch_up(self, member: Subscriber) -> None:
        """Retry until the client has joined the live stream, or the link is gone (its return starts this again)."""
        while self._link.is_ready and not self.awaits_state:
            generation = self._generation
            member.outbox.hold()
            self._live.add(member)
            try:
                async with self._slots:
                    last_seq = await caught_up(self._reach, member, self._link.welcome, self._pace)
            except (HostError, link.LinkError, OSError, TimeoutError) as error:
                if self._complaints.wait(1) == 0:
                    self._complaints.take(1)
                    log.info("catching up with %s: %s", self._sprite, type(error).__name__)
                last_seq = None
            except asyncio.CancelledError:
                self._live.discard(member)
                raise
            if last_seq is not None and generation == self._generation:
                member.release(last_seq)
                return
            member.outbox.discard()
            self._live.discard(member)
            if last_seq is None:
                await asyncio.sleep(_CATCH_UP_AGAIN_SECONDS)

    def _caught_up(self, member: Subscriber, task: asyncio.Task[None]) -> None:
        self._catching_up.pop(member, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            # A bug; a reconnect may succeed.
            log.error("catching up with %s failed", self._sprite, exc_info=error)
            member.cut()
        elif member in self._members and member not in self._live and self._link.is_ready and not self.awaits_state:
            # The link came back between the last check and the end of the task.
            self._admit(member)
