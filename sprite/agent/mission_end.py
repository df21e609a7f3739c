"""How a mission's end is told (pure): one event for those who watch, and the rows that outlast it."""

from __future__ import annotations

from sprite.database.transcript import Observation, Outcome
from sprite.database.workspace import ChatAdded, Effect, MissionMoved, MissionStatus
from sprite.errors import SpriteError
from sprite.protocol.messages import AgentEvent

CRASHED_MESSAGE = "The sprite was stopped in the middle of this. What had happened by then is kept; send it again."

_STATUS: dict[Outcome, MissionStatus] = {
    "complete": "complete",
    "interrupted": "interrupted",
    "error": "error",
    "max_turns": "error",
    "crashed": "error",
}


def failed(mission_id: str, error: Exception) -> AgentEvent:
    """The end of a mission that an error ended; a fault of ours is told without its words."""
    code = error.code if isinstance(error, SpriteError) else "internal"
    message = str(error) if isinstance(error, SpriteError) else "Something went wrong inside the sprite; see its log."
    return AgentEvent(mission_id, "error", code=code, message=message, retryable=True)


def left_open(mission_id: str, turn: Observation) -> AgentEvent:
    """The end of a mission that a killed process had begun, by what the log knows of its turn."""
    if turn.outcome == "complete":
        return AgentEvent(mission_id, "complete", text=turn.agent_response, usage=None, cost_usd=None, duration_ms=0)
    if turn.outcome == "interrupted":
        return AgentEvent(mission_id, "interrupted")
    return AgentEvent(mission_id, "error", code="crashed", message=CRASHED_MESSAGE, retryable=True)


def rows(mission_id: str, outcome: Outcome, said: str, event: AgentEvent) -> list[Effect]:
    """What an end writes: the mission's status, what the agent had said, and the error if it ended with one."""
    effects: list[Effect] = [MissionMoved(mission_id, _STATUS[outcome])]
    if said.strip():
        effects.append(ChatAdded("assistant", said, mission_id))
    if event.event == "error":
        effects.append(ChatAdded("error", str(event.message), mission_id))
    return effects
