"""search_memory: the agent's only memory tool, read-only."""

from __future__ import annotations

from typing import Any

from claude_agent_sdk import SdkMcpTool, tool
from mcp.types import ToolAnnotations

from sprite.memory.recall.hits import (
    Found,
)
from sprite.memory.recall.search import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
)
from sprite.memory.recall.view import MemoryView
from sprite.protocol.offered.wording import hits_text
from sprite.protocol.tools import SEARCH_TOOL


def memory_tools(view: MemoryView) -> list[SdkMcpTool[Any]]:
    """Return the one tool, in a list."""

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
    """Return hits as text for the agent, and the last turn with learnings."""
    return hits_text(found.hits, found.notes, found.indexed_through, found.waiting)


def _limit(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return DEFAULT_LIMIT
