"""`mcp`: an MCP server on stdio, for other agents on this machine; it only reads, unless more is allowed by a flag.

Stdout carries the protocol and nothing else; it ends when stdin does.
"""

from __future__ import annotations

from collections.abc import Collection

from mcp.server.stdio import stdio_server

from sprite import __version__
from sprite.clients.look import Look, look
from sprite.commands.actions import added
from sprite.commands.mission import run_mission
from sprite.commands.stores import open_stores
from sprite.config import Settings
from sprite.errors import PeerError, SpriteError
from sprite.protocol.memory import AddActionRequest, AddActionResult, AnyMemoryRequest, MemoryResult
from sprite.protocol.offered.server import Caller, offering
from sprite.protocol.offered.tools import MissionEnd, Told, Tool


async def serve_memory(settings: Settings, allowed: Collection[str] = ()) -> int:
    """Serves until stdin is closed; raises OperatorError if there is no memory, and no folder for one."""
    # Clients do not soon try again what did not start: where memory is about to begin, each call says so instead.
    if settings.transcript_db.exists() or not settings.memory.is_dir():
        async with open_stores(settings):
            pass
    caller = Caller(_Workspace(settings), frozenset({"memory:read", *allowed}))
    server = offering("sprite-memory", __version__, lambda _request: caller, lacking=_lacking)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
    return 0


class _Workspace:
    """A workspace on this machine, with or without a sprite that runs on it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def answer(self, request: AnyMemoryRequest) -> MemoryResult:
        """See Source. The stores are opened for each: a rebuild replaces whole files, and open ones would stay old."""
        try:
            if isinstance(request, AddActionRequest):
                return AddActionResult(await added(self._settings, request), [])
            return await self._looked(request)
        except PeerError:
            raise
        except SpriteError as error:
            raise PeerError(str(error), code=error.code) from error

    async def _looked(self, request: AnyMemoryRequest) -> MemoryResult:
        if not isinstance(request, Look):
            raise PeerError("This cannot be asked for without a running sprite.")
        async with open_stores(self._settings) as stores:
            return await look(stores.view, request, self._settings.run)

    async def mission(self, text: str, told: Told) -> MissionEnd:
        """See Source."""
        return await run_mission(self._settings, text, told)


def _lacking(tool: Tool) -> str:
    return f"{tool.name} is not allowed here. Whoever set this server up can add `--allow {tool.scope}` to its command."
