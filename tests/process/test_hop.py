"""HTTP requests forwarded from one bridge to another over real sockets: streams, failures and forgeries."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from bridge.cluster.forward import MAX_HEAD_BYTES, PASSED, ForwardedIdentity, ForwardHeader, Pulses, RequestSigner
from bridge.db.open import open_database
from bridge.telemetry.logs import REQUEST_ID
from sprite.common.tasks import TaskSet
from tests.harness import PATIENCE
from tests.hop_stage import SECRET, Entrance, Places, Two, bearing, door, entrance, two
from tests.inspection import comes_to_rest, eventually

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: More data than the buffers of two pairs of sockets.
BIG = 64 * 2**20


async def told(request: web.Request) -> web.Response:
    """Answer with the received request as JSON."""
    return web.json_response(
        {
            "target": request.raw_path,
            "headers": [[name, value] for name, value in request.headers.items()],
            "person": request[PASSED].person if PASSED in request else None,
            "request_id": request[REQUEST_ID],
            "body": (await request.read()).decode("latin-1"),
        },
        headers={"X-Door": "open", "X-Bridge-Secret": "no"},
    )


async def test_forward_preserves_request_and_response(tmp_path: Path) -> None:
    async with two(tmp_path, told) as stage:
        for path in ("/files/a%2Fb%20c/%C3%A9?x=%20y&x=2", "/files/../b", "/files//c?", "/files/" + "d" * 2000):
            url = URL(f"{stage.other.url}{path}", encoded=True)
            async with stage.other.session.post(url, data=b"\0\xff body", headers=bearing(stage.token)) as response:
                seen = await response.json()
            assert response.status == 200
            assert seen["target"] == path.rstrip("?")
            assert (seen["person"], seen["body"]) == ("ada", "\0\xff body")
        assert response.headers["X-Door"] == "open"
        assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_forward_decodes_compressed_body_once(tmp_path: Path) -> None:
    """The body also arrives if it shrinks on decoding, or looks like a second request."""
    async with two(tmp_path, told) as stage:
        for body in (b"x", b"GET /files/b HTTP/1.1\r\nHost: x\r\n\r\n" * 500):
            packed = zlib.compress(body)
            headers = bearing(stage.token, {"Content-Encoding": "Deflate", "Content-Length": str(len(packed))})
            for where in (stage.owner, stage.other):
                async with where.session.post(f"{where.url}/files/a", data=packed, headers=headers) as response:
                    assert response.status == 200
                    assert (await response.json())["body"] == body.decode()


async def test_forward_strips_credentials_and_bridge_headers(tmp_path: Path) -> None:
    sent = {
        "Cookie": "bridge-shared=x",
        "X-Bridge-Person": "grace",
        "X-bridge-anything": "1",
        "X-Forwarded-For": "6.6.6.6",
        "Forwarded": "for=6.6.6.6",
        "Connection": "keep-alive, X-Once",
        "X-Once": "1",
        "X-Kept": "1",
        "Origin": "https://elsewhere.example",
    }
    async with two(tmp_path, told) as stage, stage.ask(headers=sent) as response:
        seen = await response.json()
    names = {name.lower(): value for name, value in seen["headers"]}
    assert not {"cookie", "authorization", "forwarded", "x-once"} & set(names)
    assert (seen["person"], names["x-forwarded-for"], names["x-kept"]) == ("ada", "127.0.0.1", "1")
    assert {name for name in names if name.startswith("x-bridge-")} == {"x-bridge-hop", "x-bridge-signature"}
    # The owner checks the same origin and host as the browser sent.
    assert names["origin"] == "https://elsewhere.example"
    assert names["host"] == stage.other.url.removeprefix("http://")
    assert seen["request_id"] == response.headers["X-Request-Id"]
    assert not [name for name in response.headers if name.lower().startswith("x-bridge-")]


async def test_forward_accepts_host_of_forwarding_bridge(tmp_path: Path) -> None:
    """The forwarding bridge has checked the `Host`, so the owner need not know it."""
    async with two(tmp_path, told, name="10.0.0.3:8080") as stage:
        async with stage.ask(headers={"Host": "10.0.0.3:8080"}) as response:
            assert response.status == 200, await response.text()
            assert ["Host", "10.0.0.3:8080"] in (await response.json())["headers"]
        async with stage.ask(headers={"Host": "elsewhere.example"}) as response:
            assert response.status == 421
        # A claimed forward needs a signature, not just a known host.
        straight = {**bearing(stage.token), "Host": "10.0.0.3:8080", "X-Bridge-Hop": "1"}
        assert (await stage.straight(straight))[0] == 403
        assert (await stage.straight({**stage.signed(), "Host": "10.0.0.3:8080"}))[0] == 200
        del straight["X-Bridge-Hop"]
        assert (await stage.straight(straight))[0] == 421
        assert (await stage.straight({**straight, "X-Bridge-Hop": "1"}, "/elsewhere"))[0] == 421


async def test_forward_streams_both_directions_with_backpressure(tmp_path: Path) -> None:
    taken = 0
    go_on = asyncio.Event()

    async def slowly(request: web.Request) -> web.StreamResponse:
        nonlocal taken
        if request.method == "GET":
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(BIG // 65536):
                await response.write(bytes(65536))
                taken += 65536
            return response
        await go_on.wait()
        async for chunk in request.content.iter_any():
            taken += len(chunk)
        return web.json_response(taken)

    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(BIG // 65536):
            yield bytes(65536)
            sent += 65536

    async with two(tmp_path, slowly) as stage:
        asking = asyncio.create_task(_json(stage.ask("POST", data=body())))
        stalled = await comes_to_rest(lambda: sent)
        assert 0 < stalled < BIG * 3 / 4
        go_on.set()
        assert await asking == BIG
        taken = 0
        async with stage.ask() as response:
            stalled = await comes_to_rest(lambda: taken)
            assert 0 < stalled < BIG * 3 / 4
            assert len(await response.read()) == BIG


async def _json(asked: Any) -> Any:
    async with asked as response:
        return await response.json()


async def test_forward_passes_events_without_buffering(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: one\n\n")
        await go_on.wait()
        await response.write(b"data: two\n\n")
        return response

    async with two(tmp_path, stream) as stage, stage.ask() as response:
        assert await response.content.readany() == b"data: one\n\n"
        go_on.set()
        assert await response.read() == b"data: two\n\n"


# --- forgeries ---


async def test_forged_late_or_replayed_forward_is_refused(tmp_path: Path) -> None:
    async with two(tmp_path, told) as stage:
        good = stage.signed()
        assert (await stage.straight(good))[0] == 200
        claims, _, signature = good["X-Bridge-Signature"].partition(".")
        graces = base64.urlsafe_b64decode(claims).replace(b'"ada"', b'"grace"')
        forged = f"{base64.urlsafe_b64encode(graces).decode()}.{signature}"
        for headers, code in [
            (good, "replayed"),
            ({**good, "X-Bridge-Signature": forged}, "unsigned"),
            ({**stage.signed(), "X-Bridge-Signature": "0" * 64}, "unsigned"),
            (stage.signed(secret="another secret altogether"), "unsigned"),
            (stage.signed(path="/files/b"), "unsigned"),
            (stage.signed(method="POST"), "unsigned"),
            ({"X-Bridge-Hop": "1"}, "unsigned"),
            (bearing(stage.token, {"X-Bridge-Hop": "1"}), "unsigned"),
            (
                RequestSigner(SECRET, lambda: 1e9).headers(
                    "GET", "/files/a", ForwardHeader(ForwardedIdentity("ada", "operator", None), 1, "x")
                ),
                "late",
            ),
        ]:
            status, body = await stage.straight(headers)
            assert (status, body["error"]["code"]) == (403, code)
        # A signature without the forward header is ignored.
        status, _ = await stage.straight({k: v for k, v in stage.signed().items() if k != "X-Bridge-Hop"})
        assert status == 401


async def test_missing_cluster_secret_disables_forwards(tmp_path: Path) -> None:
    async with two(tmp_path, told, secret=None) as stage:
        async with stage.ask() as response:
            assert response.status == 503
            assert "BRIDGE_CLUSTER_SECRET" in (await response.json())["error"]["message"]
        stage.places.at["ada"] = (stage.other.url, 1)
        async with stage.other.session.get(f"{stage.other.url}/files/a", headers=stage.signed()) as response:
            assert response.status == 403


async def test_different_cluster_secrets_name_setting(tmp_path: Path) -> None:
    async with two(tmp_path, told, secret="a secret of its own, alas") as stage, stage.ask() as response:
        assert response.status == 502
        assert "BRIDGE_CLUSTER_SECRET" in (await response.json())["error"]["message"]


async def test_forward_is_never_forwarded_again(tmp_path: Path) -> None:
    async with two(tmp_path, told) as stage:
        stage.places.at["ada"] = (stage.other.url, 2)
        assert (await stage.straight(stage.signed(epoch=2)))[0] == 421
        # The bridge owns the sprite, but under a later epoch.
        stage.places.at["ada"] = (stage.owner.url, 3)
        assert (await stage.straight(stage.signed(epoch=2)))[0] == 421


async def test_forward_loop_between_two_bridges_fails(tmp_path: Path) -> None:
    here, there = Places(), Places()
    async with (
        open_database(tmp_path / "shared.db") as database,
        entrance(database, here, door(told)) as first,
        entrance(database, there, door(told)) as second,
    ):
        _, token = await first.people.add("ada")
        here.at["ada"], there.at["ada"] = (second.url, 1), (first.url, 1)
        async with first.session.get(f"{first.url}/files/a", headers=bearing(token)) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "unavailable")


@pytest.mark.parametrize("kind", ["request", "websocket"])
async def test_retry_after_broken_connection_is_resigned(tmp_path: Path, kind: str) -> None:
    """The HTTP library retries once by itself if no response has begun."""
    signatures: list[str] = []

    async def breaks_at_first(request: web.Request) -> web.StreamResponse:
        signatures.append(request.headers["X-Bridge-Signature"])
        if len(signatures) == 1:
            assert request.transport is not None
            request.transport.abort()
            await asyncio.Event().wait()
        if kind == "request":
            return web.json_response("done")
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        await websocket.send_str("done")
        return websocket

    async with two(tmp_path, breaks_at_first) as stage:
        if kind == "request":
            async with stage.ask() as response:
                assert (response.status, await response.json()) == (200, "done")
        else:
            async with stage.socket() as client:
                assert await client.receive_str() == "done"
    assert len(set(signatures)) == 2


async def test_ownership_change_resends_body_to_new_owner(tmp_path: Path) -> None:
    """The sprite moves between the lookup and the request, so the whole body is sent again."""
    async with two(tmp_path, told) as stage:
        asked: list[str] = []
        real = stage.other.owner_router.ownership.own

        async def own(sprite: str) -> Any:
            asked.append(sprite)
            stage.places.at["ada"] = (stage.owner.url, 2)
            return await real(sprite)

        async with open_database(tmp_path / "third.db") as database, entrance(database, Places(), door(told)) as third:
            stage.places.at["ada"] = (third.url, 1)
            stage.other.owner_router.ownership.own = own  # type: ignore[method-assign]
            async with stage.ask("POST", data=b"b" * 300_000) as response:
                assert (response.status, len((await response.json())["body"])) == (200, 300_000)
            assert asked == ["ada"]


async def test_owner_enforces_scopes_of_forwarded_token(tmp_path: Path) -> None:
    async def scoped(_request: web.Request) -> web.StreamResponse:
        return web.json_response("open")

    async with two(tmp_path, scoped) as stage:
        small, _ = await stage.owner.people.tokens.make("ada", "small", ["observe"])
        headers = {"Authorization": f"Bearer {small}"}
        async with stage.other.session.get(f"{stage.other.url}/files/a", headers=headers) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (403, "missing_scope")
        way_in = hashlib.sha256(small.encode()).hexdigest()
        passed = ForwardedIdentity("ada", "token", way_in, "small", frozenset({"observe"}))
        headers = RequestSigner(SECRET).headers("GET", "/files/a", ForwardHeader(passed, 1, "id"))
        status, body = await stage.straight(headers)
        assert (status, body["error"]["code"]) == (403, "missing_scope")


async def test_foreign_origin_is_refused_through_forward(tmp_path: Path) -> None:
    async with two(tmp_path, told) as stage:
        link = await stage.owner.people.link("ada")
        session = await stage.owner.people.redeem(link)
        cookie = stage.owner.authenticator._signer.sign(session.id).decode()  # type: ignore[union-attr]
        for origin, status in [(stage.other.url, 200), ("https://elsewhere.example", 403)]:
            headers = {"Cookie": f"bridge-shared={cookie}", "Origin": origin}
            async with stage.other.session.post(f"{stage.other.url}/files/a", headers=headers) as response:
                assert response.status == status


async def test_revocation_elsewhere_closes_open_sockets(tmp_path: Path) -> None:
    async def stay(here: Entrance, request: web.Request) -> web.StreamResponse:
        caller = await here.authenticator.caller(request)
        assert caller is not None
        websocket = web.WebSocketResponse()
        with here.open_sockets.inside(caller.person, caller.way_in, websocket):
            await websocket.prepare(request)
            await websocket.receive()
        return websocket

    def routes(here: Entrance) -> list[web.RouteDef]:
        async def opened(request: web.Request) -> web.StreamResponse:
            return await stay(here, request)

        return [web.get("/ws", opened)]

    async with (
        open_database(tmp_path / "shared.db") as database,
        entrance(database, Places(), routes, check_seconds=0.05) as here,
    ):
        _, full = await here.people.add("ada")
        short, _ = await here.people.tokens.make("ada", "short", None)
        session = await here.people.redeem(await here.people.link("ada"))
        cookie = here.authenticator._signer.sign(session.id).decode()  # type: ignore[union-attr]
        ways = {
            "DELETE FROM person_tokens WHERE label = 'short'": bearing(short),
            "DELETE FROM sessions": {"Cookie": f"bridge-shared={cookie}"},
            "UPDATE people SET revoked_at = 1.0 WHERE name = 'ada'": bearing(full),
        }
        sockets = [await here.session.ws_connect(f"{here.url}/ws", headers=headers) for headers in ways.values()]
        for place, statement in enumerate(ways):
            await database.statement(statement)
            assert (await sockets[place].receive()).data == aiohttp.WSCloseCode.POLICY_VIOLATION
            assert len(here.open_sockets.ways_in()) == len(ways) - place - 1


# --- limits ---


async def test_forward_limits_header_size_and_concurrency(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def wait(_request: web.Request) -> web.StreamResponse:
        await go_on.wait()
        return web.json_response("done")

    async with two(tmp_path, wait, most_each=2) as stage:
        huge = {f"X-{number}": "x" * 4000 for number in range(MAX_HEAD_BYTES // 4000 + 1)}
        async with stage.ask(headers=huge) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (431, "head_too_large")
        first = [asyncio.create_task(_json(stage.ask())) for _ in range(2)]
        await eventually(lambda: stage.other.hops.under_way() == {"ada": 2}, "the requests are not forwarded")
        async with stage.ask() as response:
            assert (response.status, (await response.json())["error"]["code"]) == (429, "too_many_requests")
        go_on.set()
        assert await asyncio.gather(*first) == ["done", "done"]
        assert stage.other.hops.under_way() == {}


# --- failures of one end ---


async def test_unreachable_owner_returns_503(tmp_path: Path) -> None:
    async with two(tmp_path, told) as stage:
        stage.places.at["ada"] = ("http://127.0.0.1:9", 1)
        async with stage.ask("POST", data=b"x") as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "2")
            assert "another bridge takes over" in (await response.json())["error"]["message"]


async def test_unreachable_owner_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning per sprite and owner, however many requests fail."""

    def said() -> int:
        words = [record for record in caplog.records if "did not answer" in record.getMessage()]
        return sum(record.levelno >= logging.WARNING for record in words)

    async with two(tmp_path, told) as stage:
        _, other = await stage.owner.people.add("grace")
        for epoch in (1, 2):
            for name in ("ada", "grace"):
                stage.places.at[name] = ("http://127.0.0.1:9", epoch)
            for token in (stage.token, other):
                url, headers = f"{stage.other.url}/files/a", bearing(token)
                answers = [stage.other.session.get(url, headers=headers) for _ in range(10)]
                assert set(await asyncio.gather(*map(_status, answers))) == {503}
            # One warning per sprite and owner.
            assert said() == 2 * epoch


