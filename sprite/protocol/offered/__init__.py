"""What other programs are offered by MCP: one set of tools and cards, for the bridge's door and the sprite's stdio."""
