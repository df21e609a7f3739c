"""The inbox: what waits for the agent, in order: people's missions, and errands that take their turn among them.

Owns the queue and which of its missions were taken back. Knows neither the agent nor the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sprite.database.workspace import StoredMission
from sprite.errors import PeerError

_T = TypeVar("_T")

#: Missions that may wait; more are refused, since each is kept on disk.
MAX_QUEUED = 100


@dataclass(slots=True)
class Errand:
    """Work that takes its turn among the missions, and the future its caller waits for."""

    work: Callable[[], Awaitable[Any]]
    done: asyncio.Future[Any]


class Inbox:
    """Put from anywhere in the loop; one worker asks for the `next`."""

    def __init__(self) -> None:
        self._items: deque[StoredMission | Errand] = deque()
        #: When each of them was put, in Unix seconds.
        self._put_at: deque[float] = deque()
        self._arrived = asyncio.Event()
        self._when_idle: Callable[[], Awaitable[None]] | None = None
        self._taken_back: set[str] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def missions(self) -> list[str]:
        """The missions that wait, in order, also those that were taken back."""
        return [item.id for item in self._items if isinstance(item, StoredMission)]

    def queued(self) -> list[str]:
        """The missions that wait and will run, in order."""
        return [mission_id for mission_id in self.missions() if mission_id not in self._taken_back]

    @property
    def waiting_since(self) -> float | None:
        """When what waits longest was put, in Unix seconds; None where nothing waits."""
        return self._put_at[0] if self._put_at else None

    def check_room(self) -> None:
        """PeerError where nothing more may wait."""
        if len(self._items) >= MAX_QUEUED:
            raise PeerError(f"{MAX_QUEUED} missions wait already; send this one again later.", code="queue_full")

    def put(self, item: StoredMission | Errand) -> None:
        """Appends a mission or an errand."""
        self._items.append(item)
        self._put_at.append(time.time())
        self._arrived.set()

    async def in_turn(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Has something done after what waits already; returns what came of it."""
        errand = Errand(work, asyncio.get_running_loop().create_future())
        self.put(errand)
        value: _T = await errand.done
        return value

    def when_idle(self, work: Callable[[], Awaitable[None]]) -> None:
        """Has something done once nothing waits, instead of what was to be done then; it counts as nothing waiting."""
        self._when_idle = work
        self._arrived.set()

    def take_back(self, mission_id: str) -> bool:
        """Marks a waiting mission: it ends as interrupted when its turn comes. False if it does not wait."""
        if mission_id not in self.queued():
            return False
        self._taken_back.add(mission_id)
        return True

    def was_taken_back(self, mission_id: str) -> bool:
        """Whether the mission, whose turn has come, was taken back; asked once."""
        if mission_id not in self._taken_back:
            return False
        self._taken_back.discard(mission_id)
        return True

    async def next(self) -> StoredMission | Errand | None:
        """Waits for the next item and takes it out; None once the inbox is closed, whatever still waits."""
        while not self._items and not self._closed:
            if self._when_idle is not None:
                work, self._when_idle = self._when_idle, None
                return Errand(work, asyncio.get_running_loop().create_future())
            self._arrived.clear()
            await self._arrived.wait()
        if self._closed:
            return None
        self._put_at.popleft()
        return self._items.popleft()

    def close(self) -> None:
        """Hands out nothing more; missions that wait are on the disk, and taken up at the next start."""
        self._closed = True
        self._arrived.set()
