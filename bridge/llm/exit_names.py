"""The exits that an operator may open or close, by the names that the settings have for them."""

from __future__ import annotations

#: Every exit that the model's API is for what may reach the bridge alone, and what it is to a person.
MODEL_EXITS = {
    "url": "images and documents by URL",
    "files": "files stored with the API",
    "web_search": "web searches by the API",
    "web_fetch": "pages fetched by the API",
    "code_execution": "code run by the API",
    "mcp_servers": "MCP servers that the API connects to",
}
#: The agent's own WebSearch is one.
DEFAULT_MODEL_EXITS = frozenset({"web_search"})
