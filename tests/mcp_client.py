"""A real MCP client at a bridge's `/mcp`, from the protocol's own package."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.bridge_harness import Bridge
from tests.harness import PATIENCE

# Importing the package takes 0.8 s: each function that needs it imports it.
if TYPE_CHECKING:
    import httpx2
    from mcp.client.client import Client


async def person_token(bridge: Bridge, *scopes: str, name: str | None = None) -> str:
    """Make a token of the local person."""
    chosen = [word for scope in scopes for word in ("--scope", scope)]
    status, out, err = await bridge.run("users", "token", "local", *(("--name", name) if name else ()), *chosen)
    assert status == 0, err
    return out.splitlines()[-1]


@asynccontextmanager
async def mcp_client(
    bridge: Bridge, token: str | httpx2.Auth, *, mode: Any = "auto", **options: Any
) -> AsyncIterator[Client]:
    """Run an initialized client; `mode` is the protocol's revision: the newest, or "legacy" with a session."""
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {token}"} if isinstance(token, str) else {}
    auth = None if isinstance(token, str) else token
    async with httpx2.AsyncClient(headers=headers, auth=auth, timeout=PATIENCE) as http:
        transport = streamable_http_client(f"{bridge.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, raise_exceptions=False, **options) as client:
            yield client


async def called(
    client: Client, tool: str, progress: Callable[..., Any] | None = None, **arguments: Any
) -> tuple[bool, str, Any]:
    """Call a tool; return (is it an error, the answer's text, its structured content)."""
    from mcp_types import CallToolResult, TextContent

    async with asyncio.timeout(PATIENCE):
        result = await client.call_tool(tool, arguments, progress_callback=progress)
    assert isinstance(result, CallToolResult)
    text = "\n".join(part.text for part in result.content if isinstance(part, TextContent))
    return bool(result.is_error), text, result.structured_content
