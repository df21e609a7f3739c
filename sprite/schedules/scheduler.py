"""The scheduler: fire each due action once as its own mission, and record the outcome.

The mission's id derives from the action and its due time, and the inbox on disk accepts an id once. Then the log
records that it fired, which advances the due time. After a kill in between, the next check finds the mission and
records it. Only one schedule mission runs at a time, so that a person's mission that arrived meanwhile is next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from msgspec import UNSET

from sprite.agent.runtime import AgentRuntime
from sprite.database.curations import Curations
from sprite.database.projected import Action
from sprite.database.workspace import ScheduledMission, WorkspaceDB
from sprite.errors import PeerError, SpriteError
from sprite.feed import Feed
from sprite.memory.actions import Actions
from sprite.memory.projection.action_rows import MOST_SCHEDULED
from sprite.protocol.messages import NextDue, ScheduleUpdate
from sprite.schedules.allowance import Allowance
from sprite.schedules.endings import TRIED_AGAIN_SECONDS, verdict
from sprite.schedules.missions import chat_line, mission_id_of, mission_text
from sprite.schedules.words import moment_words
from sprite.schedules.zones import DEFAULT_ZONE

log = logging.getLogger(__name__)

#: Maximum sleep: clocks are changed, and machines sleep through their timers.
LOOK_SECONDS = 30.0


class Scheduler:
    """Check when an action is due, when one changes, and every half minute. `clock` returns Unix seconds."""

    def __init__(
        self,
        actions: Actions,
        curations: Curations,
        workspace: WorkspaceDB,
        feed: Feed,
        runtime: AgentRuntime,
        allowance: Allowance,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._actions = actions
        self._curations = curations
        self._workspace = workspace
        self._feed = feed
        self._runtime = runtime
        self._allowance = allowance
        self._clock = clock
        self._looking = asyncio.Lock()
        self._changed = asyncio.Event()
        self._closing = False
        #: The next due time that clients know.
        self._told: NextDue | None = None
        runtime.when_scheduled_ends(self.changed)

    def changed(self) -> None:
        """Trigger a check because an action or a mission changed; return at once."""
        self._changed.set()

    async def run(self) -> None:
        """Check repeatedly until `stop`."""
        while not self._closing:
            self._changed.clear()
            seconds = await self.try_look()
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def stop(self) -> None:
        """Let `run` end."""
        self._closing = True
        self._changed.set()

    async def try_look(self) -> float:
        """Check; return the seconds until the next check. A failed check is retried."""
        try:
            await self.look()
            next_due = await self._actions.next_due()
        except SpriteError as error:
            log.warning("the schedule could not be looked at: %s", error)
            return LOOK_SECONDS
        except Exception:
            # A fault with one action must not end all schedules. It is a bug, so log its traceback.
            log.exception("the schedule could not be looked at")
            return LOOK_SECONDS
        left = LOOK_SECONDS if next_due is None else next_due.at - self._clock()
        # A due action that waits is waiting for a mission's end, which triggers a check.
        return min(left, LOOK_SECONDS) if left > 0 else LOOK_SECONDS

    async def look(self) -> None:
        """Record the outcome of missions, and fire the next due action if none is running."""
        async with self._looking:
            # Afterwards the ends of missions are on disk.
            await self._feed.drain()
            under_way = [mission for mission in await self._missions() if not await self._settled(mission)]
            if not under_way:
                await self._fire_next()
            await self._tell_next()

    async def run_due(self) -> None:
        """Run everything that is due; return when it and the missions before it have ended."""
        for _ in range(MOST_SCHEDULED + 1):
            await self.look()
            await self._runtime.heartbeat()
            next_due = await self._actions.next_due()
            if not await self._missions() and (next_due is None or next_due.at > self._clock()):
                return

    async def _missions(self) -> list[ScheduledMission]:
        return await self._workspace.scheduled_missions()

    # --- firing ---

    async def _fire_next(self) -> None:
        for action in await self._actions.scheduled():
            now = self._clock()
            if action.due is None or action.due > now:
                return
            refusal = await self._allowance.refusal()
            if refusal is None:
                await self._fire(action, action.due, now)
                return
            await self._hold(action, refusal)

    async def _fire(self, action: Action, due: float, now: float) -> None:
        mission_id = mission_id_of(action.id, due)
        try:
            await self._runtime.submit_scheduled(
                mission_id, action.id, due, text=mission_text(action, due, now), said=chat_line(action, due, now)
            )
        except PeerError as error:
            log.info("action %d is due and waits: %s", action.id, error)
            return
        await self._note_fired(action, mission_id, due, now)

    async def _note_fired(self, action: Action, mission_id: str, due: float, at: float) -> Action:
        fired = await self._actions.fired(action.id, due=due, mission_id=mission_id, late_by=max(0.0, at - due))
        if fired.status != "open":
            # It was closed at the moment when it became due.
            self._runtime.take_back(mission_id)
        return fired

    async def _hold(self, action: Action, refusal: str) -> None:
        again = self._allowance.next_day()
        words = f"waits until {moment_words(again, action.tz or DEFAULT_ZONE)}: {refusal}"
        await self._actions.noted(action.id, words, due=again)
        self._feed.warn("schedule_budget", f"Action {action.id} {words}.")

    # --- what became of it ---

    async def _settled(self, mission: ScheduledMission) -> bool:
        """Return whether a mission has ended and its action's history contains the end."""
        action = await self._action(mission.action_id)
        if action is not None and action.status == "open" and action.due == mission.due:
            # Killed after the mission was stored and before the log recorded it.
            action = await self._note_fired(action, mission.id, mission.due, mission.received_at)
        if mission.status in {"queued", "running"}:
            if action is None or action.status != "open" or _is_moved(action):
                self._runtime.take_back(mission.id)
            return False
        if action is not None and not await self._curations.has_note_of(mission.id):
            await self._note_end(action, mission)
        await self._workspace.mark_told(mission.id)
        return True

    async def _note_end(self, action: Action, mission: ScheduledMission) -> None:
        failures = await self._workspace.failures_of(action.id, len(TRIED_AGAIN_SECONDS) + 1)
        said = verdict(action, mission, failures, self._clock())
        if said is not None:
            await self._actions.noted(
                action.id,
                said.what,
                status=said.status or UNSET,
                due=UNSET if said.due is None else said.due,
                mission_id=mission.id,
            )

    async def _action(self, action_id: int) -> Action | None:
        try:
            return await self._actions.action(action_id)
        except PeerError:
            # It was forgotten meanwhile.
            return None

    async def _tell_next(self) -> None:
        next_due = await self._actions.next_due()
        if next_due != self._told:
            self._told = next_due
            self._feed.publish(ScheduleUpdate(next_due))


def _is_moved(action: Action) -> bool:
    """Return whether a one-time action was rescheduled while its mission waited."""
    return action.rrule is None and action.due is not None
