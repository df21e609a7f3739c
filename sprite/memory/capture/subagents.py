"""Subagents' tool calls, buffered until a turn takes them (pure, no I/O).

A foreground subagent works inside the turn whose call waits for it. A background subagent outlives that turn: all its
work belongs to the turn that reports it. The CLI's `prompt_id` cannot distinguish them: it names the current turn, not
the calling agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from sprite.memory.capture.turn_buffer import TurnBuffer

_REPORTS = re.compile(r"<task-id>([\w-]{1,128})</task-id>")
_NOTIFICATION = "<task-notification>"


def reported_agents(notice: str) -> list[str]:
    """Return the background agents named in a notice."""
    return _REPORTS.findall(notice) if notice.startswith(_NOTIFICATION) else []


class Subagents:
    """Buffer the calls of one session's subagents until a turn takes them."""

    def __init__(self) -> None:
        self._buffers: dict[str, TurnBuffer] = {}
        #: Tool call that started each agent.
        self._started_by: dict[str, str] = {}
        self._in_background: set[str] = set()

    def started(self, agent_id: str, tool_use_id: str) -> None:
        """Register the tool call that started an agent."""
        self._started_by[agent_id] = tool_use_id

    def note_launch(self, tool_use_id: str, result: Any) -> None:
        """Register the agent that a tool's result names, and whether it runs in the background."""
        if isinstance(result, dict) and isinstance(agent_id := result.get("agentId"), str):
            self.started(agent_id, tool_use_id)
            if result.get("isAsync") is True:
                self._in_background.add(agent_id)

    def buffer(self, agent_id: str, make: Callable[[], TurnBuffer]) -> TurnBuffer:
        """Return the agent's buffer, created with `make` if missing."""
        if agent_id not in self._buffers:
            self._buffers[agent_id] = make()
        return self._buffers[agent_id]

    def works_in(self, agent_id: str, turn: TurnBuffer, prompt_id: str) -> bool:
        """Return whether this turn waits for the agent; a guess while the agent's start is unknown."""
        if agent_id in self._in_background:
            return False
        call = self._started_by.get(agent_id)
        return turn.prompt_id == prompt_id if call is None else turn.knows_tool(call)

    def take_foreground(self, turn: TurnBuffer) -> Iterator[TurnBuffer]:
        """Take the buffers of agents that this turn's calls waited for."""
        for agent_id in list(self._buffers):
            call = self._started_by.get(agent_id)
            if call is not None and agent_id not in self._in_background and turn.knows_tool(call):
                yield from self._take(agent_id)

    def take_reported(self, notice: str) -> Iterator[TurnBuffer]:
        """Take the buffers of the agents in a notice, or all if it names none."""
        if notice.startswith(_NOTIFICATION):
            named = reported_agents(notice)
            for agent_id in ["", *named] if named else list(self._buffers):
                yield from self._take(agent_id)

    def take_rest(self) -> Iterator[TurnBuffer]:
        """Take all buffers at the end of the session, and forget its agents."""
        for agent_id in list(self._buffers):
            yield from self._take(agent_id)
        self._started_by.clear()
        self._in_background.clear()

    def _take(self, agent_id: str) -> Iterator[TurnBuffer]:
        buffer = self._buffers.pop(agent_id, None)
        if buffer is not None:
            yield buffer
            yield from self.take_foreground(buffer)
