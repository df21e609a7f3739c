"""The model proxy: transparent forwarding, access, limits and errors.

The file is long because each case is a whole exchange.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import random
import re
import socket
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge.proxy.body import MAX_BODY_BYTES, Patience
from bridge.proxy.budgets import Limits
from bridge.proxy.proxy import RateLimits
from bridge.proxy.upstream import Models, Upstream
from tests import api_grammar
from tests import api_wire as wire
from tests.harness import PATIENCE
from tests.model_proxy import (
    BODY,
    DELTA,
    END,
    KEY,
    MODEL,
    START,
    Proxy,
    ScriptedUpstream,
    begun,
    message,
    never_ended,
    proxy,
    streamed,
    upstream,
)


@pytest.fixture
async def api() -> AsyncIterator[ScriptedUpstream]:
    async with upstream() as scripted:
        yield scripted


async def refusal(response: aiohttp.ClientResponse) -> tuple[int, str]:
    """Return the status and type of an error, after checking the API's error shape."""
    body = await response.json()
    assert body["type"] == "error"
    assert body["error"]["message"]
    return response.status, body["error"]["type"]


def big_body(random_: random.Random, size: int, *, model_last: bool) -> tuple[bytes, bytes]:
    """Return a request of about `size` bytes with every kind of JSON value, and its normalized form."""
    pieces: list[Any] = []
    left = size
    while left > 0:
        text = "".join(random_.choices('ab"\\{}[]:,\n é\u2028', k=random_.randrange(1, 400)))
        pieces.append({"role": "user", "content": [{"type": "text", "text": text}, {"n": [1, -2.5e3, None, True, {}]}]})
        left -= 2 * len(text)
    messages = json.dumps(pieces, ensure_ascii=random_.random() < 0.5, indent=random_.choice([None, 1])).encode()
    given = [b'"messages" : %b' % messages, b'"mod\\u0065l":"claude-h\\u0061iku-4-5" ', b'\t"max_tokens"\n: 5']
    sent = [b'"messages":%b' % messages, b'"model":"claude-h\\u0061iku-4-5"', b'"max_tokens":5']
    if not model_last:
        given.reverse()
        sent.reverse()
    return b" { %b}\n" % b" ,".join(given), b"{%b}" % b",".join(sent)


# --- forwarding ---


@pytest.mark.parametrize(
    ("size", "model_last", "chunked"),
    [
        *((size, last, chunked) for size in (10, 5000, 70_000) for last in (True, False) for chunked in (True, False)),
        *((300_000, True, False), (300_000, False, True)),
        # Too large to be decoded on the event loop.
        (1_500_000, True, True),
        *(pytest.param(3_000_000, last, not last, marks=pytest.mark.soak) for last in (True, False)),
    ],
)
async def test_request_arrives_with_members_as_written(
    api: ScriptedUpstream, tmp_path: Path, size: int, *, model_last: bool, chunked: bool
) -> None:
    random_ = random.Random(size)  # noqa: S311 - test data, no secret
    body, sent = big_body(random_, size, model_last=model_last)

    async def pieces() -> AsyncIterator[bytes]:
        rest = body
        while rest:
            cut = random_.randrange(1, 20_000)
            yield rest[:cut]
            rest = rest[cut:]

    async with proxy(tmp_path, api.url) as running, running.post(pieces() if chunked else body) as response:
        assert response.status == 200
        await response.read()
    (asked,) = api.asked
    assert asked.body == sent
    assert asked.headers["content-length"] == str(len(sent))


async def test_streamed_answer_arrives_byte_for_byte(api: ScriptedUpstream, tmp_path: Path) -> None:
    random_ = random.Random(4)  # noqa: S311 - test data, no secret
    noise = random_.randbytes(200_000)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        rest = noise
        while rest:
            cut = random_.choice([1, 2, 7, 1000, 60_000])
            await response.write(rest[:cut])
            rest = rest[cut:]
        return response

    api.answer = answer
    async with proxy(tmp_path, api.url) as running, running.post() as response:
        assert await response.read() == noise


