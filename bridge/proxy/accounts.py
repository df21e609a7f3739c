"""Accounts for model calls: a call is opened before it is forwarded and settled when it ends.

There are two implementations with the same interface. `LocalAccounts` is for a single bridge: it decides in memory
and writes in the background, so a call never waits for a disk. `SharedAccounts` is for bridges that share a database.
The database decides, because only it knows the calls of the other bridges; each call costs a round trip to it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from bridge.db.open import Database, DatabaseError, Transaction
from bridge.proxy.budgets import Spent
from bridge.proxy.calls import UPSERT, ModelCall, Spend, day_begins, estimated_today, month_begins, raise_on, spend
from sprite.common.tasks import owned_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.proxy.budgets import Budgets, Hold


log = logging.getLogger(__name__)

_WRITE_SECONDS = 0.05
_SYNC_SECONDS = 1.0
_RETRY_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0

_SPENT = """
SELECT sprite, coalesce(sum(coalesce(spent_usd, held_usd)) FILTER (WHERE at >= ?), 0) AS today,
    coalesce(sum(coalesce(spent_usd, held_usd)), 0) AS month
FROM calls WHERE at >= ? GROUP BY sprite
"""


class Ledger:
    """The rows of `calls`: `async with Ledger(database) as ledger:`; leaving it writes the pending notes.

    A call is noted in memory when it is admitted, with its hold, and again when it ends. Every 50 ms the pending notes
    are written in one transaction, outside the calls. A killed process loses the notes of its last 50 ms; a call that
    was open counts with its whole hold (`lost`). The write-ahead log is flushed once a second, so a power cut loses
    about one second. While the disk fails, notes wait in memory.

    `clock` returns Unix seconds. The disk may fail for `patience` seconds before `is_behind`. If the writer task
    dies, `on_death` is called, and leaving raises TaskDiedError.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.time,
        patience: float = _PATIENCE_SECONDS,
        *,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._on_death = on_death
        self._stack = AsyncExitStack()
        self._clock = clock
        self._patience = patience
        self._pending: dict[str, ModelCall] = {}
        self._noted = asyncio.Event()
        self._writing = asyncio.Lock()
        self._failing_since: float | None = None
        self._unsynced = False
        self._synced_at = 0.0
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Return whether the disk has failed for too long to admit calls, or whether the writer task has stopped."""
        if self._writer is not None and self._writer.done():
            return True
        return self._failing_since is not None and time.monotonic() - self._failing_since >= self._patience

    async def __aenter__(self) -> Self:
        def take_over(tx: Transaction) -> None:
            tx.execute("UPDATE calls SET state = 'lost', spent_usd = held_usd WHERE state = 'held'")

        await self._database.write(take_over)
        self._writer = await self._stack.enter_async_context(
            owned_task(self._write_on(), name="ledger", on_death=self._on_death)
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        try:
            await self._stack.aclose()
        finally:
            await self.flush()
            await self._sync()
            if self._pending:
                log.error("model calls could not be written to the ledger", extra={"count": len(self._pending)})

    def open(self, sprite: str, model: str, held_usd: float | None) -> ModelCall:
        """Note a new call with its maximum cost."""
        call = ModelCall(sprite, model, held_usd, self._clock())
        self.note(call)
        return call

    def note(self, call: ModelCall) -> None:
        """Schedule a write of the call as it is at that time."""
        self._pending[call.id] = call
        self._noted.set()

    async def spent(self) -> dict[str, Spent]:
        """Return the spending of each sprite since the UTC day and month began."""
        since = (day_begins(self._clock()), month_begins(self._clock()))
        rows = await self._database.read(lambda db: db.execute(_SPENT, since).fetchall())
        return {row["sprite"]: Spent(row["today"], row["month"]) for row in rows}

    async def spend(self) -> list[Spend]:
        """See `calls.spend`."""
        await self.flush()
        return await spend(self._database, self._clock())

    async def estimated_today(self) -> dict[str, float]:
        """See LocalAccounts. DatabaseError."""
        await self.flush()
        return await estimated_today(self._database, self._clock())

    async def flush(self) -> None:
        """Write the pending notes, as far as the disk allows."""
        async with self._writing:
            calls, self._pending = self._pending, {}
            if not calls:
                return
            rows = [call.row() for call in calls.values()]
            try:
                await self._database.write(lambda tx: tx.executemany(UPSERT, rows))
            except DatabaseError as error:
                # Notes that came meanwhile are for the same calls or newer ones, so they win.
                self._pending = calls | self._pending
                if self._failing_since is None:
                    self._failing_since = time.monotonic()
                    log.error(  # noqa: TRY400 - its words may hold a path, its code says what the disk wants
                        "the ledger cannot be written (%s)", error.code, extra={"count": len(rows)}
                    )
            except BaseException:
                self._pending = calls | self._pending
                raise
            else:
                if self._failing_since is not None:
                    self._failing_since = None
                    log.warning("the ledger is written again", extra={"count": len(rows)})
                self._unsynced = True

    async def _write_on(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_SECONDS if self._unsynced else None):
                    await self._noted.wait()
            await asyncio.sleep(_WRITE_SECONDS if self._failing_since is None else _RETRY_SECONDS)
            self._noted.clear()
            await self.flush()
            if self._pending:
                self._noted.set()
            if time.monotonic() - self._synced_at >= _SYNC_SECONDS:
                await self._sync()

    async def _sync(self) -> None:
        if self._unsynced:
            self._unsynced = False
            self._synced_at = time.monotonic()
            await self._database.sync()


class UnavailableError(Exception):
    """Spending cannot be recorded at the moment; a later call may succeed. The message is written for users."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The minimum and maximum cost of one call, in US dollars."""

    least: float
    most: float


