"""Check all replicas in the background: each sprite once a day, read at a limited rate.

Several bridges share the work; the store selects the bridge. A connected sprite with damaged or missing pieces is
asked to ship everything again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from bridge.errors import BridgeError
from bridge.store.upkeep import checked

if TYPE_CHECKING:
    from bridge.store.sealed_store import SealedStore
    from bridge.store.store import Health

log = logging.getLogger(__name__)

_FIRST_SECONDS, _LOOK_SECONDS, _PAUSE_SECONDS = 60.0, 600.0, 0.05
#: Interval of a sprite's checks: with the time of one round, every sprite is checked within a day.
_EVERY_SECONDS = 10 * 3600.0
#: Time for one round over everything, within rates that a disk can spare for background work.
_ROUND_SECONDS = 10 * 3600.0
_SLOWEST, _FASTEST = 1024**2, 32 * 1024**2


class Checks:
    """Background checks; `on_damage` is called with a sprite that has damaged or missing pieces."""

    def __init__(self, store: SealedStore, on_damage: Callable[[str], None]) -> None:
        self._store = store
        self._on_damage = on_damage
        #: Checks by this bridge since its start: `whole`, `damaged`, `failed`.
        self.outcomes: Counter[str] = Counter()
        #: Currently damaged or missing pieces of each sprite that this bridge checked.
        self.damaged: dict[str, int] = {}

    async def run(self) -> None:
        """Check for ever."""
        await asyncio.sleep(_FIRST_SECONDS)
        while True:
            try:
                await self.look()
            except BridgeError as error:
                log.warning("the store cannot be checked: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Check every sprite whose check is due."""
        sprites = await self._store.sprites()
        size = sum([await self._store.size(sprite) for sprite in sprites])
        pace = min(max(size / _ROUND_SECONDS, _SLOWEST), _FASTEST)
        for sprite in sprites:
            await self._check(sprite, pace)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _check(self, sprite: str, bytes_a_second: float) -> None:
        async def pause(size: int) -> None:
            await asyncio.sleep(size / bytes_a_second)

        try:
            if not await self._store.begin_check(sprite, _EVERY_SECONDS):
                self._note(sprite, await self._store.health(sprite))
                return
            findings = await checked(self._store, sprite, pause)
        except BridgeError as error:
            self.outcomes["failed"] += 1
            log.warning("the store of %s cannot be checked: %s", sprite, error)
            return
        self.outcomes["damaged" if findings.count else "whole"] += 1
        self.damaged[sprite] = findings.count
        if findings.count:
            log.error("pieces of what is stored are damaged or missing: %s", "; ".join(findings.wrong[:3]))
            self._on_damage(sprite)

    def _note(self, sprite: str, health: Health) -> None:
        """Adopt the result of another bridge or of `store verify`."""
        is_new = health.damaged > self.damaged.get(sprite, 0)
        self.damaged[sprite] = health.damaged
        if is_new:
            self._on_damage(sprite)