@pytest.mark.parametrize("size", [0, 1, 1000, 500_000])
@pytest.mark.parametrize("length_known", [True, False])
async def test_plain_answer_arrives_byte_for_byte(
    api: ScriptedUpstream, tmp_path: Path, size: int, *, length_known: bool
) -> None:
    noise = random.Random(size).randbytes(size)  # noqa: S311 - test data, no secret

    async def answer(request: web.Request) -> web.StreamResponse:
        if length_known:
            return web.Response(body=noise, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        await response.write(noise) if noise else None
        return response

    api.answer = answer
    async with proxy(tmp_path, api.url) as running, running.post() as response:
        assert await response.read() == noise


async def test_events_are_forwarded_without_buffering(api: ScriptedUpstream, tmp_path: Path) -> None:
    has_arrived = asyncio.Queue[None]()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        for piece in (START, DELTA, END):
            await response.write(piece)
            await has_arrived.get()
        return response

    api.answer = answer
    async with proxy(tmp_path, api.url) as running, running.post() as response, asyncio.timeout(PATIENCE):
        for piece in (START, DELTA, END):
            assert await response.content.readexactly(len(piece)) == piece
            has_arrived.put_nowait(None)


async def test_proxy_strips_credentials_cookies_and_hop_headers(api: ScriptedUpstream, tmp_path: Path) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        headers = {"request-id": "req_1", "retry-after": "7", "set-cookie": "a=b", "anthropic-ratelimit-x": "5"}
        return web.json_response({"type": "error"}, status=529, headers=headers)

    api.answer = answer
    sent = {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "effort-2025-11-24,structured-outputs-2025-12-15",
        "anthropic-dangerous-direct-browser-access": "true",
        "user-agent": "claude-cli/2.1.329",
        "x-app": "cli",
        "cookie": "session=planted",
        "x-forwarded-for": "10.1.2.3",
        "connection": "keep-alive, x-mine",
        "x-mine": "of this connection",
        "accept-encoding": "gzip, br",
    }
    async with proxy(tmp_path, api.url) as running:
        async with running.post(headers=sent, path="/v1/messages?beta=true") as response:
            assert response.status == 529
            assert response.headers["retry-after"] == "7"
            assert response.headers["request-id"] == "req_1"
            assert response.headers["anthropic-ratelimit-x"] == "5"
            assert "set-cookie" not in response.headers
        token = running.token
    (asked,) = api.asked
    assert asked.path == "/v1/messages?beta=true"
    assert asked.headers["x-api-key"] == KEY
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.headers["host"] == api.url.removeprefix("http://")
    for name in ("anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access", "x-app"):
        assert asked.headers[name] == sent[name]
    assert asked.headers["user-agent"] == sent["user-agent"]
    assert not {"cookie", "x-forwarded-for", "x-mine", "authorization"} & set(asked.headers)
    assert token not in str(asked.headers)


async def test_gateway_with_path_gets_bearer_token(api: ScriptedUpstream, tmp_path: Path) -> None:
    target = Upstream(api.url + "/team/anthropic/", auth_token="planted-gateway-token")
    async with proxy(tmp_path, target) as running, running.post() as response:
        assert response.status == 200
    (asked,) = api.asked
    assert asked.path == "/team/anthropic/v1/messages"
    assert asked.headers["authorization"] == "Bearer planted-gateway-token"
    assert "x-api-key" not in asked.headers


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_answer_is_decoded_and_counted(api: ScriptedUpstream, tmp_path: Path, encoding: str) -> None:
    whole = START + DELTA + END
    packed = gzip.compress(whole) if encoding == "gzip" else zlib.compress(whole)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begun(request, **{"content-encoding": encoding})
        for at in range(0, len(packed), 13):
            await response.write(packed[at : at + 13])
        return response

    api.answer = answer
    async with proxy(tmp_path, api.url) as running:
        async with running.post() as response:
            assert "content-encoding" not in response.headers
            assert await response.read() == whole
        call = await running.call()
    assert (call["input_tokens"], call["output_tokens"], call["is_estimate"]) == (1000, 200, 0)


# --- access and limits ---


async def test_only_current_sprite_token_is_accepted(api: ScriptedUpstream, tmp_path: Path) -> None:
    async with proxy(tmp_path, api.url) as running:

        async def status(token: str) -> int:
            async with running.post(token=token) as response:
                return response.status

        old = running.token
        assert await status(old) == 200
        new = await running.tokens.rotate("ada")
        assert await status(old) == 401
        assert await status(new) == 200
        await running.tokens.revoke("ada")
        assert await status(new) == 401
        for forged in ("x", "sprite-", "sprite-" + "a" * 43, KEY, new[:-1], new + "a", "sprite-" + "ü" * 10):
            assert await status(forged) == 401
    assert len(api.asked) == 2


async def test_token_survives_restart_and_is_hashed(api: ScriptedUpstream, tmp_path: Path) -> None:
    async with proxy(tmp_path, api.url) as first:
        other = await first.tokens.rotate("bob")
    async with proxy(tmp_path, api.url) as second, second.post(token=other) as response:
        assert response.status == 200
    everything = b"".join(path.read_bytes() for path in tmp_path.glob("bridge.db*"))
    for token in (first.token, second.token, other):
        assert token.encode() not in everything


async def test_token_works_as_key_or_bearer(api: ScriptedUpstream, tmp_path: Path) -> None:
    async with proxy(tmp_path, api.url) as running:
        bearer = {"authorization": f"bearer {running.token}"}
        async with running.post(token="offline", headers=bearer) as response:
            assert response.status == 200
        other = await running.tokens.rotate("bob")
        async with running.post(token=other, headers=bearer) as response:
            assert await refusal(response) == (401, "authentication_error")
        async with running.http.post(running.url + "/v1/messages", json=BODY) as response:
            assert await refusal(response) == (401, "authentication_error")


async def test_disallowed_model_is_refused_before_upstream(api: ScriptedUpstream, tmp_path: Path) -> None:
    async with proxy(tmp_path, api.url, models=Models(allowed=("claude-haiku-*", "gpt-5"))) as running:
        for model, status in (("claude-haiku-4-5-20251001", 200), ("claude-opus-5-5", 403), ("gpt-5", 200), ("", 403)):
            async with running.post({**BODY, "model": model}) as response:
                assert response.status == status, model
            async with running.post({**BODY, "model": model}, path="/v1/messages/count_tokens") as response:
                assert response.status == status, model
        async with running.http.get(running.url + "/v1/models", headers={"x-api-key": running.token}) as response:
            assert {m["id"] for m in (await response.json())["data"]} == {"claude-haiku-5-5", "claude-haiku-4-5"}
    assert len(api.asked) == 4


@pytest.mark.parametrize("again", [b"mod\\u0065l", b"Model"])
async def test_duplicate_model_member_is_refused(api: ScriptedUpstream, tmp_path: Path, again: bytes) -> None:
    """Two parsers could read different models from such a body."""
    twice = b'{"model":"claude-haiku-4-5","max_tokens":1,"%b":"claude-opus-5-5","messages":[]}' % again
    async with proxy(tmp_path, api.url) as running, running.post(twice) as response:
        assert await refusal(response) == (400, "invalid_request_error")
    assert api.asked == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'{"model":"claude-haiku-4-5"',
        b'{"model":"claude-haiku-4-5","max_tokens":1}x',
        b'{"model":"claude-haiku-4-5"}',
        b'{"max_tokens":1}',
        b'{"model":7,"max_tokens":1}',
        b'{"model":"claude-haiku-4-5","max_tokens":"1"}',
        b'{"model":"claude-haiku-4-5","max_tokens":-1}',
        b'{"model":"claude-haiku-4-5","max_tokens":1e3}',
        '{"model":"claude-haiku-4-5","max_tokens":1}'.encode("utf-16"),
        b"\xef\xbb\xbf" + json.dumps(BODY).encode(),
        b'{"a":' + b"[" * 1_000_000,
        json.dumps({**BODY, "model": "m" * 5000}).encode(),
        json.dumps({**BODY, "model": "m" * 50_000}).encode(),
    ],
    ids=lambda body: str(body[:40]),
)
async def test_invalid_body_is_refused_before_upstream(api: ScriptedUpstream, tmp_path: Path, body: bytes) -> None:
    async with proxy(tmp_path, api.url) as running, running.post(body) as response:
        assert await refusal(response) == (400, "invalid_request_error")
    assert api.asked == []


