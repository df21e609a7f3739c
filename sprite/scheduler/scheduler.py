"""The scheduler: fire each due action once as its own mission, and record the outcome.

The mission's id derives from the action and its due time, and the inbox on disk accepts an id once. After a kill before
the log records that it fired, the next check finds the mission and records it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET

from sprite.agent.runtime import AgentRuntime
from sprite.common.due_times import moment_words, repeat_words, span_words
from sprite.common.recurrence import DEFAULT_ZONE, missed
from sprite.common.tasks import is_set_within
from sprite.config import Settings
from sprite.errors import PeerError, SpriteError
from sprite.log.curations import SECONDS_PER_DAY, Curations
from sprite.memory.action_rows import MOST_SCHEDULED
from sprite.memory.actions import Actions
from sprite.memory.decision import Action
from sprite.protocol.messages import NextDue, ScheduleUpdate
from sprite.workspace.database import ScheduledMission, WorkspaceDB
from sprite.workspace.feed import Feed

_MISSIONS = uuid.UUID("0b6f3f6e-5a0e-5a3c-9d0c-6f1f4f6c7f5e")
#: Lateness from which it is mentioned.
LATE_SECONDS = 60.0
#: Our tag inside an action's text, in any form that a model would still read as one.
_TAG = re.compile(r"<(?=\s*/?\s*due_action\b)", re.IGNORECASE)
_WHOSE = {
    "person": "It is the person's own standing request.",
    "curator": "It was noted from a conversation with the person.",
    "agent": "You set it up yourself, in a conversation with the person: its words are your note of what they wanted.",
    "schedule": (
        "You set it up yourself, in a turn that a schedule had begun: its words are a note of yours, and nobody's wish."
    ),
}


def mission_id_of(action_id: int, due: float) -> str:
    """Return the id of the only mission for an action and due time, so that accepting it twice creates one."""
    return str(uuid.uuid5(_MISSIONS, f"{action_id} {due!r}"))


def mission_text(action: Action, due: float, now: float) -> str:
    """Return the text of the mission by which the agent is told that an action is due."""
    zone = action.tz or DEFAULT_ZONE
    facts = [f"due {moment_words(due, zone)}"]
    if lateness := late_words(due, now):
        facts.append(lateness)
    if action.rrule:
        facts.append(f"repeats {repeat_words(action.rrule)}")
        first = due if action.first_due is None else action.first_due
        if more := missed(action.rrule, first, zone, due, now):
            facts.append(f"missed {more} more {'time' if more == 1 else 'times'} since: this turn is for all of them")
    content = _TAG.sub(r"<\\", action.content)
    return f"""\
A schedule began this turn: action {action.id} is due. Nobody has typed anything now, and perhaps nobody is watching.

<due_action id="{action.id}">
{content}
</due_action>
({"; ".join(facts)})

{_WHOSE.get(action.origin, _WHOSE["agent"])} Do what it says as far as it can be done now; a reminder you only say, in a
sentence or two. What you answer stands in the chat, and the person is told that it is there. What became of this time
is noted by itself when the turn ends."""


def chat_line(action: Action, due: float, now: float) -> str:
    """Return the line that the chat shows when an action fires: its text, and how late it is."""
    lateness = late_words(due, now)
    if not lateness:
        return action.content
    return f"{action.content}\n\n(Was due {moment_words(due, action.tz or DEFAULT_ZONE)}, {lateness}.)"


def late_words(due: float, now: float) -> str:
    """Return how late an action fires as text, "3 hours late"; empty if it is on time."""
    return f"{span_words(now - due)} late" if now - due >= LATE_SECONDS else ""


#: Delays before each retry; together they extend from one day's budget into the next.
TRIED_AGAIN_SECONDS = (900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0)
#: Temporary errors of the model or the connection to it.
PASSING = frozenset({"budget_used_up", "rate_limited", "overloaded", "model_error", "agent_error", "shortage"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The effect of a mission's end on its action: a note for the history, and any new status or due time."""

    what: str
    status: Literal["done", "failed"] | None = None
    due: float | None = None


def verdict(action: Action, mission: ScheduledMission, failures: Sequence[str | None], now: float) -> Verdict | None:
    """Return what an ended mission changes in its action, or None if nothing.

    `failures` are the error codes (None without an error) of the action's newest missions, newest first.
    """
    if action.status != "open":
        # It was closed meanwhile: by the agent in the turn itself, or by a person, which withdrew the mission.
        return None
    goes_on = action.due is not None
    if mission.status == "complete":
        return Verdict("ran") if goes_on else Verdict("done", "done")
    what = _words(mission)
    if mission.status == "error" and mission.error_code in PASSING:
        tries = next((at for at, code in enumerate(failures) if code not in PASSING), len(failures))
        if tries <= len(TRIED_AGAIN_SECONDS):
            again = now + TRIED_AGAIN_SECONDS[max(tries, 1) - 1]
            if action.due is not None and action.due <= again:
                return Verdict(what)
            return Verdict(f"{what}; tried again {moment_words(again, action.tz or DEFAULT_ZONE)}", due=again)
        what += f"; given up{' for this time' if goes_on else ''} after {tries} tries"
    return Verdict(what) if goes_on else Verdict(what, "failed")


