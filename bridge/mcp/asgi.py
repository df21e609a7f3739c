"""Run an ASGI application inside aiohttp: one request, at the client's pace.

Own code, because existing adapters have no backpressure and do not end requests of disconnected clients. HTTP only,
without lifespan: the caller opens the application's resources.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any

from aiohttp import hdrs, web

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Coroutine[Any, Any, None]]

#: A client that reads nothing for this long is disconnected, because its answer waits in memory.
STALLED_SECONDS = 30.0
#: Time for an application to end after its client disconnected.
_FAREWELL_SECONDS = 5.0
#: Headers that aiohttp sets itself for the connection.
_HOP_BY_HOP = frozenset({"connection", "date", "keep-alive", "server", "transfer-encoding"})


async def served_by(
    application: Application,
    request: web.Request,
    extra: Mapping[str, Any] | None = None,
    *,
    body: bytes | None = None,
    stalled_seconds: float = STALLED_SECONDS,
) -> web.StreamResponse:
    """Run the application and return its answer, which is already sent. `extra` is merged into the scope.

    `body` is the request's body if it was read before. The server must cancel handlers of disconnected clients
    (`handler_cancellation=True`). The application then gets `http.disconnect` and ends in order: a client may leave as
    soon as it has its result, and started work must complete. Raises ConnectionResetError if the client stopped reading
    or the answer is incomplete.
    """
    exchange = _Exchange(request, stalled_seconds, body)
    work = application({**_scope(request), **(extra or {})}, exchange.receive, exchange.send)
    task = asyncio.create_task(work, name="asgi application")
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        exchange.disconnect()
        await _ended(task)
        raise
    return exchange.finished()


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait for an application whose client disconnected, then cancel it."""
    try:
        await asyncio.wait({task}, timeout=_FAREWELL_SECONDS)
    finally:
        task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("an application failed after its client had gone", exc_info=error)


def _scope(request: web.Request) -> dict[str, Any]:
    host, port = request.url.host or "", request.url.port
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": f"{request.version.major}.{request.version.minor}",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.raw_path.partition("?")[0].encode(),
        "query_string": request.query_string.encode(),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": (request.remote, 0) if request.remote else None,
        "server": (host, port),
        "state": {},
    }


class _Exchange:
    """One request and its answer."""

    def __init__(self, request: web.Request, stalled_seconds: float, body: bytes | None) -> None:
        self._request = request
        self._body = body
        self._stalled_seconds = stalled_seconds
        self._has_read_all = False
        self._has_gone = asyncio.Event()
        self._response: web.StreamResponse | None = None
        self._is_sent = False

    async def receive(self) -> Message:
        """Return the next part of the body. After the last one, wait for the client to disconnect."""
        if self._has_read_all or self._has_gone.is_set():
            await self._has_gone.wait()
            return {"type": "http.disconnect"}
        if self._body is not None:
            self._has_read_all = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        chunk = await self._request.content.readany()
        self._has_read_all = self._request.content.at_eof()
        return {"type": "http.request", "body": chunk, "more_body": not self._has_read_all}

    async def send(self, message: Message) -> None:
        """Send a part of the answer before returning. Does nothing once the client has disconnected."""
        if self._has_gone.is_set():
            return
        if message["type"] == "http.response.start":
            self._response = web.StreamResponse(status=message["status"])
            for name, value in message.get("headers", ()):
                if (text := name.decode("latin-1")).lower() not in _HOP_BY_HOP:
                    self._response.headers.add(text, value.decode("latin-1"))
        elif message["type"] == "http.response.body":
            await self._send_body(message.get("body", b""), more=message.get("more_body", False))

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        response = self._response
        if response is None:
            raise RuntimeError("the application sent a body before it began to answer")
        if not response.prepared and not more and hdrs.CONTENT_LENGTH not in response.headers:
            response.content_length = len(body)
        try:
            async with asyncio.timeout(self._stalled_seconds):
                if not response.prepared:
                    await response.prepare(self._request)
                if body and self._request.method != "HEAD":
                    await response.write(body)
                if not more:
                    await response.write_eof()
                    self._is_sent = True
        except TimeoutError:
            self.disconnect()
            if self._request.transport is not None:
                self._request.transport.abort()
        except ConnectionError:
            self.disconnect()

    def disconnect(self) -> None:
        """Note that the client has disconnected."""
        self._has_gone.set()

    def finished(self) -> web.StreamResponse:
        """Return the answer. Raises ConnectionResetError if it is incomplete, RuntimeError if there is none."""
        if self._has_gone.is_set():
            raise ConnectionResetError("the client has gone")
        if self._response is None:
            raise RuntimeError("the application did not answer")
        if not self._is_sent:
            raise ConnectionResetError("the application broke its answer off")
        return self._response
