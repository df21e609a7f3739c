"""Wake each sprite at its due date, let it check its due actions, and keep it awake until that is done.

The sprite alone decides what to do; waking it twice, late or in vain is harmless. One that cannot be reached, or keeps
its past date, is woken with growing pauses. Due dates come from each sprite's last report. A killed bridge may lose
some; so each sprite that was connected then (`is_open`) is looked at, and reports again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from bridge.cluster.ownership import NotOwnedError, Ownership
from bridge.db.database import Database, DatabaseError, WriteBehind
from bridge.hub.link import LinkDownError
from bridge.hub.room import Observer, SpriteHub
from bridge.providers.provider import printable
from sprite.common.tasks import Service, TaskSet, jittered, owned_task
from sprite.protocol.frames import ServerMessage
from sprite.protocol.messages import Heartbeat, ScheduleUpdate, StateSync, Status, System
from sprite.protocol.shapes import SessionState

if TYPE_CHECKING:
    from bridge.hub.hub import Relay


log = logging.getLogger(__name__)

# An owner without a report of its sprite keeps the stored date.
_KEEP = """
INSERT INTO waking (sprite, next_due, seen_at, is_open) VALUES (?, ?, ?, ?)
ON CONFLICT (sprite) DO UPDATE SET
    next_due = CASE WHEN excluded.seen_at > 0 THEN excluded.next_due ELSE waking.next_due END,
    seen_at = CASE WHEN excluded.seen_at > 0 THEN excluded.seen_at ELSE waking.seen_at END,
    is_open = excluded.is_open
"""
_UNOWNED_SECONDS = 3.0
#: Look-ahead, so that the poll interval does not delay a wake.
_AHEAD_SECONDS = 10.0
#: Includes sprites left open, even if no action is due. The limit is for a day on which all are due.
_POLL = """
SELECT * FROM waking WHERE (next_due <= db_now() + ? OR is_open = 1)
    AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.sprite = waking.sprite AND leases.expires_at > db_now())
ORDER BY next_due LIMIT 1000
"""


@dataclass(frozen=True, slots=True)
class DueDate:
    """A sprite's next wake time in Unix seconds (None: none), and the time of that report (0: never reported).

    `is_open`: the bridge was or is connected to it, and has not seen it at rest.
    """

    at: float | None = None
    seen_at: float = 0.0
    is_open: bool = False


class DueDates(Service, Observer):
    """`async with DueDates(database, on_death, ownership) as due:`; an Observer of the relay.

    Every change sets `changed`. Sprites without an owner, which was killed or stopped while they were busy, are found
    in the table.
    """

    def __init__(self, database: Database, on_death: Callable[[], None], ownership: Ownership) -> None:
        self._database = database
        self.ownership = ownership
        self._on_death = on_death
        #: By sprite.
        self.dates: dict[str, DueDate] = {}
        self.rows = WriteBehind(database, _KEEP, "due dates", on_death)
        #: Sprites that were connected when the last bridge ended, however it ended, until the waker has looked at them.
        self.left_open: set[str] = set()
        self.changed = asyncio.Event()
        #: Sprites whose rooms are open here, owned yet or not.
        self._opened: set[str] = set()
        ownership.add_listener(self._owner_changed)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.rows)
        await stack.enter_async_context(owned_task(self._poll_on(), name="due dates", on_death=self._on_death))

    def of(self, sprite: str) -> float | None:
        """Return a sprite's next wake time in Unix seconds, or None if there is none or it is unknown."""
        return self.dates.get(sprite, DueDate()).at

    # --- what the relay tells ---

    def opened(self, sprite: str) -> None:
        """Store that this sprite is connected: after a crash of the bridge, its due date is asked for again."""
        self._opened.add(sprite)
        self._keep(sprite, replace(self.dates.get(sprite, DueDate()), is_open=True))

    def closed(self, sprite: str, *, at_rest: bool) -> None:
        """Store that this sprite is not connected any more. One that is not `at_rest` is checked after the next start.

        The row is always written, because an earlier owner may have written its own state late.
        """
        self._opened.discard(sprite)
        self._keep(sprite, replace(self.dates.get(sprite, DueDate()), is_open=not at_rest), is_forced=True)

    def heard(self, sprite: str, message: ServerMessage) -> None:
        """Store the due date that a message of the sprite reports, if it has changed."""
        if isinstance(message.payload, StateSync | Status | ScheduleUpdate):
            due = message.payload.next_due
            at = None if due is None or not math.isfinite(due.at) else due.at
            date = self.dates.get(sprite, DueDate())
            if not date.seen_at or date.at != at:
                self._keep(sprite, replace(date, at=at, seen_at=time.time()))

    def _keep(self, sprite: str, date: DueDate, *, is_forced: bool = False) -> None:
        # Before the sprite is owned, this bridge has no report that the next owner could use.
        if self.ownership.holds(sprite) and (is_forced or date != self.dates.get(sprite)):
            self.dates[sprite] = date
            self.rows.note(sprite, date.at, date.seen_at, int(date.is_open))
            self.changed.set()

    def _owner_changed(self, sprite: str) -> None:
        if not self.ownership.holds(sprite):
            self.dates.pop(sprite, None)
            self.rows.forget(sprite)
        elif sprite in self._opened:
            self.opened(sprite)

    # --- sprites without an owner ---

    async def _poll_on(self) -> None:
        while True:
            try:
                await self._poll()
            except DatabaseError as error:
                log.debug("due dates cannot be read (%s)", error.code)
            # Spread, so that not all bridges find the same sprites at once.
            await asyncio.sleep(jittered(_UNOWNED_SECONDS))

    async def _poll(self) -> None:
        found = _due_dates(await self._database.statement(_POLL, (_AHEAD_SECONDS,)))
        mine = {sprite: date for sprite, date in self.dates.items() if self.ownership.holds(sprite)}
        self.left_open |= {sprite for sprite, date in found.items() if date.is_open and sprite not in mine}
        self.dates = {sprite: replace(date, is_open=False) for sprite, date in found.items()} | mine
        self.changed.set()


