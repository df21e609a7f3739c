"""How a mission's end is told (pure): one event for those who watch, and the rows that outlast it."""

from __future__ import annotations

from sprite.database.transcript import Observation, Outcome
from sprite.database.workspace import ChatAdded, Effect, MissionMoved, MissionStatus
from sprite.errors import SpriteError
from sprite.protocol.events import AnyEnding, Complete, Failed, Interrupted

CRASHED_MESSAGE = "The sprite was stopped in the middle of this. What had happened by then is kept; send it again."

_STATUS: dict[Outcome, MissionStatus] = {
    "complete": "complete",
    "interrupted": "interrupted",
    "error": "error",
    "max_turns": "error",
    "crashed": "error",
}


def failed(mission_id: str, error: Exception) -> Failed:
    """The end of a mission that an error ended; a fault of ours is told without its words."""
    code = error.code if isinstance(error, SpriteError) else "internal"
    message = str(error) if isinstance(error, SpriteError) else "Something went wrong inside the sprite; see its log."
    return Failed(mission_id, code, message, retryable=True)


def left_open(mission_id: str, turn: Observation) -> AnyEnding:
    """The end of a mission that a killed process had begun, by what the log knows of its turn."""
    if turn.outcome == "complete":
        return Complete(mission_id, text=turn.agent_response, usage=None, cost_usd=None, duration_ms=0)
    if turn.outcome == "interrupted":
        return Interrupted(mission_id)
    return Failed(mission_id, "crashed", CRASHED_MESSAGE, retryable=True)


def rows(mission_id: str, outcome: Outcome, said: str, event: AnyEnding) -> list[Effect]:
    """What an end writes: the mission's status, what the agent had said, and the error if it ended with one."""
    effects: list[Effect] = [MissionMoved(mission_id, _STATUS[outcome])]
    if said.strip():
        effects.append(ChatAdded("assistant", said, mission_id))
    if isinstance(event, Failed):
        effects.append(ChatAdded("error", event.message, mission_id))
    return effects
