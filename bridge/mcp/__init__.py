"""The door for other agents: MCP over HTTP, and how a person lets a program in there (OAuth)."""
