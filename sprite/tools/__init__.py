"""The tools that the sprite gives the agent, on one in-process MCP server named `sprite`."""
