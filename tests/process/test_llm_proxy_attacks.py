"""The model proxy against a sprite that overspends and an upstream that leaks the API key."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web

from bridge.proxy.body import Patience
from bridge.proxy.budgets import Limits
from bridge.proxy.upstream import ApiFeatures, Models
from sprite.common import own_secrets
from sprite.common.prices import Usage
from tests.harness import PATIENCE
from tests.model_proxy import (
    BODY,
    DELTA,
    END,
    KEY,
    MODEL,
    START,
    ScriptedUpstream,
    begun,
    proxy,
    said,
    streamed,
    upstream,
)

#: Output tokens of hidden thinking behind one token of visible text.
HIDDEN = 100_000
LONG: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": HIDDEN,
    "messages": [{"role": "user", "content": "think"}],
}
CONTEXT = 1_000_000


@pytest.fixture
async def api() -> AsyncIterator[ScriptedUpstream]:
    async with upstream() as scripted:
        yield scripted


def worst(body: dict[str, Any], prompt_tokens: int, searches: int = 0, rounds: int = 0) -> float:
    price = Models().price(body["model"])
    return price.most(prompt_tokens, body["max_tokens"], searches, rounds * (len(json.dumps(body)) + 2000))


# --- money ---


async def test_concurrent_calls_overrun_budget_by_one(api: ScriptedUpstream, tmp_path: Path) -> None:
    """Twenty calls start at once, and one of them may exceed the budget."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        usage = {"input_tokens": 10, "output_tokens": HIDDEN}
        return web.json_response({"type": "message", "model": LONG["model"], "usage": usage})

    api.answer = answer
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=1.0), patience=Patience(room=0.0)) as running:

        async def ask() -> int:
            async with running.post(LONG) as response:
                await response.read()
                return response.status

        statuses = await asyncio.gather(*(ask() for _ in range(20)))
        spent = await running.spent()
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 402, 429}
    assert spent == pytest.approx(2.0, rel=1e-3)
    assert spent <= 1.0 + worst(LONG, len(json.dumps(LONG)) + 2000)


async def test_calls_exceeding_budget_together_run_serially(api: ScriptedUpstream, tmp_path: Path) -> None:
    at_once: list[int] = []
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=1.0), patience=Patience(room=PATIENCE)) as running:

        async def answer(_request: web.Request) -> web.StreamResponse:
            at_once.append(round(await running.held() / worst(LONG, len(json.dumps(LONG)) + 2000)))
            await asyncio.sleep(0)
            return web.json_response({"model": LONG["model"], "usage": {"input_tokens": 9, "output_tokens": 9}})

        async def ask(body: dict[str, Any]) -> int:
            async with running.post(body) as response:
                return response.status

        api.answer = answer
        # A small curator call among them also waits and completes.
        statuses = await asyncio.gather(*(ask(LONG) for _ in range(8)), ask(BODY))
    assert statuses == [200] * 9
    assert at_once == [1] * 8 + [0] or set(at_once) <= {0, 1}


@pytest.mark.parametrize(
    "stream",
    [
        START + DELTA,
        START,
        START + DELTA + said("message_delta", delta={}, usage={"output_tokens": 1}),
        START + DELTA + said("message_delta", delta={"stop_reason": "end_turn"}, usage={}) + said("message_stop"),
        START + DELTA + END + DELTA,
        START + DELTA + said("message_stop"),
        DELTA + END,
        b"",
    ],
    ids=["text", "start", "counted early", "no count", "text after the end", "no delta", "no start", "nothing"],
)
@pytest.mark.parametrize("is_cut", [True, False])
async def test_unreported_usage_is_charged_upper_bound(
    api: ScriptedUpstream, tmp_path: Path, stream: bytes, *, is_cut: bool
) -> None:
    """Reported tokens count at the dearer price; an unreported prompt counts one token per byte."""
    api.answer = streamed(stream, is_cut=is_cut)
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=5.0)) as running:
        async with running.post(LONG) as response:
            await response.content.read(1 << 20)
        call = await running.call()
        assert await running.spent() == pytest.approx(call["spent_usd"])
    price = Models().price(LONG["model"])
    text = stream.count(DELTA) * 20
    prompt = Usage(input=1000) if START in stream else Usage(cache_write=len(json.dumps(LONG)))
    assert call["spent_usd"] >= price.cost(prompt) + price.cost(Usage(output=text))
    assert call["spent_usd"] <= worst(LONG, len(json.dumps(LONG)) + 2000) / 20
    assert call["is_estimate"] == 1


