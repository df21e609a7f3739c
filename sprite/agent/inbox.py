"""The queue of the agent: missions in order, and internal jobs that take their turn among them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sprite.errors import PeerError
from sprite.workspace.database import StoredMission

_T = TypeVar("_T")

#: Queued missions; more are refused, because each is stored on disk.
MAX_QUEUED = 100


@dataclass(slots=True)
class InternalJob:
    """A job of the sprite that waits in the queue of missions, and the future of its caller."""

    work: Callable[[], Awaitable[Any]]
    done: asyncio.Future[Any]


class Inbox:
    """Queue missions and internal jobs from any task of the event loop. One worker calls `next`."""

    def __init__(self) -> None:
        #: Each item after the Unix time at which it was queued.
        self._items: deque[tuple[float, StoredMission | InternalJob]] = deque()
        self._arrived = asyncio.Event()
        self._when_idle: Callable[[], Awaitable[None]] | None = None
        #: Withdrawn missions; they end as interrupted when their turn comes.
        self.taken_back: set[str] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def missions(self) -> list[str]:
        """Return the queued missions in order, including withdrawn ones."""
        return [item.id for _, item in self._items if isinstance(item, StoredMission)]

    def queued(self) -> list[str]:
        """Return the queued missions that will run, in order."""
        return [mission_id for mission_id in self.missions() if mission_id not in self.taken_back]

    @property
    def waiting_since(self) -> float | None:
        """Unix time at which the oldest queued item was put, or None if the queue is empty."""
        return self._items[0][0] if self._items else None

    def check_room(self) -> None:
        """Raise PeerError if the queue of missions is full."""
        if len(self._items) >= MAX_QUEUED:
            raise PeerError(f"{MAX_QUEUED} messages are waiting already; send this one again later.", code="queue_full")

    def put(self, item: StoredMission | InternalJob) -> None:
        """Append a mission or an internal job."""
        self._items.append((time.time(), item))
        self._arrived.set()

    async def in_turn(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Run a job after everything queued so far; return its result."""
        errand = InternalJob(work, asyncio.get_running_loop().create_future())
        self.put(errand)
        value: _T = await errand.done
        return value

    def when_idle(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a job once the queue is empty. It replaces an earlier such job and does not count as queued."""
        self._when_idle = work
        self._arrived.set()

    def take_back(self, mission_id: str) -> bool:
        """Withdraw a queued mission: it ends as interrupted when its turn comes. Return False if it is not queued."""
        is_queued = mission_id in self.queued()
        if is_queued:
            self.taken_back.add(mission_id)
        return is_queued

    async def next(self) -> StoredMission | InternalJob | None:
        """Wait for the next item and remove it. Return None once the inbox is closed, even if items remain."""
        while not self._items and not self._closed:
            if self._when_idle is not None:
                work, self._when_idle = self._when_idle, None
                return InternalJob(work, asyncio.get_running_loop().create_future())
            self._arrived.clear()
            await self._arrived.wait()
        return None if self._closed else self._items.popleft()[1]

    def close(self) -> None:
        """Stop returning items. Queued missions are on disk and run after the next start."""
        self._closed = True
        self._arrived.set()
