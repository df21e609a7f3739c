"""The tools the agent gets from us, on one in-process MCP server named `sprite`."""
