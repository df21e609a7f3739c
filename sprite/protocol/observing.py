"""Turns that other programs recorded, as sent to the log (pure). Times are Unix seconds."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from sprite.protocol.shapes import Payload

#: The receiver refuses input above these limits. They apply to one call: a frame holds less, so a call of this size
#: is forwarded in several frames.
MAX_OBSERVED_TURNS = 500
MAX_OBSERVED_BYTES = 8 * 1024 * 1024
#: The name is shown beside each turn and stored with it.
MAX_SOURCE_CHARS = 40
MAX_PROJECT_CHARS = 1_000
MAX_EXTERNAL_ID_CHARS = 200


class ObservedTool(Struct):
    """A tool call of such a turn. What it may hold is cut and redacted as for any turn."""

    name: str
    tool_use_id: str = ""
    input: Any = None
    result: Any = None
    is_error: bool = False
    agent_id: str | None = None


class ObservedTurn(Struct):
    """A turn that has ended; `external_id` names it for good, `at` is when it ended (`started_at`: when it began).

    `user` is what the person said; where nobody did (a background task was done), it is empty and `notice` says why.
    """

    external_id: str
    session: str
    at: float
    user: str = ""
    tools: list[ObservedTool] = field(default_factory=list)
    reply: str = ""
    outcome: Literal["complete", "interrupted", "error", "max_turns", "crashed"] = "complete"
    notice: str = ""
    started_at: float | None = None
    #: Where results are cut already: the hashes of the words that were cut away, by tool call, as the log has them.
    #: They make nothing of the turn more trustworthy, only less.
    unkept: dict[str, Any] = field(default_factory=dict)


class Observe(Payload):
    """Turns of one program and one project (null: the person's own), oldest first."""

    source: str
    turns: list[ObservedTurn]
    project: str | None = None


class RefusedTurn(Struct):
    """A turn that was not taken, and why, in words."""

    external_id: str
    why: str


class Observed(Payload, omit_defaults=False):
    """How many turns were written, how many were in the log already, and which were refused."""

    stored: int
    known: int
    refused: list[RefusedTurn]
