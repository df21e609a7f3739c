"""MCP over HTTP for other agents, and OAuth by which a person grants a program access."""

__all__ = ["grants", "mount"]
