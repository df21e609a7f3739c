"""Commands on an emulated VM: a WebSocket whose binary frames begin with the number of their stream."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from aiohttp import WSMsgType, web

from tests.emulator.machine import Machine

STDIN, STDOUT, STDERR, EXIT, STDIN_EOF = range(5)
#: What a command may still do when its client has gone, unless it asked for another time; 0 is for ever.
_DEFAULT_AFTER_DISCONNECT = 10.0
_READ_BYTES = 1 << 15


async def run_command(machine: Machine, request: web.Request) -> web.StreamResponse:
    """Runs the command of the query, until it ends or its client has been gone for long enough."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    environment = dict(entry.split("=", 1) for entry in request.query.getall("env", []))
    process = await machine.spawn(request.query.getall("cmd"), environment, request.query.get("dir"))
    with contextlib.suppress(ConnectionError):
        await socket.send_json({"type": "session_info", "session_id": str(process.pid), "tty": False})
    output = asyncio.create_task(_output(process, socket), name="exec output")
    transport = request.transport
    with machine.on_cut(lambda: transport.abort() if transport is not None else None):
        hears = asyncio.create_task(_input(process, socket), name="exec input")
        await asyncio.wait({output, hears}, return_when=asyncio.FIRST_COMPLETED)
    if not output.done():
        after = float(request.query.get("max_run_after_disconnect", _DEFAULT_AFTER_DISCONNECT))
        await asyncio.wait({output}, timeout=after or None)
        if not output.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    await asyncio.gather(output, return_exceptions=True)
    hears.cancel()
    await asyncio.gather(hears, return_exceptions=True)
    await socket.close()
    return socket


async def _output(process: asyncio.subprocess.Process, socket: web.WebSocketResponse) -> None:
    async def copy(number: int, stream: asyncio.StreamReader | None) -> None:
        while stream is not None and (data := await stream.read(_READ_BYTES)):
            # A client that has gone is no reason for the command to stop.
            with contextlib.suppress(ConnectionError):
                await socket.send_bytes(bytes([number]) + data)

    await asyncio.gather(copy(STDOUT, process.stdout), copy(STDERR, process.stderr))
    code = await process.wait()
    with contextlib.suppress(ConnectionError):
        await socket.send_bytes(bytes([EXIT, code if code >= 0 else 128 - code]))


async def _input(process: asyncio.subprocess.Process, socket: web.WebSocketResponse) -> None:
    """Passes its input on; returns when the client goes."""
    async for message in socket:
        if message.type is not WSMsgType.BINARY or process.stdin is None:
            continue
        with contextlib.suppress(ConnectionError):
            if message.data[0] == STDIN_EOF:
                process.stdin.close()
            elif message.data[0] == STDIN:
                process.stdin.write(message.data[1:])
                await process.stdin.drain()