def _words(mission: ScheduledMission) -> str:
    if mission.status == "interrupted":
        return "stopped before it had ended"
    if mission.error_code == "crashed":
        return "the sprite was stopped in the middle of it"
    return f"did not work: {mission.error or 'it ended with an error'}"


log = logging.getLogger(__name__)

#: The share of the daily limit that schedules may use.
_SHARE = 0.25
#: Maximum sleep: clocks are changed, and machines sleep through their timers.
LOOK_SECONDS = 30.0


class Scheduler:
    """Start a mission for each action when it is due. `clock` returns Unix seconds."""

    def __init__(
        self,
        actions: Actions,
        curations: Curations,
        workspace: WorkspaceDB,
        feed: Feed,
        runtime: AgentRuntime,
        settings: Settings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._actions = actions
        self._curations = curations
        self._workspace = workspace
        self._feed = feed
        self._runtime = runtime
        self._settings = settings
        self._clock = clock
        self._looking = asyncio.Lock()
        self._changed = asyncio.Event()
        self._closing = False
        #: The next due time that clients know.
        self._told: NextDue | None = None
        runtime.on_schedule_end = self.changed

    def changed(self) -> None:
        """Make `run` check soon, because an action or a mission changed; return at once."""
        self._changed.set()

    async def run(self) -> None:
        """Check for due actions, again and again, until `stop`."""
        while not self._closing:
            self._changed.clear()
            await is_set_within(self._changed, await self.try_look())

    def stop(self) -> None:
        """Let `run` end."""
        self._closing = True
        self._changed.set()

    async def try_look(self) -> float:
        """Check for due actions. Return the seconds until the next check; after a failure it comes soon."""
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
        """Record how missions ended, close past reminders, and start the next due action if none is running."""
        async with self._looking:
            # Afterwards the ends of missions are on disk.
            await self._feed.drain()
            missions = await self._workspace.scheduled_missions()
            under_way = {mission.action_id for mission in missions if not await self._settled(mission)}
            await self._actions.close_passed(under_way)
            if not under_way:
                # One at a time, so that a person's mission that arrived meanwhile is next.
                await self._fire_next()
            next_due = await self._actions.next_due()
            if next_due != self._told:
                self._told = next_due
                self._feed.publish(ScheduleUpdate(next_due))

    async def run_due(self) -> None:
        """Run all actions that are due, and wait until their missions and those before them have ended."""
        for _ in range(MOST_SCHEDULED + 1):
            await self.look()
            # Returns when all missions that are queued now have ended.
            await self._runtime.inbox.in_turn(lambda: asyncio.sleep(0))
            next_due, missions = await self._actions.next_due(), await self._workspace.scheduled_missions()
            if not missions and (next_due is None or next_due.at > self._clock()):
                return

    # --- firing ---

    async def _fire_next(self) -> None:
        for action in await self._actions.scheduled():
            now = self._clock()
            if action.due is None or action.due > now:
                return
            if not await self._is_held(action, now):
                await self._fire(action, action.due, now)
                return

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
        fired = await self._actions.fired(action.id, due=due, mission_id=mission_id, late_by=at - due)
        if fired.status != "open":
            # It was closed at the moment when it became due.
            self._runtime.inbox.take_back(mission_id)
        return fired

    async def _is_held(self, action: Action, now: float) -> bool:
        """Return whether an action waits until the next day, because schedules have used their part of the budget."""
        cap, today = self._settings.daily_usd, now - now % SECONDS_PER_DAY
        if cap is None or self._settings.is_free:
            return False
        share, spent = cap * _SHARE, await self._workspace.spent_by_schedules(today)
        if spent < share:
            return False
        again = today + SECONDS_PER_DAY
        words = (
            f"waits until {moment_words(again, action.tz or DEFAULT_ZONE)}: schedules have used their part of the "
            f"day's budget (${spent:.2f} of ${share:.2f}, {_SHARE:.0%} of SPRITE_DAILY_USD)"
        )
        await self._actions.noted(action.id, words, due=again)
        self._feed.warn("schedule_budget", f"Action {action.id} {words}.")
        return True

    # --- what became of it ---

    async def _settled(self, mission: ScheduledMission) -> bool:
        """Record a mission's end in its action's history. Return whether it has ended and is recorded there."""
        action: Action | None = None
        with suppress(PeerError):
            # Unless it was forgotten meanwhile.
            action = await self._actions.action(mission.action_id)
        if action is not None and action.status == "open" and action.due == mission.due:
            # Killed after the mission was stored and before the log recorded it.
            action = await self._note_fired(action, mission.id, mission.due, mission.received_at)
        if mission.status in {"queued", "running"}:
            if action is None or action.status != "open" or (action.rrule is None and action.due is not None):
                # It was closed, or is a one-time action that has another due time by now.
                self._runtime.inbox.take_back(mission.id)
            return False
        if action is not None and not await self._curations.has_note_of(mission.id):
            failures = await self._workspace.failures_of(action.id, len(TRIED_AGAIN_SECONDS) + 1)
            if (said := verdict(action, mission, failures, self._clock())) is not None:
                status, due = said.status or UNSET, UNSET if said.due is None else said.due
                await self._actions.noted(action.id, said.what, status=status, due=due, mission_id=mission.id)
        await self._workspace.mark_told(mission.id)
        return True
