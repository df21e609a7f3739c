"""What the turn under way has shown so far, for clients that connect in the middle of it (pure)."""

from __future__ import annotations

from sprite.protocol.events import AgentEvent, AnyAgentEvent, Ending, Started, TextDelta, WholeText
from sprite.protocol.messages import Running, ServerPayload

#: Of a very long turn the newest events are kept; the turn in the log has all of it.
MAX_EVENTS = 200
MAX_PARTIAL_CHARS = 100_000


class Underway:
    """Takes every event in the order in which it is handed out.

    At most one mission runs, and beside it at most one turn that the agent began by itself and for which it waits.
    """

    def __init__(self) -> None:
        self._mission: Running | None = None
        self._own: Running | None = None

    def take(self, payload: ServerPayload) -> None:
        """One event more."""
        if not isinstance(payload, AgentEvent) or payload.mission_id is None:
            return
        if isinstance(payload, Started):
            running = Running(payload.mission_id, [payload], "")
            if payload.origin == "agent":
                self._own = running
            else:
                self._mission = running
        elif self._own is not None and payload.mission_id == self._own.mission_id:
            self._own = _after(self._own, payload)
        elif self._mission is not None and payload.mission_id == self._mission.mission_id:
            self._mission = _after(self._mission, payload)

    def shown(self) -> Running | None:
        """What a newcomer has to see, None while nothing runs."""
        running = self._own or self._mission
        return running and Running(running.mission_id, list(running.events), running.partial)


def _after(running: Running, event: AnyAgentEvent) -> Running | None:
    if isinstance(event, Ending):
        return None
    if isinstance(event, TextDelta):
        partial = f"{running.partial}{event.text}"[-MAX_PARTIAL_CHARS:]
        return Running(running.mission_id, running.events, partial)
    # A whole text is the whole of what had been growing.
    partial = "" if isinstance(event, WholeText) else running.partial
    return Running(running.mission_id, [*running.events[-MAX_EVENTS + 1 :], event], partial)
