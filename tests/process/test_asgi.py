"""An ASGI application inside aiohttp over real sockets: streams, disconnects and clients that never read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from tests.harness import PATIENCE

# Every worker imports this file, and MCP takes half a second.
if TYPE_CHECKING:
    from bridge.mcp.endpoint import Application


@asynccontextmanager
async def serving(application: Application, stalled_seconds: float = 30.0) -> AsyncIterator[str]:
    """Serve the application and yield its URL."""
    from bridge.mcp.endpoint import served_by

    async def handle(request: web.Request) -> web.StreamResponse:
        return await served_by(application, request, {"who": "ada"}, stalled_seconds=stalled_seconds)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def begin(send: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def test_request_and_response_pass_through() -> None:
    seen: list[Any] = []

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        seen.append(scope)
        await begin(send, 201, {"x-one": "1", "connection": "close"})
        await send({"type": "http.response.body", "body": body})

    async with serving(echo) as url, aiohttp.ClientSession() as session:
        for body in (b"", b"hello", b"x" * 500_000):
            async with session.post(f"{url}/a%20b?c=d", data=body, headers={"X-Two": "2"}) as response:
                assert (response.status, response.headers["X-One"]) == (201, "1")
                assert response.headers.get("Connection") != "close"
                assert await response.read() == body
        async with session.head(url) as response:
            assert (response.status, await response.read()) == (201, b"")
    assert (seen[0]["method"], seen[0]["path"], seen[0]["query_string"]) == ("POST", "/a b", b"c=d")
    assert (b"x-two", b"2") in seen[0]["headers"]
    assert seen[0]["who"] == "ada"


async def test_stream_arrives_without_buffering() -> None:
    go_on = asyncio.Event()

    async def stream(_scope: Any, _receive: Any, send: Any) -> None:
        await begin(send, 200, {"content-type": "text/event-stream"})
        await send({"type": "http.response.body", "body": b"one\n", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"two\n"})

    async with serving(stream) as url, aiohttp.ClientSession() as session, session.get(url) as response:
        assert await response.content.readline() == b"one\n"
        go_on.set()
        assert await response.content.read() == b"two\n"


async def test_application_receives_client_disconnect() -> None:
    """Sending to the closed connection raises no error."""
    ended: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    async def wait(_scope: Any, receive: Any, send: Any) -> None:
        await begin(send)
        await send({"type": "http.response.body", "body": b"one\n", "more_body": True})
        heard = [(await receive())["type"]]
        while heard[-1] != "http.disconnect":
            heard.append((await receive())["type"])
        # Sending after the disconnect must not raise.
        await send({"type": "http.response.body", "body": b"two\n", "more_body": True})
        ended.set_result(heard)

    async with serving(wait) as url, aiohttp.ClientSession() as session:
        async with session.get(url) as response:
            await response.content.readline()
            response.close()
        async with asyncio.timeout(PATIENCE):
            assert (await ended)[-1] == "http.disconnect"


async def test_client_that_never_reads_is_closed() -> None:
    """The server buffers little for it."""
    sent = 0
    ended = asyncio.Event()

    async def flood(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal sent
        await begin(send)
        gone = asyncio.create_task(_receive_gone(_receive))
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            sent += 65_536
            await asyncio.sleep(0)
        ended.set()

    async with serving(flood, stalled_seconds=0.2) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(PATIENCE):
                await ended.wait()
    # The buffers of the two sockets, and no more.
    assert sent < 32 * 2**20


async def _receive_gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def test_failing_application_aborts_response() -> None:
    async def silent(_scope: Any, _receive: Any, _send: Any) -> None:
        return

    async def half(_scope: Any, _receive: Any, send: Any) -> None:
        await begin(send)
        await send({"type": "http.response.body", "body": b"one\n", "more_body": True})

    async def broken(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ValueError("a fault")

    async with aiohttp.ClientSession() as session:
        for application in (silent, broken):
            async with serving(application) as url, session.get(url) as response:
                assert response.status == 500
        async with serving(half) as url:
            try:
                async with session.get(url) as response:
                    await response.read()
            except aiohttp.ClientError:
                return
            raise AssertionError("half an answer passed for a whole one")
