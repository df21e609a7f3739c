"""Prewarm the agent's process before the first mission, because starting it takes a second."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sprite.errors import SpriteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sprite.agent.equipment import Listener
    from sprite.agent.inbox import Inbox
    from sprite.agent.session import Session

log = logging.getLogger(__name__)


class Spare:
    """Prewarm at most one process; it ends after `seconds` without a mission. 0 disables prewarming.

    `make_way` ends an expired session: the prewarmed process is for the next one.
    """

    def __init__(
        self,
        inbox: Inbox,
        session: Session,
        listener: Listener,
        seconds: float,
        *,
        make_way: Callable[[], Awaitable[None]],
    ) -> None:
        self._inbox = inbox
        self._session = session
        self._listener = listener
        self._seconds = seconds
        self._make_way = make_way
        self._cooling: asyncio.TimerHandle | None = None

    def expect_mission(self) -> None:
        """Start the process once the queue is empty; return at once."""
        if self._seconds:
            self._inbox.when_idle(self._warm_up)

    async def _warm_up(self) -> None:
        try:
            await self._make_way()
            await self._session.warm_up(self._listener)
        except SpriteError as error:
            # The mission that tries again reports the error.
            log.info("the agent cannot be started ahead: %s", error)
            return
        if self._cooling is not None:
            self._cooling.cancel()
        loop, cool_down = asyncio.get_running_loop(), self._session.cool_down
        self._cooling = loop.call_later(self._seconds, self._inbox.when_idle, cool_down)
