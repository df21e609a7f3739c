"""A relay in its own process: `python -m benchmarks.relay_process SPRITES_PORT`; /ws/NAME, and prints its port."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from bridge.hub.hub import Relay
from bridge.providers.provider import Begin, HostState, Reached, Report, TcpChannel


class OnePort:
    """A host whose sprites share a port and are told apart by their token."""

    is_one_step = True

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    async def reach(self, sprite: str, report: Report) -> Reached:  # noqa: ARG002 - it is there
        """See Host."""
        return Reached(await TcpChannel.open("127.0.0.1", self._port), sprite)

    async def deploy(self, sprite: str, report: Report) -> None:
        """Do nothing: the sprite runs already."""

    async def state(self, sprite: str) -> HostState:  # noqa: ARG002 - it runs
        """See Host."""
        return HostState("running")

    async def fetch(self, sprite: str, path: str) -> AsyncIterator[bytes]:
        """There are no files."""
        raise NotImplementedError

    async def export(self, sprite: str, report: Report) -> AsyncIterator[bytes]:
        """There is nothing to take along."""
        raise NotImplementedError

    async def is_there(self, sprite: str) -> bool:
        """There is nothing to replace."""
        raise NotImplementedError

    async def restore(self, sprite: str, archive: Path, report: Report, *, begin: Begin) -> str:
        """There is nothing to restore."""
        raise NotImplementedError


async def serve(sprites_port: int) -> None:
    """Serves until killed."""
    async with Relay(OnePort(sprites_port)) as relay:

        async def socket(request: web.Request) -> web.StreamResponse:
            websocket = web.WebSocketResponse(heartbeat=30, compress=False)
            await websocket.prepare(request)
            await relay.serve(websocket, request.match_info["sprite"], request.transport)
            return websocket

        application = web.Application()
        application.router.add_get("/ws/{sprite}", socket)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
