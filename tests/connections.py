"""Connections to a port of this machine: each is passed to a handler, and all are closed at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connections(serve: Serve) -> AsyncIterator[int]:
    """Listen while the block runs, and yield the port; `serve` closes its connection."""
    served: set[asyncio.Task[None]] = set()

    async def arrive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        task.add_done_callback(served.discard)
        await serve(reader, writer)

    server = await asyncio.start_server(arrive, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(served):
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


async def until_one_ends(*ways: Coroutine[Any, Any, None]) -> None:
    """Run all of them; when one ends, cancel the others."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
