"""Convert turns recorded by other programs to the log's form (pure).

They are redacted and cut like any turn. A private remark of the user is removed from later turns of the same
conversation. A turn is identified by the program's name and the program's id for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from sprite.capture.turn_buffer import TurnBuffer
from sprite.errors import PeerError
from sprite.imports.claude_code_entries import EARLIEST
from sprite.imports.claude_code_turns import MEMORY_ANSWERED
from sprite.imports.reader import Tally
from sprite.log.transcript import ImportedTurn, NewObservation, Outcome
from sprite.privacy.cutting import clean
from sprite.privacy.private_text import PrivateText
from sprite.protocol.observing import MAX_EXTERNAL_ID_CHARS, MAX_SOURCE_CHARS, ObservedTool, ObservedTurn
from sprite.protocol.tools import ECHO_CALLS, from_elsewhere

#: `import` reads its session logs, too, so turn and session ids are kept as they are there.
CLAUDE_CODE = "claude-code"
#: Tolerance for different clocks; a later turn is rejected.
MOST_AHEAD_SECONDS = 86_400.0
#: A turn must fit a frame, so that clients can show it. The rest of the frame is for its envelope.
MAX_KEPT_BYTES = 1024 * 1024 - 16 * 1024
#: Ids are shown in terminals and typed into `session:` filters.
_SESSION = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
_SOURCE = re.compile(r"\A[a-z0-9][a-z0-9._-]*\Z")
_CLAUDE_CODE_ID = re.compile(r"\A[!-~]{1,128}\Z")
#: Origins of learnings that no program may claim: "user" would make its words the person's.
_ORIGINS = frozenset(
    {"user", "assistant", "tool", "web", "file", "outside", "pasted", "memory", "program", "none", "curator", "person"}
)


def checked_source(source: str) -> str:
    """Return a program's name. PeerError if it is invalid, or the name of another origin of learnings."""
    if len(source) > MAX_SOURCE_CHARS or not _SOURCE.match(source) or source in _ORIGINS:
        raise PeerError(
            f"The source {source[:MAX_SOURCE_CHARS]!r} is no program's name: at most {MAX_SOURCE_CHARS} small "
            "letters, digits, dots and dashes, such as claude-code."
        )
    return source


def import_key(source: str, external_id: str) -> str:
    """Return the deduplication key, namespaced by source program."""
    # Claude Code's ids contain no space, and a source is never empty, so keys cannot collide.
    return external_id if source == CLAUDE_CODE else f"{source} {external_id}"


def session_name(source: str, session: str) -> str:
    """Return the id under which a program's conversation is logged."""
    return session if source == CLAUDE_CODE else f"{source}/{session}"


def logged(source: str, project: str | None, turn: ObservedTurn, private_text: PrivateText, now: float) -> ImportedTurn:
    """Convert a turn to its logged form. PeerError with a reason if it is invalid.

    `private_text` belong to the turn's conversation and collect the user's private remarks in it.
    """
    _check(source, turn, now)
    user = turn.user if turn.user.strip() else ""
    if user:
        private_text.hear(user)
    buffer = TurnBuffer(
        session_name(source, turn.session), "user" if user else "task", user_message=user, private_text=private_text
    )
    _take_calls(buffer, turn.tools)
    buffer.add_text(turn.reply)
    if turn.notice.strip():
        buffer.add_notice(turn.notice)
    if not user and buffer.empty:
        raise PeerError("There is nothing in it: nobody said anything, and nothing was done.")
    observation = replace(buffer.observation(turn.outcome), project=project, source=source)
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
        # Two calls without an id must stay two calls.
        key = clean(call.tool_use_id[:MAX_EXTERNAL_ID_CHARS]) or f"call-{place}"
        agent = None if call.agent_id is None else clean(call.agent_id[:MAX_EXTERNAL_ID_CHARS])
        name = from_elsewhere(call.name)
        buffer.start_tool(key, name, call.input, agent)
        if call.result is not None:
            said = MEMORY_ANSWERED if name in ECHO_CALLS else call.result
            buffer.tool_answered(key, said, is_error=call.is_error)


def _check_size(turn: NewObservation) -> None:
    size = len(msgspec.json.encode([turn.user_message, turn.agent_response, turn.notice, turn.tool_calls]))
    if size > MAX_KEPT_BYTES:
        raise PeerError(f"It is too large: {size:,} bytes are left of it after cuts, {MAX_KEPT_BYTES:,} can be kept.")


