"""The routes of MCP and OAuth, whose implementation is imported at the first request.

The `mcp` package takes a second to import and additional memory, which a bridge without such requests saves. No other
module of the bridge imports it.
"""

from __future__ import annotations

import asyncio
import importlib
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from bridge.mcp import addresses

if TYPE_CHECKING:
    from types import TracebackType

    from bridge.auth.admission import Admission
    from bridge.auth.login import Authenticator
    from bridge.hub.hub import Relay
    from bridge.mcp.addresses import Addresses
    from bridge.mcp.endpoint import McpDoor
    from bridge.mcp.grants import Grants
    from bridge.mcp.oauth import OAuth


class McpEntrance:
    """Lazily opened MCP endpoint: `async with McpEntrance(...) as entrance:`, while the relay is open."""

    def __init__(
        self,
        admission: Admission,
        authenticator: Authenticator,
        relay: Relay,
        grants: Grants,
        cookie_key: bytes,
        known_as: Addresses,
        *,
        is_shared: bool = False,
    ) -> None:
        self._is_shared = is_shared
        self._admission = admission
        self._authenticator = authenticator
        self._relay = relay
        self._grants = grants
        self._cookie_key = cookie_key
        self._known_as = known_as
        self._opening = asyncio.Lock()
        self._door: McpDoor | None = None
        self._oauth: OAuth | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, which must come before the catch-all for the page's files."""
        return [
            *(web.route(method, addresses.MCP, self._answer) for method in ("POST", "DELETE", "GET")),
            *(
                web.route(method, path, self._let_in)
                for path in (
                    addresses.RESOURCE_METADATA,
                    addresses.RESOURCE_METADATA + addresses.MCP,
                    addresses.SERVER_METADATA,
                    addresses.AUTHORIZE,
                    addresses.TOKEN,
                    addresses.REGISTER,
                    addresses.REVOKE,
                    addresses.CONSENT,
                )
                for method in ("GET", "POST")
            ),
        ]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        async with self._opening:
            if self._door is None or self._door.has_died:
                module = await _imported("bridge.mcp.endpoint")
                door: McpDoor = module.McpDoor(
                    self._admission,
                    self._authenticator,
                    self._relay,
                    self._known_as.metadata,
                    is_shared=self._is_shared,
                )
                self._door = await self._stack.enter_async_context(door)
        return await self._door.answer(request)

    async def _let_in(self, request: web.Request) -> web.StreamResponse:
        async with self._opening:
            if self._oauth is None:
                module = await _imported("bridge.mcp.oauth")
                oauth: OAuth = module.oauth(
                    self._grants, self._cookie_key, self._admission, self._authenticator, self._known_as
                )
                self._oauth = oauth
        return await self._oauth.answer(request)


async def _imported(name: str) -> Any:
    return await asyncio.to_thread(importlib.import_module, name)
