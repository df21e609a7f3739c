"""`mcp`: a read-only MCP server on stdio for other agents on this machine; flags allow more.

Stdout carries only the protocol; the server ends with stdin.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection
from contextlib import suppress

from mcp.server.stdio import stdio_server

from sprite import __version__
from sprite.backup.restore import is_cut_off
from sprite.cli.actions import added
from sprite.config import Settings
from sprite.errors import FatalPeerError, PeerError, SpriteError
from sprite.gateway.queries import Look, look
from sprite.mcp.server import Caller, offering
from sprite.mcp.tools import MissionEnd, MissionWatch, Told, Tool
from sprite.owner import connect, open_stores
from sprite.protocol.frames import decode_server, encode
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
from sprite.protocol.messages import Error, Interrupt, Mission

_FAREWELL_SECONDS = 5.0
#: Any agent on this machine may ask here, under any name.
_MCP = "mcp"
_NOBODY = "No sprite runs here. Start it first: python -m sprite serve"


async def run_mission(settings: Settings, text: str, told: Told) -> MissionEnd:
    """Send a mission and wait for its end; cancelling interrupts it. Raises PeerError if it is refused."""
    try:
        reader, writer = await connect(settings, "mcp")
    except (OSError, ValueError) as error:
        raise PeerError(_NOBODY, code="unavailable") from error
    mission_id = str(uuid.uuid4())
    try:
        writer.write(encode(Mission(text, asked_by=_MCP), message_id=mission_id))
        return await _followed(reader, mission_id, told)
    except asyncio.CancelledError:
        with suppress(OSError, TimeoutError):
            writer.write(encode(Interrupt(mission_id)))
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await writer.drain()
        raise
    finally:
        writer.close()


async def _followed(reader: asyncio.StreamReader, mission_id: str, told: Told) -> MissionEnd:
    watch = MissionWatch(mission_id)
    try:
        while line := await reader.readline():
            try:
                message = decode_server(line)
            except FatalPeerError:
                raise
            except PeerError:
                # A newer sprite may send messages that this command does not know.
                continue
            payload = message.payload
            if isinstance(payload, Error) and message.reply_to in {mission_id, None}:
                raise PeerError(payload.message, code=payload.code)
            if (words := watch.hear(payload)) is not None:
                await told(words)
            if watch.end is not None:
                return watch.end
    except (OSError, ValueError):
        # The error below reports it.
        pass
    raise PeerError("The sprite closed the connection before the agent was done; look at its log.", code="unavailable")


async def serve_memory(settings: Settings, allowed: Collection[str] = ()) -> int:
    """Serve until stdin is closed, also without memory. Raises OperatorError if the memory cannot be read."""
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
