"""What the mission under way has shown so far, for clients that connect in the middle of it (pure)."""

from __future__ import annotations

from sprite.protocol.events import AgentEvent, AnyAgentEvent, Ending, Started, TextDelta, WholeText
from sprite.protocol.messages import Running, ServerPayload

#: Of a very long turn the newest events are kept; the turn in the log has all of it.
MAX_EVENTS = 200
MAX_PARTIAL_CHARS = 100_000


class Underway:
    """Takes every event in the order in which it is handed out."""

    def __init__(self) -> None:
        self._mission_id: str | None = None
        self._events: list[AnyAgentEvent] = []
        self._partial = ""

    def take(self, payload: ServerPayload) -> None:
        """One event more."""
        if not isinstance(payload, AgentEvent) or payload.mission_id is None:
            return
        if isinstance(payload, Started):
            self._mission_id, self._events, self._partial = payload.mission_id, [payload], ""
        elif payload.mission_id != self._mission_id:
            return
        elif isinstance(payload, Ending):
            self._mission_id, self._events, self._partial = None, [], ""
        elif isinstance(payload, TextDelta):
            self._partial = f"{self._partial}{payload.text}"[-MAX_PARTIAL_CHARS:]
        else:
            if isinstance(payload, WholeText):
                # The whole of what had been growing.
                self._partial = ""
            self._events = [*self._events[-MAX_EVENTS + 1 :], payload]

    def shown(self) -> Running | None:
        """What a newcomer has to see, None while nothing runs."""
        if self._mission_id is None:
            return None
        return Running(self._mission_id, list(self._events), self._partial)