async def test_cheaper_answering_model_keeps_requested_price(api: ScriptedUpstream, tmp_path: Path) -> None:
    async with proxy(tmp_path, api.url) as running:
        async with running.post({**BODY, "model": LONG["model"]}) as response:
            assert response.status == 200
        assert (await running.call())["spent_usd"] == pytest.approx((1000 * 4 + 200 * 20) / 1e6)


@pytest.mark.parametrize("usage", [{"input_tokens": 5}, {"output_tokens": 5}, {}, None, {"output_tokens": -1}])
async def test_partial_usage_is_charged_upper_bound(api: ScriptedUpstream, tmp_path: Path, usage: Any) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"type": "message", "model": LONG["model"], "usage": usage})

    api.answer = answer
    async with proxy(tmp_path, api.url) as running:
        async with running.post(LONG) as response:
            assert response.status == 200
        call = await running.call()
    has_prompt = usage == {"input_tokens": 5}
    assert call["is_estimate"] == 1
    assert call["input_tokens"] + call["cache_write_tokens"] >= (5 if has_prompt else len(json.dumps(LONG)))
    assert call["output_tokens"] >= 5
    assert call["spent_usd"] <= call["held_usd"] / 20


@pytest.mark.parametrize(
    ("more", "searches", "rounds"),
    [
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "x"}}]}]},
            0,
            0,
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "document", "source": {"type": "base64", "data": "JVBERi"}}]}
                ]
            },
            0,
            0,
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]}, 8, 8),
        ({"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, 0, 10),
    ],
    ids=["a document by URL", "a packed document", "web_search", "web_fetch"],
)
async def test_unsized_content_reserves_whole_context(
    api: ScriptedUpstream, tmp_path: Path, more: dict[str, Any], searches: int, rounds: int
) -> None:
    """A document by URL, a packed document or a server tool may fill the model's context."""
    has_begun, may_end = asyncio.Event(), asyncio.Event()
    usual = api.answer
    assert usual is not None

    async def answer(request: web.Request) -> web.StreamResponse:
        has_begun.set()
        await may_end.wait()
        return await usual(request)

    api.answer = answer
    exits = ApiFeatures(opened=frozenset({"url", "web_search", "web_fetch"}))
    body = {**BODY, **more}
    async with proxy(
        tmp_path, api.url, limits=Limits(daily_usd=1.0), exits=exits, patience=Patience(room=0.0)
    ) as running:

        async def ask() -> int:
            async with running.post(body) as response:
                return response.status

        first = asyncio.create_task(ask())
        await asyncio.wait_for(has_begun.wait(), PATIENCE)
        assert await running.held() == pytest.approx(worst(body, CONTEXT, searches, rounds))
        assert await ask() == 429, "a second call ran before the first was settled"
        may_end.set()
        assert await first == 200
        assert await running.held() == 0


async def test_unbounded_search_with_budget_is_refused(api: ScriptedUpstream, tmp_path: Path) -> None:
    body = {**BODY, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=1.0)) as running, running.post(body) as response:
        assert response.status == 400
        assert "max_uses" in (await response.json())["error"]["message"]
    assert api.asked == []


# --- API features that reach the network ---


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("size", [0, 300_000])
async def test_closed_api_feature_is_refused(api: ScriptedUpstream, tmp_path: Path, path: str, size: int) -> None:
    """The upstream never receives the complete body, however large."""
    evil = {"type": "image", "source": {"type": "url", "url": "https://evil.example/?secret"}}
    messages = [{"role": "user", "content": "a" * size}, {"role": "user", "content": [evil]}]
    async with proxy(tmp_path, api.url) as running:
        async with running.post({**BODY, "messages": messages}, path=path) as response:
            assert response.status == 403
            assert response.headers["x-should-retry"] == "false"
            assert "--model-exits" in (await response.json())["error"]["message"]
        assert await running.calls() == []
    assert api.asked == []


async def test_only_known_headers_and_query_are_forwarded(api: ScriptedUpstream, tmp_path: Path) -> None:
    sent = {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "effort-2025-11-24,mcp-client-2025-11-20",
        "x-portkey-custom-host": "https://evil.example",
        "helicone-target-url": "https://evil.example",
        "x-tenant": "ada",
        "content-type": "application/json; charset=utf-7",
        "x-http-method-override": "DELETE",
    }
    async with proxy(tmp_path, api.url) as running:
        async with running.post(headers=sent, path="/v1/messages?api_base=evil.example&beta=true") as response:
            assert response.status == 200
        async with running.post(headers={"anthropic-beta": "mcp-client-2025-11-20"}) as response:
            assert response.status == 200
    first, second = api.asked
    assert first.path == "/v1/messages?beta=true"
    assert first.headers["anthropic-beta"] == "effort-2025-11-24"
    assert first.headers["content-type"] == "application/json"
    assert "anthropic-beta" not in second.headers
    ours = {"host", "content-length", "accept-encoding", "content-type", "x-api-key", "accept", "user-agent"}
    assert set(first.headers) - ours == {"anthropic-version", "anthropic-beta"}


