"""Cost of a running turn's model calls, computed from the streamed usage.

The CLI reports a turn's cost only at its end. A call's final usage arrives with its stream; for a subagent's call
only the message is available. Calls with an unknown price are left out.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from claude_agent_sdk import AssistantMessage, Message, StreamEvent

from sprite.common.prices import cost_usd

#: Remembered subagent messages, because each arrives once per block.
_MOST_MESSAGES = 200


class CallCosts:
    """Track call costs. Pass every message to `take` in order; it returns the added cost in US dollars."""

    def __init__(self) -> None:
        self._model = ""
        self._usage: dict[str, Any] = {}
        self._counted: OrderedDict[str, float] = OrderedDict()

    def take(self, message: Message) -> float:
        """Return the cost that this message adds, in US dollars."""
        match message:
            case StreamEvent(parent_tool_use_id=None, event={"type": "message_start", "message": dict(begun)}):
                self._model, self._usage = str(begun.get("model")), {}
                return self._grown(begun.get("usage"))
            case StreamEvent(parent_tool_use_id=None, event={"type": "message_delta", "usage": usage}):
                return self._grown(usage)
            case AssistantMessage(parent_tool_use_id=str(), message_id=str(message_id), model=model, usage=dict(usage)):
                cost = cost_usd(model, usage) or 0.0
                before = self._counted.pop(message_id, 0.0)
                self._counted[message_id] = max(cost, before)
                if len(self._counted) > _MOST_MESSAGES:
                    self._counted.popitem(last=False)
                return max(cost - before, 0.0)
        return 0.0

    def _grown(self, usage: Any) -> float:
        before = cost_usd(self._model, self._usage) or 0.0
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}
        return max((cost_usd(self._model, self._usage) or 0.0) - before, 0.0)
