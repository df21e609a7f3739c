"""What subagents do, kept apart until a turn takes it (pure, no I/O).

A subagent in the foreground works inside the turn whose call waits for it. One in the background outlives that turn:
what it did belongs to the turn that reports it, whether it was done before or after the first turn's end. The CLI's
`prompt_id` cannot tell them apart: it names the turn that is under way, not the agent that makes the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from sprite.memory.capture.turn_buffer import TurnBuffer

_REPORTS = re.compile(r"<task-id>([\w-]{1,128})</task-id>")
_NOTIFICATION = "<task-notification>"


def reported_agents(notice: str) -> list[str]:
    """The background agents that a notice speaks of."""
    return _REPORTS.findall(notice) if notice.startswith(_NOTIFICATION) else []


class Subagents:
    """The subagents of one session, each with a buffer for the calls that no turn has taken yet."""

    def __init__(self) -> None:
        self._buffers: dict[str, TurnBuffer] = {}
        #: The tool call that started each agent.
        self._started_by: dict[str, str] = {}
        self._in_background: set[str] = set()

    def started(self, agent_id: str, tool_use_id: str) -> None:
        """A tool call started this agent."""
        self._started_by[agent_id] = tool_use_id

    def note_launch(self, tool_use_id: str, result: Any) -> None:
        """A tool's own result may name the agent that it started, and says whether that one works in the background."""
        if isinstance(result, dict) and isinstance(agent_id := result.get("agentId"), str):
            self.started(agent_id, tool_use_id)
            if result.get("isAsync") is True:
                self._in_background.add(agent_id)

    def buffer(self, agent_id: str, make: Callable[[], TurnBuffer]) -> TurnBuffer:
        """The agent's buffer; makes one where it has none."""
        if agent_id not in self._buffers:
            self._buffers[agent_id] = make()
        return self._buffers[agent_id]

    def works_in(self, agent_id: str, turn: TurnBuffer, prompt_id: str) -> bool:
        """Whether the agent is at work inside this turn, which waits for it; a guess while its start is not known."""
        if agent_id in self._in_background:
            return False
        call = self._started_by.get(agent_id)
        return turn.prompt_id == prompt_id if call is None else turn.knows_tool(call)

    def take_foreground(self, turn: TurnBuffer) -> Iterator[TurnBuffer]:
        """What agents did that this turn's own calls waited for."""
        for agent_id in list(self._buffers):
            call = self._started_by.get(agent_id)
            if call is not None and agent_id not in self._in_background and turn.knows_tool(call):
                yield from self._take(agent_id)

    def take_reported(self, notice: str) -> Iterator[TurnBuffer]:
        """What the agents did that a notice reports; all of them, where it names none."""
        if notice.startswith(_NOTIFICATION):
            named = reported_agents(notice)
            for agent_id in ["", *named] if named else list(self._buffers):
                yield from self._take(agent_id)

    def take_rest(self) -> Iterator[TurnBuffer]:
        """What is left when the session ends; its agents are forgotten."""
        for agent_id in list(self._buffers):
            yield from self._take(agent_id)
        self._started_by.clear()
        self._in_background.clear()

    def _take(self, agent_id: str) -> Iterator[TurnBuffer]:
        buffer = self._buffers.pop(agent_id, None)
        if buffer is not None:
            yield buffer
            yield from self.take_foreground(buffer)
