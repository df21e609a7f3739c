"""The built-in offline model: a loopback server that speaks the Anthropic Messages API by fixed rules.

With it the real Agent SDK, the real CLI and the real `anthropic` client run without internet or a key. It owns the
listener; other modules choose the answers (agent, curator, verifier).
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from aiohttp import web

from bridge.fake_model import agent as offline_agent
from bridge.fake_model import curator as offline_curator
from bridge.fake_model import wire
from bridge.fake_model.request import Body, Request, understand
from sprite.common.tasks import Service, off_loop

_MAX_BODY = 32 << 20  # the real API's limit
_SHUTDOWN_SECONDS = 1.0


class OfflineModel(Service):
    """Serve the offline model: `async with OfflineModel() as model:` serves at `model.url` until the block ends."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host
        self._port = port
        app = web.Application(client_max_size=_MAX_BODY, middlewares=[_errors_in_shape])
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_get("/", _hello)  # HEAD comes with it
        # A handler is cancelled when its client disconnects.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS
        )

    @property
    def url(self) -> str:
        """Return the base URL, for `ANTHROPIC_BASE_URL` or `AsyncAnthropic(base_url=...)`."""
        return f"http://{self._host}:{self._port}"

    async def _open(self, stack: AsyncExitStack) -> None:
        await self._runner.setup()
        stack.push_async_callback(self._runner.cleanup)
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]

    async def _count_tokens(self, http: web.Request) -> web.Response:
        raw = await http.read()
        msgspec.json.decode(raw, type=Body)
        return json_response(200, msgspec.json.encode({"input_tokens": wire.tokens(len(raw))}))

    async def _messages(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        body = msgspec.json.decode(raw, type=Body)
        headers = {name.lower(): value for name, value in http.headers.items()}
        content = await off_loop(len(raw), lambda: answer(understand(body, headers)))
        message = wire.message(body.model, content, len(raw))
        if not body.stream:
            return json_response(200, msgspec.json.encode(message))
        response = await event_stream(http)
        # One write: the client still reads separate events, and a turn costs one system call.
        await response.write(b"".join(wire.events(message)))
        return response


def answer(request: Request) -> list[dict[str, Any]]:
    """Return the content of the fake model's answer to any request."""
    match request.kind:
        case "verifier":
            return [{"type": "text", "text": offline_curator.verify("\n".join(request.user_texts))}]
        case "curator":
            return [{"type": "text", "text": offline_curator.curate("\n".join(request.user_texts))}]
        case _:
            return offline_agent.answer(request)


async def event_stream(http: web.Request) -> web.StreamResponse:
    """Return a response for server-sent events that has begun."""
    response = web.StreamResponse(headers={"cache-control": "no-cache", "request-id": wire.new_id("req")})
    response.content_type = "text/event-stream"
    response.charset = "utf-8"
    await response.prepare(http)
    return response


async def _hello(_http: web.Request) -> web.Response:
    return web.Response(text="Sprite's demo model\n")


def json_response(status: int, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
    """Return a response with a new request id."""
    named = {"request-id": wire.new_id("req"), **(headers or {})}
    return web.Response(status=status, body=body, content_type="application/json", headers=named)


@web.middleware
async def _errors_in_shape(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn every error into the Messages API's error format."""
    try:
        response = await handler(request)
    except msgspec.MsgspecError as wrong:
        return json_response(400, wire.error(400, str(wrong)))
    except web.HTTPException as refused:
        return json_response(refused.status, wire.error(refused.status, refused.reason))
    return response
