"""A mission of another program on this machine: sent to the running sprite, and followed to its end."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress

from sprite.commands.owner import CONNECT_SECONDS, MAX_LINE_BYTES
from sprite.config import Settings
from sprite.errors import PeerError
from sprite.protocol.frames import FatalPeerError, decode_server, encode
from sprite.protocol.messages import Auth, Error, Interrupt, Mission
from sprite.protocol.offered.tools import MissionEnd, Told
from sprite.protocol.offered.watching import MissionWatch

_FAREWELL_SECONDS = 5.0
#: Any agent on this machine may ask here, under any name.
_MCP = "mcp"
_NOBODY = "No sprite runs here. Start it first: python -m sprite serve"


async def run_mission(settings: Settings, text: str, told: Told) -> MissionEnd:
    """Send a mission to the running sprite and wait for its end. Raises PeerError if there is none, or it refuses.

    Cancelling interrupts the mission.
    """
    try:
        host, _, port = settings.address_file.read_text().strip().rpartition(":")
        token = settings.token or settings.token_file.read_text().strip()
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port), limit=MAX_LINE_BYTES)
    except (OSError, ValueError) as error:
        raise PeerError(_NOBODY, code="unavailable") from error
    mission_id = str(uuid.uuid4())
    try:
        writer.write(encode(Auth(token=token, client="mcp")))
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