class LocalAccounts:
    """Accounts of a single bridge: admit calls and settle them. All collaborators are already open."""

    def __init__(self, budgets: Budgets, ledger: Ledger, database: Database) -> None:
        #: The budget of each sprite, and the object that warns when a part of a day's budget is spent.
        self.limits, self.warnings = budgets.limits, budgets.warnings
        self._budgets = budgets
        self._database = database
        self._ledger = ledger
        self._holds: dict[str, Hold] = {}  # by call id

    @property
    def is_behind(self) -> bool:
        """Return whether writes have failed for so long that no more calls may be admitted."""
        return self._ledger.is_behind

    async def open(self, sprite: str, model: str, bounds: Bounds | None, patience: float) -> ModelCall:
        """Admit a call and hold its maximum cost; `bounds` is None for a model without a known price.

        Where other calls hold the remaining budget, wait for them for up to `patience` seconds. Raise BudgetError or
        UnavailableError if the call is refused. A refused or cancelled call holds nothing.
        """
        if self.is_behind:
            raise UnavailableError("The bridge cannot write down what is spent; its disk refuses.")
        if bounds is None:
            return self._ledger.open(sprite, model, None)
        hold = await self._budgets.room(sprite, bounds.least, bounds.most, patience)
        call = self._ledger.open(sprite, model, hold.usd)
        self._holds[call.id] = hold
        return call

    def settle(self, call: ModelCall) -> None:
        """Replace the hold by `spent_usd` and write the call. Call it once; it never waits."""
        if (hold := self._holds.pop(call.id, None)) is not None:
            self._budgets.settle(hold, call.spent_usd or 0.0)
        call.state = "settled"
        self._ledger.note(call)

    async def raise_today(self, sprite: str) -> float | None:
        """Let a sprite spend one more daily budget today; return its new limit for today, None without a limit.

        DatabaseError if that cannot be written.
        """
        if (daily := self.limits.daily_usd) is None:
            return None
        await raise_on(self._database, sprite, self._budgets.day, daily)
        self._budgets.raise_today(sprite, daily)
        return self._budgets.daily_usd(sprite)

    async def spend(self) -> list[Spend]:
        """See `calls.spend`."""
        return await self._ledger.spend()

    async def spent_today(self) -> Mapping[str, float]:
        """Return the US dollars spent since the UTC day began, by sprite, without calls in flight."""
        return self._budgets.spent_today()

    async def estimated_today(self) -> Mapping[str, float]:
        """Return the estimated part of `spent_today`, by sprite, where there is any."""
        try:
            return await self._ledger.estimated_today()
        except DatabaseError as error:
            raise UnavailableError("The bridge cannot read what was spent.") from error
