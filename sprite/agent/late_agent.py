"""The agent's side, imported in a thread while the listener is already up."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sprite.boundary.sandbox import find_boundary
from sprite.common.tasks import owned_task
from sprite.config import Settings
from sprite.errors import AgentError, ShortageError, is_shortage

if TYPE_CHECKING:
    from sprite.agent.equipment import Agent

log = logging.getLogger(__name__)


class LateAgent:
    """`ready` gives the agent. `make` gets its module and the boundary that was found.

    Where no agent is started ahead, nothing of it is loaded ahead either: it takes 40 MB and most of a second.
    """

    def __init__(self, settings: Settings, make: Callable[..., Agent]) -> None:
        self._settings = settings
        self._make = make
        self._wanted = asyncio.Event()
        self._attempt: asyncio.Future[Agent] = asyncio.get_running_loop().create_future()
        self._is_over = False

    @asynccontextmanager
    async def loading(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """Imports in the block; when that ends, an import under way is waited for (a thread cannot be stopped)."""
        if self._settings.spare_seconds:
            self._wanted.set()
        async with owned_task(self._load(), name="agent import", on_death=on_death, finish=self._end, may_return=True):
            yield

    def _end(self) -> None:
        self._is_over = not self._wanted.is_set()
        self._wanted.set()

    async def ready(self) -> Agent:
        """The agent, once it is imported. AgentError if it cannot be: the sprite stops for that.

        ShortageError where the machine has no room for it now; the next wish tries again.
        """
        self._wanted.set()
        return await asyncio.shield(self._attempt)

    async def _load(self) -> None:
        try:
            while not self._attempt.done():
                await self._wanted.wait()
                if self._is_over:
                    return
                await self._try()
        finally:
            self._fail(AgentError("The agent cannot be loaded; the sprite's log says why."))

    async def _try(self) -> None:
        try:
            module = await asyncio.to_thread(importlib.import_module, "sprite.agent.equipment")
            boundary = await asyncio.to_thread(find_boundary, self._settings)
        except Exception as error:
            if not is_shortage(error):
                raise
            log.warning("the agent cannot be loaded now: %s", error)
            self._wanted.clear()
            failed, self._attempt = self._attempt, asyncio.get_running_loop().create_future()
            failed.set_exception(ShortageError())
            # Nobody may wait for it, where it was loaded ahead.
            failed.exception()
            return
        log.log(logging.INFO if boundary.holds else logging.WARNING, "the agent's sandbox: %s", boundary.words)
        self._attempt.set_result(self._make(module, boundary))

    def _fail(self, error: AgentError) -> None:
        if not self._attempt.done():
            self._attempt.set_exception(error)
            self._attempt.exception()
