"""The TCP proxy of an emulated VM: one frame that names the port, then raw bytes whose boundaries are not kept."""

from __future__ import annotations

import asyncio
import contextlib
import json

from aiohttp import WSMsgType, web

from tests.connections import until_one_ends
from tests.emulator.machine import Machine, Overhearing

#: Odd, so that no message ends where a frame does.
_READ_BYTES = 4093


async def run_proxy(machine: Machine, request: web.Request) -> web.StreamResponse:
    """Connects, and copies both ways until either side ends or the VM sleeps."""
    socket = web.WebSocketResponse(max_msg_size=64 * 2**20)
    await socket.prepare(request)
    wish = json.loads(await socket.receive_str())
    port = int(machine.translated(str(wish["port"])))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        await socket.send_json({"status": "error", "error": f"dial tcp 10.0.0.1:{wish['port']}: connection refused"})
        await socket.close()
        return socket
    transport = request.transport
    hears = None if machine.overheard is None else machine.overheard()

    def cut() -> None:
        writer.transport.abort()
        if transport is not None:
            transport.abort()

    try:
        await socket.send_json({"status": "connected", "target": f"10.0.0.1:{wish['port']}"})
        with machine.on_cut(cut):
            await until_one_ends(_inwards(socket, writer, hears), _outwards(reader, socket, hears))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        await socket.close()
    finally:
        # Also where the client went, or the API ended, in the middle.
        writer.transport.abort()
    return socket


async def _inwards(socket: web.WebSocketResponse, writer: asyncio.StreamWriter, hears: Overhearing | None) -> None:
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            if hears is not None:
                hears.to_sprite(message.data)
            writer.write(message.data)
            with contextlib.suppress(ConnectionError):
                await writer.drain()


async def _outwards(reader: asyncio.StreamReader, socket: web.WebSocketResponse, hears: Overhearing | None) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_READ_BYTES):
            if hears is not None:
                hears.from_sprite(data)
            await socket.send_bytes(data)
