"""Tools offered to other agents over MCP."""

__all__ = ["server", "shapes", "tools"]
