"""The routes of MCP and OAuth and their URLs. The `mcp` package takes a second to import, so the first request does it.

OAuth is offered only where the connection cannot be intercepted: over https, or on this machine.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiohttp import web

from bridge.auth.admission import Admission
from bridge.auth.login import Authenticator
from bridge.config import Settings
from bridge.hub.hub import Relay
from bridge.mcp.grants import Grants
from sprite.common.tasks import Service

if TYPE_CHECKING:
    from bridge.mcp.endpoint import McpDoor
    from bridge.mcp.oauth import OAuth


MCP: Final = "/mcp"
#: RFC 9728: followed by the resource's path, or (for some clients) without it.
RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource"
#: RFC 8414.
SERVER_METADATA: Final = "/.well-known/oauth-authorization-server"
AUTHORIZE: Final = "/mcp/authorize"
TOKEN: Final = "/mcp/token"  # noqa: S105 - an address
REGISTER: Final = "/mcp/register"
CONSENT: Final = "/mcp/consent"
_HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class Addresses:
    """The bridge's URLs as seen by programs; `port` is its listening port."""

    def __init__(self, settings: Settings, port: int) -> None:
        self._public = None if settings.public_url is None else settings.public_url.rstrip("/")
        self._port = port

    def base(self, host: str) -> str | None:
        """Return scheme, host and port for a request to `host`, or None if OAuth is not offered."""
        base = self._public or f"http://{host}"
        return base if base.startswith("https://") or is_here(base) else None

    def metadata(self, host: str) -> str | None:
        """Return the URL that tells a rejected program how to get access, or None."""
        base = self.base(host)
        return None if base is None else f"{base}{RESOURCE_METADATA}{MCP}"

    def is_ours(self, resource: str) -> bool:
        """Return whether a resource indicator (RFC 8707) names this MCP endpoint."""
        try:
            parts = urlsplit(resource)
            port = parts.port
        except ValueError:
            return False
        if parts.query or parts.fragment or parts.path.rstrip("/") not in {MCP, ""}:
            return False
        if self._public is not None:
            return f"{parts.scheme}://{parts.netloc}".lower() == self._public.lower()
        return parts.scheme == "http" and is_here(resource) and (port or 80) == self._port


def is_here(url: str) -> bool:
    """Return whether a URL is on this machine."""
    try:
        return urlsplit(url).hostname in _HERE
    except ValueError:
        return False


class McpEntrance(Service):
    """Lazily opened MCP endpoint: `async with McpEntrance(...) as entrance:`, while the relay is open."""

    def __init__(
        self,
        admission: Admission,
        authenticator: Authenticator,
        relay: Relay,
        grants: Grants,
        cookie_key: bytes,
        known_as: Addresses,
    ) -> None:
        self._admission = admission
        self._authenticator = authenticator
        self._relay = relay
        self._grants = grants
        self._cookie_key = cookie_key
        self._known_as = known_as
        self._opening = asyncio.Lock()
        self._door: McpDoor | None = None
        self._oauth: OAuth | None = None

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, which must come before the catch-all for the page's files."""
        paths = (RESOURCE_METADATA, RESOURCE_METADATA + MCP, SERVER_METADATA, AUTHORIZE, TOKEN, REGISTER, CONSENT)
        handlers = {MCP: self._answer, **dict.fromkeys(paths, self._let_in)}
        return [web.route(method, path, handlers[path]) for path in handlers for method in ("GET", "POST")]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        async with self._opening:
            if self._door is None or self._door.has_died:
                module = await asyncio.to_thread(importlib.import_module, "bridge.mcp.endpoint")
                metadata = self._known_as.metadata
                door: McpDoor = module.McpDoor(self._admission, self._authenticator, self._relay, metadata)
                self._door = await self._stack.enter_async_context(door)
        return await self._door.answer(request)

    async def _let_in(self, request: web.Request) -> web.StreamResponse:
        async with self._opening:
            if self._oauth is None:
                module = await asyncio.to_thread(importlib.import_module, "bridge.mcp.oauth")
                self._oauth = module.OAuth(
                    self._grants, self._cookie_key, self._admission, self._authenticator, self._known_as
                )
        return await self._oauth.answer(request)
