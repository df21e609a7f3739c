"""Tools and cards offered to other agents over MCP."""
