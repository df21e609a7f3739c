"""Tools offered to other agents over MCP."""
