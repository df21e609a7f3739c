"""The status line: `⠹ working… Bash 0:12`, `idle · 14 turns`. Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bridge.chat.counted import counted
from bridge.chat.dues import moment_words
from bridge.chat.untrusted import one_line

if TYPE_CHECKING:
    from bridge.chat.conversation import Conversation
    from sprite.protocol.shapes import BackgroundWork

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10


def state_line(conversation: Conversation, now: float | None = None) -> str:
    """Return the state as text; `now` is in monotonic seconds."""
    beside = _in_background(conversation.background)
    now = time.monotonic() if now is None else now
    spinner = _SPINNER[int(now * _FRAMES_PER_SECOND) % len(_SPINNER)]
    if conversation.link_text:
        return f"{spinner} {conversation.link_text}"
    if conversation.questions:
        return "? the agent waits for your word: y allow · n deny · a always, then Enter"
    if conversation.turn is not None:
        doing = f" {conversation.doing}" if conversation.doing else ""
        working = f"{spinner} working…{doing} {_clock(now - conversation.turn.since)} · Ctrl-C stops"
        return " · ".join([working, *beside])
    if conversation.busy_with:
        return f"{spinner} {conversation.busy_with}…"
    if beside:
        return " · ".join([*beside, "Ctrl-C stops"])
    turns, waiting = conversation.turns, conversation.waiting
    parts = ["idle" if conversation.paused is None else "paused (/go-on)", counted(turns, "turn")]
    if waiting:
        parts.append(f"{waiting} waiting to be remembered")
    if conversation.next_due is not None:
        parts.append(f"next: {moment_words(conversation.next_due.at)}")
    if drift := len(conversation.drift):
        parts.append(f"{counted(drift, 'file')} {'waits' if drift == 1 else 'wait'} for your word (/drift)")
    return " · ".join(parts)


def _in_background(work: list[BackgroundWork]) -> list[str]:
    told = [f"{one_line(each.title)}, {_clock(time.time() - each.since)}" for each in work]
    return [f"in the background: {'; '.join(told)}"] if told else []


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes}:{rest:02}"
