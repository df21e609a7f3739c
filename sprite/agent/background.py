"""Background work of the agent, as reported by the CLI (no I/O).

The CLI lists its background work after each change. That list is authoritative and ends with the CLI, with one
exception: a command whose end was reported is over even if a list still contains it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

from sprite.common.failures import BUDGET_USED_UP
from sprite.privacy.cutting import Discreet, cut
from sprite.protocol.events import Ending, Failed
from sprite.protocol.shapes import BackgroundWork, Paused, WorkKind

MAX_TITLE_CHARS = 200
_KINDS: dict[str, WorkKind] = {"local_bash": "command", "local_agent": "agent"}
#: The CLI uses two words for work that was stopped, in two kinds of message.
_STOPPED = frozenset({"killed", "stopped"})
_OVER = frozenset({"completed", "failed", *_STOPPED})


class Background:
    """Track the agent's background work. `on_change` is called after each change."""

    def __init__(self, discreet: Discreet) -> None:
        self._discreet = discreet
        self._works: dict[str, BackgroundWork] = {}
        #: When each was first seen. An agent that waits for its own background work leaves the list and returns.
        self._since: dict[str, float] = {}
        #: The turn that began each agent, so that its later questions are not attributed to the current turn.
        self._begun_by: dict[str, str | None] = {}
        self._calls: set[str] = set()
        #: Commands whose end was reported. The end of an agent may be reported several times.
        self._over: set[str] = set()
        self._stopping: dict[str, asyncio.Future[bool]] = {}
        self.on_change: Callable[[], None] = lambda: None

    def works(self) -> list[BackgroundWork]:
        """Return the current background work, oldest first."""
        return sorted(self._works.values(), key=lambda work: work.since)

    def changed(self, tasks: Iterable[dict[str, Any]], turn_id: str | None) -> None:
        """Replace the list of work. New work belongs to the current turn, or to the turn of its parent agent."""
        listed = {str(task["task_id"]): task for task in tasks if "task_id" in task}
        listed = {task_id: task for task_id, task in listed.items() if task_id not in self._over}
        for task_id, task in listed.items():
            self._begun_by.setdefault(task_id, self._begun_by.get(str(task.get("parent_task_id")), turn_id))
        works = {task_id: self._works.get(task_id) or self._work(task_id, task) for task_id, task in listed.items()}
        if works.keys() != self._works.keys():
            self._works = works
            self.on_change()

    def started(self, task_id: str, call_id: str) -> None:
        """Record the tool call that began background work."""
        # The CLI's list has no call that a turn waits for.
        if task_id in self._works:
            self._calls.add(call_id)

    def ended(self, task_id: str, status: str | None) -> None:
        """Record that background work ended by itself or was stopped."""
        waiting = self._stopping.get(task_id)
        if status in _OVER and waiting is not None and not waiting.done():
            waiting.set_result(status in _STOPPED)
        work = self._works.get(task_id)
        if status in _OVER and work is not None and work.kind == "command":
            self._over.add(task_id)
            self._works = {other: kept for other, kept in self._works.items() if other != task_id}
            self.on_change()

    def clear(self) -> list[BackgroundWork]:
        """Delete all background work, because the CLI has ended; return the work that was running."""
        works = self.works()
        for waiting in self._stopping.values():
            if not waiting.done():
                waiting.set_result(True)
        for kept in (self._works, self._since, self._begun_by, self._calls, self._over):
            kept.clear()
        if works:
            self.on_change()
        return works

    def turn_of(self, agent_id: str | None) -> str | None:
        """Return the turn that began this background agent, or None."""
        return self._begun_by.get(agent_id) if agent_id is not None else None

    def has(self, within: str | None, calls: Iterable[str]) -> bool:
        """Return whether the agent that the call `within` began works in the background; if so, record its `calls`."""
        if within not in self._calls:
            return False
        # Each call may begin another agent.
        self._calls.update(calls)
        return True

    def stopping(self, task_id: str) -> asyncio.Future[bool]:
        """Register that the sprite stops this work. Return a future: True once stopped, False if it ended by itself."""
        if task_id not in self._stopping:
            future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda _: self._stopping.pop(task_id, None))
            self._stopping[task_id] = future
        return self._stopping[task_id]

    def _work(self, task_id: str, task: dict[str, Any]) -> BackgroundWork:
        kind = _KINDS.get(str(task.get("task_type")), "task")
        title = cut(" ".join(str(task.get("description") or kind).split()), MAX_TITLE_CHARS, self._discreet)
        return BackgroundWork(task_id, kind, title, self._since.setdefault(task_id, time.time()))


#: Consecutive turns that the agent may begin by itself.
MOST_TURNS = 5
#: Limit for the cost of these turns and of background work together.
MOST_USD = 1.0
#: Minimum time for a turn that the agent begins, even if the limit on background work is nearly reached.
_LEAST_TURN_SECONDS = 300.0
_WHY = {
    "turns": (
        f"Sprite continued by itself for {MOST_TURNS} turns in a row, and waits for your permission "
        "before the next one."
    ),
    "cost": (
        f"The work that Sprite did by itself has cost ${MOST_USD:.2f}, and it waits for your permission to continue."
    ),
}


class Unattended:
    """Count the agent's unattended work. `seconds` limits how long background work keeps a machine awake."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._turns = 0
        self._usd = 0.0
        self._heard_at = clock()
        #: Why the session waits for the person, or None if it does not.
        self.paused: Paused | None = None

    @property
    def held_until(self) -> float:
        """Unix time until which background work keeps a machine awake."""
        return self._heard_at + self._seconds

    @property
    def turn_seconds(self) -> float:
        """Longest time in seconds for a turn that the agent begins by itself now."""
        return max(self.held_until - self._clock(), min(_LEAST_TURN_SECONDS, self._seconds))

    def heard(self) -> bool:
        """Reset the counts, because a person sent a message or a schedule came due. Return whether a pause ended."""
        self._turns, self._usd, self._heard_at = 0, 0.0, self._clock()
        was_paused, self.paused = self.paused is not None, None
        return was_paused

    def may_begin(self) -> bool:
        """Count one more turn that the agent begins by itself. If the limit is reached, pause and return False."""
        if self.paused is None and self._turns >= MOST_TURNS:
            self.pause("turns")
        if self.paused is not None:
            return False
        self._turns += 1
        return True

    def paid(self, usd: float) -> bool:
        """Count the cost of unattended work; return whether that pauses the agent."""
        self._usd += usd
        if self._usd < MOST_USD or self.paused is not None:
            return False
        self.pause("cost")
        return True

    def ended(self, event: Ending) -> bool:
        """Pause the agent if a turn failed because the budget is used up. Return whether it was paused."""
        if not isinstance(event, Failed) or event.code != BUDGET_USED_UP:
            return False
        self.pause("budget" if event.action == "raise_limit" else "month", event.message)
        return True

    def pause(self, by: Literal["turns", "cost", "budget", "month"], why: str = "") -> None:
        """Pause unattended work until the person answers. `by` is the limit; `why` replaces its standard text."""
        self.paused = Paused(why or _WHY[by], by, self._clock())