async def test_rate_limits_apply_per_sprite(api: ScriptedUpstream, tmp_path: Path) -> None:
    now = [0.0]
    may_end = asyncio.Event()
    begun_ = asyncio.Event()
    usual = api.answer
    assert usual is not None

    async def answer(request: web.Request) -> web.StreamResponse:
        begun_.set()
        await may_end.wait()
        return await usual(request)

    api.answer = answer
    rate_limits = RateLimits(per_minute=3, at_once=1, clock=lambda: now[0])
    async with proxy(tmp_path, api.url, rate_limits=rate_limits) as running:

        async def ask() -> tuple[int, str | None]:
            async with running.post() as response:
                return response.status, response.headers.get("retry-after")

        first = asyncio.create_task(ask())
        await begun_.wait()
        assert await ask() == (429, "1")
        other = await running.tokens.rotate("bob")
        may_end.set()
        assert await first == (200, None)
        assert await ask() == (200, None)
        assert await ask() == (200, None)
        assert await ask() == (429, "20")
        async with running.post(token=other) as response:
            assert response.status == 200, "one sprite's calls count against another sprite"
        now[0] += 20
        assert await ask() == (200, None)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"model": "claude-opus-5-5", "max_tokens": 5}, 403),
        ({"model": MODEL, "max_tokens": 90_000_000}, 402),
        ({"model": MODEL}, 400),
        ({"model": MODEL, "max_tokens": 5, "speed": "fast"}, 403),
    ],
)
@pytest.mark.parametrize("chunked", [True, False])
async def test_refused_large_call_is_never_sent_completely(
    api: ScriptedUpstream, tmp_path: Path, asked: dict[str, Any], status: int, *, chunked: bool
) -> None:
    """The refusal comes at the end of the body, after a part may have been forwarded."""
    body = json.dumps({"messages": ["a" * 1000] * 3000, **asked}).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 50_000):
            yield body[at : at + 50_000]

    async with proxy(
        tmp_path, api.url, limits=Limits(daily_usd=0.003), models=Models(allowed=("claude-haiku-*",))
    ) as running:
        async with running.post(pieces() if chunked else body) as response:
            assert response.status == status
            await refusal(response)
        assert await running.calls() == []
        assert await running.held() == 0
    assert api.asked == []


