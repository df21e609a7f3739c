"""The end of a mission (pure): one event for clients, and the rows that persist it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sprite.common.failures import Failure
from sprite.errors import AgentError, ShortageError, SpriteError, is_shortage
from sprite.log.transcript import Observation, Outcome
from sprite.protocol.events import AnyEnding, Complete, Failed, Interrupted, TextDelta, Thinking, Usage
from sprite.protocol.messages import Decision
from sprite.protocol.shapes import MissionStatus, Origin, UsedTool
from sprite.protocol.tools import NOT_THE_AGENTS, telling
from sprite.workspace.database import ChatAdded, Effect, MissionMoved
from sprite.workspace.feed import Feed


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn."""

    #: The uuids of the messages that the turn answered.
    for_messages: tuple[str, ...]
    by_itself: bool
    outcome: Outcome
    failure: Failure | None
    text: str
    usage: dict[str, Any] | None
    #: The cost of the whole conversation, and the estimate for this turn's model calls that were cut off.
    total_cost_usd: float | None
    cut_usd: float = 0.0


_TOKENS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_CUT_OFF = "Sprite was stopped in the middle of this turn. Everything up to then is kept."
_AFTER_CUT = {"person": " Send the message again.", "schedule": " It does not start again by itself.", "agent": ""}


def failed(mission_id: str, error: Exception) -> Failed:
    """Return the ending event of a mission that failed with an error. The text of an internal error is not shown."""
    if is_shortage(error):
        error = ShortageError()
    code = error.code if isinstance(error, SpriteError) else "internal"
    message = str(error) if isinstance(error, SpriteError) else "Something went wrong inside the sprite; see its log."
    details = error.details if isinstance(error, AgentError) else ""
    return Failed(mission_id, code, message, retryable=True, action="retry", details=details)


def ended(
    mission_id: str,
    result: TurnResult,
    texts: Sequence[str],
    duration_ms: int,
    cost_usd: float | None,
    streamed_usd: float,
) -> AnyEnding:
    """Return the ending event of a turn as reported by the CLI. `texts` is used where the CLI repeats no text."""
    if result.outcome == "interrupted":
        return Interrupted(mission_id)
    if result.failure is not None:
        why = result.failure
        return Failed(mission_id, why.code, why.message, why.retryable, why.action, why.details)
    text = result.text or "\n\n".join(texts)
    settled, estimated = settled_and_estimated(result, cost_usd, streamed_usd)
    tokens = {name: max(0, int((result.usage or {}).get(name) or 0)) for name in _TOKENS}
    return Complete(
        mission_id, text, Usage(**tokens, settled_usd=settled, estimated_usd=estimated), cost_usd, duration_ms
    )


def left_open(mission_id: str, turn: Observation | None, origin: Origin) -> AnyEnding:
    """Return the ending event of a turn that was running when the process was killed; `turn` is its row in the log."""
    if turn is not None and turn.outcome == "complete":
        return Complete(mission_id, text=turn.agent_response, usage=None, cost_usd=None, duration_ms=0)
    if turn is not None and turn.outcome == "interrupted":
        return Interrupted(mission_id)
    return cut_off(mission_id, origin)


def cut_off(mission_id: str, origin: Origin) -> Failed:
    """Return the ending event of a turn that was cut off because the sprite was stopped or killed."""
    by_person = origin == "person"
    words = _CUT_OFF + _AFTER_CUT[origin]
    return Failed(mission_id, "crashed", words, retryable=by_person, action="retry" if by_person else None)


def rows(
    mission_id: str,
    outcome: Outcome,
    said: str,
    event: AnyEnding,
    *,
    origin: Origin = "person",
    tools: Sequence[UsedTool] = (),
    cost: tuple[float | None, float] = (None, 0.0),
) -> list[Effect]:
    """Return the database changes at a mission's end; `cost` has the reported and the estimated US dollars."""
    status: MissionStatus = outcome if outcome in {"complete", "interrupted"} else "error"
    code = event.code if isinstance(event, Failed) else None
    duration_ms = event.duration_ms if isinstance(event, Complete) else None
    effects: list[Effect] = [MissionMoved(mission_id, status, None, cost[0], code, duration_ms, cost[1])]
    # A turn that no message began always gets a line in the chat.
    has_line = origin != "agent" or isinstance(event, Failed)
    if said.strip() or tools or not has_line:
        found = event.memory_found if isinstance(event, Complete) else ()
        effects.append(ChatAdded("assistant", said, mission_id, origin, tools, found=found))
    if isinstance(event, Failed):
        effects.append(ChatAdded("error", event.message, mission_id, origin))
    return effects


def settled_and_estimated(
    result: TurnResult | None, reported_usd: float | None, streamed_usd: float
) -> tuple[float | None, float]:
    """Return a turn's cost in US dollars: of model calls with complete usage, and of calls that were cut off."""
    if result is None or reported_usd is None:
        return None, streamed_usd
    return max(reported_usd, streamed_usd) - result.cut_usd, result.cut_usd


#: Of a very long turn only the newest calls are kept here; the log has all of them.
TOOLS_KEPT = 100
TITLE_CHARS = 200


def used_tools(calls: Sequence[Mapping[str, Any]], answers: Mapping[str, Decision] | None = None) -> list[UsedTool]:
    """Return each tool call of a turn, already redacted, with the person's answer to the permission question."""
    used = [call for call in calls if call["name"] not in NOT_THE_AGENTS]
    return [
        UsedTool(call["name"], _title(call["input"]), call["is_error"], call_id, (answers or {}).get(call_id))
        for call in used[-TOOLS_KEPT:]
        for call_id in [call.get("tool_use_id", "")]
    ]


def _title(tool_input: Any) -> str:
    said = telling(tool_input) if isinstance(tool_input, Mapping) else ""
    return said.splitlines()[0][:TITLE_CHARS] if said else ""


#: Minimum interval of streamed text: faster than people read, slower than a fast model's tokens.
DELTA_SECONDS = 0.015


class TextStream:
    """Group streamed text into larger pieces, so that a fast model does not cost a frame per word."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._held: TextDelta | Thinking | None = None
        self._timer: asyncio.TimerHandle

    def add(self, delta: TextDelta | Thinking) -> None:
        """Add the next piece of text."""
        if type(self._held) is type(delta) and self._held.mission_id == delta.mission_id:
            self._held.text = f"{self._held.text}{delta.text}"
            return
        self.release()
        self._held = delta
        self._timer = asyncio.get_running_loop().call_later(DELTA_SECONDS, self.release)

    def release(self) -> None:
        """Publish the collected text, if any, because its time is over or another event follows."""
        if self._held is not None:
            self._timer.cancel()
            self._feed.publish(self._held, durable=False)
            self._held = None
