"""The result of a CLI turn, as the conversation reports it to the runtime (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sprite.database.transcript import Outcome


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn. `for_messages` lists the uuids of the messages that it took in.

    `failure` is (code, words, retryable) if it did not complete; `total_cost_usd` is for the conversation.
    """

    for_messages: tuple[str, ...]
    by_itself: bool
    outcome: Outcome
    failure: tuple[str, str, bool] | None
    text: str
    usage: dict[str, Any] | None
    total_cost_usd: float | None
