"""The curator's HTTP client against servers that answer correctly, wrongly, too much, too late or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sprite.config import Settings
from sprite.curation.model import MAX_BODY_BYTES, Message, MessagesApi, RefusedCallError
from sprite.errors import ModelError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MESSAGE = {
    "id": "msg_1",
    "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "FACT"}],
    "model": "claude-haiku",
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 1, "service_tier": None},
}


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def settings(base_url: str, **more: Any) -> Settings:
    return Settings(Path("/nowhere"), base_url=base_url, **({"api_key": "key"} | more))


async def create(at: Settings, timeout_seconds: float = 30.0, *, keep_system: bool = True) -> Message:
    async with aclosing(MessagesApi(at, timeout_seconds=timeout_seconds)) as api:
        return await api.create(model="haiku", max_tokens=5, system="Sort it.", user="Turn 1", keep_system=keep_system)


async def test_create_sends_vendor_request_and_parses_answer() -> None:
    seen: list[tuple[str, dict[str, str], Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.path, {k.lower(): v for k, v in request.headers.items()}, await request.json()))
        return web.json_response(MESSAGE if request.path.endswith("messages") else {"input_tokens": 7})

    async with served(answer) as url:
        message = await create(settings(f"{url}/below/", auth_token="token"))
        async with aclosing(MessagesApi(settings(url, api_key=None, auth_token="token"), timeout_seconds=30)) as api:
            assert (await api.count_tokens(model="haiku", user="hello")).input_tokens == 7
    assert [(block.type, block.text) for block in message.content] == [("thinking", ""), ("text", "FACT")]
    assert (message.model, message.stop_reason, message.usage["input_tokens"]) == ("claude-haiku", "end_turn", 3)
    (path, headers, body), (counted, token_only, _) = seen
    assert (path, counted) == ("/below/v1/messages", "/v1/messages/count_tokens")
    assert (headers["x-api-key"], headers["authorization"]) == ("key", "Bearer token")
    assert (headers["anthropic-version"], "x-api-key" in token_only) == ("2023-06-01", False)
    assert body["system"] == [{"type": "text", "text": "Sort it.", "cache_control": {"type": "ephemeral"}}]
    assert (body["messages"], body["max_tokens"]) == ([{"role": "user", "content": "Turn 1"}], 5)


@pytest.mark.parametrize(
    ("status", "body", "headers", "words", "retry_after"),
    [
        (429, json.dumps({"error": {"message": "Slow down"}}), {"retry-after": "2.5"}, "rate limit", 2.5),
        (400, json.dumps({"error": {"message": "x" * 900}}), {"retry-after": "soon"}, "as invalid", None),
        (400, json.dumps({"error": {"message": "Your credit balance is too low"}}), {}, "no credit", None),
        (529, "<html>", {}, "overloaded", None),
        (502, '{"error": "plain"}', {}, "has an error", None),
        (401, '{"error": {"message": 4}}', {}, "check ANTHROPIC_API_KEY", None),
    ],
)
async def test_error_status_raises_in_own_words(
    status: int, body: str, headers: dict[str, str], words: str, retry_after: float | None
) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body, headers=headers)

    async with served(answer) as url:
        with pytest.raises(RefusedCallError) as caught:
            await create(settings(url))
    assert (caught.value.status, caught.value.retry_after) == (status, retry_after)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html>", b"[]", b"\xff\xfe", b"null", b"{" * 9999, b'{"x":' + b"[" * 9999),
        b'{"content": "text", "model": "m", "usage": {}}',
    ],
)
async def test_invalid_response_raises_model_error(body: bytes) -> None:
    """The error counts as an outage, not as a refusal."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    async with served(answer) as url:
        with pytest.raises(ModelError, match="not answer like the Messages API") as caught:
            await create(settings(url))
    assert not isinstance(caught.value, RefusedCallError)


async def test_keep_system_controls_prompt_cache() -> None:
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((await request.json())["system"])
        return web.json_response({"content": [], "model": "claude-haiku", "stop_reason": "end_turn", "usage": {}})

    async with served(answer) as url:
        for keep_system in (True, False):
            await create(settings(url), keep_system=keep_system)
    assert seen == [
        [{"type": "text", "text": "Sort it.", "cache_control": {"type": "ephemeral"}}],
        [{"type": "text", "text": "Sort it."}],
    ]


async def test_redirect_is_not_followed_with_key() -> None:
    elsewhere: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/there"):
            elsewhere.append(request.path)
        return web.Response(status=307, headers={"location": "/there"})

    async with served(answer) as url:
        with pytest.raises(RefusedCallError):
            await create(settings(url))
    assert elsewhere == []


async def test_endless_answer_hits_size_and_time_limits() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        chunk, pause = (b" " * 2**20, 0.0) if request.path.startswith("/large") else (b" ", 0.05)
        while True:
            await response.write(chunk)
            await asyncio.sleep(pause)

    async with served(endless) as url:
        with pytest.raises(ModelError, match=f"more than {MAX_BODY_BYTES // 2**20} MiB"):
            await create(settings(f"{url}/large"))
        # Each byte arrives in time, but the whole answer does not.
        with pytest.raises(ModelError, match="no complete answer within 1 seconds"):
            await create(settings(f"{url}/slow"), timeout_seconds=1.0)


async def test_connection_failures_raise_model_error() -> None:
    """An unreachable server, an invalid address and an aborted response all count as outages."""

    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with served(broken) as url:
        with pytest.raises(ModelError):
            await create(settings(url))
    for nowhere in ("http://127.0.0.1:9", "http://", "nonsense", "ftp://127.0.0.1", "http://[::1"):
        with pytest.raises(ModelError):
            await create(settings(nowhere))
