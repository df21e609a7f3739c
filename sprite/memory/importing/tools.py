"""Map other programs' tool calls to the names that memory knows (pure).

The name and input of a tool determine whose words its result has. A shell command is the same in every program. A tool
without a known name keeps it, and its result counts as an outsider's words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
