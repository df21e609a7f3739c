"""Import the agent's modules in a thread while the listener is already running."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sprite.common.tasks import owned_task
from sprite.config import Settings
from sprite.errors import AgentError, ShortageError, is_shortage
from sprite.sandbox.sandbox import find_boundary

if TYPE_CHECKING:
    from sprite.agent.options import Agent


log = logging.getLogger(__name__)


class LazyAgent:
    """Load the agent lazily; `ready` returns it. `make` receives its module and the detected sandbox.

    Without prewarming, the agent is not imported ahead either, because it takes 40 MB and most of a second.
    """

    def __init__(self, settings: Settings, make: Callable[..., Agent]) -> None:
        self._settings = settings
        self._make = make
        self._wanted = asyncio.Event()
        self._attempt: asyncio.Future[Agent] = asyncio.get_running_loop().create_future()
        self._is_over = False

    @asynccontextmanager
    async def loading(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """Import while the block runs. At its end, wait for a running import, because a thread cannot be stopped."""
        if self._settings.prewarm_seconds:
            self._wanted.set()
        async with owned_task(self._load(), name="agent import", on_death=on_death, finish=self._end, may_return=True):
            yield

    def _end(self) -> None:
        self._is_over = not self._wanted.is_set()
        self._wanted.set()

    async def ready(self) -> Agent:
        """Return the agent once it is imported. Raises AgentError if it cannot be; the sprite then stops.

        Raises ShortageError if the machine lacks resources now; the next call tries again.
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
            module = await asyncio.to_thread(importlib.import_module, "sprite.agent.options")
            boundary = await asyncio.to_thread(find_boundary, self._settings)
        except Exception as error:
            if not is_shortage(error):
                raise
            log.warning("the agent cannot be loaded now: %s", error)
            self._wanted.clear()
            failed, self._attempt = self._attempt, asyncio.get_running_loop().create_future()
            failed.set_exception(ShortageError())
            # No task may be waiting for it, and asyncio would log an exception that was never retrieved.
            failed.exception()
            return
        log.log(logging.INFO if boundary.holds else logging.WARNING, "the agent's sandbox: %s", boundary.words)
        self._attempt.set_result(self._make(module, boundary))

    def _fail(self, error: AgentError) -> None:
        if not self._attempt.done():
            self._attempt.set_exception(error)
            self._attempt.exception()
