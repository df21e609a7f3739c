"""search_memory: the agent's only memory tool, read-only."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from claude_agent_sdk import SdkMcpTool, tool
from mcp.types import ToolAnnotations

from sprite.memory.recall.framing import set_in
from sprite.memory.recall.hits import (
    Found,
)
from sprite.memory.recall.search import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
)
from sprite.memory.recall.view import MemoryView
from sprite.protocol.rows import SearchHit
from sprite.protocol.tools import SEARCH_TOOL


def memory_tools(view: MemoryView) -> list[SdkMcpTool[Any]]:
    """Returns the one tool, in a list."""

    @tool(
        SEARCH_TOOL,
        "Search everything ever said or learned here, in natural language: learnings and past turns, best first. "
        "Filters inside the query: type:PREFERENCE (FACT, PATTERN, CORRECTION, ACTION, TOOL_INSTALL, DIGEST, TURN), "
        "since:2026-01-31, before:2026-02-28, session:ID, project:NAME, around:31 (the conversation around turn 31).",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
            },
            "required": ["query"],
        },
        annotations=ToolAnnotations(read_only_hint=True),
    )
    async def search_memory(args: dict[str, Any]) -> dict[str, Any]:
        found = await view.search(str(args.get("query", "")), _limit(args.get("limit")))
        return {"content": [{"type": "text", "text": describe(found)}]}

    return [search_memory]


def describe(found: Found) -> str:
    """Returns hits as the agent reads them, and up to which turn there are learnings."""
    reach = f"Learnings exist up to turn {found.indexed_through}; {found.waiting} newer turn(s) are not curated yet."
    if not found.hits:
        return " ".join(["Nothing found.", *found.notes, reach])
    return "\n".join([*(_line(hit) for hit in found.hits), *found.notes, reach])


def _line(hit: SearchHit) -> str:
    when = datetime.fromtimestamp(hit.at, UTC).strftime("%Y-%m-%d")
    name = f"L{hit.id} {hit.type}" if hit.kind == "learning" else f"turn {hit.id}"
    source = f", turn {hit.turn_id}" if hit.kind == "learning" and hit.turn_id is not None else ""
    marks = f" (superseded by L{hit.superseded_by})" if hit.superseded_by is not None else ""
    if hit.origin in {"tool", "web", "none"}:
        marks += f" (origin: {hit.origin}, not the person's words)"
    project = f", project {hit.project}" if hit.project is not None else ""
    return f"- [{name}, {when}{source}, session {hit.session_id}{project}]{marks} {set_in(hit.text)}"


def _limit(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return DEFAULT_LIMIT
