"""When the agent is at work: in its turns, and as long as something runs that it began in the background.

What changes memory's files meanwhile is drift. Where nothing keeps the agent's programs away from them, it is taken to
be at work from its first turn to the session's end: a program that it has detached is heard of by nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sprite.errors import SpriteError
from sprite.memory.projection.decision import Change
from sprite.memory.projection.projection import Projection

log = logging.getLogger(__name__)

TURN = "turn"


class AgentWatch:
    """Counts what the agent has under way, and tells the projection when it begins and when it ends."""

    def __init__(self, projection: Projection, on_change: Callable[[Change], None], *, whole_session: bool) -> None:
        self._projection = projection
        self._on_change = on_change
        self._whole_session = whole_session
        self._under_way: set[str] = set()
        self._is_noted = False
        self._one_at_a_time = asyncio.Lock()

    async def begins(self, what: str = TURN) -> None:
        """A turn begins, or something in the background, by its id. Before the agent does anything in it."""
        self._under_way.add(what)
        await self._note()

    async def ends(self, what: str = TURN) -> None:
        """It has ended."""
        if not self._whole_session:
            self._under_way.discard(what)
            await self._note()

    async def stops(self) -> None:
        """The agent's process is gone, and all that it had under way."""
        self._under_way.clear()
        await self._note()

    async def _note(self) -> None:
        async with self._one_at_a_time:
            works = bool(self._under_way)
            if works == self._is_noted:
                return
            try:
                changes = await (self._projection.agent_begins() if works else self._projection.agent_rests())
            except SpriteError as error:
                # A full disk must not end the agent's turn; what changes now is looked at with the next one's end.
                log.warning("memory's files are not watched: %s", error)
                return
            self._is_noted = works
        for change in changes:
            self._on_change(change)
