"""Connections: MCP servers that a bridge uses on behalf of people, with credentials that never leave it.

`store` has the sealed records, `server` one open MCP session with its limits, `login` OAuth, `connections` what people
and sprites ask for, and `routes` the HTTP handlers. See docs/connections.md.
"""

__all__ = ["connections", "routes", "store"]
