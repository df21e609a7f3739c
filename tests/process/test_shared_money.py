"""Budgets of bridges that share a Postgres: the ledger matches the usage reported by upstream, also after failures."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import aiohttp
import pytest
from aiohttp import web

from bridge.db.database import Database, DatabaseError
from bridge.db.open import open_database
from bridge.proxy.budgets import Limits
from bridge.proxy.calls import HELD_SECONDS, Spend, lose
from bridge.proxy.sprite_tokens import SpriteTokens
from tests.accounts import set_clock, sums
from tests.forking import ForkedProcess, fork_code
from tests.harness import PATIENCE
from tests.model_proxy import (
    BODY,
    DELTA,
    END,
    MODEL,
    START,
    ScriptedUpstream,
    begun,
    message,
    never_ended,
    paused,
    shared_proxy,
    upstream,
)
from tests.postgres import Server, own_server

#: Price of one call with the default reported usage: 1000 input tokens, 200 output tokens.
CALL_USD = 0.002


@pytest.fixture
async def api() -> AsyncIterator[ScriptedUpstream]:
    async with upstream() as scripted:
        yield scripted


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_server() as server:
        yield server


async def is_back(database: Database) -> bool:
    try:
        await database.statement("SELECT 1")
    except DatabaseError:
        return False
    return True


async def test_database_outage_rejects_calls_and_settles_later(api: ScriptedUpstream, server: Server) -> None:
    may_end = asyncio.Event()
    api.answer = paused(may_end)
    async with shared_proxy(server.create(), api.url, limits=Limits(daily_usd=1.0)) as door:
        async with door.post() as streaming:
            assert (await streaming.content.readline()).startswith(b"event:")
            server.stop()
            async with door.post() as response:
                assert response.status == 503
                assert response.headers["retry-after"]
                said = await response.json()
                assert said["error"]["type"] == "api_error"
                assert "database" in said["error"]["message"]
            may_end.set()
            assert END in await streaming.read(), "the admitted call was cut off"
        assert len(api.asked) == 1, "a rejected call was forwarded"
        server.start()
        async with asyncio.timeout(PATIENCE):
            while not await is_back(door.database):  # noqa: ASYNC110 - no event reports recovery or the write
                await asyncio.sleep(0.05)
            while (await door.accounts.spend()) != [Spend("ada", CALL_USD, CALL_USD, CALL_USD, 1, 0)]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        api.answer = message
        async with door.post() as response:
            assert response.status == 200
        (row,) = await door.database.statement("SELECT held_usd, state FROM calls ORDER BY at LIMIT 1")
        assert row["state"] == "settled"
        assert row["held_usd"] > CALL_USD


async def test_cut_streams_settle_with_known_usage(api: ScriptedUpstream, postgres_url: str) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = await begun(request)
        await response.write(START + DELTA)
        assert request.transport is not None
        request.transport.close()
        return response

    async def without_usage(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"type": "message"})

    answers = [cut, never_ended, without_usage]
    async with shared_proxy(postgres_url, api.url, limits=Limits(daily_usd=1.0)) as door:
        for api.answer in answers:
            try:
                async with door.post() as response:
                    await response.content.readline()
                    if api.answer is not never_ended:
                        await response.read()
            except aiohttp.ClientError:
                assert api.answer is cut
        async with asyncio.timeout(PATIENCE):
            sql = "SELECT * FROM calls WHERE state = 'settled' ORDER BY at"
            while len(calls := await door.database.statement(sql)) < len(answers):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        assert [call["outcome"] for call in calls] == ["cut", "client_gone", "complete"]
        assert all(0 < call["spent_usd"] <= call["held_usd"] and call["is_estimate"] for call in calls)
        assert [call["input_tokens"] for call in calls] == [1000, 1000, 0]
        ada = await sums(door.database)
        assert ada.day_held == pytest.approx(0)
        assert ada.day_spent == pytest.approx(sum(call["spent_usd"] for call in calls))


BRIDGE = """
import asyncio, sys
from bridge.proxy.budgets import Limits
from bridge.proxy.body import Patience
from tests.model_proxy import shared_proxy

