"""Logged turns without a log, for tests of pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sprite.curation.provenance.evidence import Turn, Turns
from sprite.log.transcript import Observation

AT = 1795168800.0  # Friday, 2026-11-20T10:00:00Z


def turn(number: int, user: str = "Hello", reply: str = "Hi", *calls: dict[str, Any], **other: Any) -> Observation:
    """Return a turn of session s1; its number is also its place there."""
    fields: dict[str, Any] = {"timestamp": AT, "session_id": "s1", "sequence_num": number, "processed": 0}
    fields |= {"outcome": "complete", "mission_id": None, "trigger": "user", "notice": ""}
    return Observation(id=number, user_message=user, tool_calls=list(calls), agent_response=reply, **(fields | other))


def call(name: str, result: Any, command: str | None = None, **other: Any) -> dict[str, Any]:
    """Return a tool call as the log stores it."""
    given = {} if command is None else {"command": command}
    return {"tool_use_id": "x", "name": name, "input": given, "result": result, "is_error": False, **other}


def turns(*batch: Observation, earlier: Sequence[Observation] = ()) -> Turns:
    """Return the turns of a batch, with earlier ones."""
    known = {logged.id: Turn(logged) for logged in sorted((*earlier, *batch), key=lambda logged: logged.id)}
    return Turns({logged.id: known[logged.id] for logged in batch}, known)
