"""Track when the agent works: during its turns and while its background work runs.

Changes to the memory files in that time count as drift. Without a sandbox, a detached program cannot be tracked. The
agent then counts as working from its first turn to the end of the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sprite.errors import SpriteError
from sprite.memory.decision import Change
from sprite.memory.projection import Projection

log = logging.getLogger(__name__)

TURN = "turn"


class AgentWatch:
    """Count the agent's work in progress and report its begin and end to the projection."""

    def __init__(self, projection: Projection, on_change: Callable[[Change], None], *, whole_session: bool) -> None:
        self._projection = projection
        self._on_change = on_change
        self._whole_session = whole_session
        self._under_way: set[str] = set()
        self._is_noted = False
        self._one_at_a_time = asyncio.Lock()

    async def begins(self, what: str = TURN) -> None:
        """Register a turn, or background work by its id, before the agent acts in it."""
        self._under_way.add(what)
        await self._note()

    async def ends(self, what: str = TURN) -> None:
        """Unregister work that has ended."""
        if not self._whole_session:
            self._under_way.discard(what)
            await self._note()

    async def stops(self) -> None:
        """Unregister all work, because the agent's process is gone."""
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
                # A full disk must not end the agent's turn. The check at the end of the next turn covers later changes.
                log.warning("memory's files are not watched: %s", error)
                return
            self._is_noted = works
        for change in changes:
            self._on_change(change)
