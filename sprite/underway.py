"""What the mission under way has shown so far, for whoever comes in the middle of it (pure)."""

from __future__ import annotations

from sprite.protocol.messages import (
    AgentEvent,
    Running,
    ServerPayload,
)

#: Of a very long turn the newest events are kept; the turn in the log has all of it.
MAX_EVENTS = 200
MAX_PARTIAL_CHARS = 100_000
_ENDINGS = frozenset({"complete", "interrupted", "error"})


class Underway:
    """Takes every event in the order in which it is handed out."""

    def __init__(self) -> None:
        self._mission_id: str | None = None
        self._events: list[AgentEvent] = []
        self._partial = ""

    def take(self, payload: ServerPayload) -> None:
        """One event more."""
        if not isinstance(payload, AgentEvent) or payload.mission_id is None:
            return
        if payload.event == "started":
            self._mission_id, self._events, self._partial = payload.mission_id, [payload], ""
        elif payload.mission_id != self._mission_id:
            return
        elif payload.event in _ENDINGS:
            self._mission_id, self._events, self._partial = None, [], ""
        elif payload.event == "text_delta":
            self._partial = f"{self._partial}{payload.text}"[-MAX_PARTIAL_CHARS:]
        else:
            if payload.event == "text":
                # The whole of what had been growing.
                self._partial = ""
            self._events = [*self._events[-MAX_EVENTS + 1 :], payload]

    def shown(self) -> Running | None:
        """What a newcomer has to see, None while nothing runs."""
        if self._mission_id is None:
            return None
        return Running(self._mission_id, list(self._events), self._partial)
