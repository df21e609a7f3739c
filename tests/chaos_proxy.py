"""A broken network: forwards TCP to a port, and cuts connections at random byte positions in either direction.

It can also go silent: then no byte passes, and the connections stay open.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tests.connections import until_one_ends

if TYPE_CHECKING:
    from types import TracebackType

_READ_BYTES = 4096
#: Bytes that pass over a connection before it is cut, in both directions together: from the middle of the handshake to
#: the middle of a long replay.
_FEWEST_BYTES, _MOST_BYTES = 20, 10_000


class ChaosProxy:
    """Cuts `cuts` connections, one after another or concurrently, then forwards everything; `calm` is set.

    `target` is the port for new connections.
    """

    def __init__(self, port: int, cuts: int, seed: int) -> None:
        self.target = port
        self._left = cuts
        self._random = random.Random(seed)  # noqa: S311 - random numbers, no secret
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Event()
        self._passes.set()
        self.calm = asyncio.Event()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._arrive, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Unplug the cable while the block runs: incoming bytes wait, and the connections stay open."""
        self._passes.clear()
        try:
            yield
        finally:
            self._passes.set()

    async def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            await self._passes.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                await self._between(_End(reader, writer), _End(far_reader, far_writer))
            finally:
                far_writer.transport.abort()
        except ConnectionError:
            # The port has no listener, so the proxy looks the same to its client.
            return
        finally:
            writer.transport.abort()

    async def _between(self, near: _End, far: _End) -> None:
        allowance = _Allowance(self._random.randint(_FEWEST_BYTES, _MOST_BYTES) if self._left > 0 else None)
        await until_one_ends(
            self._forward(near.reader, far.writer, allowance), self._forward(far.reader, near.writer, allowance)
        )
        if allowance.is_used_up:
            self._left -= 1
            if self._left <= 0:
                self.calm.set()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowance: _Allowance) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(_READ_BYTES):
                await self._passes.wait()
                writer.write(allowance.take(data))
                await writer.drain()
                if allowance.is_used_up:
                    # The forwarded bytes need a moment to arrive: the cut is in the middle of a frame.
                    await asyncio.sleep(0)
                    return


@dataclass(frozen=True, slots=True)
class _End:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class _Allowance:
    """The number of bytes that may still pass; None is unlimited."""

    def __init__(self, left: int | None) -> None:
        self._left = left
        self.is_used_up = False

    def take(self, data: bytes) -> bytes:
        """Return the part of the data that may pass."""
        if self._left is None:
            return data
        passed = data[: self._left]
        self._left -= len(passed)
        self.is_used_up = len(passed) < len(data)
        return passed