# --- hostile clients ---


RAW = "Host: evil.example\r\nx-api-key: {token}\r\nContent-Type: application/json\r\n"


async def raw_request(url: str, head: str, body: bytes = b"") -> bytes:
    """Send bytes that no HTTP library would send; return the answer."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head.encode() + body)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", answer)
        assert length is not None, answer
        answer += await reader.readexactly(int(length[1]))
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://evil.example/v1/messages", b"200"),
        ("/v1/messages?beta=true", b"200"),
        ("/v1/%6dessages", b"200"),
        ("//evil.example/v1/messages", b"404"),
        ("/v1//messages", b"404"),
        ("/v1/messages/", b"404"),
        ("/v1/messages/../../admin", b"404"),
        ("/v1/messages/batches", b"404"),
        ("/v1/messages%2f..%2fadmin", b"404"),
        ("/v1/messages?x=%0d%0aHost:%20evil#f", b"200"),
        ("/v1/messages?x=\\", b"400"),
        ("/v1/files", b"404"),
        ("/v1/", b"404"),
    ],
)
async def test_request_target_cannot_change_upstream(
    api: ScriptedUpstream, tmp_path: Path, target: str, status: bytes
) -> None:
    body = json.dumps(BODY).encode()
    async with proxy(tmp_path, api.url) as running:
        head = f"POST {target} HTTP/1.1\r\n" + RAW.format(token=running.token)
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        answer = await raw_request(running.url, head, body)
    assert answer.split(b" ", 2)[1] == status or (target.startswith("//") and answer[9:10] == b"4"), answer
    for asked in api.asked:
        assert asked.path.partition("?")[0] == "/v1/messages"
        assert asked.headers["host"] == api.url.removeprefix("http://")
    assert len(api.asked) == (1 if status == b"200" else 0)


async def test_body_over_32_mib_is_refused_early(api: ScriptedUpstream, tmp_path: Path) -> None:
    """A declared length is refused at the header, a chunked body at the limit."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'{"model":"claude-haiku-4-5","max_tokens":1,"messages":"'
        while sent < 100 << 20:
            sent += 1 << 16
            yield b"a" * (1 << 16)

    async with proxy(tmp_path, api.url) as running:
        head = "POST /v1/messages HTTP/1.1\r\n" + RAW.format(token=running.token) + "Content-Length: 104857600\r\n\r\n"
        answer = await raw_request(running.url, head)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"request_too_large" in answer
        # The proxy may close the connection while the client is still sending.
        with contextlib.suppress(aiohttp.ClientError):
            async with running.post(endless()) as response:
                assert await refusal(response) == (413, "request_too_large")
        assert sent < 2 * MAX_BODY_BYTES
        assert await running.calls() == []
    assert api.asked == []


