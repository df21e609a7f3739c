"""Ledger of a single bridge: write the rows of `calls` in the background.

A call is noted in memory when it is admitted, with its hold, and again when it ends. Every 50 ms the pending notes
are written in one transaction, outside the calls. Therefore:

- A killed process loses the notes of its last 50 ms; a call that was open counts with its whole hold (`lost`).
- The write-ahead log is flushed to the disk once a second, so a power cut loses about one second.
- While the disk fails, notes wait in memory; after ten seconds `is_behind` stops all calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Self

from bridge.db.open import Database, DatabaseError, Transaction
from bridge.proxy.budgets import Spent
from bridge.proxy.calls import UPSERT, ModelCall, Spend, day_begins, estimated_today, month_begins, spend
from sprite.common.tasks import owned_task

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
    """`async with Ledger(database) as ledger:`; leaving it writes the pending notes.

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