async def stored(database: Database) -> dict[str, DueDate]:
    """Return the stored due dates, by sprite."""
    rows = await database.read(lambda db: db.execute("SELECT * FROM waking ORDER BY sprite").fetchall())
    return _due_dates(rows)


def _due_dates(rows: Iterable[Any]) -> dict[str, DueDate]:
    return {row["sprite"]: DueDate(row["next_due"], row["seen_at"], is_open=bool(row["is_open"])) for row in rows}


Outcome = Literal["looked", "unreachable", "unanswered"]

#: Poll interval for values that change at every moment.
_PAUSE_SECONDS = 0.1
_POLL_SECONDS = 0.5
_LONGEST_DETAIL = 200


@dataclass(frozen=True, slots=True)
class Pace:
    """Timing of wakes, in seconds.

    At least `apart` seconds lie between two wakes of a sprite; after each that changed nothing the pause doubles, up to
    `longest_pause`. A wake is given up after `unreachable` seconds without a connection, and after `longest_hold` of a
    silent or busy one. Up to `at_once` sprites start at a time; the next may after `bringing_up`. Another bridge's is
    tried again after `elsewhere`, because that bridge may be gone. The clock is read every `look`: it may jump.
    """

    look: float = 20.0
    apart: float = 30.0
    longest_pause: float = 900.0
    unreachable: float = 60.0
    longest_start: float = 1800.0
    longest_hold: float = 7200.0
    at_once: int = 8
    bringing_up: float = 60.0
    status: float = 15.0
    elsewhere: float = 2.0


@dataclass(frozen=True, slots=True)
class _InVain:
    """Number of consecutive wakes that did not change a date (Unix seconds); none before `until` (monotonic)."""

    date: float | None
    times: int
    until: float


class UnreachableError(Exception):
    """The sprite cannot be woken; the message is the link's."""


