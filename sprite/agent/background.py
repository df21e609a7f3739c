"""Work that the agent has begun and does not wait for, as the CLI tells of it (no I/O).

The CLI says after each change what goes on beside its turns: that list is the truth, and it ends with the CLI; but a
command whose end was told is over, also where a list still has it. Knows which turn began an agent, so that what it
asks later can be told from what the turn under way asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from sprite.privacy.cutting import Discreet, cut
from sprite.protocol.shapes import BackgroundWork, WorkKind

MAX_TITLE_CHARS = 200
_KINDS: dict[str, WorkKind] = {"local_bash": "command", "local_agent": "agent"}
#: The CLI's two words for what was ended by somebody, from two kinds of message.
_STOPPED = frozenset({"killed", "stopped"})
_OVER = frozenset({"completed", "failed", *_STOPPED})


class Background:
    """What goes on beside turns. `on_change` (see `watch`) is called after each change."""

    def __init__(self, discreet: Discreet) -> None:
        self._discreet = discreet
        self._works: dict[str, BackgroundWork] = {}
        #: When each was first seen: an agent that waits for work of its own is gone for a while and comes back.
        self._since: dict[str, float] = {}
        self._begun_by: dict[str, str | None] = {}
        self._calls: set[str] = set()
        #: Commands whose end was told. An agent's may be told several times.
        self._over: set[str] = set()
        self._stopping: dict[str, asyncio.Future[bool]] = {}
        self._on_change: Callable[[], None] | None = None

    def watch(self, on_change: Callable[[], None]) -> None:
        """Whom to tell that something changed."""
        self._on_change = on_change

    def works(self) -> list[BackgroundWork]:
        """What goes on, oldest first."""
        return sorted(self._works.values(), key=lambda work: work.since)

    # --- what the CLI says ---

    def changed(self, tasks: Iterable[dict[str, Any]], turn_id: str | None) -> None:
        """All that goes on now; what is new was begun by the turn under way, or by an agent of an earlier one's."""
        listed = {str(task["task_id"]): task for task in tasks if "task_id" in task}
        listed = {task_id: task for task_id, task in listed.items() if task_id not in self._over}
        for task_id, task in listed.items():
            self._begun_by.setdefault(task_id, self._begun_by.get(str(task.get("parent_task_id")), turn_id))
        works = {task_id: self._works.get(task_id) or self._work(task_id, task) for task_id, task in listed.items()}
        if works.keys() != self._works.keys():
            self._works = works
            self._tell()

    def started(self, task_id: str, call_id: str) -> None:
        """The tool call that began it; one that a turn waits for is not listed, and none of ours."""
        if task_id in self._works:
            self._calls.add(call_id)

    def ended(self, task_id: str, status: str | None) -> None:
        """Something ended, by itself or because it was stopped."""
        waiting = self._stopping.get(task_id)
        if status in _OVER and waiting is not None and not waiting.done():
            waiting.set_result(status in _STOPPED)
        work = self._works.get(task_id)
        if status in _OVER and work is not None and work.kind == "command":
            self._over.add(task_id)
            self._works = {other: kept for other, kept in self._works.items() if other != task_id}
            self._tell()

    def clear(self) -> list[BackgroundWork]:
        """The CLI is gone, and all this with it; returns what went on."""
        works = self.works()
        for waiting in self._stopping.values():
            if not waiting.done():
                waiting.set_result(True)
        for kept in (self._works, self._since, self._begun_by, self._calls, self._over):
            kept.clear()
        if works:
            self._tell()
        return works

    # --- what others ask ---

    def turn_of(self, agent_id: str | None) -> str | None:
        """The turn that began this agent, where it works in the background."""
        return self._begun_by.get(agent_id) if agent_id is not None else None

    def has(self, within: str | None, calls: Iterable[str]) -> bool:
        """Whether an agent that works here (known by the call that began it) said something; its calls are noted."""
        if within not in self._calls:
            return False
        # Each may begin an agent of its own.
        self._calls.update(calls)
        return True

    def stopping(self, task_id: str) -> asyncio.Future[bool]:
        """Waits for its end: whether it was stopped, and had not ended by itself. Ask before stopping it."""
        if task_id not in self._stopping:
            future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda _: self._stopping.pop(task_id, None))
            self._stopping[task_id] = future
        return self._stopping[task_id]

    # --- inside ---

    def _work(self, task_id: str, task: dict[str, Any]) -> BackgroundWork:
        kind = _KINDS.get(str(task.get("task_type")), "task")
        title = cut(" ".join(str(task.get("description") or kind).split()), MAX_TITLE_CHARS, self._discreet)
        return BackgroundWork(task_id, kind, title, self._since.setdefault(task_id, time.time()))

    def _tell(self) -> None:
        if self._on_change is not None:
            self._on_change()
