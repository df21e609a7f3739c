"""What the agent's own tools are called, on the wire as in the log (pure)."""

from __future__ import annotations

#: The MCP server that the sprite gives its agent.
TOOL_SERVER = "sprite"
#: So begin the names of its tools as the agent calls them.
OWN_TOOLS = f"mcp__{TOOL_SERVER}__"
#: The agent's only memory tool, by itself and as the agent calls it.
SEARCH_TOOL = "search_memory"
SEARCH_CALL = f"{OWN_TOOLS}{SEARCH_TOOL}"
#: The tool with which the agent looks at its canvas.
READ_CANVAS_TOOL = "read_canvas"
READ_CANVAS_CALL = f"{OWN_TOOLS}{READ_CANVAS_TOOL}"
UPDATE_CARD_CALL = f"{OWN_TOOLS}update_card"
