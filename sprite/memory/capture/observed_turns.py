"""Turns that other programs recorded, as they are written into the log (pure).

They are redacted and cut as any turn is, and what a person said in private in one is kept out of that conversation's
later ones. Which turn is which is known by the program's name and the id that the program gave it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from sprite.database.transcript import ImportedTurn, NewObservation
from sprite.errors import PeerError
from sprite.memory.capture.turn_buffer import TurnBuffer
from sprite.memory.claude_code.entries import EARLIEST
from sprite.memory.claude_code.subagents import MEMORY_ANSWERED
from sprite.memory.unkept import read_all
from sprite.privacy.confidences import Confidences
from sprite.privacy.cutting import clean
from sprite.protocol.observing import MAX_EXTERNAL_ID_CHARS, MAX_SOURCE_CHARS, ObservedTool, ObservedTurn
from sprite.protocol.tools import ECHO_CALLS, from_elsewhere

#: Its session logs are also read by `import`: the ids of their turns and sessions are kept as they stand there.
CLAUDE_CODE = "claude-code"
#: Clocks differ; a turn that ended later than this is of none.
MOST_AHEAD_SECONDS = 86_400.0
#: What of a turn is kept has to fit a frame, so that it can be shown; the rest of the frame is its envelope.
MAX_KEPT_BYTES = 1024 * 1024 - 16 * 1024
#: Shown in terminals, and typed into `session:` filters.
_SESSION = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
_SOURCE = re.compile(r"\A[a-z0-9][a-z0-9._-]*\Z")
_CLAUDE_CODE_ID = re.compile(r"\A[!-~]{1,128}\Z")


def checked_source(source: str) -> str:
    """The name of a program. PeerError if it is none."""
    if len(source) > MAX_SOURCE_CHARS or not _SOURCE.match(source):
        raise PeerError(
            f"The source {source[:MAX_SOURCE_CHARS]!r} is no program's name: at most {MAX_SOURCE_CHARS} small "
            "letters, digits, dots and dashes, such as claude-code."
        )
    return source


def import_key(source: str, external_id: str) -> str:
    """By which a turn is known for good; the ids of two programs never meet."""
    # Claude Code's own ids have no space in them, and no source is empty.
    return external_id if source == CLAUDE_CODE else f"{source} {external_id}"


def session_name(source: str, session: str) -> str:
    """Under which id a program's conversation is kept."""
    return session if source == CLAUDE_CODE else f"{source}/{session}"


def logged(source: str, project: str | None, turn: ObservedTurn, confidences: Confidences, now: float) -> ImportedTurn:
    """The turn as the log keeps it. PeerError, in words, for one that cannot be taken.

    `confidences` are its conversation's, which hear what the person says in it.
    """
    _check(source, turn, now)
    user = turn.user if turn.user.strip() else ""
    if user:
        confidences.hear(user)
    buffer = TurnBuffer(
        session_name(source, turn.session), "user" if user else "task", user_message=user, confidences=confidences
    )
    _take_calls(buffer, turn.tools)
    buffer.add_text(turn.reply)
    if turn.notice.strip():
        buffer.add_notice(turn.notice)
    if not user and buffer.empty:
        raise PeerError("There is nothing in it: nobody said anything, and nothing was done.")
    observation = buffer.observation(turn.outcome)
    # What was cut away before it came here is as unknown as what is cut away now.
    unkept = {**_said_unkept(turn), **observation.unkept}
    observation = replace(observation, unkept=unkept, project=project, source=source)
    _check_size(observation)
    return ImportedTurn(import_key(source, turn.external_id), _started_at(turn), turn.at, observation)


def _check(source: str, turn: ObservedTurn, now: float) -> None:
    name = turn.external_id
    if not name.strip() or len(name) > MAX_EXTERNAL_ID_CHARS or not name.isprintable():
        raise PeerError(f"Its external_id has to have 1 to {MAX_EXTERNAL_ID_CHARS} characters that can be shown.")
    if source == CLAUDE_CODE and not _CLAUDE_CODE_ID.match(name):
        raise PeerError("Its external_id is no id of a Claude Code session log.")
    if not _SESSION.match(turn.session):
        raise PeerError("Its session has to have 1 to 128 letters, digits, dots, dashes and underscores.")
    if not math.isfinite(turn.at) or turn.at < EARLIEST.timestamp():
        raise PeerError("Its time is none: `at` is in Unix seconds.")
    if turn.at > now + MOST_AHEAD_SECONDS:
        raise PeerError("Its time is in the future: `at` is in Unix seconds, not in milliseconds.")


def _started_at(turn: ObservedTurn) -> float:
    began = turn.started_at
    if began is None or not EARLIEST.timestamp() <= began <= turn.at:
        return turn.at
    return began


def _take_calls(buffer: TurnBuffer, calls: Sequence[ObservedTool]) -> None:
    for place, call in enumerate(calls):
        # Two calls without an id are two all the same.
        key = clean(call.tool_use_id[:MAX_EXTERNAL_ID_CHARS]) or f"call-{place}"
        agent = None if call.agent_id is None else clean(call.agent_id[:MAX_EXTERNAL_ID_CHARS])
        name = from_elsewhere(call.name)
        buffer.start_tool(key, name, call.input, agent)
        if call.result is not None:
            said = MEMORY_ANSWERED if name in ECHO_CALLS else call.result
            buffer.tool_answered(key, said, is_error=call.is_error)


def _said_unkept(turn: ObservedTurn) -> dict[str, Any]:
    calls = {call.tool_use_id for call in turn.tools if call.tool_use_id}
    return {name: kept.to_json() for name, kept in read_all(turn.unkept).items() if name in calls}


def _check_size(turn: NewObservation) -> None:
    size = len(msgspec.json.encode([turn.user_message, turn.agent_response, turn.notice, turn.tool_calls]))
    if size > MAX_KEPT_BYTES:
        raise PeerError(f"It is too large: {size:,} bytes are left of it after cuts, {MAX_KEPT_BYTES:,} can be kept.")
