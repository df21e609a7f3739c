"""The built-in offline model: a loopback server that speaks the Anthropic Messages API by fixed rules.

With it the real Agent SDK, the real CLI and the real `anthropic` client run without internet or a key. It owns the
listener and the record of requests; other modules choose the answers (script, agent, curator).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
from aiohttp import web

from bridge.fake_model import agent as offline_agent
from bridge.fake_model import curator as offline_curator
from bridge.fake_model import verifier as offline_verifier
from bridge.fake_model import wire
from bridge.fake_model.request import Body, Kind, Request, understand
from bridge.fake_model.script import Script, Step

_MAX_BODY = 32 << 20  # the real API's limit
_KEPT_REQUESTS = 100
_KEPT_HEADERS = ("user-agent", "anthropic-version", "anthropic-beta", "x-claude-code-agent-id", "x-app")
_SHUTDOWN_SECONDS = 1.0
_LOOK_SECONDS = 0.02
_USUAL = Step()


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A recorded request; `headers` is a subset without credentials, names in lower case."""

    path: str
    headers: dict[str, str]
    kind: Kind
    user_text: str
    raw: bytes = field(repr=False)

    @property
    def body(self) -> dict[str, Any]:
        """Return the decoded JSON body (decoded on demand, because bodies are large and rarely read)."""
        decoded: dict[str, Any] = msgspec.json.decode(self.raw)
        return decoded


class OfflineModel:
    """`async with OfflineModel() as model:` serves at `model.url` until the block ends.

    `requests` are the newest messages requests, oldest first; `script` may be given or filled later.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, script: Script | None = None) -> None:
        self.script = script or Script()
        self.requests: list[RecordedRequest] = []
        self._host = host
        self._port = port
        self._arrived = asyncio.Condition()
        self._closing = asyncio.Event()
        app = web.Application(client_max_size=_MAX_BODY, middlewares=[_errors_in_shape])
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_get("/", _hello)  # HEAD comes with it
        # A handler is cancelled when its client disconnects, which ends a scripted hang.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS
        )

    @property
    def url(self) -> str:
        """Return the base URL, for `ANTHROPIC_BASE_URL` or `AsyncAnthropic(base_url=...)`."""
        return f"http://{self._host}:{self._port}"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError:
            await self._runner.cleanup()
            raise
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._closing.set()
        await self._runner.cleanup()

    async def seen(self, wanted: Callable[[RecordedRequest], bool]) -> RecordedRequest:
        """Return the newest recorded request that is `wanted`; wait for it when there is none yet."""
        async with self._arrived:
            while True:
                for request in reversed(self.requests):
                    if wanted(request):
                        return request
                await self._arrived.wait()

    async def _count_tokens(self, http: web.Request) -> web.Response:
        raw = await http.read()
        msgspec.json.decode(raw, type=Body)
        return _json(200, msgspec.json.encode({"input_tokens": wire.tokens(len(raw))}))

    async def _messages(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        body = msgspec.json.decode(raw, type=Body)
        headers = {name.lower(): value for name, value in http.headers.items()}
        request = understand(body, headers)
        await self._record(http, headers, request, raw)
        step = self.script.take(request, lambda: msgspec.json.decode(raw)) or _USUAL
        if step.delay:
            await asyncio.sleep(step.delay)
        if step.error is not None:
            after = {} if step.retry_after is None else {"retry-after": f"{step.retry_after:g}"}
            kind = None if step.type == _USUAL.type else step.type
            return _json(step.error, wire.error(step.error, step.message, kind), after)
        content = step.content()
        if step.until and (content is None or not body.stream):
            await self._until(step)
        if step.hang and content is None:
            return await self._hang(http)
        blocks = self._by_rule(request, step) if content is None else content
        message = wire.message(body.model, blocks, len(raw), step.usage, step.stop_reason, step.stop_details)
        if body.stream:
            return await self._stream(http, message, step)
        if step.hang or step.cut:
            return await self._hang(http) if step.hang else _drop(http, web.StreamResponse())
        return _json(200, msgspec.json.encode(message))

    async def _stream(self, http: web.Request, message: dict[str, Any], step: Step) -> web.StreamResponse:
        response = web.StreamResponse(headers={"cache-control": "no-cache", "request-id": wire.new_id("req")})
        response.content_type = "text/event-stream"
        response.charset = "utf-8"
        await response.prepare(http)
        frames = list(wire.events(message))
        if step.at is not None:
            frames = wire.beginning(frames, step.at)
        elif step.hang or step.cut:
            # The last three events end the block, the delta and the message; half of the others ends in mid-block.
            frames = frames[: max(3, (len(frames) - 3) // 2 + 1)]
        if step.stream_error:
            frames.append(wire.error_event(step.stream_error, step.message))
        half = len(frames) // 2 if step.until else len(frames)
        await _write(response, frames[:half], step)
        if step.until:
            await self._until(step)
            await _write(response, frames[half:], step)
        if step.hang:
            return await self._hang(http, response)
        return _drop(http, response) if step.cut else response

    def _by_rule(self, request: Request, step: Step) -> list[dict[str, Any]]:
        if request.kind == "verifier":
            asked = "\n".join(request.user_texts)
            agrees = step.refuse or self.script.has_curator
            verdicts = offline_verifier.agree(asked, step.refuse) if agrees else offline_verifier.verify(asked)
            return [{"type": "text", "text": verdicts}]
        if request.kind == "curator":
            return [{"type": "text", "text": offline_curator.curate("\n".join(request.user_texts))}]
        return offline_agent.answer(request)

    async def _until(self, step: Step) -> None:
        while not self._closing.is_set() and not Path(step.until).exists():  # noqa: ASYNC110 - another process may make it
            await asyncio.sleep(_LOOK_SECONDS)

    async def _hang(self, http: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
        await self._closing.wait()
        return _drop(http, response or web.StreamResponse())

    async def _record(self, http: web.Request, headers: dict[str, str], request: Request, raw: bytes) -> None:
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        recorded = RecordedRequest(http.path_qs, kept, request.kind, request.user_text, raw)
        async with self._arrived:
            self.requests.append(recorded)
            del self.requests[:-_KEPT_REQUESTS]
            self._arrived.notify_all()


async def _write(response: web.StreamResponse, frames: list[bytes], step: Step) -> None:
    if step.chunk_delay:
        for frame in frames:
            await response.write(frame)
            await asyncio.sleep(step.chunk_delay)
    else:
        # One write: the client still reads separate events, and a turn costs one system call.
        await response.write(b"".join(frames))


def _drop(http: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection under the response; bytes written before are still sent."""
    if http.transport is not None:
        http.transport.close()
    return response


async def _hello(_http: web.Request) -> web.Response:
    return web.Response(text="Sprite's offline stand-in model\n")


def _json(status: int, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
    named = {"request-id": wire.new_id("req"), **(headers or {})}
    return web.Response(status=status, body=body, content_type="application/json", headers=named)


@web.middleware
async def _errors_in_shape(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Give every error the API's shape."""
    try:
        response = await handler(request)
    except msgspec.MsgspecError as wrong:
        return _json(400, wire.error(400, str(wrong)))
    except web.HTTPException as refused:
        return _json(refused.status, wire.error(refused.status, refused.reason))
    return response
