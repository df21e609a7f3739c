"""Features of the model's API that an operator may enable, by their names in the settings."""

from __future__ import annotations

#: Every API feature that reaches other hosts for a VM that may reach only the bridge, with its label for users.
MODEL_EXITS = {
    "url": "images and documents by URL",
    "files": "files stored with the API",
    "web_search": "web searches by the API",
    "web_fetch": "pages fetched by the API",
    "code_execution": "code run by the API",
    "mcp_servers": "MCP servers that the API connects to",
}
#: The agent's own WebSearch uses it.
DEFAULT_MODEL_EXITS = frozenset({"web_search"})