@asynccontextmanager
async def dying_owner(folder: Path, first: bytes, **options: Any) -> AsyncIterator[tuple[Two, asyncio.Event]]:
    """Start an owner that sends `first` and then stalls; `die` closes its connections."""
    die = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/healthz" in head and options.get("is_alive", True):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        elif b"/healthz" not in head:
            writer.write(first)
        if b"/healthz" not in head or not options.get("is_alive", True):
            await die.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with two(folder, told, beat_seconds=options.get("beat_seconds", 2.0)) as stage:
        stage.places.at["ada"] = (f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 1)
        yield stage, die
        die.set()
    server.close()


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"


async def test_owner_death_truncates_stream_with_error(tmp_path: Path) -> None:
    """The client sees a broken response, not a complete one."""
    async with dying_owner(tmp_path, STREAM % b"application/octet-stream") as (stage, die), stage.ask() as response:
        assert await response.content.readexactly(5) == b"hello"
        die.set()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_owner_death_sends_error_event(tmp_path: Path) -> None:
    async with dying_owner(tmp_path, STREAM % b"text/event-stream") as (stage, die), stage.ask() as response:
        heard = bytearray(await response.content.readexactly(5))
        die.set()
        with pytest.raises(aiohttp.ClientPayloadError):
            await _collected(response, heard)
        begun, _, event = heard.partition(b"\n\ndata: ")
        assert begun == b"hello"
        assert json.loads(event)["error"]["code"] == "unavailable"


