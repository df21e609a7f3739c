"""The model endpoint as a Unix socket, through which an agent without network reaches it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

from sprite.config import Settings

_CHUNK_BYTES = 1 << 16
_LOOPBACK = frozenset({"127.0.0.1", "localhost"})
#: Port inside for an endpoint that is not on this machine.
_OWN_PORT = 3129
_FIRST_FREE_PORT = 1024


def endpoint(settings: Settings) -> tuple[str, int] | None:
    """Return host and port of the model's endpoint if it is without encryption, else None (for the egress proxy)."""
    host, port, is_https = settings.model_endpoint
    return None if is_https or not host else (host, port)


def inner_port(settings: Settings) -> int:
    """Return the endpoint's port in the sandbox: its own if possible, so that URL and `Host` header stay unchanged."""
    found = endpoint(settings)
    return found[1] if found and found[0] in _LOOPBACK and found[1] >= _FIRST_FREE_PORT else _OWN_PORT


def inner_url(settings: Settings) -> str | None:
    """Return the URL at which programs in the sandbox reach the endpoint, or None if its own URL works there."""
    url = urlsplit(settings.base_url or "")
    if endpoint(settings) is None or inner_port(settings) == url.port:
        return None
    return url._replace(netloc=f"127.0.0.1:{_OWN_PORT}").geturl()


@asynccontextmanager
async def model_door(settings: Settings) -> AsyncIterator[None]:
    """Forward connections of `run/model.sock` to the model endpoint while the block runs."""
    found = endpoint(settings)
    # A VM keeps its network.
    if found is None or settings.vm_socket.exists() or settings.sandbox == "off":
        yield
        return

    open_ones = set[asyncio.Task[None] | None]()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(task := asyncio.current_task())
        try:
            with suppress(OSError), closing(writer):
                upstream_reader, upstream = await asyncio.open_connection(*found)
                with closing(upstream):
                    await asyncio.gather(pump(reader, upstream), pump(upstream_reader, writer))
        finally:
            open_ones.discard(task)

    path = settings.model_socket
    server = await asyncio.start_unix_server(forward, sock=listening_socket(path))
    try:
        yield
    finally:
        server.close()
        for task in filter(None, open_ones):
            task.cancel()
        path.unlink(missing_ok=True)


def listening_socket(path: Path) -> socket.socket:
    """Return a Unix socket at a path of any length, for this user only. It does not listen yet."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # A whole path may be too long for the kernel.
        listener.bind(f"/proc/self/fd/{folder}/{path.name}" if sys.platform == "linux" else str(path))
        path.chmod(0o600)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], object] = bool
) -> None:
    """Copy bytes until the end of `reader`, then end `writer`. `count` is called with the size of each piece."""
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
        count(len(data))
    if writer.can_write_eof():
        writer.write_eof()