#: Shell tools of Codex and Gemini CLI, with the name of their main argument.
_SHELLS = {
    "exec_command": "cmd",
    "shell": "command",
    "shell_command": "command",
    "local_shell": "command",
    "container.exec": "command",
    "run_shell_command": "command",
}
_FILES = {
    "read_file": "Read",
    "write_file": "Write",
    "replace": "Edit",
    "edit": "Edit",
    "glob": "Glob",
    "list_directory": "LS",
    "search_file_content": "Grep",
    "grep_search": "Grep",
    "read_many_files": "Read",
    "apply_patch": "Edit",
    "google_web_search": "WebSearch",
    "web_search": "WebSearch",
    "web_fetch": "WebFetch",
}
#: Programs name MCP tools in different ways. These are memory's own, whose results must be recognised.
_MEMORYS = re.compile(
    r"\A(?:mcp_)?(?:([\w.-]{1,100}?)[_:]{1,2})?"
    r"(search_memory|read_memory|ask_sprite|around|list_actions|add_action)\Z"
)
_ALONE = frozenset({"search_memory", "read_memory", "ask_sprite"})
#: Names of the path argument in these tools.
_PATHS = ("absolute_path", "filePath", "path")


def as_known(name: str, given: Any) -> tuple[str, Any]:
    """Return the name and the input of a tool call in memory's terms."""
    if (argument := _SHELLS.get(name)) is not None and isinstance(given, Mapping):
        rest = {key: value for key, value in given.items() if key != argument}
        return "Bash", {"command": _command(given.get(argument)), **rest}
    if (memorys := _MEMORYS.match(name)) is not None and (memorys[1] or memorys[2] in _ALONE):
        return f"mcp__{(memorys[1] or 'memory').strip('_')}__{memorys[2]}", given
    known = _FILES.get(name)
    if known is None:
        return name, given
    if isinstance(given, str):
        return known, {"patch": given} if name == "apply_patch" else {"input": given}
    if isinstance(given, Mapping) and "file_path" not in given:
        path = next((given[key] for key in _PATHS if isinstance(given.get(key), str)), None)
        if path is not None:
            return known, {**given, "file_path": path}
    return known, given


def _command(value: Any) -> str:
    if isinstance(value, str):
        return value
    parts = [part for part in value if isinstance(part, str)] if isinstance(value, list) else []
    # Keep only the command that the shell runs.
    return parts[-1] if parts[1:-1] in (["-lc"], ["-c"]) else " ".join(parts)


@dataclass(slots=True)
class Turn:
    """A turn assembled entry by entry; `line` is where it begins. Times are Unix seconds."""

    external_id: str
    line: int
    started_at: float
    ended_at: float
    project: str | None = None
    said: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    tools: dict[str, ObservedTool] = field(default_factory=dict)
    #: The outcome as stated by the program, or None.
    outcome: Outcome | None = None
    #: Whether it is empty, or ends in a call without a result.
    waits: bool = True

    def touch(self, at: float | None) -> None:
        """Extend the turn to the time of an entry."""
        self.ended_at = max(self.ended_at, at or 0.0)

    def says(self, text: str) -> None:
        """Add text to the agent's reply."""
        if text.strip():
            self.replies.append(text)
            self.waits = False

    def calls(self, key: str, name: str, given: Any) -> None:
        """Add a tool call under memory's name for it; an existing call stays."""
        name, given = as_known(name, given)
        self.tools.setdefault(key, ObservedTool(name, key, given))
        self.waits = True

    def answers(self, key: str, result: Any, *, is_error: bool) -> None:
        """Add the result of a call; a result without a call is ignored."""
        if (call := self.tools.get(key)) is not None:
            call.result = "" if result is None else result
            call.is_error = call.is_error or is_error


class Conversation:
    """Convert the turns of one conversation, which share a session and private remarks."""

    def __init__(self, source: str, session: str, path: Path, now: float, tally: Tally) -> None:
        self._source = source
        self._session = session
        self._path = path
        self._now = now
        self._tally = tally
        self._private_text = PrivateText()

    def finished(self, turn: Turn) -> ImportedTurn | None:
        """Return the turn in the log's form, or None with a note in the tally if it is invalid."""
        outcome = turn.outcome or ("crashed" if turn.waits else "complete")
        observed = ObservedTurn(
            external_id=turn.external_id,
            session=self._session,
            at=turn.ended_at,
            user="\n\n".join(text for text in turn.said if text.strip()),
            tools=list(turn.tools.values()),
            reply="\n\n".join(turn.replies),
            outcome=outcome,
            notice="\n".join(turn.notices),
            started_at=turn.started_at,
        )
        try:
            return logged(self._source, turn.project, observed, self._private_text, self._now)
        except PeerError as error:
            self._tally.damage(self._path, turn.line, str(error))
            return None