async def main():
    url, api, token, limit = sys.argv[1:]
    limits, patience = Limits(daily_usd=float(limit)), Patience(room=0.0)
    async with shared_proxy(url, api, limits=limits, patience=patience, token=token) as door:
        print(door.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


async def bridge(*arguments: str) -> tuple[ForkedProcess, str]:
    """Start a model proxy in a separate process and return it with its address."""
    process = await fork_code(BRIDGE, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        return process, (await process.stdout.readline()).decode().strip()


async def test_killed_bridge_keeps_shared_ledger_consistent(api: ScriptedUpstream, postgres_url: str) -> None:
    """The test counts the usage reported by upstream, in micro-dollars, by request id."""
    rng = random.Random(4711)  # noqa: S311 - the same in each run
    reported: dict[str, int] = {}
    limit = 0.08

    async def answer(request: web.Request) -> web.StreamResponse:
        if "hangs" in request.headers.get("x-client-request-id", ""):
            return await never_ended(request)
        tokens = rng.randrange(1000)
        request_id = f"req_{len(reported)}"
        reported[request_id] = 5 * tokens + 10
        body = {"type": "message", "model": MODEL, "usage": {"input_tokens": 10, "output_tokens": tokens}}
        return web.json_response(body, headers={"request-id": request_id})

    api.answer = answer
    async with open_database(postgres_url) as database, aiohttp.ClientSession() as http:
        token = await SpriteTokens(database).rotate("ada")
        started = [await bridge(postgres_url, api.url, token, str(limit)) for _ in range(3)]
        statuses: list[int] = []

        async def call(url: str, *, hangs: bool = False) -> aiohttp.ClientResponse:
            headers = {"x-api-key": token, "x-client-request-id": "hangs" if hangs else "ends"}
            response = await http.post(f"{url}/v1/messages", json=BODY, headers=headers)
            statuses.append(response.status)
            await (response.content.readline() if hangs else response.read())
            return response

        async def client(number: int) -> None:
            for _ in range(12):
                with suppress(aiohttp.ClientError):
                    (await call(started[number % 3][1], hangs=rng.random() < 0.1)).close()

        in_flight = await call(started[0][1], hangs=True)
        async with asyncio.timeout(PATIENCE):
            clients = asyncio.gather(*(client(number) for number in range(6)))
            await asyncio.sleep(0)
            while len(statuses) < 6:  # noqa: ASYNC110 - no event reports the number of calls
                await asyncio.sleep(0.001)
            started[0][0].send_signal(signal.SIGKILL)
            await clients
            in_flight.close()
            for process, _ in started:
                assert process.stdin is not None
                process.stdin.close()
                await process.wait()
        assert {402, 429} & set(statuses), "the budget was not reached"
        left = await lost_in_time(database)
        calls = await database.statement("SELECT * FROM calls")
        ada = await sums(database)
    assert left, "the killed bridge had no call in flight"
    written = {call["request_id"]: round(call["spent_usd"] * 1e6) for call in calls if not call["is_estimate"]}
    assert written == {request_id: reported[request_id] for request_id in written}
    assert len(reported) - len(written) < left, "a surviving bridge lost a reported call"
    assert all(call["spent_usd"] <= call["held_usd"] for call in calls)
    assert all(call["spent_usd"] == call["held_usd"] for call in calls if call["state"] == "lost")
    assert len(api.asked) <= len(calls) < len(api.asked) + left, "a call was forwarded without admission"
    spent = sum(call["spent_usd"] for call in calls)
    assert [ada.day_held, ada.day_spent] == pytest.approx([0, spent])
    assert spent <= limit + max(call["held_usd"] for call in calls)


async def lost_in_time(database: Database) -> int:
    """Count the calls that a dead bridge left as lost, a quarter of an hour later. Return their number."""
    left = await database.statement("SELECT id FROM calls WHERE state = 'held'")
    (now,) = await database.statement("SELECT db_now() AS now")
    await set_clock(database, now["now"] + HELD_SECONDS + 1)
    assert await lose(database) == len(left)
    return len(left)
