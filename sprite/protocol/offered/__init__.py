"""MCP tools and cards for other programs: one set for the bridge's MCP endpoint and the sprite's stdio."""
