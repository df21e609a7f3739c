"""Rows that change often, buffered in memory and written at most a few times a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Self

from bridge.db.database import Database, DatabaseError
from sprite.common.tasks import owned_task

log = logging.getLogger(__name__)

#: Pause between two writes, and after a failed one. A killed process loses the changes of that time.
_PAUSE_SECONDS, _RETRY_SECONDS = 0.25, 1.0


class WriteBehind:
    """Write-behind buffer: `async with WriteBehind(database, statement, what, on_death) as rows:`, then `note` rows.

    `statement` writes one row, whose first column is its key. Only the newest row of each key is written. The rest is
    flushed at the end. `what` names the rows in the log.
    """

    def __init__(self, database: Database, statement: str, what: str, on_death: Callable[[], None]) -> None:
        self._database = database
        self._statement = statement
        self._what = what
        self._on_death = on_death
        self._unwritten: dict[str, tuple[Any, ...]] = {}
        self._noted = asyncio.Event()
        self._turn = asyncio.Lock()
        self._is_failing = self._is_writing = False
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(
            owned_task(self._write_on(), name="write behind", on_death=self._on_death)
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        try:
            await self._stack.aclose()
        finally:
            await self.flush()

    @property
    def is_behind(self) -> bool:
        """Return whether a row is not on disk yet."""
        return bool(self._unwritten) or self._is_writing

    def note(self, key: str, *columns: object) -> None:
        """Schedule a row's current state for writing. Return at once."""
        self._unwritten[key] = (key, *columns)
        self._noted.set()

    def forget(self, key: str) -> None:
        """Drop the pending write of a row; its stored state stays."""
        self._unwritten.pop(key, None)

    async def flush(self) -> None:
        """Write all pending rows now. A failed write is retried later."""
        async with self._turn:
            await self._write()

    async def _write_on(self) -> None:
        while True:
            await self._noted.wait()
            self._noted.clear()
            await self.flush()
            if self._unwritten:
                self._noted.set()
            await asyncio.sleep(_RETRY_SECONDS if self._is_failing else _PAUSE_SECONDS)

    async def _write(self) -> None:
        rows, self._unwritten = self._unwritten, {}
        if not rows:
            return
        self._is_writing = True
        try:
            await self._database.write(lambda tx: tx.executemany(self._statement, list(rows.values())))
            self._is_failing = False
        except DatabaseError as error:
            self._unwritten = rows | self._unwritten
            if not self._is_failing:
                self._is_failing = True
                # The error's text may contain a path, so only its code is logged.
                log.warning("%s cannot be written (%s)", self._what, error.code, extra={"count": len(rows)})
        except BaseException:
            self._unwritten = rows | self._unwritten
            raise
        finally:
            self._is_writing = False
