"""An independent webhook receiver: verifies its messages, and answers as configured."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.inspection import eventually

KEY = b"0123456789abcdef0123456789abcdef"
#: Prefix in the standard's text form of a key.
_PREFIX = "whsec_"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def read_key(text: str) -> bytes:
    """Parse the key that `notify key` prints."""
    assert text.startswith(_PREFIX)
    return base64.b64decode(text.strip().removeprefix(_PREFIX), validate=True)


async def taken(_: web.Request) -> web.StreamResponse:
    return web.Response(text="thanks")


class Receiver:
    """`messages` have a valid signature; `requests` counts all. The next `answers` come before `taken`."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.url = ""
        self.requests = 0
        self.elsewhere = 0
        self.messages: list[dict[str, Any]] = []
        self.answers: list[Answer] = []
        self.always: Answer = taken

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        body = await request.read()
        message_id, at = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        expected = base64.b64encode(
            hmac.new(self.key, f"{message_id}.{at}.".encode() + body, hashlib.sha256).digest()
        ).decode()
        assert request.headers["webhook-signature"] == f"v1,{expected}"
        message = json.loads(body)
        assert message["id"] == message_id
        self.messages.append(message)
        return await (self.answers.pop(0) if self.answers else self.always)(request)

    async def other(self, _: web.Request) -> web.StreamResponse:
        self.elsewhere += 1
        return web.Response()

    async def received(self, count: int) -> list[dict[str, Any]]:
        """Wait until that many messages have come."""
        await eventually(lambda: len(self.messages) >= count, f"{count} messages, of which {len(self.messages)} came")
        return self.messages


@asynccontextmanager
async def receiving(key: bytes = KEY) -> AsyncIterator[Receiver]:
    receiver = Receiver(key)
    application = web.Application()
    application.router.add_post("/hook", receiver.handle)
    application.router.add_route("*", "/elsewhere", receiver.other)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook?for=sprite"
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def hangs(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    return web.Response()


async def fails(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="planted words of the receiver")


async def redirects(request: web.Request) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect(str(request.url.with_path("/elsewhere")))


async def answers_ten_megabytes(_: web.Request) -> web.StreamResponse:
    return web.Response(body=bytes(10_000_000))
