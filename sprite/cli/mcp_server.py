"""`mcp`: a read-only MCP server on stdio for other agents on this machine; stdout carries only the protocol."""

from __future__ import annotations

import argparse

from mcp.server.stdio import stdio_server

from sprite import __version__
from sprite.backup.restore import is_cut_off
from sprite.config import Settings
from sprite.errors import PeerError, SpriteError
from sprite.gateway.queries import look
from sprite.mcp.server import Caller, offering
from sprite.mcp.tools import Tool
from sprite.owner import open_stores
from sprite.protocol.memory import MemoryRequest, MemoryResult


async def serve_memory(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Serve memory over MCP until stdin is closed. Raise OperatorError if the memory cannot be read."""
    # Clients rarely retry a server that did not start. So without memory each call reports this instead.
    if settings.transcript_db.exists():
        async with open_stores(settings):
            pass
    caller = Caller(_Workspace(settings), frozenset({"memory:read"}))
    server = offering("sprite-memory", __version__, lambda _request: caller, lacking=_lacking)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
    return 0


class _Workspace:
    """The memory of a workspace on this machine, with or without a running sprite."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def answer(self, request: MemoryRequest) -> MemoryResult:
        """Answer a memory request. The stores are opened for each request, because a rebuild replaces whole files."""
        if not (self._settings.transcript_db.exists() or is_cut_off(self._settings)):
            where = self._settings.workspace
            raise PeerError(
                f"Nothing is remembered here yet: no sprite has run in {where}, and nothing was imported.",
                code="not_found",
            )
        try:
            async with open_stores(self._settings) as stores:
                return await look(stores.view, request, self._settings.run)
        except PeerError:
            raise
        except SpriteError as error:
            raise PeerError(str(error), code=error.code) from error


def _lacking(tool: Tool) -> str:
    return f"{tool.name} is not offered here, because this server only reads. The bridge offers it at /mcp."