async def _collected(response: aiohttp.ClientResponse, heard: bytearray) -> None:
    async for chunk in response.content.iter_any():
        heard += chunk


@pytest.mark.parametrize("first", [b"", STREAM % b"application/octet-stream"], ids=["before", "in-mid-stream"])
async def test_stalled_owner_is_abandoned(tmp_path: Path, first: bytes) -> None:
    async with dying_owner(tmp_path, first, is_alive=False, beat_seconds=0.05) as (stage, _):
        if first:
            async with stage.ask() as response:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.read()
        else:
            async with stage.ask("POST", data=b"x") as response:
                assert response.status == 503
        await eventually(lambda: not stage.other.hops.under_way(), "a forward is still open")


async def test_slow_live_owner_is_awaited(tmp_path: Path) -> None:
    beat = 1.0
    async with dying_owner(tmp_path, b"", beat_seconds=beat) as (stage, die):
        asking = asyncio.create_task(_status(stage.ask()))
        # Longer than a stalled owner is awaited.
        done, _ = await asyncio.wait({asking}, timeout=4 * beat)
        assert not done
        die.set()
        assert await asking == 503


async def _status(asked: Any) -> int:
    async with asked as response:
        status: int = response.status
        return status


async def test_two_missed_probes_end_no_request() -> None:
    probes: asyncio.Queue[None] = asyncio.Queue()

    async def probed(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        probes.put_nowait(None)
        writer.write(b"no HTTP\r\n\r\n")
        writer.close()

    async with (
        await asyncio.start_server(probed, "127.0.0.1", 0) as server,
        aiohttp.ClientSession() as session,
        TaskSet() as tasks,
    ):
        pulses = Pulses(session, tasks, 0.05)
        host, port = server.sockets[0].getsockname()
        async with asyncio.timeout(PATIENCE), pulses.felt(f"http://{host}:{port}"):
            for _ in range(3):
                await probes.get()


async def test_client_disconnect_cancels_owner_request(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def work(_request: web.Request) -> web.StreamResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with two(tmp_path, work) as stage:
        asking = asyncio.create_task(_json(stage.ask()))
        await eventually(lambda: stage.other.hops.under_way() == {"ada": 1}, "the request is not forwarded")
        asking.cancel()
        await asyncio.wait_for(ended.wait(), PATIENCE)
