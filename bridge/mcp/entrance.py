"""The way to the door for other agents: its addresses, and the door itself as soon as somebody knocks.

The protocol's package takes a second to import and memory of its own: a bridge at which no agent ever knocks has
neither. Nothing else of the bridge imports it.
"""

from __future__ import annotations

import asyncio
import importlib
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Self

from aiohttp import web

if TYPE_CHECKING:
    from types import TracebackType

    from bridge.door.admission import Admission
    from bridge.door.login import Doorkeeper
    from bridge.mcp.door import McpDoor
    from bridge.relay.relay import Relay

PATH: Final = "/mcp"


class McpEntrance:
    """`async with McpEntrance(...) as entrance:` around the server that has its routes."""

    def __init__(self, admission: Admission, doorkeeper: Doorkeeper, relay: Relay) -> None:
        self._admission = admission
        self._doorkeeper = doorkeeper
        self._relay = relay
        self._opening = asyncio.Lock()
        self._door: McpDoor | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def routes(self) -> list[web.RouteDef]:
        """The addresses; they come before the catch-all for the page's files."""
        return [
            web.post(PATH, self._answer),
            web.delete(PATH, self._answer),
            web.get(PATH, self._answer),
        ]

    def end_all(self) -> None:
        """Ends what is being answered, since the bridge stops."""
        if self._door is not None:
            self._door.end_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        door = await self._opened()
        return await door.answer(request)

    async def _opened(self) -> McpDoor:
        async with self._opening:
            if self._door is None or self._door.has_died:
                module = await asyncio.to_thread(importlib.import_module, "bridge.mcp.door")
                door: McpDoor = module.McpDoor(self._admission, self._doorkeeper, self._relay)
                self._door = await self._stack.enter_async_context(door)
            return self._door
