"""An OpenAI-compatible embeddings endpoint on this machine whose vectors know a few synonyms."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

DIMENSIONS = 1024
_SAME = {"canine": "dog", "puppy": "dog", "automobile": "car", "vehicle": "car", "physician": "doctor"}


@dataclass(slots=True)
class Endpoint:
    """`asked` are the texts in order. While `answers` is not set, requests wait; `status` is that of its answers."""

    url: str = ""
    asked: list[str] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 200

    async def embed(self, request: web.Request) -> web.StreamResponse:
        text = (await request.json())["input"]
        self.asked.append(text)
        self.keys.add(request.headers.get("Authorization"))
        await self.answers.wait()
        return web.json_response({"data": [{"embedding": vector(text)}]}, status=self.status)


def vector(text: str) -> list[float]:
    """Return a vector in which each word, or its synonym, has a direction."""
    found = [0.01] * DIMENSIONS
    for word in text.casefold().replace(".", "").replace("?", "").split():
        found[int.from_bytes(hashlib.sha256(_SAME.get(word, word).encode()).digest()[:4], "big") % DIMENSIONS] += 1.0
    return found


@asynccontextmanager
async def running_endpoint() -> AsyncIterator[Endpoint]:
    """Serve until the block ends; it answers from the start."""
    endpoint = Endpoint()
    endpoint.answers.set()
    app = web.Application()
    app.router.add_post("/v1/embeddings", endpoint.embed)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1?model=synonyms"
    try:
        yield endpoint
    finally:
        endpoint.answers.set()
        await runner.cleanup()
