"""Next wake time of each sprite, from its last report: in the table `waking`, and in memory for the owned ones.

A change is written at once; frequent reports are batched into a few writes a second. A killed bridge may lose some of
them. Each sprite that was connected then (`is_open`) is looked at, and reports again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from bridge.db.database import Database, DatabaseError
from bridge.db.write_behind import WriteBehind
from bridge.hub.room import Observer
from sprite.common.tasks import jittered, owned_task
from sprite.protocol.messages import NextDue, ScheduleUpdate, StateSync, Status

if TYPE_CHECKING:
    from bridge.cluster.ownership import Ownership
    from sprite.protocol.frames import ServerMessage


log = logging.getLogger(__name__)

# An owner without a report of its sprite keeps the stored date.
_KEEP = """
INSERT INTO waking (sprite, next_due, seen_at, is_open) VALUES (?, ?, ?, ?)
ON CONFLICT (sprite) DO UPDATE SET
    next_due = CASE WHEN excluded.seen_at > 0 THEN excluded.next_due ELSE waking.next_due END,
    seen_at = CASE WHEN excluded.seen_at > 0 THEN excluded.seen_at ELSE waking.seen_at END,
    is_open = excluded.is_open
"""
_POLL_SECONDS = 3.0
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

    at: float | None
    seen_at: float
    is_open: bool


class DueDates(Observer):
    """`async with DueDates(database, on_death, ownership) as due:`; an Observer of the relay.

    Every change sets `changed`. Sprites without an owner, which was killed or stopped while they were busy, are found
    in the table.
    """

    def __init__(self, database: Database, on_death: Callable[[], None], ownership: Ownership) -> None:
        self._database = database
        self._ownership = ownership
        self._on_death = on_death
        self._dates: dict[str, DueDate] = {}
        self._rows = WriteBehind(database, _KEEP, "due dates", on_death)
        #: Sprites that were connected when the last bridge ended, however it ended.
        self.left_open: frozenset[str] = frozenset()
        self.changed = asyncio.Event()
        #: Sprites whose rooms are open here, owned yet or not.
        self._opened: set[str] = set()
        self._stack = AsyncExitStack()
        ownership.add_listener(self._owner_changed)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._rows)
        await self._stack.enter_async_context(owned_task(self._poll_on(), name="due dates", on_death=self._on_death))
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    @property
    def is_behind(self) -> bool:
        """Return whether a change is not written yet."""
        return self._rows.is_behind

    async def flush(self) -> None:
        """Write the pending changes now, if possible."""
        await self._rows.flush()

    def dates(self) -> Mapping[str, DueDate]:
        """Return the due dates by sprite."""
        return self._dates

    def of(self, sprite: str) -> float | None:
        """Return a sprite's next wake time in Unix seconds, or None if there is none or it is unknown."""
        date = self._dates.get(sprite)
        return None if date is None else date.at

    def take_left_open(self) -> frozenset[str]:
        """Return `left_open` and clear it."""
        left, self.left_open = self.left_open, frozenset()
        return left

    # --- what the relay tells ---

    def opened(self, sprite: str) -> None:
        """See Observer."""
        self._opened.add(sprite)
        self._keep(sprite, replace(self._date(sprite), is_open=True))

    def closed(self, sprite: str, *, at_rest: bool) -> None:
        """See Observer. A sprite that is still busy is checked after the next start.

        Always written, to replace a late write of an earlier owner.
        """
        self._opened.discard(sprite)
        self._keep(sprite, replace(self._date(sprite), is_open=not at_rest))
        if (date := self._dates.get(sprite)) is not None and self._ownership.holds(sprite):
            self._note(sprite, date)

    def heard(self, sprite: str, message: ServerMessage) -> None:
        """See Observer."""
        if isinstance(message.payload, StateSync | Status | ScheduleUpdate):
            at = _believed(message.payload.next_due)
            date = self._date(sprite)
            if not date.seen_at or date.at != at:
                self._keep(sprite, replace(date, at=at, seen_at=time.time()))

    def _date(self, sprite: str) -> DueDate:
        return self._dates.get(sprite) or DueDate(None, 0.0, is_open=False)

    def _keep(self, sprite: str, date: DueDate) -> None:
        # Before the sprite is owned, this bridge has no report that the next owner could use.
        if self._ownership.holds(sprite) and date != self._dates.get(sprite):
            self._dates[sprite] = date
            self._note(sprite, date)
            self.changed.set()

    def _note(self, sprite: str, date: DueDate) -> None:
        self._rows.note(sprite, date.at, date.seen_at, int(date.is_open))

    def _owner_changed(self, sprite: str) -> None:
        if not self._ownership.holds(sprite):
            self._dates.pop(sprite, None)
            self._rows.forget(sprite)
        elif sprite in self._opened:
            self.opened(sprite)

    # --- sprites without an owner ---

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


async def stored(database: Database) -> dict[str, DueDate]:
    """Return the stored due dates, by sprite."""
    rows = await database.read(lambda db: db.execute("SELECT * FROM waking ORDER BY sprite").fetchall())
    return due_dates(rows)


def due_dates(rows: Iterable[Any]) -> dict[str, DueDate]:
    """Convert rows of `waking` to due dates, by sprite."""
    return {row["sprite"]: DueDate(row["next_due"], row["seen_at"], is_open=bool(row["is_open"])) for row in rows}


def _believed(due: NextDue | None) -> float | None:
    """Return the time if it is valid; a sprite is untrusted."""
    return None if due is None or not math.isfinite(due.at) else due.at
