"""How a turn of the CLI's ended, as the conversation tells the runtime (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sprite.database.transcript import Outcome


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How the CLI says that a turn ended. `for_messages` are the messages it took in, by their uuid.

    `failure` is (code, words, retryable) where it did not complete; `total_cost_usd` counts the conversation.
    """

    for_messages: tuple[str, ...]
    by_itself: bool
    outcome: Outcome
    failure: tuple[str, str, bool] | None
    text: str
    usage: dict[str, Any] | None
    total_cost_usd: float | None
