"""What tools a turn used, in short, as the chat keeps it (pure). The log has the calls whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sprite.protocol.shapes import UsedTool
from sprite.protocol.tools import NOT_THE_AGENTS

#: Of a very long turn the newest calls are kept; the log has all of them.
TOOLS_KEPT = 100
TITLE_CHARS = 200
#: The input that says best what a call was for, the most telling first.
_TELLING = ("command", "file_path", "notebook_path", "pattern", "path", "url", "query", "description", "title")


def used_tools(calls: Sequence[Mapping[str, Any]]) -> list[UsedTool]:
    """The calls of an observation (discreet already): each one's name, what it was for, and whether it failed."""
    used = [call for call in calls if call["name"] not in NOT_THE_AGENTS]
    return [UsedTool(call["name"], _title(call["input"]), call["is_error"]) for call in used[-TOOLS_KEPT:]]


def _title(tool_input: Any) -> str:
    if not isinstance(tool_input, Mapping):
        return ""
    said = [text for name in (*_TELLING, *tool_input) if isinstance(text := tool_input.get(name), str) and text.strip()]
    return said[0].strip().splitlines()[0][:TITLE_CHARS] if said else ""
