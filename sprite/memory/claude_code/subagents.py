"""What a session's subagents did, and to which of its turns that belongs (pure).

Each subagent has a log of its own beside the session's. A foreground agent works within the turn that called it; a
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

#: In place of what memory said: that is in memory already, and repeated it would confirm itself.
MEMORY_ANSWERED = "[what memory answered is not kept a second time]"


@dataclass(slots=True)
class AgentCall:
    """A subagent's tool call, cut like every other; `key` names the entry that made it."""

    key: str
    at: float
    agent_id: str
    tool_use_id: str
    name: str
    input: Any
    #: Where the agent worked, as its log has it.
    folder: Any = None
    result: str | None = None
    is_error: bool = False

    @property
    def answered(self) -> bool:
        """Returns whether the tool finished."""
        return self.result is not None


@dataclass(slots=True)
class _Agent:
    """One subagent and those of its calls that no turn has taken yet, by id."""

    seen: set[str] = field(default_factory=set)
    calls: dict[str, AgentCall] = field(default_factory=dict)


class SubagentLogs:
    """The subagents of one session, read before its turns are cut, since a turn takes what its agents did."""

    def __init__(self) -> None:
        self._agents: dict[str, _Agent] = {}
        #: The agent that each tool call started.
        self._started: dict[str, str] = {}
        self._in_background: set[str] = set()
        #: When a subagent last did something.
        self.last_at = 0.0

    def started(self, agent_id: str, tool_use_id: str) -> None:
        """Notes which call started an agent, as the CLI says beside the agent's log."""
        self._started[tool_use_id] = agent_id

    def feed(self, agent_id: str, entry: Entry) -> None:
        """Takes an entry of an agent's log."""
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
        """Notes an agent that a tool's result says it started, and whether it works in the background."""
        if isinstance(result, Launch) and isinstance(result.agent_id, str):
            self._started.setdefault(tool_use_id, result.agent_id)
            if result.is_async is True:
                self._in_background.add(tool_use_id)

    def take(self, agent_id: str, until: float) -> list[AgentCall]:
        """Returns what an agent and its own agents had done by a moment, as far as no turn has taken it yet."""
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
        """Returns what the agent did that a tool call started and waited for."""
        agent_id = self._started.get(tool_use_id)
        if agent_id is None or tool_use_id in self._in_background:
            return []
        return self.take(agent_id, until=float("inf"))

    @property
    def has_rest(self) -> bool:
        """Returns whether there is something that no turn took."""
        return any(agent.calls for agent in self._agents.values())

    def take_rest(self) -> Iterable[list[AgentCall]]:
        """Yields what no turn took, by agent; nested agents are with the agent that started them."""
        made = [call for agent in self._agents.values() for call in agent.calls]
        below = {self._started[call] for call in made if call in self._started}
        for agent_id in sorted(self._agents, key=lambda name: name in below):
            calls = self.take(agent_id, until=float("inf"))
            if calls:
                yield calls


def _call(entry: Entry, agent_id: str, block: Block, tool_use_id: str) -> AgentCall:
    name = cut(from_elsewhere(block.name or ""))
    return AgentCall(entry.uuid, entry.at, agent_id, tool_use_id, name, cut_value(block.input), entry.cwd)
