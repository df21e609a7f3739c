"""The spend ledger: one row of bridge.db for each model call, without its content.

Owns the table `model_calls` and the task that writes to it. A call is noted when it is let in, with what it holds of
the budget, and again when it is over; both only in memory, and what has gathered is written every twentieth of a
second in one transaction, off the calls' way. So
- a killed process loses the notes of its last 50 ms; a call that was open counts with all it held (`lost`);
- once a second the write-ahead log is flushed to the disk, so that a power cut loses about as much;
- while the disk refuses, notes wait in memory, and after ten seconds of that `is_behind` stops all calls.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from bridge.database import Database
from bridge.llm.budgets import Spent, day_begins, month_begins
from bridge.tasks import owned_task
from sprite.prices import Usage

log = logging.getLogger(__name__)

Outcome = Literal["open", "complete", "refused", "client_gone", "cut", "timeout", "unreachable", "lost"]

_WRITE_SECONDS = 0.05
_SYNC_SECONDS = 1.0
_RETRY_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0
_MAX_REQUEST_ID = 128

_WRITE = """
INSERT INTO model_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET outcome = excluded.outcome, status = excluded.status, request_id = excluded.request_id,
    model = excluded.model, input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
    cache_read_tokens = excluded.cache_read_tokens, cache_write_tokens = excluded.cache_write_tokens,
    cache_write_1h_tokens = excluded.cache_write_1h_tokens, web_searches = excluded.web_searches,
    usd = excluded.usd, is_estimate = excluded.is_estimate, duration_ms = excluded.duration_ms
"""
_SPENT = """
SELECT sprite, coalesce(sum(usd) FILTER (WHERE at >= ?), 0) AS today, coalesce(sum(usd), 0) AS month
FROM model_calls WHERE at >= ? GROUP BY sprite
"""
_SPEND = """
SELECT sprite, coalesce(sum(usd) FILTER (WHERE at >= ?), 0) AS today,
    coalesce(sum(usd) FILTER (WHERE at >= ?), 0) AS month, coalesce(sum(usd), 0) AS total,
    count(*) AS calls, count(*) FILTER (WHERE usd IS NULL) AS unpriced
FROM model_calls WHERE ?3 IS NULL OR sprite = ?3 GROUP BY sprite ORDER BY sprite
"""


@dataclass(slots=True)
class ModelCall:
    """One call's row, changed while the call goes on. `usd` is None where the model's price is not known."""

    id: int
    at: float
    sprite: str
    model: str
    usd: float | None
    outcome: Outcome = "open"
    status: int | None = None
    request_id: str | None = None
    usage: Usage = field(default_factory=Usage)
    is_estimate: bool = True
    duration_ms: float | None = None

    def row(self) -> tuple[object, ...]:
        """The columns, in the table's order."""
        usage = self.usage
        return (
            *(self.id, self.at, self.sprite, self.model, self.outcome, self.status, self.request_id),
            *(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.cache_write_1h),
            *(usage.web_searches, self.usd, int(self.is_estimate), self.duration_ms),
        )


@dataclass(frozen=True, slots=True)
class Spend:
    """A sprite's spend in US dollars; `unpriced` of its `calls` have no known price and are in no sum."""

    sprite: str
    today: float
    month: float
    total: float
    calls: int
    unpriced: int


class Ledger:
    """`async with Ledger(database) as ledger:`; leaving it writes what is left.

    `clock` gives Unix seconds; `patience` is for how many seconds the disk may refuse before `is_behind`. Should the
    writer die, `on_death` is called, and leaving raises TaskDiedError.
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
        self._next_id = 1
        self._pending: dict[int, ModelCall] = {}
        self._noted = asyncio.Event()
        self._writing = asyncio.Lock()
        self._failing_since: float | None = None
        self._unsynced = False
        self._synced_at = 0.0
        self._log_file: Path | None = None
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether the disk has refused for so long that no more should be spent, or whether the writer has stopped."""
        if self._writer is not None and self._writer.done():
            return True
        return self._failing_since is not None and time.monotonic() - self._failing_since >= self._patience

    async def __aenter__(self) -> Self:
        def take_over(tx: sqlite3.Connection) -> tuple[int, str]:
            tx.execute("UPDATE model_calls SET outcome = 'lost' WHERE outcome = 'open'")
            (newest,) = tx.execute("SELECT coalesce(max(id), 0) FROM model_calls").fetchone()
            return newest, tx.execute("PRAGMA database_list").fetchone()["file"]

        newest, path = await self._database.write(take_over)
        self._next_id = newest + 1
        self._log_file = Path(f"{path}-wal")
        self._writer = await self._stack.enter_async_context(
            owned_task(self._write_on(), name="ledger", on_death=self._on_death)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stack.aclose()
        finally:
            await self.flush()
            await self._sync()
            if self._pending:
                log.error("model calls could not be written to the ledger", extra={"count": len(self._pending)})

    def open(self, sprite: str, model: str, held_usd: float | None) -> ModelCall:
        """Notes a call that begins, with what it may cost."""
        call = ModelCall(self._next_id, self._clock(), sprite, model, held_usd)
        self._next_id += 1
        self.note(call)
        return call

    def note(self, call: ModelCall) -> None:
        """Has the call written as it is then."""
        if call.request_id is not None:
            call.request_id = call.request_id[:_MAX_REQUEST_ID]
        self._pending[call.id] = call
        self._noted.set()

    async def spent(self) -> dict[str, Spent]:
        """What each sprite has spent since the UTC day and month began."""
        since = (day_begins(self._clock()), month_begins(self._clock()))
        rows = await self._database.read(lambda db: db.execute(_SPENT, since).fetchall())
        return {row["sprite"]: Spent(row["today"], row["month"]) for row in rows}

    async def spend(self, sprite: str | None = None) -> list[Spend]:
        """What was spent, by sprite (or of one); calls in flight count with what they hold."""
        await self.flush()
        parameters = (day_begins(self._clock()), month_begins(self._clock()), sprite)
        rows = await self._database.read(lambda db: db.execute(_SPEND, parameters).fetchall())
        return [Spend(**dict(row)) for row in rows]

    async def flush(self) -> None:
        """Writes what is noted so far, as far as the disk allows."""
        async with self._writing:
            calls, self._pending = self._pending, {}
            if not calls:
                return
            rows = [call.row() for call in calls.values()]
            try:
                await self._database.write(lambda tx: tx.executemany(_WRITE, rows))
            except sqlite3.Error as error:
                # What was noted meanwhile is the same calls, or newer ones.
                self._pending = calls | self._pending
                if self._failing_since is None:
                    self._failing_since = time.monotonic()
                    log.error(  # noqa: TRY400 - its words may hold a path, its code says what the disk wants
                        "the ledger cannot be written (%s)", error.sqlite_errorname, extra={"count": len(rows)}
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
        if self._unsynced and self._log_file is not None:
            self._unsynced = False
            self._synced_at = time.monotonic()
            # A disk that refuses this refuses the next write, too, and is reported there.
            with suppress(OSError):
                await asyncio.to_thread(_sync_file, self._log_file)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
