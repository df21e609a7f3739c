"""Assemble the turns of another program's conversation for the log (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sprite.errors import PeerError
from sprite.imports.observed_turns import logged
from sprite.imports.reader import Tally
from sprite.log.transcript import ImportedTurn, Outcome
from sprite.privacy.private_text import PrivateText
from sprite.protocol.observing import ObservedTool, ObservedTurn

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
