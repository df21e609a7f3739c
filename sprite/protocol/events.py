"""The `agent_event` message: the agent's activity, one type for each `event` (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, field

from sprite.common.failures import Action
from sprite.protocol.shapes import FileCounts, FoundHit, Origin, ServerPayload, union_of


class AgentEvent(ServerPayload, tag_field="event"):
    """Something that the agent did in a turn: a person's mission, or a turn that it began by itself.

    `mission_id` names the turn.
    """

    mission_id: str | None

    @property
    def event(self) -> str:
        """The name of this type of event in the field `event` on the wire."""
        return str(self.__struct_config__.tag)


class Started(AgentEvent, tag="started", omit_defaults=False):
    """A turn began; `origin` says who began it. A turn of the agent's own may run while a mission waits for it.

    With an `attempt` above 1, the sprite begins the turn again, because it was cut off before its first tool call.
    The client discards the text of the earlier attempt.
    """

    origin: Origin = "person"
    attempt: int = 1
    session_id: str | None = None


class TextDelta(AgentEvent, tag="text_delta"):
    """The next piece of a text. Not durable, because the whole text follows."""

    text: str


class Thinking(AgentEvent, tag="thinking"):
    """The next piece of the model's visible thoughts. Not durable."""

    text: str


class WholeText(AgentEvent, tag="text"):
    """A complete text of the agent."""

    text: str


class ToolUse(AgentEvent, tag="tool_use"):
    """The agent calls a tool. A large input is cut."""

    tool_use_id: str
    name: str
    input: dict[str, Any]


class ToolResult(AgentEvent, tag="tool_result"):
    """A tool has returned; the result is cut."""

    tool_use_id: str
    is_error: bool
    summary: str


class ToolOutput(AgentEvent, tag="tool_output"):
    """The last lines of a running command's output; they replace the earlier ones. Not durable."""

    tool_use_id: str
    text: str


class Compacting(AgentEvent, tag="compacting"):
    """The conversation is too long, and the CLI begins to summarise it."""


class Compacted(AgentEvent, tag="compacted"):
    """The CLI has summarised the conversation."""


class ModelChanged(AgentEvent, tag="model_changed"):
    """Another model answers from now on, because the previous one declined or is unavailable; `text` is for people."""

    model: str
    text: str


class Ending(AgentEvent):
    """The end of a mission. Every mission has exactly one; `changes` counts its changed files."""


#: JavaScript has no larger integers.
_Tokens = Annotated[int, Meta(ge=0, lt=2**53)]


class Usage(Struct, omit_defaults=False):
    """Tokens of a turn, and US dollars: `settled_usd` as reported, `estimated_usd` for calls that were cut off."""

    input_tokens: _Tokens = 0
    output_tokens: _Tokens = 0
    cache_creation_input_tokens: _Tokens = 0
    cache_read_input_tokens: _Tokens = 0
    settled_usd: float | None = None
    estimated_usd: float = 0.0


class Complete(Ending, tag="complete"):
    """The mission is done. `usage` and the cost are null if unknown.

    `memory_found` are the hits of its searches of memory, cut.
    """

    text: str
    usage: Usage | None
    cost_usd: float | None
    duration_ms: int
    changes: FileCounts | None = None
    memory_found: list[FoundHit] = field(default_factory=list)


class Interrupted(Ending, tag="interrupted"):
    """A person stopped the mission. If the sprite itself stopped, its mission ends with `error` (`crashed`)."""

    changes: FileCounts | None = None


class Failed(Ending, tag="error"):
    """The mission failed, in words for people. `retryable`: sending it again may work.

    `action` is what helps. `details` is the original text of an unknown failure; clients show it folded.
    """

    code: str
    message: str
    retryable: bool
    action: Action | None = None
    details: str = ""
    changes: FileCounts | None = None


AnyEnding = Complete | Interrupted | Failed
if TYPE_CHECKING:
    AnyAgentEvent = AgentEvent
else:
    AnyAgentEvent = union_of(AgentEvent)
