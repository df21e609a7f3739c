"""Building blocks of boot prompts: turns, preferences and actions as lines within token budgets."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from sprite.database.memory import MemoryDB
from sprite.database.transcript import Observation
from sprite.memory.recall.action_lines import action_line
from sprite.memory.recall.framing import on_one_line, set_in
from sprite.memory.tokens import estimate_tokens
from sprite.memory.words import content_words, share
from sprite.schedules.zones import DEFAULT_ZONE

#: One long turn must not displace all others.
RECENT_TEXT_CHARS = 4_000
#: The same limit for scripts with more than a third of a token per letter.
RECENT_TEXT_TOKENS = 1_500
#: Failed actions shown beside the open ones.
FAILED_SHOWN = 5
#: Share of a preference's words in one line of user.md that makes it redundant.
SAID = 0.6


def turn_lines(turn: Observation, agent: str = "You") -> str:
    """Render a turn with its number and speakers; `agent` is this sprite's name for the reader."""
    when = datetime.fromtimestamp(turn.timestamp, UTC).strftime("%Y-%m-%d %H:%M UTC")
    marks = [when, *([] if turn.outcome == "complete" else [turn.outcome])]
    marks += [on_one_line(f"project {turn.project}")] if turn.project is not None else []
    marks += [on_one_line(f"said to {turn.source}")] if turn.source is not None else []
    lines = [f"[turn {turn.id}, {', '.join(marks)}]"]
    if turn.user_message:
        asker = "User" if turn.asked_by is None else on_one_line(f"Program {turn.asked_by}")
        lines.append(f"{asker}: {set_in(short(turn.user_message))}")
    elif turn.trigger == "schedule":
        lines.append(f"Schedule: {set_in(short(turn.notice))}")
    if turn.tool_calls:
        lines.append("Tools: " + ", ".join(dict.fromkeys(on_one_line(call["name"]) for call in turn.tool_calls)))
    if turn.agent_response:
        speaker = agent if turn.source is None else on_one_line(turn.source)
        lines.append(f"{speaker}: {set_in(short(turn.agent_response))}")
    return "\n".join(lines)


def short(text: str, tokens: int = RECENT_TEXT_TOKENS) -> str:
    """Return the beginning of a text within the limit for one turn."""
    kept = text[:RECENT_TEXT_CHARS]
    found = estimate_tokens(kept)
    if found > tokens:
        kept = kept[: len(kept) * tokens // found]
    return text if kept == text else f"{kept} […]"


def within(budget: int, texts: Iterable[str]) -> list[str]:
    """Return the leading texts within a token budget."""
    kept: list[str] = []
    for text in texts:
        budget -= estimate_tokens(text)
        if budget < 0:
            break
        kept.append(text)
    return kept


async def open_actions(memory: MemoryDB, tokens: int) -> list[str]:
    """Return open actions with their times in the user's zone: the next due first, then the most urgent.

    The newest failed actions are included, so that the agent brings them up.
    """
    tz = await memory.zone() or DEFAULT_ZONE
    failed = (await memory.actions("failed"))[-FAILED_SHOWN:]
    shown = [*await memory.actions("open"), *failed]
    ordered = sorted(shown, key=lambda action: (action.due is None, action.due or 0.0))
    now = time.time()
    pending = [action_line(action, now, tz) for action in ordered]
    actions = within(tokens, pending)
    if len(actions) < len(pending):
        actions.append(f"- And {len(pending) - len(actions)} more: list_actions.")
    return actions


async def wishes_beside(memory: MemoryDB, user: str, tokens: int, limit: int = 500) -> list[str]:
    """Return the user's preferences that user.md lacks, newest first. Age does not matter."""
    lines = [content_words(line) for line in user.split("\n")]
    told: list[str] = []
    left = tokens
    for wish in await memory.wishes("PREFERENCE", limit=limit):
        words = content_words(wish.content)
        if wish.origin != "user" or any(share(words, line) >= SAID for line in lines):
            continue
        left -= estimate_tokens(wish.content)
        if left < 0:
            told.append("- Older ones: search_memory, type:PREFERENCE.")
            break
        told.append(f"- {on_one_line(wish.content)}")
    return told
