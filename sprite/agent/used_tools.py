"""Summary of a turn's tools for the chat (pure). The log has the full calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sprite.protocol.shapes import UsedTool
from sprite.protocol.tools import NOT_THE_AGENTS

#: Of a very long turn only the newest calls are kept here; the log has all of them.
TOOLS_KEPT = 100
TITLE_CHARS = 200
#: Input fields that describe a call best, most descriptive first.
_TELLING = ("command", "file_path", "notebook_path", "pattern", "path", "url", "query", "description", "title")


def used_tools(calls: Sequence[Mapping[str, Any]]) -> list[UsedTool]:
    """Return each call of a redacted observation: its name, its purpose, and whether it failed."""
    used = [call for call in calls if call["name"] not in NOT_THE_AGENTS]
    return [UsedTool(call["name"], _title(call["input"]), call["is_error"]) for call in used[-TOOLS_KEPT:]]


def _title(tool_input: Any) -> str:
    if not isinstance(tool_input, Mapping):
        return ""
    said = [text for name in (*_TELLING, *tool_input) if isinstance(text := tool_input.get(name), str) and text.strip()]
    return said[0].strip().splitlines()[0][:TITLE_CHARS] if said else ""
