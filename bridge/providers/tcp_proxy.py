"""A byte stream through the Sprites TCP proxy: binary WebSocket frames with meaningless boundaries."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

import websockets
from websockets.asyncio.client import ClientConnection

from sprite.common.tasks import TaskSet

#: Queued bytes above which `drain` waits.
_HIGH_WATER_BYTES = 256 * 1024


class ProxyChannel:
    """A Channel over an open proxy connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._written = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._error: OSError | None = None
        self._tasks = TaskSet()
        self._tasks.start(self._send(), "proxy-sender")

    async def read(self) -> bytes:
        """See Channel."""
        try:
            frame = await self._socket.recv(decode=False)
        except websockets.ConnectionClosedOK:
            return b""
        except websockets.ConnectionClosed as error:
            raise ConnectionResetError("The connection to the VM was cut.") from error
        # An empty frame is not the end.
        return frame or await self.read()

    def write(self, data: bytes) -> None:
        """See Channel."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _HIGH_WATER_BYTES:
            self._drained.clear()
        self._written.set()

    async def drain(self) -> None:
        """See Channel."""
        if self._error is None:
            await self._drained.wait()
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """See Channel. Queued bytes are still sent, if the connection accepts them."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while self._waiting and self._error is None:
                    self._drained.clear()
                    await self._drained.wait()
        await self._tasks.close()
        await self._socket.close()

    async def _send(self) -> None:
        try:
            while True:
                await self._written.wait()
                self._written.clear()
                while self._waiting:
                    # Join small writes into few frames.
                    data = b"".join(self._waiting)
                    self._waiting.clear()
                    await self._socket.send(data)
                    self._waiting_bytes -= len(data)
                    if self._waiting_bytes <= _HIGH_WATER_BYTES:
                        self._drained.set()
        except websockets.ConnectionClosed as error:
            self._error = ConnectionResetError("The connection to the VM was cut.")
            self._error.__cause__ = error
        finally:
            # However it ended, nothing more is sent, and `drain` must return.
            self._error = self._error or ConnectionResetError("The connection to the VM was given up.")
            self._drained.set()
