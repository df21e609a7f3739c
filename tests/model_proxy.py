"""A model proxy on a real socket, in front of an upstream that a test scripts."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.proxy.accounts import Accounts
from bridge.proxy.body import Patience
from bridge.proxy.budgets import Limits
from bridge.proxy.proxy import LlmProxy, RateLimits
from bridge.proxy.sprite_tokens import SpriteTokens
from bridge.proxy.upstream import ApiFeatures, Models, Upstream
from tests.accounts import sums
from tests.harness import PATIENCE, rows

MODEL = "claude-haiku-4-5"
KEY = "sk-ant-planted-real-key-0123456789"
BODY = {"model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": "planted-content-4711"}]}
USAGE = {"input_tokens": 1000, "output_tokens": 200, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    """A request as received by the upstream."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ScriptedUpstream:
    """A real server; `answer` makes its response after the body is read."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    answer: Answer | None = None
    #: Set when the proxy abandoned an answer before its end.
    given_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = b"".join([chunk async for chunk in request.content.iter_any()])
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append(Asked(request.method, request.path_qs, headers, body))
        assert self.answer is not None
        try:
            return await self.answer(request)
        except (asyncio.CancelledError, ConnectionError):
            self.given_up.set()
            raise


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """Run a real server on loopback, configured like the bridge's; yield its address."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1, lingering_time=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    scripted = ScriptedUpstream(answer=message)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.handle)
    async with served(app) as scripted.url:
        yield scripted


@dataclass
class Door:
    """A listening proxy for the sprite `ada`."""

    url: str
    token: str
    accounts: Accounts
    database: Database
    http: aiohttp.ClientSession

    def post(
        self, body: Any = None, *, path: str = "/v1/messages", token: str | None = None, **more: Any
    ) -> aiohttp.client._RequestContextManager:
        """Send a request as the SDK does, with `body` as JSON unless it is bytes or a stream of them."""
        headers = {"x-api-key": token or self.token, "content-type": "application/json", **more.pop("headers", {})}
        if body is None or isinstance(body, dict):
            body = json.dumps(BODY if body is None else body).encode()
        data = io.BytesIO(body) if isinstance(body, bytes) else body
        return self.http.post(self.url + path, data=data, headers=headers, **more)


@dataclass
class Proxy(Door):
    """The proxy of a single bridge, with all its collaborators."""

    path: Path
    tokens: SpriteTokens

    async def held(self) -> float:
        """Return the US dollars that calls in flight hold."""
        await self.accounts.flush()
        return (await sums(self.database)).day_held

    async def spent(self) -> float:
        """Return the US dollars spent today, without calls in flight."""
        await self.accounts.flush()
        return (await sums(self.database)).day_spent

    async def calls(self) -> list[dict[str, Any]]:
        """Return the ledger's rows once every call in it has ended."""
        async with asyncio.timeout(PATIENCE):
            while True:
                await self.accounts.flush()
                found = rows(self.path, "SELECT * FROM calls ORDER BY at, rowid")
                if all(row["state"] != "held" for row in found):
                    return found
                await asyncio.sleep(0.01)

    async def call(self) -> dict[str, Any]:
        """Return the ledger's only row."""
        (row,) = await self.calls()
        return row


@asynccontextmanager
async def proxy(
    folder: Path,
    target: Upstream | str,
    *,
    limits: Limits | None = None,
    models: Models | None = None,
    rate_limits: RateLimits | None = None,
    patience: Patience | None = None,
    exits: ApiFeatures | None = None,
) -> AsyncIterator[Proxy]:
    """Run a proxy for the sprite `ada`, with its budget in `folder`/bridge.db."""
    path = folder / "bridge.db"
    to = Upstream(target, api_key=KEY) if isinstance(target, str) else target
    async with (
        open_database(path) as database,
        Accounts(database, limits or Limits()) as accounts,
        LlmProxy(
            to,
            tokens := SpriteTokens(database),
            models or Models(),
            accounts,
            rate_limits or RateLimits(),
            patience,
            exits,
        ) as running,
        listening(running) as url,
        aiohttp.ClientSession(auto_decompress=False) as http,
    ):
        yield Proxy(url, await tokens.rotate("ada"), accounts, database, http, path, tokens)


@asynccontextmanager
async def shared_proxy(
    database_url: str,
    target: str,
    *,
    limits: Limits | None = None,
    patience: Patience | None = None,
    token: str | None = None,
) -> AsyncIterator[Door]:
    """Run a proxy for the sprite `ada` of one of several bridges, with the budget in a Postgres.

    `token`: the sprite's, if it has one already.
    """
    async with (
        open_database(database_url) as database,
        Accounts(database, limits or Limits(), shared=True) as accounts,
        LlmProxy(
            Upstream(target, api_key=KEY), tokens := SpriteTokens(database), Models(), accounts, RateLimits(), patience
        ) as running,
        listening(running) as url,
        aiohttp.ClientSession(auto_decompress=False) as http,
    ):
        yield Door(url, token or await tokens.rotate("ada"), accounts, database, http)


@asynccontextmanager
async def listening(proxy: LlmProxy) -> AsyncIterator[str]:
    """Return a proxy's address."""
    app = web.Application()
    app.add_routes(proxy.routes())
    async with served(app) as url:
        yield url


# --- answers ---


async def message(_request: web.Request) -> web.StreamResponse:
    """Answer with a complete message at once."""
    return web.json_response({"type": "message", "model": MODEL, "content": [], "usage": USAGE})


def said(name: str, **fields: Any) -> bytes:
    """Return one server-sent event."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


START = said("message_start", message={"model": MODEL, "usage": {**USAGE, "output_tokens": 1}})
DELTA = said("content_block_delta", index=0, delta={"type": "text_delta", "text": "word " * 20})
END = said("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 200}) + said("message_stop")


async def begun(request: web.Request, **headers: str) -> web.StreamResponse:
    """Start a stream of events: its headers have been sent."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8", **headers})
    await response.prepare(request)
    return response


def streamed(events: bytes, *, is_cut: bool = False) -> Answer:
    """Answer with a stream of these events, and end it properly or drop the connection after them."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(events) if events else None
        if is_cut:
            assert request.transport is not None
            request.transport.close()
        return response

    return answer


def paused(until: asyncio.Event, first: bytes = START) -> Answer:
    """Answer with a stream that pauses after its start until an event is set."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(first)
        await until.wait()
        await response.write(DELTA + END)
        return response

    return answer


async def never_ended(request: web.Request) -> web.StreamResponse:
    """Answer with an endless stream, until its client disconnects."""
    response = await begun(request)
    await response.write(START)
    await asyncio.Event().wait()
    return response
