"""Convert turns recorded by other programs to the log's form, redacted and cut like any turn (pure)."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import msgspec

from sprite.capture.turn_buffer import TurnBuffer
from sprite.errors import PeerError
from sprite.imports.claude_code_entries import EARLIEST, ENTRY_ID, SESSION_ID
from sprite.imports.claude_code_turns import CLAUDE_CODE, MEMORY_ANSWERED, take_call
from sprite.log.transcript import ImportedTurn
from sprite.privacy.cutting import clean
from sprite.privacy.private_text import PrivateText
from sprite.protocol.observing import MAX_EXTERNAL_ID_CHARS, MAX_SOURCE_CHARS, ObservedTool, ObservedTurn
from sprite.protocol.tools import ECHO_CALLS, from_elsewhere

#: Tolerance for different clocks; a later turn is rejected.
MOST_AHEAD_SECONDS = 86_400.0
#: A turn must fit a frame, so that clients can show it. The rest of the frame is for its envelope.
MAX_KEPT_BYTES = 1024 * 1024 - 16 * 1024
_SOURCE = re.compile(r"\A[a-z0-9][a-z0-9._-]*\Z")
#: Origins of learnings that no program may claim: "user" would make its words the person's.
_ORIGINS = frozenset(
    {"user", "assistant", "tool", "web", "file", "outside", "pasted", "memory", "program", "none", "curator", "person"}
)


def checked_source(source: str) -> str:
    """Return a program's name. PeerError if it is invalid, or the name of another origin of learnings."""
    if len(source) > MAX_SOURCE_CHARS or not _SOURCE.match(source) or source in _ORIGINS:
        raise PeerError(
            f"The source {source[:MAX_SOURCE_CHARS]!r} is not a valid program name: use at most {MAX_SOURCE_CHARS} "
            "lower-case letters, digits, dots and dashes, such as claude-code."
        )
    return source


def import_key(source: str, external_id: str) -> str:
    """Return the deduplication key, namespaced by source program; for Claude Code the one that `import` uses."""
    # Claude Code's ids contain no space, and a source is never empty, so keys cannot collide.
    return external_id if source == CLAUDE_CODE else f"{source} {external_id}"


def session_name(source: str, session: str) -> str:
    """Return the session id of the sprite's log for a conversation of another program."""
    return session if source == CLAUDE_CODE else f"{source}/{session}"


def logged(source: str, project: str | None, turn: ObservedTurn, private_text: PrivateText, now: float) -> ImportedTurn:
    """Convert another program's turn to the form of the sprite's log. PeerError with a reason if it is invalid.

    `private_text` collects the user's private remarks in the conversation, and removes them from this turn.
    """
    _check(source, turn, now)
    user = turn.user if turn.user.strip() else ""
    if user:
        private_text.hear(user)
    buffer = TurnBuffer(
        session_name(source, turn.session), "user" if user else "task", user_message=user, private_text=private_text
    )
    for place, call in enumerate(turn.tools):
        name = from_elsewhere(call.name)
        is_echo = name in ECHO_CALLS and call.result is not None
        given = ObservedTool(
            name,
            # Two calls without an id must stay two calls.
            clean(call.tool_use_id[:MAX_EXTERNAL_ID_CHARS]) or f"call-{place}",
            call.input,
            MEMORY_ANSWERED if is_echo else call.result,
            call.is_error,
            None if call.agent_id is None else clean(call.agent_id[:MAX_EXTERNAL_ID_CHARS]),
        )
        take_call(buffer, given)
    buffer.add_text(turn.reply)
    if turn.notice.strip():
        buffer.add_notice(turn.notice)
    if not user and buffer.empty:
        raise PeerError("The turn is empty: it has no words and no tool calls.")
    kept = replace(buffer.observation(turn.outcome), project=project, source=source)
    size = len(msgspec.json.encode([kept.user_message, kept.agent_response, kept.notice, kept.tool_calls]))
    if size > MAX_KEPT_BYTES:
        raise PeerError(
            f"The turn is too large: {size:,} bytes even after shortening; the limit is {MAX_KEPT_BYTES:,}."
        )
    began = turn.started_at
    if began is None or not EARLIEST.timestamp() <= began <= turn.at:
        began = turn.at
    return ImportedTurn(import_key(source, turn.external_id), began, turn.at, kept)


def _check(source: str, turn: ObservedTurn, now: float) -> None:
    name = turn.external_id
    if not name.strip() or len(name) > MAX_EXTERNAL_ID_CHARS or not name.isprintable():
        raise PeerError(f"`external_id` must have 1 to {MAX_EXTERNAL_ID_CHARS} printable characters.")
    if source == CLAUDE_CODE and not re.match(ENTRY_ID, name):
        raise PeerError("`external_id` is not an id of a Claude Code session log.")
    if not re.match(SESSION_ID, turn.session):
        raise PeerError("`session` must have 1 to 128 letters, digits, dots, dashes and underscores.")
    if not math.isfinite(turn.at) or turn.at < EARLIEST.timestamp():
        raise PeerError("`at` must be a time in Unix seconds.")
    if turn.at > now + MOST_AHEAD_SECONDS:
        raise PeerError("`at` is in the future. Give Unix seconds, not milliseconds.")
