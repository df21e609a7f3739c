"""The `agent_event` message: the agent's activity, one type for each `event` (pure)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from sprite.common.failures import Action
from sprite.protocol.shapes import FileCounts, FoundHit, Origin, Payload


class AgentEvent(Payload, tag_field="event"):
    """Something the agent did in a turn: a person's mission, or one that it began by itself.

    `mission_id` is null only in what older sprites wrote, for turns of the agent's own.
    """

    mission_id: str | None

    @property
    def event(self) -> str:
        """Its name on the wire."""
        return str(self.__struct_config__.tag)


class Started(AgentEvent, tag="started", omit_defaults=False):
    """A turn has begun; `origin` says who began it. A turn of the agent's own may run while a mission waits for it.

    With an `attempt` above 1 it begins again: it was cut off before its first tool call, and what it had said is void.
    """

    origin: Origin = "person"
    attempt: int = 1
    session_id: str | None = None


class TextDelta(AgentEvent, tag="text_delta"):
    """A piece of text that is growing; not durable, since the whole text follows."""

    text: str


class Thinking(AgentEvent, tag="thinking"):
    """The model thinks; `text` is the next piece of its thoughts, as far as it shows them. Not durable."""

    text: str


class WholeText(AgentEvent, tag="text"):
    """A text of the agent's, whole."""

    text: str


class ToolUse(AgentEvent, tag="tool_use"):
    """A tool is called; of a large input, the beginning."""

    tool_use_id: str
    name: str
    input: dict[str, Any]


class ToolResult(AgentEvent, tag="tool_result"):
    """A tool has answered, in short."""

    tool_use_id: str
    is_error: bool
    summary: str


class ToolOutput(AgentEvent, tag="tool_output"):
    """The last lines that a running command has printed so far; they replace earlier ones. Not durable."""

    tool_use_id: str
    text: str


class Compacting(AgentEvent, tag="compacting"):
    """The conversation is too long and is being summed up."""


class Compacted(AgentEvent, tag="compacted"):
    """The conversation was summed up."""


class ModelChanged(AgentEvent, tag="model_changed"):
    """Another model answers from now on, since the first one declined or is not available; `text` is for people."""

    model: str
    text: str


class Ending(AgentEvent):
    """Every mission ends with exactly one of these; `changes` counts the files that it changed, if any."""


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
    """The mission is done. `usage` and the cost are null where they are not known.

    `memory_found` are the hits of its searches of memory, in short.
    """

    text: str
    usage: Usage | None
    cost_usd: float | None
    duration_ms: int
    changes: FileCounts | None = None
    memory_found: list[FoundHit] = field(default_factory=list)


class Interrupted(Ending, tag="interrupted"):
    """A person stopped the mission; a sprite that is shut down ends it with `error` (`crashed`)."""

    changes: FileCounts | None = None


class Failed(Ending, tag="error"):
    """The mission could not be done, in words a person understands; `retryable`: sending it again may work.

    `action` is what helps; `details` is the original text of an unknown failure, to be shown folded.
    """

    code: str
    message: str
    retryable: bool
    action: Action | None = None
    details: str = ""
    changes: FileCounts | None = None


AnyEnding = Complete | Interrupted | Failed
AnyAgentEvent = (
    Started
    | TextDelta
    | Thinking
    | WholeText
    | ToolUse
    | ToolResult
    | ToolOutput
    | Compacting
    | Compacted
    | ModelChanged
    | AnyEnding
)
