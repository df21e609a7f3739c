"""A listening hub, connections to one or more sprites, and pages: real sockets on both sides."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import pytest
from aiohttp import web

from bridge.hub.hub import Relay
from bridge.hub.room import Observer
from bridge.providers.provider import Begin, HostError, HostState, Reached, Report, TcpChannel
from sprite.protocol.messages import MAX_FRAME_BYTES
from tests.chat_stand_in import TOKEN
from tests.harness import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

Message = dict[str, Any]


class Street:
    """A host whose sprites listen on known ports of this machine; `before` may report, wait, or refuse."""

    is_one_step = True

    def __init__(self, port: int, token: str = TOKEN) -> None:
        self.port = port
        self.token = token
        self.reached = 0
        self.at_once = 0
        self.most_at_once = 0
        self.before: Callable[[Report], Any] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    async def reach(self, sprite: str, report: Report) -> Reached:  # noqa: ARG002 - there is one sprite
        self.reached += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.before is not None:
                await self.before(report)
            try:
                return Reached(await TcpChannel.open("127.0.0.1", self.port), self.token)
            except OSError as error:
                raise HostError("The sprite is not there.") from error
        finally:
            self.at_once -= 1

    async def deploy(self, sprite: str, report: Report) -> None:
        raise NotImplementedError

    async def state(self, sprite: str) -> HostState:  # noqa: ARG002 - never asked
        return HostState("running")

    async def fetch(self, sprite: str, path: str) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def export(self, sprite: str, report: Report) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def is_there(self, sprite: str) -> bool:
        raise NotImplementedError

    async def restore(self, sprite: str, archive: Path, report: Report, *, begin: Begin) -> str:
        raise NotImplementedError


class Page:
    """A client of the hub that records every message."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.received: list[Message] = []

    async def send(self, kind: str, payload: Message | None = None, message_id: str | None = None) -> str:
        message_id = message_id or str(uuid.uuid4())
        await self.socket.send_str(
            json.dumps({"type": kind, "id": message_id, "timestamp": 0, "payload": payload or {}})
        )
        return message_id

    async def next(self) -> Message | None:
        """Return the next message, None at the end."""
        async with asyncio.timeout(PATIENCE):
            message = await self.socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            return None
        heard: Message = json.loads(message.data)
        self.received.append(heard)
        return heard

    async def until(self, wanted: Callable[[Message], bool]) -> Message:
        while (message := await self.next()) is not None:
            if wanted(message):
                return message
        raise AssertionError(f"closed with {self.socket.close_code}; the last messages were {self.received[-5:]}")

    async def receive(self, kind: str) -> Message:
        return await self.until(lambda m: m["type"] == kind)

    async def reply(self, message_id: str) -> Message:
        return await self.until(lambda m: m.get("reply_to") == message_id)

    async def link(self, state: str) -> Message:
        """Wait until the link has a state; return its payload."""
        found: Message = (await self.until(lambda m: m["type"] == "link" and m["payload"]["state"] == state))["payload"]
        return found

    async def closed(self) -> int | None:
        """Read to the end; return the close code."""
        while await self.next() is not None:
            pass
        return self.socket.close_code

    def seqs(self) -> list[int]:
        """Return the numbers of the received durable events, in order."""
        return [message["seq"] for message in self.received if "seq" in message]


class Stage:
    """A hub on a free port."""

    def __init__(self, relay: Relay, url: str, session: aiohttp.ClientSession) -> None:
        self.relay = relay
        self.url = url
        self.session = session

    @asynccontextmanager
    async def socket(self, sprite: str = "local") -> AsyncIterator[Page]:
        """Open a page's connection without sending anything."""
        async with self.session.ws_connect(f"{self.url}/ws/{sprite}", max_msg_size=4 * MAX_FRAME_BYTES) as socket:
            yield Page(socket)

    @asynccontextmanager
    async def page(self, sprite: str = "local", **resume: Any) -> AsyncIterator[Page]:
        """Open a page that has sent its position."""
        async with self.socket(sprite) as page:
            await page.send("resume", resume, "resume-id")
            yield page


_TIMES = {
    "linger_seconds": "bridge.hub.hub._LINGER_SECONDS",
    "idle_seconds": "bridge.hub.room._IDLE_SECONDS",
    "unasked_seconds": "bridge.hub.room._UNASKED_SECONDS",
    "quiet_seconds": "bridge.hub.subscriber._QUIET_SECONDS",
}


@asynccontextmanager
async def relaying(host: Any, observers: Sequence[Observer] = (), **options: Any) -> AsyncIterator[Relay]:
    """Run a relay with other waiting times, such as `linger_seconds`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _TIMES.keys() & options.keys():
            patch.setattr(_TIMES[name], options.pop(name))
        async with Relay(host, observers, **options) as relay:
            yield relay


@asynccontextmanager
async def stage(host: Any, **options: Any) -> AsyncIterator[Stage]:
    async with relaying(host, **options) as relay:

        async def serve(request: web.Request) -> web.StreamResponse:
            socket = web.WebSocketResponse(heartbeat=30, max_msg_size=2 * MAX_FRAME_BYTES, compress=False)
            await socket.prepare(request)
            await relay.serve(socket, request.match_info["sprite"], request.transport)
            return socket

        application = web.Application()
        application.router.add_get("/ws/{sprite}", serve)
        runner = web.AppRunner(application, shutdown_timeout=2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            async with aiohttp.ClientSession() as session:
                yield Stage(relay, f"http://127.0.0.1:{port}", session)
        finally:
            await relay.__aexit__(None, None, None)
            await runner.cleanup()
