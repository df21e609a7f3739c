"""Assign the tool calls of a session's subagents to its turns (pure).

Each subagent has its own log beside the session's. A foreground agent works within the turn that called it. A
background agent outlives that turn and reports to a later one, possibly several times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sprite.memory.claude_code.entries import (
    Block,
    Entry,
    Launch,
)
from sprite.privacy.cutting import (
    cut,
    cut_value,
    result_text,
)
from sprite.protocol.tools import ECHO_CALLS, from_elsewhere

#: Replaces answers from memory: repeated, they would confirm themselves.
MEMORY_ANSWERED = "[what memory answered is not kept a second time]"


@dataclass(slots=True)
class AgentCall:
    """A subagent's tool call, cut like every other; `key` names its entry."""

    key: str
    at: float
    agent_id: str
    tool_use_id: str
    name: str
    input: Any
    #: The agent's folder as logged.
    folder: Any = None
    result: str | None = None
    is_error: bool = False

    @property
    def answered(self) -> bool:
        """Return whether the tool finished."""
        return self.result is not None


@dataclass(slots=True)
class _Agent:
    """One subagent and its calls that no turn has taken yet, by id."""

    seen: set[str] = field(default_factory=set)
    calls: dict[str, AgentCall] = field(default_factory=dict)


class SubagentLogs:
    """Collect the subagents of one session. Feed them before its turns, which take the agents' calls."""

    def __init__(self) -> None:
        self._agents: dict[str, _Agent] = {}
        #: The agent that each tool call started.
        self._started: dict[str, str] = {}
        self._in_background: set[str] = set()
        #: Time of the last entry of any subagent.
        self.last_at = 0.0

    def started(self, agent_id: str, tool_use_id: str) -> None:
        """Record the call that started an agent, from the CLI's note beside its log."""
        self._started[tool_use_id] = agent_id

    def feed(self, agent_id: str, entry: Entry) -> None:
        """Add an entry of an agent's log."""
        agent = self._agents.setdefault(agent_id, _Agent())
        if entry.uuid in agent.seen:
            return
        agent.seen.add(entry.uuid)
        self.last_at = max(self.last_at, entry.at)
        for block in entry.blocks:
            if block.type == "tool_use" and block.id is not None:
                agent.calls[block.id] = _call(entry, agent_id, block, block.id)
            elif block.tool_use_id is not None:
                self.note_launch(block.tool_use_id, entry.tool_use_result)
                call = agent.calls.get(block.tool_use_id)
                if call is not None:
                    said = MEMORY_ANSWERED if call.name in ECHO_CALLS else result_text(block.content)
                    call.result, call.is_error = cut(said), bool(block.is_error)

    def note_launch(self, tool_use_id: str, result: Any) -> None:
        """Record the agent named in a tool's result, and whether it runs in the background."""
        if isinstance(result, Launch) and isinstance(result.agent_id, str):
            self._started.setdefault(tool_use_id, result.agent_id)
            if result.is_async is True:
                self._in_background.add(tool_use_id)

    def take(self, agent_id: str, until: float) -> list[AgentCall]:
        """Return the untaken calls of an agent and its own agents up to a moment."""
        agent = self._agents.get(agent_id)
        if agent is None:
            return []
        ready = [call for call in agent.calls.values() if call.at <= until]
        taken: list[AgentCall] = []
        for call in ready:
            if agent.calls.pop(call.tool_use_id, None) is None:
                continue
            taken.append(call)
            below = self._started.get(call.tool_use_id)
            if below is not None:
                taken += self.take(below, until)
        return taken

    def take_foreground(self, tool_use_id: str) -> list[AgentCall]:
        """Return the calls of the agent that a tool call started and waited for."""
        agent_id = self._started.get(tool_use_id)
        if agent_id is None or tool_use_id in self._in_background:
            return []
        return self.take(agent_id, until=float("inf"))

    @property
    def has_rest(self) -> bool:
        """Return whether any calls are left."""
        return any(agent.calls for agent in self._agents.values())

    def take_rest(self) -> Iterable[list[AgentCall]]:
        """Yield the remaining calls by agent; nested agents come with their parent."""
        made = [call for agent in self._agents.values() for call in agent.calls]
        below = {self._started[call] for call in made if call in self._started}
        for agent_id in sorted(self._agents, key=lambda name: name in below):
            calls = self.take(agent_id, until=float("inf"))
            if calls:
                yield calls


def _call(entry: Entry, agent_id: str, block: Block, tool_use_id: str) -> AgentCall:
    name = cut(from_elsewhere(block.name or ""))
    return AgentCall(entry.uuid, entry.at, agent_id, tool_use_id, name, cut_value(block.input), entry.cwd)
