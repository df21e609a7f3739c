"""Delivery of turns: their format on the wire, and the results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from sprite.common.tasks import backoff
from sprite.config import Settings
from sprite.errors import OperatorError, PeerError, StorageError, WorkspaceLockedError
from sprite.imports.claude_code_turns import SOURCE
from sprite.log.transcript import ImportedTurn
from sprite.owner import open_log, say_observed
from sprite.privacy.cutting import clean
from sprite.protocol.observing import MAX_OBSERVED_TURNS, Observe, ObservedTool, ObservedTurn

#: Limit for a turn, so that it fits a frame and the log's limit for displayed turns.
MOST_TURN_BYTES = 900_000
#: Successive limits for long texts in the tool calls of a larger turn.
_SHORTER = (1000, 400, 100)


@dataclass(slots=True)
class Delivered:
    """Counts of turns: new in the log, already known, and refused, with the reason by the turn's key."""

    stored: int = 0
    known: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Delivered) -> None:
        """Add another's counts."""
        self.stored += other.stored
        self.known += other.known
        self.refused += other.refused


class Delivery(Protocol):
    """A destination for turns. `deliver` returns when they are stored safely, however long that takes."""

    @property
    def waiting(self) -> int:
        """The number of calls with turns that wait on this disk."""

    async def deliver(self, turns: Sequence[ImportedTurn]) -> Delivered:
        """Deliver turns, oldest first."""

    async def work(self) -> Delivered:
        """Do pending work; called periodically."""


def messages(turns: Sequence[ImportedTurn], most_bytes: int) -> Iterator[Observe]:
    """Yield messages of one project each, limited to `most_bytes` and MAX_OBSERVED_TURNS, in order.

    A larger single turn is shortened.
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
    """Return a message's turns in two messages."""
    middle = len(message.turns) // 2
    first, second = message.turns[:middle], message.turns[middle:]
    return Observe(message.source, first, message.project), Observe(message.source, second, message.project)


def observed(turn: ImportedTurn) -> ObservedTurn:
    """Return a turn in wire format: redacted and cut as in the log, with the hashes of the removed words."""
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
    # A log's ids can be any text; half a surrogate pair cannot be sent.
    tool.tool_use_id = clean(tool.tool_use_id)
    tool.agent_id = None if tool.agent_id is None else clean(tool.agent_id)
    return tool


def _fitted(turn: ObservedTurn) -> tuple[ObservedTurn, int]:
    """Return a turn that fits a frame, and its size in bytes."""
    size = len(msgspec.json.encode(turn))
    if size > MOST_TURN_BYTES and turn.unkept:
        # Without these hashes, no text of the result is trusted.
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


log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0
#: Error codes of a sprite for a message that can never be accepted.
_WRONG = frozenset({"bad_request", "bad_payload", "bad_message", "too_large"})


class LocalDelivery:
    """See Delivery. It waits as long as a sprite does not answer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trouble = ""

    @property
    def waiting(self) -> int:
        """See Delivery: everything delivered is in the log."""
        return 0

    async def deliver(self, turns: Sequence[ImportedTurn]) -> Delivered:
        """See Delivery."""
        failures = 0
        while True:
            try:
                delivered = await self._try(turns)
            except (OSError, ValueError, OperatorError, PeerError, StorageError) as error:
                # Both occur briefly while a sprite starts or ends; a command may also hold the workspace.
                self._say(str(error))
                await asyncio.sleep(backoff(failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))
                failures += 1
            else:
                if self._trouble:
                    log.info("turns are handed over again")
                self._trouble = ""
                return delivered

    async def work(self) -> Delivered:
        """See Delivery: there is no pending work."""
        return Delivered()

    async def _try(self, turns: Sequence[ImportedTurn]) -> Delivered:
        try:
            return await self._write(turns)
        except WorkspaceLockedError:
            delivered = Delivered()
            for message in messages(turns, MOST_TURN_BYTES):
                delivered.add(await self._send(message))
            return delivered

    async def _write(self, turns: Sequence[ImportedTurn]) -> Delivered:
        async with open_log(self._settings, briefly=True) as transcript:
            own = await transcript.cli_sessions()
            others = [turn for turn in turns if turn.observation.session_id not in own]
            new = await transcript.add_imported(others)
            return Delivered(len(new), len(turns) - len(new))

    async def _send(self, message: Observe) -> Delivered:
        try:
            answer = await say_observed(self._settings, message)
        except PeerError as error:
            if error.code not in _WRONG:
                raise
            # One unacceptable turn must not block the others.
            if len(message.turns) == 1:
                return Delivered(refused=[(message.turns[0].external_id, str(error))])
            delivered = Delivered()
            for half in halves(message):
                delivered.add(await self._send(half))
            return delivered
        return Delivered(answer.stored, answer.known, [(each.external_id, each.why) for each in answer.refused])

    def _say(self, trouble: str) -> None:
        """Log a problem once, not at each attempt."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("turns cannot be handed over yet, and are kept: %s", trouble)
