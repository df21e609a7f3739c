"""Announce to all clients what a curation changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sprite.common.tasks import owned_task
from sprite.memory.database import MemoryDB
from sprite.memory.decision import Change
from sprite.protocol.messages import ActionUpdate, MemoryUpdate
from sprite.search.view import MemoryView, action_row
from sprite.workspace.feed import Feed

log = logging.getLogger(__name__)


class MemoryEvents:
    """Announce changes of memory to clients. Call it with each change; a task of its own reads the changed rows."""

    def __init__(self, feed: Feed, memory: MemoryDB, view: MemoryView, on_change: Callable[[], None]) -> None:
        self._feed = feed
        self._memory = memory
        self._view = view
        #: These are called for each change, for a change of actions, and for one that proposes rules.
        self._on_change = on_change
        self.on_actions: Callable[[], None] = lambda: None
        self.on_proposal: Callable[[Change], Awaitable[None]] | None = None
        #: None ends the task.
        self._changes: asyncio.Queue[Change | None] = asyncio.Queue()

    def __call__(self, change: Change) -> None:
        """Queue a change; return at once."""
        self._changes.put_nowait(change)
        self._on_change()
        if change.actions:
            self.on_actions()

    @asynccontextmanager
    async def running(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """Announce changes while the block runs, and the remaining ones at its end."""
        try:
            async with owned_task(
                self._announce_for_ever(),
                name="announcer",
                on_death=on_death,
                finish=lambda: self._changes.put_nowait(None),
            ):
                yield
        finally:
            # Changes that it had not announced before it died.
            while not self._changes.empty():
                if (change := self._changes.get_nowait()) is not None:
                    await self._announce(change)

    async def settled(self) -> None:
        """Wait until clients were sent every change so far, so that an answer comes after what it reports."""
        await self._changes.join()
        await self._feed.drain()

    async def _announce_for_ever(self) -> None:
        while (change := await self._changes.get()) is not None:
            await self._announce(change)
            self._changes.task_done()

    async def _announce(self, change: Change) -> None:
        try:
            if change.is_of_memory:
                await self._announce_memory(change)
            for action_id in change.actions:
                if (action := await self._memory.action(action_id)) is not None:
                    self._feed.publish(ActionUpdate(action_row(action)))
            if change.proposed and self.on_proposal is not None:
                await self.on_proposal(change)
        except Exception:
            # A failed announcement must not stop the following ones.
            log.exception("a change of memory could not be announced")

    async def _announce_memory(self, change: Change) -> None:
        answered = [await self._memory.learning(number) for number in change.answered]
        self._feed.publish(
            MemoryUpdate(
                files=list(dict.fromkeys(change.files)),
                learnings=await self._memory.learnings_of(change.curation_id),
                curation_id=change.curation_id,
                drift=list(await self._view.drift()),
                answered=[row for row in answered if row is not None],
            )
        )
