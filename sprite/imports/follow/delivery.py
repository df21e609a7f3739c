"""Delivery of turns to a workspace: into its log, or through the sprite that owns it.

A turn is delivered when it is stored safely. Until then it stays in its session log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from sprite.common.tasks import backoff
from sprite.config import Settings
from sprite.errors import PeerError, SpriteError, WorkspaceLockedError
from sprite.imports.observed_turns import import_key, session_name
from sprite.log.transcript import ImportedTurn, TranscriptDB
from sprite.owner import open_log, say_observed
from sprite.privacy.cutting import clean
from sprite.protocol import observing

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


def messages(turns: Sequence[ImportedTurn]) -> Iterator[observing.Observe]:
    """Yield messages of one source and project each, limited to MOST_TURN_BYTES and MAX_OBSERVED_TURNS, in order.

    A larger single turn is shortened.
    """
    packed: list[observing.ObservedTurn] = []
    source, project = "", None
    size = 0
    for turn in turns:
        fitted, length = _fitted(observed(turn))
        of = turn.observation.source or "", turn.observation.project
        if packed and (
            of != (source, project) or size + length > MOST_TURN_BYTES or len(packed) == observing.MAX_OBSERVED_TURNS
        ):
            yield observing.Observe(source, packed, project)
            packed, size = [], 0
        packed.append(fitted)
        (source, project), size = of, size + length + 1
    if packed:
        yield observing.Observe(source, packed, project)


def observed(turn: ImportedTurn) -> observing.ObservedTurn:
    """Return a turn in wire format with its program's own ids: redacted and cut as in the log."""
    kept, source = turn.observation, turn.observation.source or ""
    return observing.ObservedTurn(
        external_id=turn.key.removeprefix(import_key(source, "")),
        session=kept.session_id.removeprefix(session_name(source, "")),
        at=turn.ended_at,
        user=kept.user_message,
        tools=[_tool(call) for call in kept.tool_calls],
        reply=kept.agent_response,
        outcome=kept.outcome,
        notice=kept.notice,
        started_at=turn.started_at,
    )


def _tool(call: Mapping[str, Any]) -> observing.ObservedTool:
    tool = msgspec.convert(call, observing.ObservedTool)
    # A log's ids can be any text; half a surrogate pair cannot be sent.
    tool.tool_use_id = clean(tool.tool_use_id)
    tool.agent_id = None if tool.agent_id is None else clean(tool.agent_id)
    return tool


def _fitted(turn: observing.ObservedTurn) -> tuple[observing.ObservedTurn, int]:
    """Return a turn that fits a frame, and its size in bytes."""
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

#: First and longest pause between attempts, in seconds. Failures are brief: a sprite starts or ends, or a command runs.
_PAUSES = (0.2, 5.0)
#: Error codes for a message that can never be accepted.
_WRONG_CODES = frozenset({"bad_request", "bad_payload", "bad_message", "too_large"})
#: Sends a message. Raises PeerError if it is refused, another error if it has to be sent again later.
Send = Callable[[observing.Observe], Awaitable[observing.Observed]]
#: Stores turns safely.
Write = Callable[[Sequence[ImportedTurn]], Awaitable[Delivered]]


async def deliver(settings: Settings, turns: Sequence[ImportedTurn]) -> Delivered:
    """Deliver turns, oldest first, to the workspace here; retry until they are stored safely."""
    failures = 0
    while True:
        try:
            async with writing(settings, briefly=True) as write:
                delivered = await write(turns)
        except (OSError, ValueError, SpriteError) as error:
            if not failures:
                log.warning("turns cannot be handed over yet, and stay in the session logs: %s", error)
            await asyncio.sleep(backoff(failures, *_PAUSES))
            failures += 1
        else:
            if failures:
                log.info("turns are handed over again")
            return delivered


@asynccontextmanager
async def writing(settings: Settings, *, briefly: bool = False) -> AsyncIterator[Write]:
    """Yield the function that writes turns to the log here, or has the sprite that owns it do so.

    It raises WorkspaceLockedError if that sprite does not answer.
    """
    async with AsyncExitStack() as stack:
        try:
            transcript = await stack.enter_async_context(open_log(settings, briefly=briefly))
        except WorkspaceLockedError as locked:
            yield partial(_send_to_owner, settings, locked)
        else:
            yield partial(_add, transcript)


async def _add(transcript: TranscriptDB, turns: Sequence[ImportedTurn]) -> Delivered:
    own = await transcript.cli_sessions()
    new = await transcript.add_imported([turn for turn in turns if turn.observation.session_id not in own])
    return Delivered(len(new), len(turns) - len(new))


async def _send_to_owner(settings: Settings, locked: WorkspaceLockedError, turns: Sequence[ImportedTurn]) -> Delivered:
    try:
        return await send_all(turns, partial(say_observed, settings))
    except (OSError, ValueError) as error:
        raise locked from error


async def send_all(turns: Sequence[ImportedTurn], send: Send) -> Delivered:
    """Send turns in messages; a refused message does not block the others."""
    delivered = Delivered()
    for message in messages(turns):
        try:
            answer = await send(message)
        except PeerError as error:
            if error.code not in _WRONG_CODES:
                raise
            answer = observing.Observed(
                0, 0, [observing.RefusedTurn(turn.external_id, str(error)) for turn in message.turns]
            )
        refused = [(import_key(message.source, each.external_id), each.why) for each in answer.refused]
        delivered.add(Delivered(answer.stored, answer.known, refused))
    return delivered
