"""Slow clients: their connections are closed, with an error response where one can still be read."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from bridge.auth.login import Authenticator
from bridge.auth.people import People
from bridge.config import Settings
from bridge.db.open import open_database
from bridge.http.listening import bound, served
from bridge.routes.middleware import SecurityMiddleware
from bridge.telemetry.metrics import Metrics
from tests.harness import PATIENCE

#: Replaces timeouts of half a minute or more.
MOMENT = 0.2


@asynccontextmanager
async def listening(tmp_path: Path) -> AsyncIterator[socket.socket]:
    """Run the bridge's listener and middleware with one handler that reads and one that fails."""

    async def reads(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    async def fails(_request: web.Request) -> web.Response:
        raise ValueError("planted-content-of-a-person")

    async with open_database(tmp_path / "bridge.db") as database:
        with bound("127.0.0.1", 0) as listener:
            authenticator = Authenticator(Settings(), People(database), b"key", listener.getsockname()[1])
            edge = SecurityMiddleware(authenticator, Metrics(), is_secure=False, body_seconds=MOMENT)
            application = web.Application(middlewares=[edge.around])
            application.add_routes([web.post("/reads", reads), web.get("/fails", fails)])
            async with served(application, listener, asyncio.Event().set, idle_seconds=MOMENT):
                yield listener


async def answer_to(listener: socket.socket, sent: bytes) -> bytes:
    """Return everything that the bridge sends until it closes the connection."""
    reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
    writer.write(sent)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
async def test_endless_head_closes_connection(tmp_path: Path, sent: bytes) -> None:
    async with listening(tmp_path) as listener:
        assert await answer_to(listener, sent) == b""


@pytest.mark.parametrize(
    "sent", [b"Content-Length: 1000\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"]
)
async def test_endless_body_is_refused(tmp_path: Path, sent: bytes) -> None:
    async with listening(tmp_path) as listener:
        answer = await answer_to(listener, b"POST /reads HTTP/1.1\r\nHost: 127.0.0.1\r\n" + sent)
    assert answer.startswith(b"HTTP/1.1 408")


async def test_server_error_logs_place_without_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from bridge.telemetry.logs import JsonLines

    async with listening(tmp_path) as listener:
        answer = await answer_to(listener, b"GET /fails HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500")
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    line = JsonLines().format(record)
    assert "planted" not in line
    assert b"planted" not in answer
    assert "ValueError" in line
    assert "test_bridge_slow_clients.py" in line
    # The response contains the request id that identifies the log line.
    assert f"{vars(record)['request_id']}".encode() in answer
