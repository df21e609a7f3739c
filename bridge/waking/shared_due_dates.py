"""Due dates for bridges that share a database: of a bridge's own sprites, and of sprites without an owner.

A bridge receives reports from the sprites that it owns and writes them for later owners. Every few seconds it queries
the due dates of sprites without an owner in one statement. A sprite with a lease is its owner's responsibility, even
if that bridge was just killed, until the lease ends. The first bridge to take the lease then wakes the sprite.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bridge.database import Database, DatabaseError
from bridge.waking.due_dates import DueDate, DueDates, due_dates
from sprite.common.retry import jittered
from sprite.common.tasks import owned_task

if TYPE_CHECKING:
    from bridge.cluster.ownership import Ownership

log = logging.getLogger(__name__)

_POLL_SECONDS = 3.0
#: Look-ahead, so that the poll interval does not delay a wake.
_AHEAD_SECONDS = 10.0
#: Includes sprites left open, even if no action is due. The limit is for a day on which all are due.
_POLL = """
SELECT * FROM waking WHERE (next_due <= db_now() + ? OR is_open = 1)
    AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.sprite = waking.sprite AND leases.expires_at > db_now())
ORDER BY next_due LIMIT 1000
"""
# An owner without a report of its sprite keeps the stored date.
_KEEP = """
INSERT INTO waking (sprite, next_due, action_id, seen_at, is_open) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (sprite) DO UPDATE SET
    next_due = CASE WHEN excluded.seen_at > 0 THEN excluded.next_due ELSE waking.next_due END,
    action_id = CASE WHEN excluded.seen_at > 0 THEN excluded.action_id ELSE waking.action_id END,
    seen_at = CASE WHEN excluded.seen_at > 0 THEN excluded.seen_at ELSE waking.seen_at END,
    is_open = excluded.is_open
"""


class SharedDueDates(DueDates):
    """See DueDates; `is_open` also marks sprites without an owner.

    Their owner was killed, or stopped while they were busy.
    """

    def __init__(self, database: Database, ownership: Ownership, on_death: Callable[[], None]) -> None:
        super().__init__(database, on_death, keep=_KEEP)
        self._ownership = ownership
        self._on_death = on_death
        self._stack = AsyncExitStack()
        #: Sprites whose rooms are open here, owned yet or not.
        self._opened: set[str] = set()
        ownership.add_listener(self._owner_changed)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._rows)
        await self._stack.enter_async_context(owned_task(self._poll_on(), name="due dates", on_death=self._on_death))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def opened(self, sprite: str) -> None:
        """See Observer."""
        self._opened.add(sprite)
        super().opened(sprite)

    def closed(self, sprite: str, *, at_rest: bool) -> None:
        """See Observer. Always written, to replace a late write of an earlier owner."""
        self._opened.discard(sprite)
        super().closed(sprite, at_rest=at_rest)
        if (date := self._dates.get(sprite)) is not None and self._ownership.holds(sprite):
            self._note(sprite, date)

    def _date(self, sprite: str) -> DueDate:
        return self._dates.get(sprite) or DueDate(None, None, 0.0, is_open=False)

    def _keep(self, sprite: str, date: DueDate) -> None:
        # Before the sprite is owned, this bridge has no report that the next owner could use.
        if self._ownership.holds(sprite):
            super()._keep(sprite, date)

    def _owner_changed(self, sprite: str) -> None:
        if not self._ownership.holds(sprite):
            self._dates.pop(sprite, None)
            self._rows.forget(sprite)
        elif sprite in self._opened:
            super().opened(sprite)

    async def _poll_on(self) -> None:
        while True:
            try:
                await self._poll()
            except DatabaseError as error:
                log.debug("what is due cannot be read (%s)", error.code)
            # Spread, so that not all bridges find the same sprites at once.
            await asyncio.sleep(jittered(_POLL_SECONDS))

    async def _poll(self) -> None:
        found = due_dates(await self._database.statement(_POLL, (_AHEAD_SECONDS,)))
        mine = {sprite: date for sprite, date in self._dates.items() if self._ownership.holds(sprite)}
        self.left_open = frozenset(sprite for sprite, date in found.items() if date.is_open and sprite not in mine)
        self._dates = {sprite: replace(date, is_open=False) for sprite, date in found.items()} | mine
        self.changed.set()
