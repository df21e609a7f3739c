"""`mcp`: a read-only MCP server on stdio with `search_memory`, for other agents on this machine.

Stdout carries the protocol and nothing else; it ends when stdin does.
"""

from __future__ import annotations

from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from sprite import __version__
from sprite.commands.stores import open_stores
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.memory.recall.search import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
)
from sprite.tools.memory import describe

DESCRIPTION = (
    "Search everything ever said to or learned by this person's agent, in natural language: learnings and past turns, "
    "best first. Filters inside the query: type:PREFERENCE (FACT, PATTERN, CORRECTION, ACTION, TOOL_INSTALL, DIGEST, "
    "TURN), since:2026-01-31, before:2026-02-28, session:ID, around:31 (the conversation around turn 31)."
)


async def serve_memory(settings: Settings) -> int:
    """Serves until stdin is closed; raises OperatorError if there is no memory yet."""
    async with open_stores(settings):
        pass
    await _server(settings).run_stdio_async()
    return 0


def _server(settings: Settings) -> MCPServer:
    server = MCPServer("sprite-memory", version=__version__, log_level="WARNING")

    @server.tool(
        description=DESCRIPTION,
        annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False),
        structured_output=False,
    )
    async def search_memory(
        query: str, limit: Annotated[int, Field(description=f"at most {MAX_LIMIT}")] = DEFAULT_LIMIT
    ) -> str:
        # Opened for each query: a rebuild replaces whole files, and an open store would go on reading the old ones.
        try:
            async with open_stores(settings) as stores:
                return describe(await stores.view.search(query, limit))
        except OperatorError as error:
            raise ToolError(str(error)) from error

    return server
