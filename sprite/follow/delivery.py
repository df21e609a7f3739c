"""What becomes of the turns that were read: the form in which they travel, and what was said of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from sprite.database.transcript import ImportedTurn
from sprite.memory.claude_code.turns import SOURCE
from sprite.privacy.cutting import clean
from sprite.protocol.observing import MAX_OBSERVED_TURNS, Observe, ObservedTool, ObservedTurn

#: What a turn may have so that a frame of the wire, and the log's own limit for what can be shown, hold it.
MOST_TURN_BYTES = 900_000
#: To what long texts in a turn's tool calls are cut where it is larger than that, one after the other.
_SHORTER = (1000, 400, 100)


@dataclass(slots=True)
class Delivered:
    """Counts of turns: new in the log, known to it, and refused, with the reason by the turn's key."""

    stored: int = 0
    known: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Delivered) -> None:
        """Adds another's counts."""
        self.stored += other.stored
        self.known += other.known
        self.refused += other.refused


class Delivery(Protocol):
    """Where turns go. `deliver` returns when they are safe there, however long that takes."""

    @property
    def waiting(self) -> int:
        """How many calls with turns wait on this disk."""

    async def deliver(self, turns: Sequence[ImportedTurn]) -> Delivered:
        """Hands turns over, oldest first."""

    async def work(self) -> Delivered:
        """Does what is due of the rest; called now and then."""


def messages(turns: Sequence[ImportedTurn], most_bytes: int) -> Iterator[Observe]:
    """Packs turns, in their order, into messages of one project each, of so many bytes and MAX_OBSERVED_TURNS at most.

    A turn that is larger alone is shortened.
    """
    packed: list[ObservedTurn] = []
    project: str | None = None
    size = 0
    for turn in turns:
        fitted, length = _fitted(observed(turn))
        of = turn.observation.project
        if packed and (of != project or size + length > most_bytes or len(packed) == MAX_OBSERVED_TURNS):
            yield Observe(SOURCE, packed, project)
            packed, size = [], 0
        packed.append(fitted)
        project, size = of, size + length + 1
    if packed:
        yield Observe(SOURCE, packed, project)


def halves(message: Observe) -> tuple[Observe, Observe]:
    """Returns a message's turns in two messages."""
    middle = len(message.turns) // 2
    first, second = message.turns[:middle], message.turns[middle:]
    return Observe(message.source, first, message.project), Observe(message.source, second, message.project)


def observed(turn: ImportedTurn) -> ObservedTurn:
    """Returns a turn as it travels: redacted and cut as the log has it, with the hashes of what was cut away."""
    kept = turn.observation
    return ObservedTurn(
        external_id=turn.key,
        session=kept.session_id,
        at=turn.ended_at,
        user=kept.user_message,
        tools=[_tool(call) for call in kept.tool_calls],
        reply=kept.agent_response,
        outcome=kept.outcome,
        notice=kept.notice,
        started_at=turn.started_at,
        unkept={clean(name): hashes for name, hashes in kept.unkept.items()},
    )


def _tool(call: Mapping[str, Any]) -> ObservedTool:
    tool = msgspec.convert(call, ObservedTool)
    # A log's ids are anything; half a character cannot travel.
    tool.tool_use_id = clean(tool.tool_use_id)
    tool.agent_id = None if tool.agent_id is None else clean(tool.agent_id)
    return tool


def _fitted(turn: ObservedTurn) -> tuple[ObservedTurn, int]:
    """Returns a turn that is no larger than a frame, and its bytes."""
    size = len(msgspec.json.encode(turn))
    if size > MOST_TURN_BYTES and turn.unkept:
        # What is not known of a result trusts nothing in it.
        turn.unkept = {call: {"words": "", "blind": True} for call in turn.unkept}
        size = len(msgspec.json.encode(turn))
    for most in _SHORTER:
        if size <= MOST_TURN_BYTES:
            break
        for tool in turn.tools:
            tool.input, tool.result = _shortened(tool.input, most), _shortened(tool.result, most)
        size = len(msgspec.json.encode(turn))
    calls, notice = len(turn.tools), turn.notice
    while size > MOST_TURN_BYTES and turn.tools:
        turn.tools = turn.tools[: len(turn.tools) // 2]
        kept = {tool.tool_use_id for tool in turn.tools}
        turn.unkept = {call: words for call, words in turn.unkept.items() if call in kept}
        turn.notice = f"{notice}\n{calls - len(turn.tools)} more tool calls of this turn are not kept.".strip()
        size = len(msgspec.json.encode(turn))
    return turn, size


def _shortened(value: Any, most: int) -> Any:
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}... [cut: {len(value) - most} more characters]"
    if isinstance(value, dict):
        return {name: _shortened(part, most) for name, part in value.items()}
    return [_shortened(part, most) for part in value] if isinstance(value, list) else value