async def test_stalled_body_does_not_block_other_calls(api: ScriptedUpstream, tmp_path: Path) -> None:
    async with proxy(tmp_path, api.url) as running:
        head = "POST /v1/messages HTTP/1.1\r\n" + RAW.format(token=running.token) + "Content-Length: 1000\r\n\r\n{"
        host, port = running.url.removeprefix("http://").split(":")
        slow = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
        for _, writer in slow:
            writer.write(head.encode())
        async with running.post() as response:
            assert response.status == 200
        for _, writer in slow:
            writer.close()
        assert len(await running.calls()) == 1
    assert len(api.asked) == 1


async def test_slow_body_times_out(api: ScriptedUpstream, tmp_path: Path) -> None:
    patience = Patience(silent=0.2, whole=0.5)
    async with proxy(tmp_path, api.url, patience=patience) as running:
        head = "POST /v1/messages HTTP/1.1\r\n" + RAW.format(token=running.token) + "Content-Length: 1000\r\n\r\n{"
        answer = await raw_request(running.url, head)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"timeout_error" in answer

        async def dripping() -> AsyncIterator[bytes]:
            yield b'{"model":"claude-haiku-4-5","max_tokens":1,"messages":"'
            for _ in range(100):
                await asyncio.sleep(0.05)
                yield b"a" * 1000

        async with running.post(dripping()) as response:
            assert await refusal(response) == (408, "timeout_error")
        assert await running.calls() == []
    assert api.asked == []


async def test_client_not_reading_is_disconnected(api: ScriptedUpstream, tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(START)
        while True:
            await response.write(DELTA * 1000)

    api.answer = answer
    async with proxy(tmp_path, api.url, patience=Patience(between=0.5)) as running:
        body = json.dumps(BODY).encode()
        head = "POST /v1/messages HTTP/1.1\r\n" + RAW.format(token=running.token)
        host, port = running.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1000)
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await asyncio.wait_for(api.given_up.wait(), PATIENCE)
        call = await running.call()
        writer.close()
    assert (call["outcome"], call["is_estimate"]) == ("client_gone", 1)
    assert call["output_tokens"] == BODY["max_tokens"], "the estimate is not max_tokens"


async def test_compressed_body_is_refused(api: ScriptedUpstream, tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(BODY).encode())
    async with (
        proxy(tmp_path, api.url) as running,
        running.post(packed, headers={"content-encoding": "gzip"}) as response,
    ):
        assert await refusal(response) == (400, "invalid_request_error")


async def test_unknown_paths_return_api_errors(api: ScriptedUpstream, tmp_path: Path) -> None:
    """`HEAD /` is answered with 200."""
    async with proxy(tmp_path, api.url) as running:
        async with running.http.head(running.url + "/") as response:
            assert response.status == 200
        async with running.http.get(running.url + "/v1/messages") as response:
            assert await refusal(response) == (404, "not_found_error")
        async with running.http.get(running.url + "/v1/models") as response:
            assert await refusal(response) == (401, "authentication_error")
    assert api.asked == []


# --- failing upstreams ---