# --- an upstream that leaks the API key ---


@pytest.fixture(autouse=True)
def _held() -> None:
    own_secrets.hold(KEY)


STATUSES = [400, 402, 403, 404, 405, 408, 409, 413, 422, 429, 500, 503, 529]
ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
WORDS = {
    "plain": json.dumps({"error": {"type": "api_error", "message": f"bad key {KEY}"}}).encode(),
    "escapes": b'{"error":{"message":"' + ESCAPED.encode() + b'"}}',
    "percent": quote(f"key={KEY}", safe="").replace("-", "%2D").encode(),
    "base64": base64.b64encode(f"x-api-key: {KEY}".encode()),
    "upper": KEY.upper().encode(),
    "long": b" " * 100_000 + KEY.encode(),
}


@pytest.mark.parametrize("status", STATUSES)
async def test_upstream_error_never_leaks_api_key(api: ScriptedUpstream, tmp_path: Path, status: int) -> None:
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=1.0)) as running:
        for name, words in WORDS.items():

            async def answer(_request: web.Request, words: bytes = words) -> web.StreamResponse:
                headers = {
                    "request-id": KEY,
                    "x-echo": KEY,
                    "anthropic-ratelimit-key": KEY,
                    "content-type": f"application/json; boundary={KEY}",
                    "retry-after": "7",
                }
                response = web.StreamResponse(status=status, reason=f"no {KEY}", headers=headers)
                await response.prepare(_request)
                for at in range(0, len(words), 1 << 14 if len(words) > 1000 else 9):
                    await response.write(words[at : at + (1 << 14 if len(words) > 1000 else 9)])
                return response

            api.answer = answer
            async with running.post() as response:
                assert (response.status, response.headers["retry-after"]) == (status, "7"), name
                shown = str(response.headers) + str(response.reason) + (await response.text())
            for form in (KEY, ESCAPED, base64.b64encode(KEY.encode()).decode()[:20]):
                assert form.lower() not in shown.lower(), name
            assert json.loads(shown[shown.index('{"type"') :])["error"]["message"]
        calls = await running.calls()
    assert all((call["spent_usd"], call["request_id"]) == (0, None) for call in calls)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
async def test_compressed_upstream_error_is_decoded_and_redacted(
    api: ScriptedUpstream, tmp_path: Path, encoding: str
) -> None:
    words = WORDS["plain"]
    packed = {"gzip": gzip.compress(words), "deflate": zlib.compress(words), "br": b"\x0b\x02\x80" + words + b"\x03"}

    async def answer(_request: web.Request) -> web.StreamResponse:
        headers = {"content-encoding": encoding, "content-type": "application/json"}
        return web.Response(status=500, body=packed[encoding], headers=headers)

    api.answer = answer
    async with proxy(tmp_path, api.url) as running, running.post() as response:
        assert response.status in {500, 502}
        assert "content-encoding" not in response.headers
        assert (await response.json())["type"] == "error"
        assert KEY not in await response.text()


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_stream_error_never_leaks_api_key(api: ScriptedUpstream, tmp_path: Path, step: int) -> None:
    """The key is redacted however the stream is split into chunks."""
    told = said("error", error={"type": "api_error", "message": f"x-api-key {KEY} is over its limit"})

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(START + DELTA)
        for at in range(0, len(told), step):
            await response.write(told[at : at + step])
        return response

    api.answer = answer
    async with proxy(tmp_path, api.url) as running, running.post() as response:
        body = await response.read()
    assert body.startswith(START + DELTA + b"event: error\n")
    assert KEY.encode() not in body
    assert json.loads(body.split(b"data: ")[-1])["error"]["message"]


async def test_error_with_status_200_never_leaks_key(api: ScriptedUpstream, tmp_path: Path) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"model": MODEL, "error": {"message": KEY}})

    api.answer = answer
    async with proxy(tmp_path, api.url) as running, running.post() as response:
        assert response.status == 502
        assert KEY not in await response.text()
