"""Measure how late a test notices an event on its machine: other processes may be equally late."""

from __future__ import annotations

import asyncio
import time
from typing import Self


class Delays:
    """`async with Delays() as delays:` records this process's worst delay in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watch = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._watch is not None
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            self.longest = max(self.longest, time.monotonic() - began)