@pytest.mark.parametrize("kind", [kind for kind in api_grammar.ERRORS if kind != "authentication_error"])
async def test_api_error_passes_and_costs_nothing(api: ScriptedUpstream, tmp_path: Path, kind: str) -> None:
    status = api_grammar.ERRORS[kind]
    words = wire.error(status, "busy", kind)

    async def answer(_request: web.Request) -> web.StreamResponse:
        headers = {"request-id": json.loads(words)["request_id"], "content-type": "application/json"}
        return web.Response(status=status, body=words, headers=headers)

    api.answer = answer
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=1.0)) as running:
        async with running.post() as response:
            body = await response.json()
            assert (response.status, body["error"]["type"]) == (status, kind)
            assert body["request_id"] == json.loads(words)["request_id"]
            assert "busy" not in body["error"]["message"]
        call = await running.call()
        assert await running.spent() == await running.held() == 0
    assert (call["status"], call["outcome"], call["spent_usd"], call["output_tokens"]) == (status, "refused", 0, 0)


@pytest.mark.parametrize("stop", api_grammar.STOPS)
async def test_stop_reason_passes_and_is_counted(api: ScriptedUpstream, tmp_path: Path, stop: str) -> None:
    whole = api_grammar.stream(api_grammar.STOPS[stop], input_tokens=1000, output_tokens=200)
    api.answer = streamed(whole)
    async with proxy(tmp_path, api.url) as running:
        async with running.post() as response:
            assert await response.read() == whole
        call = await running.call()
    assert (call["outcome"], call["is_estimate"], call["spent_usd"]) == ("complete", 0, pytest.approx(0.002))


@pytest.mark.parametrize("broken", api_grammar.BREAKS)
async def test_broken_stream_costs_known_usage(api: ScriptedUpstream, tmp_path: Path, broken: str) -> None:
    step = api_grammar.BREAKS[broken]
    whole = api_grammar.stream(step, input_tokens=1000, output_tokens=200)
    api.answer = streamed(whole, is_cut=step.get("cut", False))
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=9.0)) as running:
        async with running.post({**BODY, "max_tokens": 100_000, "stream": True}) as response:
            body = await response.read()
        call = await running.call()
        assert await running.spent() == call["spent_usd"]
    assert body.startswith(whole.partition(b"event: error")[0])
    assert (b"event: error\n" in body) is ("cut" in step or "stream_error" in step)
    if step["at"] == "after_delta":
        assert (call["is_estimate"], call["spent_usd"]) == (0, pytest.approx(0.002))
    elif step["at"] == "before_start" and "stream_error" in step:
        assert (call["outcome"], call["is_estimate"], call["spent_usd"]) == ("refused", 0, 0)
    else:
        shown = len(api_grammar.TEXT["text"]) // 2 if step["at"] == "in_block" else 0
        assert call["is_estimate"] == 1
        assert (1000 + 5 * shown) / 1e6 <= call["spent_usd"] <= call["held_usd"] / 20


