"""The agent's tool calls in an editor's format: kind, title, files and diffs (pure)."""

import re
from typing import Any

from acp.helpers import ToolCallContentVariant, start_tool_call, text_block, tool_content, tool_diff_content
from acp.helpers import update_tool_call as update
from acp.schema import ToolCallLocation, ToolCallProgress, ToolCallStart, ToolKind

from bridge.client.turns import Call
from bridge.terminal import drawing
from bridge.terminal.drawing import clean, exact, one_line
from sprite.protocol.events import ToolUse
from sprite.protocol.messages import PermissionRequest
from sprite.protocol.tools import NETWORK

_TOOLS: dict[ToolKind, tuple[str, ...]] = {
    "read": ("Read", "NotebookRead"),
    "edit": ("Edit", "MultiEdit", "Write", "NotebookEdit"),
    "execute": ("Bash", "BashOutput", "KillShell"),
    "search": ("Glob", "Grep", "LS", "WebSearch", "search_memory"),
    "fetch": ("WebFetch", NETWORK),
    "think": ("Agent", "Task", "TodoWrite"),
}
_LONGEST_TITLE = 200
_FENCE = re.compile(r"`{3,}")


def kind_of(name: str) -> ToolKind:
    """Return a tool's kind in the protocol's terms."""
    tool = drawing.tool_name(name)
    return next((kind for kind, tools in _TOOLS.items() if tool in tools), "other")


def title_of(name: str, tool_input: dict[str, Any]) -> str:
    """Return a title such as `Bash: ls -la`, on one line."""
    return f"{drawing.tool_name(name)}: {drawing.telling_line(tool_input)}".rstrip(": ")[:_LONGEST_TITLE]


def started(event: ToolUse) -> ToolCallStart:
    """Return the update that shows the start of a tool call. Its file paths are on the agent's computer."""
    return start_tool_call(
        event.tool_use_id,
        title_of(event.name, event.input),
        kind=kind_of(event.name),
        status="in_progress",
        content=_diffs(event.name, event.input),
        locations=_locations(event.input),
        raw_input=event.input,
    )


def ended(call: Call, *, is_stopped: bool) -> ToolCallProgress:
    """Return the update that shows how a call ended. Without a result it was stopped, or goes on in the background."""
    result = call.result
    if result is None:
        return update(call.use.tool_use_id, status="failed" if is_stopped else "completed")
    # A successful edit keeps its diff.
    keeps_diff = kind_of(call.use.name) == "edit" and not result.is_error
    summary = clean(result.summary).strip()
    return update(
        result.tool_use_id,
        status="failed" if result.is_error else "completed",
        content=None if keeps_diff or not summary else [tool_content(text_block(fenced(summary)))],
    )


def question(request: PermissionRequest) -> tuple[str, list[ToolCallContentVariant]]:
    """Return a permission request's title and its complete input, with invisible characters made visible."""
    rows = [*drawing.whole_input(request), *drawing.foreign_words(request)]
    words = "\n".join(f"{one_line(name)}:\n{exact(value).plain}" for name, value in rows)
    shown: list[ToolCallContentVariant] = [tool_content(text_block(fenced(words or "without any input")))]
    return title_of(request.tool, request.input), [*shown, *_diffs(request.tool, request.input)]


def fenced(text: str) -> str:
    """Return a text in a code fence longer than any fence in it."""
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _diffs(name: str, tool_input: dict[str, Any]) -> list[ToolCallContentVariant]:
    path = tool_input.get("file_path", tool_input.get("notebook_path"))
    if not isinstance(path, str) or kind_of(name) != "edit":
        return []
    edits = tool_input.get("edits")
    diffs: list[ToolCallContentVariant] = []
    for edit in edits if isinstance(edits, list) else [tool_input]:
        match edit:
            case {"new_string": str(new)} | {"content": str(new)} | {"new_source": str(new)}:
                old = edit.get("old_string")
                diffs.append(tool_diff_content(path, new, old if isinstance(old, str) else None))
    return diffs


def _locations(tool_input: dict[str, Any]) -> list[ToolCallLocation]:
    for name in ("file_path", "notebook_path", "path"):
        path = tool_input.get(name)
        if isinstance(path, str) and path.startswith("/"):
            line = tool_input.get("offset")
            known = isinstance(line, int) and not isinstance(line, bool) and 0 <= line < 2**31
            return [ToolCallLocation(path=path, line=line if known else None)]
    return []
