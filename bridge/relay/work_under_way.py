"""Work that a sprite reports, which keeps its room open (pure, except for the clock).

The sprite is untrusted, so the stored part is bounded.
"""

from __future__ import annotations

import time

from sprite.protocol.events import AgentEvent, Ending
from sprite.protocol.messages import SessionUpdate, StateSync
from sprite.protocol.shapes import SessionState, SlowWork

#: A mission and background turns; a sprite that reports more turns is not believed.
_MOST_TURNS = 16
_LONGEST_ID = 200
_MOST_SLOW = 8


class WorkUnderWay:
    """Pass it every state and event; `goes_on` returns the result."""

    def __init__(self) -> None:
        #: Start of each turn in progress (Unix seconds): a mission's, and a background one.
        self.turns: dict[str, float] = {}
        #: Slow work that the sprite reports, except turns.
        self._slow: list[SlowWork] = []
        #: Time at which the sprite stops keeping its VM awake for background work.
        self._held_until: float | None = None

    @property
    def goes_on(self) -> bool:
        """Return whether a turn runs, or background work for which the sprite is kept awake."""
        return bool(self.turns) or (self._held_until is not None and time.time() < self._held_until)

    def state(self, sync: StateSync) -> None:
        """Handle a complete state of the sprite."""
        self.turns = {}
        began = min((work.since for work in sync.session.slow[:_MOST_SLOW] if work.kind == "turn"), default=None)
        for turn in (None if sync.running is None else sync.running.mission_id, sync.session.running_mission_id):
            self._begin(turn, began)
        self._session(sync.session)

    def heard(self, payload: object) -> None:
        """Handle an event of the sprite."""
        if isinstance(payload, SessionUpdate):
            self._session(payload.session)
        elif isinstance(payload, AgentEvent) and payload.mission_id is not None:
            if isinstance(payload, Ending):
                self.turns.pop(payload.mission_id, None)
            else:
                self._begin(payload.mission_id)

    def open_work(self) -> list[SlowWork]:
        """Return the turns in progress and other slow work that the sprite reports."""
        return [*(SlowWork("turn", since) for since in self.turns.values()), *self._slow]

    def _session(self, session: SessionState) -> None:
        self._held_until = session.held_until
        self._slow = [work for work in session.slow[:_MOST_SLOW] if work.kind != "turn"]

    def _begin(self, turn: str | None, began: float | None = None) -> None:
        if turn and len(turn) <= _LONGEST_ID and len(self.turns) < _MOST_TURNS:
            now = time.time()
            self.turns.setdefault(turn, now if began is None else min(began, now))