async def test_error_before_end_of_body_is_forwarded(tmp_path: Path) -> None:
    async def hasty(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words = b'{"type":"error","error":{"type":"rate_limit_error","message":"not now"}}'
        head = (
            b"HTTP/1.1 429 Too Many\r\ncontent-type: application/json\r\nretry-after: 9\r\ncontent-length: %d\r\n\r\n"
        )
        writer.write(head % len(words) + words)
        await writer.drain()
        await _reader.read(1000)
        writer.close()

    body = json.dumps({"messages": ["a" * 1000] * 5000, "model": MODEL, "max_tokens": 5}).encode()
    server = await asyncio.start_server(hasty, "127.0.0.1", 0)
    async with server, proxy(tmp_path, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as running:
        async with running.post(body) as response:
            assert response.headers["retry-after"] == "9"
            assert await refusal(response) == (429, "rate_limit_error")
        assert all(call["spent_usd"] == 0 for call in await running.calls())


async def test_rejected_upstream_key_returns_redacted_502(api: ScriptedUpstream, tmp_path: Path) -> None:
    """The bridge's key is wrong, so the sprite must not retry and must not see the key."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=401, text=f"bad key {request.headers['x-api-key']}")

    api.answer = answer
    async with proxy(tmp_path, api.url) as running, running.post() as response:
        assert KEY not in await response.text()
        assert await refusal(response) == (502, "api_error")
        assert response.headers["x-should-retry"] == "false"


async def test_upstream_redirect_is_not_followed(api: ScriptedUpstream, tmp_path: Path) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"location": f"{api.url}/elsewhere"})

    api.answer = answer
    async with proxy(tmp_path, api.url) as running, running.post() as response:
        assert await refusal(response) == (502, "api_error")
        assert "location" not in response.headers
    assert len(api.asked) == 1


async def test_unreachable_upstream_costs_nothing(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        # The bound port keeps other programs from listening there.
        nobody.bind(("127.0.0.1", 0))
        async with proxy(tmp_path, f"http://127.0.0.1:{nobody.getsockname()[1]}") as running:
            async with running.post() as response:
                assert await refusal(response) == (502, "api_error")
            call = await running.call()
    assert (call["outcome"], call["spent_usd"], call["is_estimate"]) == ("unreachable", 0, 0)


async def test_upstream_abort_charges_prompt_as_estimate(api: ScriptedUpstream, tmp_path: Path) -> None:
    """The upstream may have processed the prompt before it closed the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    api.answer = answer
    async with proxy(tmp_path, api.url) as running:
        async with running.post() as response:
            assert await refusal(response) == (502, "api_error")
        call = await running.call()
    assert call["outcome"] == "cut"
    assert call["spent_usd"] > 0
    assert call["is_estimate"] == 1


async def test_stream_cut_between_events_sends_error_event(api: ScriptedUpstream, tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(START + DELTA)
        assert request.transport is not None
        request.transport.close()
        return response

    api.answer = answer
    async with proxy(tmp_path, api.url) as running:
        async with running.post() as response:
            body = await response.read()
        call = await running.call()
    assert body.startswith(START + DELTA + b"event: error\n")
    assert json.loads(body.split(b"data: ")[-1])["error"]["type"] == "api_error"
    assert (call["outcome"], call["is_estimate"], call["input_tokens"]) == ("cut", 1, 1000)
    assert call["output_tokens"] >= 20


async def test_stream_cut_inside_event_aborts_client(api: ScriptedUpstream, tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(START + DELTA[:30])
        assert request.transport is not None
        request.transport.close()
        return response

    api.answer = answer
    async with proxy(tmp_path, api.url) as running:
        async with running.post() as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        assert (await running.call())["outcome"] == "cut"


async def test_silent_upstream_times_out(api: ScriptedUpstream, tmp_path: Path) -> None:
    async def never(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def stops(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(START)
        return await never(request)

    async with proxy(tmp_path, api.url, patience=Patience(first_byte=0.3, between=0.3)) as running:
        api.answer = never
        async with running.post() as response:
            assert await refusal(response) == (504, "timeout_error")
        await asyncio.wait_for(api.given_up.wait(), PATIENCE)
        api.given_up.clear()
        api.answer = stops
        async with running.post() as response:
            assert (await response.read()).startswith(START + b"event: error\n")
        await asyncio.wait_for(api.given_up.wait(), PATIENCE)
        calls = await running.calls()
    assert [call["outcome"] for call in calls] == ["timeout", "timeout"]
    assert all(call["spent_usd"] > 0 for call in calls)


async def test_silent_stream_costs_no_waiting(api: ScriptedUpstream, tmp_path: Path) -> None:
    """Silence before a stream's first event is free; a silent plain answer is charged for its time."""

    async def never(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def ask(running: Proxy, *, is_streamed: bool) -> None:
        async with running.post({**BODY, "max_tokens": 64_000, "stream": is_streamed}) as response:
            assert response.status == 504

    api.answer = never
    async with proxy(tmp_path, api.url, patience=Patience(first_byte=1.2)) as running:
        await asyncio.gather(ask(running, is_streamed=True), ask(running, is_streamed=False))
        calls = await running.calls()
    streamed_tokens, other_tokens = sorted(call["output_tokens"] for call in calls)
    assert streamed_tokens <= 300
    assert other_tokens >= 1.2 * 300


# --- clients that disconnect ---


@pytest.mark.parametrize("beginning", [b"", START, START + DELTA * 10], ids=["nothing", "start", "text"])
async def test_stop_closes_upstream_at_once(api: ScriptedUpstream, tmp_path: Path, beginning: bytes) -> None:
    has_begun = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await begun(request) if beginning else web.StreamResponse()
        if beginning:
            await response.write(beginning)
        has_begun.set()
        await asyncio.Event().wait()
        return response

    api.answer = answer
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=1.0), rate_limits=RateLimits(at_once=1)) as running:

        async def ask() -> None:
            async with running.post({**BODY, "max_tokens": 100_000, "stream": True}) as response:
                await response.read()

        asking = asyncio.create_task(ask())
        await has_begun.wait()
        held = await running.held()
        asking.cancel()
        await asyncio.wait_for(api.given_up.wait(), 1.0)
        call = await running.call()
        assert await running.held() == 0
        assert await running.spent() == call["spent_usd"]
        api.answer = message
        async with running.post() as response:
            assert response.status == 200, "the stopped call still counts as running"
        (spend,) = await running.accounts.spend()
    assert (call["outcome"], call["is_estimate"]) == ("client_gone", 1)
    assert spend.estimated == call["spent_usd"] < spend.today
    assert call["spent_usd"] < held / 20
    if beginning:
        assert (call["input_tokens"], call["output_tokens"] >= 20 * beginning.count(DELTA)) == (1000, True)
        assert call["spent_usd"] >= 0.001
    else:
        assert call["cache_write_tokens"] >= len(json.dumps(BODY))


async def test_stop_before_connection_costs_nothing(tmp_path: Path) -> None:
    with socket.socket() as busy, contextlib.ExitStack() as waiting:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)
        for _ in range(3):
            # These fill the accept queue, so no further connection succeeds.
            other = waiting.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(busy.getsockname())
        async with proxy(tmp_path, f"http://127.0.0.1:{busy.getsockname()[1]}") as running:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3), running.post():
                    pass
            call = await running.call()
    assert (call["outcome"], call["spent_usd"], call["is_estimate"]) == ("client_gone", 0, 0)


async def test_running_call_is_settled_at_shutdown(api: ScriptedUpstream, tmp_path: Path) -> None:
    api.answer = never_ended
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=1.0)) as running, running.post() as response:
        await response.content.readexactly(len(START))
    async with proxy(tmp_path, api.url) as running:
        call = await running.call()
    assert (call["outcome"], call["input_tokens"], call["state"]) == ("client_gone", 1000, "settled")


async def test_client_abort_inside_body_costs_nothing(api: ScriptedUpstream, tmp_path: Path) -> None:
    async with proxy(tmp_path, api.url) as running:
        head = "POST /v1/messages HTTP/1.1\r\n" + RAW.format(token=running.token) + "Content-Length: 900000\r\n\r\n"
        body = b'{"model":"claude-haiku-4-5","max_tokens":1,"messages":"' + b"a" * 300_000
        host, port = running.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        async with running.post() as response:
            assert response.status == 200
        assert len(await running.calls()) == 1
        assert await running.held() == 0
    assert [json.loads(asked.body) for asked in api.asked] == [BODY]


# --- logs ---


async def test_logs_contain_no_key_token_or_content(
    api: ScriptedUpstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def cut(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(START + b"planted-answer")
        assert request.transport is not None
        request.transport.close()
        return response

    async def refused(request: web.Request) -> web.StreamResponse:
        return web.Response(status=401, text=request.headers["x-api-key"])

    async with proxy(tmp_path, api.url, models=Models(allowed=("claude-*",))) as running:
        for answer in (api.answer, cut, refused):
            api.answer = answer
            async with running.post() as response:
                with contextlib.suppress(aiohttp.ClientError):
                    await response.read()
        async with running.post({**BODY, "model": "planted-model"}) as response:
            assert response.status == 403
        token = running.token
        await running.calls()
    logged = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("bridge.db*"))
    for secret in (KEY, token, "planted-content-4711", "planted-answer"):
        assert secret not in logged
        assert secret.encode() not in stored
