"""Heartbeats to bridges that requests are forwarded to. A suspended or unreachable bridge closes no connection itself.

While requests are forwarded to a bridge, it is probed every two seconds. After three failures all of them end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp

from sprite.common.tasks import TaskSet

BEAT_SECONDS = 2.0
_MISSED = 3


class SilentError(Exception):
    """The other bridge has failed too many probes."""


class Pulses:
    """Wrap a forwarded request in `async with pulses.felt(address):`. `session` sends the probes."""

    def __init__(self, session: aiohttp.ClientSession, beat_seconds: float = BEAT_SECONDS) -> None:
        self._session = session
        self._beat_seconds = beat_seconds
        #: The blocks that wait for each bridge.
        self._waiting: dict[str, set[asyncio.Timeout]] = {}
        self._tasks = TaskSet()

    async def close(self) -> None:
        """Stop all probes."""
        await self._tasks.close()

    @asynccontextmanager
    async def felt(self, address: str) -> AsyncIterator[None]:
        """Run the block while the bridge answers probes. Raises SilentError inside it once it stops answering."""
        if address not in self._waiting:
            self._tasks.start(self._beat(address), "pulse")
        waiting = self._waiting.setdefault(address, set())
        try:
            async with asyncio.timeout(None) as until:
                waiting.add(until)
                try:
                    yield
                finally:
                    waiting.discard(until)
        except TimeoutError as error:
            if until.expired():
                raise SilentError from error
            raise

    async def _beat(self, address: str) -> None:
        missed = 0
        try:
            while waiting := self._waiting[address]:
                began = asyncio.get_running_loop().time()
                missed = 0 if await self._lives(address) else missed + 1
                if missed == _MISSED:
                    missed = 0
                    for until in waiting:
                        until.reschedule(began)
                left = began + self._beat_seconds - asyncio.get_running_loop().time()
                await asyncio.sleep(max(0.0, left))
        finally:
            del self._waiting[address]

    async def _lives(self, address: str) -> bool:
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with (
                asyncio.timeout(self._beat_seconds),
                self._session.get(f"{address}/healthz", allow_redirects=False),
            ):
                # Any answer counts.
                return True
        return False
