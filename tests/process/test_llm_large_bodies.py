"""Large request bodies at the model proxy: refusals by cost, upload slots, and an unblocked event loop."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge.proxy import body as upload
from bridge.proxy.body import MAX_BODY_BYTES, BodyLimits, Patience
from tests.harness import PATIENCE
from tests.model_proxy import BODY, Proxy, ScriptedUpstream, proxy, served
from tests.model_proxy import upstream as scripted_upstream

HEAD = b'{"model":"claude-haiku-4-5","max_tokens":1,"messages":'
TEXT = {"type": "text", "text": ""}


@pytest.fixture
async def api() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as scripted:
        yield scripted


def with_image(size: int) -> dict[str, Any]:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO" * (size // 4)}}
    return {**BODY, "messages": [{"role": "user", "content": [image]}]}


async def test_largest_image_passes_unchanged(api: ScriptedUpstream, tmp_path: Path) -> None:
    body = with_image(MAX_BODY_BYTES - 1000)
    async with proxy(tmp_path, api.url) as running, running.post(body) as response:
        assert response.status == 200
    assert json.loads(api.asked[0].body) == body


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (b"[" + b"{}," * 600_000 + b"{}]", "commas"),
        (b"[" + b"[" * 600_000, "commas"),
        (b"[" + b" " * (9 << 20) + b"]", "besides letters"),
        (b'["' + b"\\n" * (9 << 20) + b'"]', "besides letters"),
        (b'["' + b"a" * 200_000 + b"\xff" + b"a" * 200_000 + b'"]', "UTF-8"),
        (b'["' + b"a" * 200_000 + b"\xed\xa0\x80" + b'"]', "UTF-8"),
        (b'["' + b"a" * 200_000 + b'\\ud800"]', "JSON"),
        (b'["' + b"a" * 2_000_000 + b"\n" + b'"]', "JSON"),
        (b'["' + b"a" * 2_000_000 + b'"', "JSON"),
    ],
    ids=["values", "brackets", "space", "escapes", "no UTF-8", "a surrogate's bytes", "a surrogate", "a line", "end"],
)
async def test_costly_or_malformed_body_is_refused(
    api: ScriptedUpstream, tmp_path: Path, messages: bytes, words: str
) -> None:
    async with proxy(tmp_path, api.url) as running, running.post(HEAD + messages + b"}") as response:
        assert response.status == 400
        assert words in (await response.json())["error"]["message"]
    assert api.asked == []


@pytest.mark.parametrize(
    "body",
    [{**BODY, "messages": [{"role": "user", "content": [TEXT] * 6000}]}, with_image(2 << 20)],
    ids=["many values", "many bytes"],
)
async def test_costly_body_decoding_does_not_block_loop(body: dict[str, Any]) -> None:
    sent, limits, turns = io.BytesIO(json.dumps(body).encode()), BodyLimits(), 0

    async def take(request: web.Request) -> web.Response:
        async with upload.Upload(request, "ada", Patience(), limits) as taken:
            return web.json_response((await taken.receive(frozenset(), is_counting=False)).model)

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += limits._decoding.locked()

    app = web.Application()
    app.router.add_post("/", take)
    counting = asyncio.create_task(count())
    async with served(app) as url, aiohttp.ClientSession() as http, http.post(url, data=sent) as response:
        assert await response.json() == BODY["model"]
    counting.cancel()
    assert turns > 0


async def test_slow_large_uploads_block_only_their_sprite(api: ScriptedUpstream, tmp_path: Path) -> None:
    large, stalled = with_image(2 << 20), asyncio.Event()
    patience = Patience(slot=0.3)

    async def ask(running: Proxy, body: Any, token: str | None = None) -> int:
        async with running.post(body, token=token) as response:
            return response.status

    async with proxy(tmp_path, api.url, patience=patience) as running:
        begun: asyncio.Queue[None] = asyncio.Queue()

        async def slow() -> AsyncIterator[bytes]:
            written = json.dumps(large).encode()
            yield written[: 3 << 19]
            begun.put_nowait(None)
            await stalled.wait()
            yield written[3 << 19 :]

        asking = [asyncio.create_task(ask(running, slow())) for _ in range(2)]
        for _ in asking:
            await asyncio.wait_for(begun.get(), PATIENCE)
        other = await running.tokens.rotate("bob")
        async with asyncio.timeout(PATIENCE):
            while await ask(running, large) != 529:
                pass  # the slow uploads have not reached the proxy yet
        assert await ask(running, BODY) == 200
        assert await ask(running, large, other) == 200
        stalled.set()
        assert await asyncio.gather(*asking) == [200, 200]
        assert await ask(running, large) == 200


async def test_client_disconnect_frees_upload_slot(api: ScriptedUpstream, tmp_path: Path) -> None:
    large = with_image(2 << 20)
    written = json.dumps(large).encode()
    async with proxy(tmp_path, api.url, patience=Patience(slot=PATIENCE)) as running:
        for _ in range(3):
            has_begun = asyncio.Event()

            async def endless(has_begun: asyncio.Event = has_begun) -> AsyncIterator[bytes]:
                yield written[: 3 << 19]
                has_begun.set()
                await asyncio.Event().wait()

            asking = asyncio.create_task(running.post(endless()).__aenter__())
            await asyncio.wait_for(has_begun.wait(), PATIENCE)
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
        async with running.post(large) as response:
            assert response.status == 200


async def test_upload_slot_is_free_during_answer(api: ScriptedUpstream, tmp_path: Path) -> None:
    large = with_image(2 << 20)
    has_asked, may_end, usual = asyncio.Queue[None](), asyncio.Event(), api.answer
    assert usual is not None

    async def answer(request: Any) -> Any:
        has_asked.put_nowait(None)
        await may_end.wait()
        return await usual(request)

    api.answer = answer
    async with proxy(tmp_path, api.url, patience=Patience(slot=PATIENCE)) as running:

        async def ask() -> int:
            async with running.post(large) as response:
                return response.status

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        async with asyncio.timeout(PATIENCE):
            for _ in asking:
                await has_asked.get()
        may_end.set()
        assert await asyncio.gather(*asking) == [200] * 4


async def test_decoding_alternates_between_sprites() -> None:
    limits = BodyLimits()
    order: list[str] = []

    async def decode(sprite: str) -> None:
        async with limits.decoding(sprite):
            order.append(sprite)
            await asyncio.sleep(0)

    await asyncio.gather(*(decode("ada") for _ in range(10)), decode("bob"))
    assert order.index("bob") <= 2
