"""Events of the running turn so far, for clients that connect in the middle of it (pure)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sprite.protocol.events import (
    AgentEvent,
    AnyAgentEvent,
    Ending,
    Started,
    TextDelta,
    ToolResult,
    ToolUse,
    WholeText,
)
from sprite.protocol.messages import Running, ServerPayload
from sprite.protocol.shapes import SlowWork

#: Of a very long turn only the newest events are kept here; the log has all of them.
MAX_EVENTS = 200
MAX_PARTIAL_CHARS = 100_000


@dataclass(slots=True)
class _Age:
    began: float
    last: float
    tools: set[str] = field(default_factory=set)

    def work(self) -> list[SlowWork]:
        # While no tool runs, the turn waits for the model.
        return [SlowWork("turn", self.began), *([] if self.tools else [SlowWork("model_call", self.last)])]


class Underway:
    """Track the running turn. Pass every event in the order in which it is sent.

    At most one mission runs, and beside it at most one turn that the agent began by itself and for which it waits.
    """

    def __init__(self) -> None:
        self._mission: Running | None = None
        self._own: Running | None = None
        #: By turn: its start, its last event (Unix seconds), and the tools without a result.
        self._ages: dict[str, _Age] = {}

    def take(self, payload: ServerPayload, at: float | None = None) -> None:
        """Record an event that came `at` this time (Unix seconds; now by default)."""
        if not isinstance(payload, AgentEvent) or payload.mission_id is None:
            return
        self._note(payload, payload.mission_id, time.time() if at is None else at)
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

    def open_work(self) -> list[SlowWork]:
        """Return the running turns and the model calls that they wait for, of any age."""
        return [work for age in self._ages.values() for work in age.work()]

    def _note(self, event: AgentEvent, turn: str, at: float) -> None:
        if isinstance(event, Started):
            self._ages[turn] = _Age(at, at)
        elif isinstance(event, Ending):
            self._ages.pop(turn, None)
        elif (age := self._ages.get(turn)) is not None:
            age.last = at
            if isinstance(event, ToolUse):
                age.tools.add(event.tool_use_id)
            elif isinstance(event, ToolResult):
                age.tools.discard(event.tool_use_id)

    def shown(self) -> Running | None:
        """Return what a new client must see; None while no turn runs."""
        running = self._own or self._mission
        return running and Running(running.mission_id, list(running.events), running.partial)


def _after(running: Running, event: AnyAgentEvent) -> Running | None:
    if isinstance(event, Ending):
        return None
    if isinstance(event, TextDelta):
        partial = f"{running.partial}{event.text}"[-MAX_PARTIAL_CHARS:]
        return Running(running.mission_id, running.events, partial)
    # A complete text replaces the partial text.
    partial = "" if isinstance(event, WholeText) else running.partial
    return Running(running.mission_id, [*running.events[-MAX_EVENTS + 1 :], event], partial)
