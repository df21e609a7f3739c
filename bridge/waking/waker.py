"""Wakes each sprite at the time it asked for, lets it look at what is due, and holds it until that is done.

The sprite alone decides what it does then; to be woken twice, late or in vain does it no harm. So the rules are simple:
what is past is due, one that was just woken is not woken again at once, and one that cannot be reached, or has its date
still in the past afterwards, ever less often. Clocks may jump: nothing here sleeps for long.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

from bridge.cluster.ownership import NotOwnedError, SoleOwnership
from bridge.hosts.output import printable
from bridge.relay.link import LinkDownError
from sprite.common.retry import jittered
from sprite.common.tasks import TaskSet, owned_task
from sprite.protocol.messages import Heartbeat, Status, System

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from bridge.cluster.ownership import Ownership
    from bridge.relay.relay import Relay
    from bridge.relay.room import Room
    from bridge.waking.due_dates import DueDates
    from sprite.protocol.shapes import SessionState

log = logging.getLogger(__name__)

Outcome = Literal["looked", "unreachable", "unanswered"]

#: What is said every moment is looked at so often.
_PAUSE_SECONDS = 0.1
_POLL_SECONDS = 0.5
_LONGEST_DETAIL = 200


@dataclass(frozen=True, slots=True)
class Pace:
    """How often and how long sprites are woken; all in seconds, but for `at_once`.

    A sprite is woken `apart` from its last wake at the soonest; where that was in vain, twice as long after each, up to
    `longest_pause`. One that is `unreachable` for so long is given up for this time, and so is one that says nothing or
    is busy for `longest_hold`. `at_once` are brought up at the same time, each for `bringing_up` at most before the
    next one has its turn; whatever they do then, they may all do. After `elsewhere` one that another bridge has is
    looked at again: that bridge may be gone. Every `look` the clock is read, which may jump.
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
    """So many wakes in a row for a date (Unix seconds) changed nothing; the next is at `until` (monotonic seconds)."""

    date: float | None
    times: int
    until: float


class UnreachableError(Exception):
    """The sprite cannot be woken, in words of the link's."""


class Waker:
    """`async with Waker(relay, due, may_wake, on_death) as waker:` while the relay is open.

    `may_wake` says whether a sprite's person may come in. `clock` gives Unix seconds. `wakes` counts them by their end.
    """

    def __init__(
        self,
        relay: Relay,
        due: DueDates,
        may_wake: Callable[[str], Awaitable[bool]],
        on_death: Callable[[], None],
        *,
        ownership: Ownership | None = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._relay = relay
        self._due = due
        self._may_wake = may_wake
        self._on_death = on_death
        self._ownership = ownership or SoleOwnership()
        self._pace = pace or Pace()
        self._clock = clock
        self._to_look_at = set[str]()
        self._slots = asyncio.Semaphore(self._pace.at_once)
        self._waking: dict[str, asyncio.Task[bool]] = {}
        #: From when on a sprite may be woken again, and again for the date for which it was woken in vain.
        self._not_before: dict[str, float] = {}
        self._not_again_before: dict[str, _InVain] = {}
        self._troubles: dict[str, str] = {}
        self._tasks = TaskSet()
        self._stack = AsyncExitStack()
        self.wakes: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._tasks)
        await self._stack.enter_async_context(owned_task(self._run(), name="waker", on_death=self._on_death))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def trouble(self, sprite: str) -> str:
        """Why it could not be woken the last time, in words; "" where it could."""
        return self._troubles.get(sprite, "")

    def forget(self, sprite: str) -> None:
        """Lets go of a sprite whose person may not come in any more."""
        self._to_look_at.discard(sprite)
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
        """Starts what is due; returns for how many seconds to wait at most."""
        now, monotonic = self._clock(), time.monotonic()
        soonest = self._pace.look
        self._to_look_at |= self._due.take_left_open()
        for sprite, date in self._due.dates().items():
            if sprite in self._waking:
                continue
            is_wanted = sprite in self._to_look_at
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
        """However it ended, also by a fault of ours, the next time is not at once."""
        del self._waking[sprite]
        was_ours = task.cancelled() or task.exception() is not None or task.result()
        self._not_before[sprite] = time.monotonic() + (self._pace.apart if was_ours else self._pace.elsewhere)
        self._due.changed.set()

    def _postpone(self, sprite: str, pause: float, times: int = 1) -> None:
        self._not_again_before[sprite] = _InVain(self._due.of(sprite), times, time.monotonic() + jittered(pause))

    def _judge(self, sprite: str, before: float | None, outcome: Outcome, trouble: str) -> None:
        """Notes how a wake ended, and when the next may be."""
        self.wakes[outcome] += 1
        after = self._due.of(sprite)
        earlier = self._not_again_before.pop(sprite, None)
        if outcome != "looked" or (after is not None and after == before and after <= self._clock()):
            times = 1 + (earlier.times if earlier is not None and earlier.date == after else 0)
            self._postpone(sprite, min(self._pace.apart * 2 ** min(times, 20), self._pace.longest_pause), times)
        if trouble:
            if sprite not in self._troubles:
                log.warning("a sprite could not be woken for what is due (%s)", outcome, extra={"sprite": sprite})
            self._troubles[sprite] = trouble
        else:
            self._troubles.pop(sprite, None)
            log.info("a sprite was woken for what is due", extra={"sprite": sprite})

    # --- how ---

    async def _wake(self, sprite: str) -> bool:
        """Whether it was this bridge's business to the end."""
        if not await self._may_wake(sprite):
            self._to_look_at.discard(sprite)
            self._postpone(sprite, self._pace.longest_pause)
            return True
        try:
            await self._ownership.own(sprite)
        except NotOwnedError:
            # Its owner wakes it; where nobody can say who that is, nobody does.
            self._to_look_at.discard(sprite)
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
            outcome, trouble = "unanswered", "was woken for what is due, and did not come to an end"
        self._to_look_at.discard(sprite)
        if trouble and not self._ownership.holds(sprite):
            return False
        self._judge(sprite, before, outcome, trouble)
        return True

    async def _looked(self, room: Room, slot: AsyncExitStack) -> None:
        """Returns when the sprite has looked at what is due and is not busy any more."""
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

    async def _look(self, room: Room) -> None:
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
