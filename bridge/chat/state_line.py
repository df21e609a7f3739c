"""The one line that says what is going on: `⠹ working… Bash 0:12`, `idle · 14 turns`. Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bridge.chat.counted import counted

if TYPE_CHECKING:
    from bridge.chat.conversation import Conversation

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10


def state_line(conversation: Conversation, now: float | None = None) -> str:
    """Returns the state in words; `now` in seconds of the monotonic clock."""
    now = time.monotonic() if now is None else now
    spinner = _SPINNER[int(now * _FRAMES_PER_SECOND) % len(_SPINNER)]
    if conversation.link_text:
        return f"{spinner} {conversation.link_text}"
    if conversation.questions:
        return "? the agent waits for your word: y allow · n deny · a always, then Enter"
    if conversation.turn is not None:
        minutes, seconds = divmod(int(now - conversation.turn.since), 60)
        doing = f" {conversation.turn.doing}" if conversation.turn.doing else ""
        return f"{spinner} working…{doing} {minutes}:{seconds:02} · Ctrl-C stops"
    if conversation.busy_with:
        return f"{spinner} {conversation.busy_with}…"
    turns, waiting = conversation.turns, conversation.waiting
    parts = ["idle", counted(turns, "turn")]
    if conversation.background:
        parts.append(f"{counted(len(conversation.background), 'job')} in the background: Ctrl-C stops")
    if waiting:
        parts.append(f"{waiting} waiting to be remembered")
    return " · ".join(parts)
