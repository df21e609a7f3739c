"""What a sprite says that it is at work on: while it is, its room does not let it sleep (pure, but for the clock).

A sprite may say anything, so what is kept of it is bounded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sprite.protocol.events import AgentEvent, Ending
from sprite.protocol.messages import SessionUpdate

if TYPE_CHECKING:
    from sprite.protocol.messages import StateSync

#: A mission, and what the agent began by itself; one that says it has more turns under way than this is not believed.
_MOST_TURNS = 16
_LONGEST_ID = 200


class WorkUnderWay:
    """Feed it every state and event; `goes_on` tells."""

    def __init__(self) -> None:
        #: The turns under way: a mission's, and beside it one that the agent began by itself.
        self.turns: set[str] = set()
        #: When the sprite stops keeping its VM awake for work in the background.
        self._held_until: float | None = None

    @property
    def goes_on(self) -> bool:
        """Whether a turn runs, or work in the background for which the sprite is held awake."""
        return bool(self.turns) or (self._held_until is not None and time.time() < self._held_until)

    def state(self, sync: StateSync) -> None:
        """The sprite says how it is as a whole."""
        self.turns = set()
        for turn in (None if sync.running is None else sync.running.mission_id, sync.session.running_mission_id):
            self._begin(turn)
        self._held_until = sync.session.held_until

    def heard(self, payload: object) -> None:
        """The sprite says what happens."""
        if isinstance(payload, SessionUpdate):
            self._held_until = payload.session.held_until
        elif isinstance(payload, AgentEvent) and payload.mission_id is not None:
            if isinstance(payload, Ending):
                self.turns.discard(payload.mission_id)
            else:
                self._begin(payload.mission_id)

    def _begin(self, turn: str | None) -> None:
        if turn and len(turn) <= _LONGEST_ID and len(self.turns) < _MOST_TURNS:
            self.turns.add(turn)
