"""`mcp`: a read-only MCP server on stdio for other agents on this machine; flags allow more.

Stdout carries only the protocol; the server ends with stdin.
"""

from __future__ import annotations

from collections.abc import Collection

from mcp.server.stdio import stdio_server

from sprite import __version__
from sprite.archive.moving_in import is_cut_off
from sprite.clients.look import Look, look
from sprite.commands.actions import added
from sprite.commands.mission import run_mission
from sprite.commands.stores import open_stores
from sprite.config import Settings
from sprite.errors import PeerError, SpriteError
from sprite.protocol.memory import (
    ActionsRequest,
    ActionsResult,
    AddActionRequest,
    AddActionResult,
    AnyMemoryRequest,
    FilesRequest,
    FilesResult,
    MemoryResult,
    SearchRequest,
    SearchResult,
)
from sprite.protocol.offered.server import Caller, offering
from sprite.protocol.offered.tools import MissionEnd, Told, Tool


async def serve_memory(settings: Settings, allowed: Collection[str] = ()) -> int:
    """Serve until stdin is closed, also without memory: a session can begin before the first turn.

    Raises OperatorError if the memory cannot be read.
    """
    # Clients rarely retry a server that did not start. So without memory each call reports this instead.
    if settings.transcript_db.exists():
        async with open_stores(settings):
            pass
    caller = Caller(_Workspace(settings), frozenset({"memory:read", *allowed}))
    server = offering("sprite-memory", __version__, lambda _request: caller, lacking=_lacking)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
    return 0


class _Workspace:
    """A workspace on this machine, with or without a running sprite."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def answer(self, request: AnyMemoryRequest) -> MemoryResult:
        """See Source. The stores are opened for each request, because a rebuild replaces whole files."""
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
        if not (self._settings.transcript_db.exists() or is_cut_off(self._settings)):
            return _nothing_yet(self._settings, request)
        async with open_stores(self._settings) as stores:
            return await look(stores.view, request, self._settings.run)

    async def mission(self, text: str, told: Told) -> MissionEnd:
        """See Source."""
        return await run_mission(self._settings, text, told)


def _nothing_yet(settings: Settings, request: Look) -> MemoryResult:
    """Return the result for an empty memory. Raises PeerError if a specific thing is requested."""
    words = f"Nothing is remembered here yet: no sprite has run in {settings.workspace}, and nothing was imported."
    match request:
        case SearchRequest():
            return SearchResult([], 0, 0, [words])
        case FilesRequest():
            return FilesResult([])
        case ActionsRequest():
            return ActionsResult([])
    raise PeerError(words, code="not_found")


def _lacking(tool: Tool) -> str:
    return f"{tool.name} is not allowed here. Whoever set this server up can add `--allow {tool.scope}` to its command."
