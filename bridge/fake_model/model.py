"""The built-in offline model: a loopback server that speaks the Anthropic Messages API by fixed rules.

With it the real Agent SDK, the real CLI and the real `anthropic` client run without internet or a key. Events:
https://platform.claude.com/docs/en/build-with-claude/streaming
"""

import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from aiohttp import web

from bridge.fake_model import agent, curator
from bridge.fake_model.request import Body, Request, understand
from sprite.common.tasks import Service, off_loop

_MAX_BODY = 32 << 20  # the real API's limit
_SHUTDOWN_SECONDS = 1.0
_CHARACTERS_PER_TOKEN = 4
_NO_CACHE = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


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
        return _as_json(200, {"input_tokens": _tokens(len(raw))})

    async def _messages(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        body = msgspec.json.decode(raw, type=Body)
        content = await off_loop(len(raw), lambda: answer(understand(body)))
        message = _message(body.model, content, len(raw))
        if not body.stream:
            return _as_json(200, message)
        # One write: the client still reads separate events, and a turn costs one system call.
        headers = {"cache-control": "no-cache", "request-id": _new_id("req")}
        return web.Response(body=b"".join(_events(message)), content_type="text/event-stream", headers=headers)


def answer(request: Request) -> list[dict[str, Any]]:
    """Return the content of the fake model's answer to any request."""
    match request.kind:
        case "verifier":
            return [{"type": "text", "text": curator.verify("\n".join(request.user_texts))}]
        case "curator":
            return [{"type": "text", "text": curator.curate("\n".join(request.user_texts))}]
        case _:
            return agent.answer(request)


def _message(model: str, content: list[dict[str, Any]], request_size: int) -> dict[str, Any]:
    calls = [block for block in content if block["type"] == "tool_use"]
    for block in calls:
        block["id"] = _new_id("toolu")
    return {
        "id": _new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": _tokens(request_size),
            "output_tokens": _tokens(len(msgspec.json.encode(content))),
            **_NO_CACHE,
        },
    }


def _events(message: dict[str, Any]) -> Iterator[bytes]:
    usage = message["usage"]
    opening = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield _event("message_start", message=opening)
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            spelled = msgspec.json.encode(block["input"]).decode()
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": spelled}
        yield _event("content_block_start", index=index, content_block=empty)
        yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta={name: message[name] for name in ("stop_reason", "stop_sequence")}, usage=usage)
    yield _event("message_stop")


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def _new_id(prefix: str) -> str:
    """Return an id such as `toolu_01f3...`: random, because a restarted model must not repeat one."""
    return f"{prefix}_{secrets.token_hex(12)}"


def _tokens(size: int) -> int:
    return max(1, size // _CHARACTERS_PER_TOKEN)


def _as_json(status: int, value: object) -> web.Response:
    headers = {"request-id": _new_id("req")}
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json", headers=headers
    )


async def _hello(_http: web.Request) -> web.Response:
    return web.Response(text="Sprite's demo model\n")


@web.middleware
async def _errors_in_shape(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn every error into the Messages API's error format."""
    try:
        return await handler(request)
    except msgspec.MsgspecError as wrong:
        status, words = 400, str(wrong)
    except web.HTTPException as refused:
        status, words = refused.status, refused.reason
    kind = "not_found_error" if status == web.HTTPNotFound.status_code else "invalid_request_error"
    return _as_json(status, {"type": "error", "error": {"type": kind, "message": words}})