class Waker(Service):
    """Wake sprites when their actions are due: `async with Waker(relay, due, may_wake, on_death) as waker:`.

    The relay must be open meanwhile. `may_wake` returns whether a sprite's person has access. `clock` returns Unix
    seconds. `wakes` counts wakes by outcome.
    """

    def __init__(
        self,
        relay: Relay,
        due: DueDates,
        may_wake: Callable[[str], Awaitable[bool]],
        on_death: Callable[[], None],
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._relay = relay
        self._due = due
        self._may_wake = may_wake
        self._on_death = on_death
        self._ownership = due.ownership
        self._pace = pace or Pace()
        self._clock = clock
        self._slots = asyncio.Semaphore(self._pace.at_once)
        self._waking: dict[str, asyncio.Task[bool]] = {}
        #: Earliest next wake of a sprite, and of one that was woken in vain for its date.
        self._not_before: dict[str, float] = {}
        self._not_again_before: dict[str, _InVain] = {}
        self._troubles: dict[str, str] = {}
        self._tasks = TaskSet()
        self.wakes: Counter[str] = Counter()

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._tasks)
        await stack.enter_async_context(owned_task(self._run(), name="waker", on_death=self._on_death))

    def trouble(self, sprite: str) -> str:
        """Return why the last wake failed, "" if it did not."""
        return self._troubles.get(sprite, "")

    def forget(self, sprite: str) -> None:
        """Drop a sprite whose person has lost access."""
        self._due.left_open.discard(sprite)
        self._troubles.pop(sprite, None)
        if (task := self._waking.get(sprite)) is not None:
            task.cancel()

    # --- when ---

    async def _run(self) -> None:
        while True:
            self._due.changed.clear()
            wait = self._start_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._due.changed.wait()
            await asyncio.sleep(_PAUSE_SECONDS)

    def _start_due(self) -> float:
        """Start the wakes that are due; return for how many seconds at most to wait before the next look."""
        now, monotonic = self._clock(), time.monotonic()
        soonest = self._pace.look
        for sprite, date in self._due.dates.items():
            if sprite in self._waking:
                continue
            is_wanted = sprite in self._due.left_open
            if date.at is None and not is_wanted:
                continue
            wait = max(
                0.0 if is_wanted or date.at is None else date.at - now,
                self._not_before.get(sprite, monotonic) - monotonic,
            )
            if (vain := self._not_again_before.get(sprite)) is not None and vain.date == date.at:
                wait = max(wait, vain.until - monotonic)
            if wait > 0:
                soonest = min(soonest, wait)
            else:
                task = self._tasks.start(self._wake(sprite), f"wake {sprite}")
                self._waking[sprite] = task
                task.add_done_callback(partial(self._woken, sprite))
        return soonest

    def _woken(self, sprite: str, task: asyncio.Task[bool]) -> None:
        """Set a pause before the next wake, however this one ended."""
        del self._waking[sprite]
        was_ours = task.cancelled() or task.exception() is not None or task.result()
        self._not_before[sprite] = time.monotonic() + (self._pace.apart if was_ours else self._pace.elsewhere)
        self._due.changed.set()

    def _postpone(self, sprite: str, pause: float, times: int = 1) -> None:
        self._not_again_before[sprite] = _InVain(self._due.of(sprite), times, time.monotonic() + jittered(pause))

    def _judge(self, sprite: str, before: float | None, outcome: Outcome, trouble: str) -> None:
        """Record the outcome of a wake, and from it the earliest time of the next one."""
        self.wakes[outcome] += 1
        after = self._due.of(sprite)
        earlier = self._not_again_before.pop(sprite, None)
        if outcome != "looked" or (after is not None and after == before and after <= self._clock()):
            times = 1 + (earlier.times if earlier is not None and earlier.date == after else 0)
            self._postpone(sprite, min(self._pace.apart * 2 ** min(times, 20), self._pace.longest_pause), times)
        if trouble:
            if sprite not in self._troubles:
                log.warning("a sprite could not be woken for a due action (%s)", outcome, extra={"sprite": sprite})
            self._troubles[sprite] = trouble
        else:
            self._troubles.pop(sprite, None)
            log.info("a sprite was woken for a due action", extra={"sprite": sprite})

    # --- how ---

    async def _wake(self, sprite: str) -> bool:
        """Wake a sprite; return whether this bridge had the lease throughout."""
        if not await self._may_wake(sprite):
            self._due.left_open.discard(sprite)
            self._postpone(sprite, self._pace.longest_pause)
            return True
        try:
            await self._ownership.own(sprite)
        except NotOwnedError:
            # Its owner wakes it; if the owner is unknown, no bridge does.
            self._due.left_open.discard(sprite)
            return False
        before = self._due.of(sprite)
        outcome: Outcome = "looked"
        trouble = ""
        try:
            async with AsyncExitStack() as slot:
                await slot.enter_async_context(self._slots)
                async with asyncio.timeout(self._pace.longest_hold):
                    with self._relay.held(sprite) as room:
                        await self._looked(room, slot)
        except UnreachableError as error:
            outcome, trouble = "unreachable", f"could not be woken: {error}"
        except (LinkDownError, TimeoutError):
            outcome, trouble = "unanswered", "was woken for a due action, and did not finish"
        self._due.left_open.discard(sprite)
        if trouble and not self._ownership.holds(sprite):
            return False
        self._judge(sprite, before, outcome, trouble)
        return True

    async def _looked(self, room: SpriteHub, slot: AsyncExitStack) -> None:
        """Wait until the sprite has checked its due actions and is idle. Raise UnreachableError if that fails."""
        looking = asyncio.create_task(self._look(room), name="look at what is due")
        began_at = ready_at = time.monotonic()
        was_ready = False
        try:
            while not looking.done():
                await asyncio.wait({looking}, timeout=_POLL_SECONDS)
                now = time.monotonic()
                if room.is_ready:
                    ready_at, was_ready = now, True
                if was_ready or now - began_at > self._pace.bringing_up:
                    await slot.aclose()
                longest = self._pace.unreachable if room.change.state == "unavailable" else self._pace.longest_start
                if now - ready_at > longest or room.is_over:
                    raise UnreachableError(printable(room.change.detail)[:_LONGEST_DETAIL] or "it does not answer")
            looking.result()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, room: SpriteHub) -> None:
        await room.ask(Heartbeat())
        while True:
            answer = await room.ask(System(action="status"))
            if isinstance(answer, Status) and not self._is_busy(answer.session):
                return
            until = time.monotonic() + self._pace.status
            was_at_work = room.is_at_work
            while time.monotonic() < until and not (was_at_work and not room.is_at_work):
                await asyncio.sleep(_POLL_SECONDS)
                was_at_work = was_at_work or room.is_at_work

    def _is_busy(self, session: SessionState) -> bool:
        is_held = session.held_until is not None and session.held_until > self._clock()
        return session.busy or session.running_mission_id is not None or is_held
