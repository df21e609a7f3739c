"""The end of a mission (pure): one event for clients, and the rows that persist it."""

from __future__ import annotations

from collections.abc import Sequence

from sprite.agent.turn_result import TurnResult
from sprite.database.transcript import Observation, Outcome
from sprite.database.workspace import ChatAdded, Effect, MissionMoved
from sprite.errors import ShortageError, SpriteError, is_shortage
from sprite.protocol.events import AnyEnding, Complete, Failed, Interrupted
from sprite.protocol.shapes import MissionStatus, Origin, UsedTool

#: Error code of a turn that ends because the daily budget is used up.
BUDGET_USED_UP = "budget_used_up"
CRASHED_MESSAGE = "The sprite was stopped in the middle of this. What had happened by then is kept; send it again."
#: No person sent it, so no person can send it again.
OWN_CRASHED_MESSAGE = "The sprite was stopped in the middle of this. What had happened by then is kept."
SCHEDULE_CRASHED_MESSAGE = (
    "This was cut off: the sprite was stopped in the middle of it. What had happened by then is kept, and it is not "
    "begun again by itself."
)

_STATUS: dict[Outcome, MissionStatus] = {
    "complete": "complete",
    "interrupted": "interrupted",
    "error": "error",
    "max_turns": "error",
    "crashed": "error",
}


def failed(mission_id: str, error: Exception) -> Failed:
    """Return the end of a mission that an error ended. The text of an internal error is not shown."""
    if is_shortage(error):
        error = ShortageError()
    code = error.code if isinstance(error, SpriteError) else "internal"
    message = str(error) if isinstance(error, SpriteError) else "Something went wrong inside the sprite; see its log."
    return Failed(mission_id, code, message, retryable=True)


def ended(
    mission_id: str, result: TurnResult, texts: Sequence[str], cost_usd: float | None, duration_ms: int
) -> AnyEnding:
    """Return the end of a turn as reported by the CLI. `texts` is used where the CLI repeats no text."""
    if result.outcome == "interrupted":
        return Interrupted(mission_id)
    if result.failure is not None:
        code, words, retryable = result.failure
        return Failed(mission_id, code, words, retryable)
    text = result.text or "\n\n".join(texts)
    return Complete(mission_id, text=text, usage=result.usage, cost_usd=cost_usd, duration_ms=duration_ms)


def left_open(mission_id: str, turn: Observation | None, origin: Origin) -> AnyEnding:
    """Return the end of a turn that a killed process had begun, based on the log."""
    if turn is not None and turn.outcome == "complete":
        return Complete(mission_id, text=turn.agent_response, usage=None, cost_usd=None, duration_ms=0)
    if turn is not None and turn.outcome == "interrupted":
        return Interrupted(mission_id)
    return cut_off(mission_id, origin)


def cut_off(mission_id: str, origin: Origin) -> Failed:
    """Return the end of a turn that was cut off because the sprite was stopped or killed."""
    by_person = origin == "person"
    words = {"person": CRASHED_MESSAGE, "agent": OWN_CRASHED_MESSAGE, "schedule": SCHEDULE_CRASHED_MESSAGE}[origin]
    return Failed(mission_id, "crashed", words, retryable=by_person)


def rows(
    mission_id: str,
    outcome: Outcome,
    said: str,
    event: AnyEnding,
    *,
    origin: Origin = "person",
    tools: Sequence[UsedTool] = (),
    cost_usd: float | None = None,
) -> list[Effect]:
    """Return the rows for an end: the mission's status, the agent's text and tools, and the error, if any.

    A turn that no message began gets a chat line in any case.
    """
    code = event.code if isinstance(event, Failed) else None
    effects: list[Effect] = [MissionMoved(mission_id, _STATUS[outcome], cost_usd=cost_usd, error_code=code)]
    has_line = origin != "agent" or isinstance(event, Failed)
    if said.strip() or tools or not has_line:
        effects.append(ChatAdded("assistant", said, mission_id, origin, tools))
    if isinstance(event, Failed):
        effects.append(ChatAdded("error", event.message, mission_id, origin))
    return effects
