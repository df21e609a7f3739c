"""What a sprite says that it is at work on: while it is, its room does not let it sleep (pure, but for the clock).

A sprite may say anything, so what is kept of it is bounded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sprite.protocol.events import AgentEvent, Ending
from sprite.protocol.messages import SessionUpdate
from sprite.protocol.shapes import SlowWork

if TYPE_CHECKING:
    from sprite.protocol.messages import StateSync
    from sprite.protocol.shapes import SessionState

#: A mission, and what the agent began by itself; one that says it has more turns under way than this is not believed.
_MOST_TURNS = 16
_LONGEST_ID = 200
_MOST_SLOW = 8


class WorkUnderWay:
    """Feed it every state and event; `goes_on` tells."""

    def __init__(self) -> None:
        #: When the turns under way began (Unix seconds): a mission's, and beside it one of the agent's own.
        self.turns: dict[str, float] = {}
        #: What the sprite says that takes it long, but for its turns.
        self._slow: list[SlowWork] = []
        #: When the sprite stops keeping its VM awake for work in the background.
        self._held_until: float | None = None

    @property
    def goes_on(self) -> bool:
        """Whether a turn runs, or work in the background for which the sprite is held awake."""
        return bool(self.turns) or (self._held_until is not None and time.time() < self._held_until)

    def state(self, sync: StateSync) -> None:
        """The sprite says how it is as a whole."""
        self.turns = {}
        began = min((work.since for work in sync.session.slow[:_MOST_SLOW] if work.kind == "turn"), default=None)
        for turn in (None if sync.running is None else sync.running.mission_id, sync.session.running_mission_id):
            self._begin(turn, began)
        self._session(sync.session)

    def heard(self, payload: object) -> None:
        """The sprite says what happens."""
        if isinstance(payload, SessionUpdate):
            self._session(payload.session)
        elif isinstance(payload, AgentEvent) and payload.mission_id is not None:
            if isinstance(payload, Ending):
                self.turns.pop(payload.mission_id, None)
            else:
                self._begin(payload.mission_id)

    def open_work(self) -> list[SlowWork]:
        """Return the turns under way, and what else the sprite says that takes it long."""
        return [*(SlowWork("turn", since) for since in self.turns.values()), *self._slow]

    def _session(self, session: SessionState) -> None:
        self._held_until = session.held_until
        self._slow = [work for work in session.slow[:_MOST_SLOW] if work.kind != "turn"]

    def _begin(self, turn: str | None, began: float | None = None) -> None:
        if turn and len(turn) <= _LONGEST_ID and len(self.turns) < _MOST_TURNS:
            now = time.time()
            self.turns.setdefault(turn, now if began is None else min(began, now))
