"""Heartbeats to bridges that requests are forwarded to. A suspended or unreachable bridge closes no connection itself.

While requests are forwarded to a bridge, it is probed every two seconds. After three failures all of them end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp

from sprite.common.tasks import TaskSet

if TYPE_CHECKING:
    from collections.abc import Callable

BEAT_SECONDS = 2.0
_MISSED = 3


class SilentError(Exception):
    """The other bridge has failed too many probes."""


@dataclass(slots=True)
class _Peer:
    """One bridge, and the blocks that wait for it."""

    waiting: set[asyncio.Timeout] = field(default_factory=set)
    beating: asyncio.Task[None] | None = None


class Pulses:
    """Wrap a forwarded request in `async with pulses.felt(address):`. `session` returns the HTTP session for probes."""

    def __init__(self, session: Callable[[], aiohttp.ClientSession], beat_seconds: float = BEAT_SECONDS) -> None:
        self._session = session
        self._beat_seconds = beat_seconds
        self._peers: dict[str, _Peer] = {}
        self._tasks = TaskSet()

    async def close(self) -> None:
        """Stop all probes."""
        await self._tasks.close()

    @asynccontextmanager
    async def felt(self, address: str) -> AsyncIterator[None]:
        """Run the block while the bridge answers probes. Raises SilentError inside it once it stops answering."""
        peer = self._peers.setdefault(address, _Peer())
        if peer.beating is None or peer.beating.done():
            peer.beating = self._tasks.start(self._beat(address, peer), "pulse")
        try:
            async with asyncio.timeout(None) as until:
                peer.waiting.add(until)
                try:
                    yield
                finally:
                    peer.waiting.discard(until)
                    self._let_go(address, peer)
        except TimeoutError as error:
            if until.expired():
                raise SilentError from error
            raise

    def _let_go(self, address: str, peer: _Peer) -> None:
        if not peer.waiting:
            if peer.beating is not None:
                peer.beating.cancel()
            self._peers.pop(address, None)

    async def _beat(self, address: str, peer: _Peer) -> None:
        missed = 0
        while True:
            began = asyncio.get_running_loop().time()
            missed = 0 if await self._lives(address) else missed + 1
            if missed == _MISSED:
                missed = 0
                for until in tuple(peer.waiting):
                    until.reschedule(began)
            left = began + self._beat_seconds - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, left))

    async def _lives(self, address: str) -> bool:
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with (
                asyncio.timeout(self._beat_seconds),
                self._session().get(f"{address}/healthz", allow_redirects=False),
            ):
                # Any answer counts.
                return True
        return False
