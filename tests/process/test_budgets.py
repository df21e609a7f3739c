"""Sprite budgets: calls are reserved, settled, recorded and recovered after a crash."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bridge.proxy.accounts import UnavailableError
from bridge.proxy.body import Patience
from bridge.proxy.budgets import Bounds, BudgetError, Limits, Standing
from bridge.proxy.proxy import RateLimits
from bridge.proxy.upstream import Models
from sprite.common.prices import PRICES, TABLE, Usage, cost_usd, price_of
from tests.bridge_harness import running_bridge
from tests.forking import fork_code
from tests.harness import PATIENCE, ROOT, rows
from tests.model_proxy import BODY, MODEL, USAGE, ScriptedUpstream, never_ended, paused, proxy, upstream
from tests.scripted_model import OfflineModel

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0
#: Tokens that the API may add to a prompt.
ADDED_TOKENS = 2000


@pytest.fixture
async def api() -> AsyncIterator[ScriptedUpstream]:
    async with upstream() as scripted:
        yield scripted


def held_for(body: dict[str, Any]) -> float:
    """Return the worst cost of a text-only body: one token for every byte, plus the added tokens."""
    price = Models().price(body["model"])
    return price.most(len(json.dumps(body)) + ADDED_TOKENS, body["max_tokens"])


def standing(
    spent: float = 0.0, held: float = 0.0, *, before: float = 0.0, at: float = NOON, raised: float = 0.0
) -> Standing:
    """Return a day's sums; `before` was spent earlier in the month."""
    return Standing(at, spent, held, before + spent, held, raised)


def refused(limits: Limits, now: Standing, least: float = 0.1, most: float = 0.1) -> BudgetError:
    refusal = limits.refusal(now, Bounds(least, most))
    assert refusal is not None
    return refusal


# --- admission ---


def test_refusal_names_spending_and_next_day() -> None:
    limits = Limits(daily_usd=1.0, monthly_usd=1.5)
    words = refused(limits, standing(1.0))
    assert words.retry_after is None
    assert "2026-12-01" in str(words)
    assert "$1.00" in str(words)
    assert "2027-01-01" in str(refused(limits, standing(0.5, before=1.0, at=NOON + 36 * HOUR)))


def test_held_remainder_offers_retry() -> None:
    limits = Limits(daily_usd=1.0)
    assert refused(limits, standing(held=1.28), 0.01, 0.64).retry_after
    assert limits.refusal(standing(0.985), Bounds(0.01, 0.64)) is None, "the last cents admit one call"
    assert refused(limits, standing(0.985, 0.64), 0.001, 0.001).retry_after
    assert refused(limits, standing(0.985, 0.64), 0.1, 0.64).retry_after is None, "a retry cannot succeed"
    assert limits.refusal(standing(0.985, raised=1.0), Bounds(0.1, 0.64)) is None


def test_zero_budget_admits_only_free_calls() -> None:
    limits = Limits(daily_usd=0.0)
    assert limits.refusal(standing(), Bounds(0.0, 0.0)) is None
    assert refused(limits, standing(), 0.0, 0.01).retry_after is None


# --- through the proxy ---


async def test_fifty_concurrent_calls_respect_budget(api: ScriptedUpstream, tmp_path: Path) -> None:
    """Together they never hold more than the budget and one call."""
    may_end = asyncio.Event()
    api.answer = paused(may_end)
    asked = {**BODY, "max_tokens": 2000}
    one = held_for(asked)
    async with proxy(
        tmp_path,
        api.url,
        limits=Limits(daily_usd=8.7 * one),
        rate_limits=RateLimits(at_once=100),
        patience=Patience(room=0.0),
    ) as running:
        statuses = []

        async def ask() -> None:
            async with running.post(asked) as response:
                statuses.append(response.status)
                if len(statuses) == 50:
                    may_end.set()
                await response.read()

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(ask())
            while len(statuses) < 50:
                await asyncio.sleep(0.01)
                held = await running.held() + await running.spent()
                # Two statements: a call that is settled between them would count twice.
                assert may_end.is_set() or held <= 9 * one * (1 + 1e-9)
        # Eight calls fit, and one more starts while something is left.
        assert sorted(statuses) == [200] * 9 + [429] * 41
        calls = await running.calls()
        assert len(calls) == 9
        assert await running.held() == pytest.approx(0)
        assert await running.spent() == pytest.approx(sum(call["spent_usd"] for call in calls))


async def test_ten_ordinary_turns_fit_five_dollars(api: ScriptedUpstream, tmp_path: Path) -> None:
    """Each costs $0.50 and could cost more than $1. Near the end, answers are limited to the rest of the budget."""
    model = "claude-opus-4-8"
    usage = {**USAGE, "input_tokens": 0, "cache_creation_input_tokens": 70_000, "output_tokens": 2_500}

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"type": "message", "model": model, "content": [], "usage": usage})

    api.answer = answer
    body = {
        "model": model,
        "max_tokens": 32_000,
        "thinking": {"type": "enabled", "budget_tokens": 4_000},
        "messages": [{"role": "user", "content": "some words " * 25_000}],
    }
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=5.0)) as running:
        for _ in range(10):
            async with running.post(body) as response:
                assert response.status == 200, await response.text()
                await response.read()
            await running.accounts.flush()
        async with running.post(body) as response:
            assert response.status == 402
            assert "$5.00 is used up" in (await response.json())["error"]["message"]
        assert await running.spent() == pytest.approx(5.0)
    asked = [json.loads(each.body)["max_tokens"] for each in api.asked]
    assert asked[:8] == [32_000] * 8
    assert 4_000 + 1_024 <= asked[-1] < 32_000


async def test_call_cost_follows_usage_and_price(api: ScriptedUpstream, tmp_path: Path) -> None:
    said = {
        "input_tokens": 1000,
        "output_tokens": 500,
        "cache_read_input_tokens": 2000,
        "cache_creation_input_tokens": 300,
        "cache_creation": {"ephemeral_1h_input_tokens": 100},
        "server_tool_use": {"web_search_requests": 3},
    }

    async def answer(_request: web.Request) -> web.StreamResponse:
        body = {"type": "message", "model": MODEL, "usage": said}
        return web.json_response(body, headers={"request-id": "req_011"})

    api.answer = answer
    async with proxy(tmp_path, api.url) as running:
        async with running.post() as response:
            assert response.status == 200
        call = await running.call()
        (spend,) = await running.accounts.spend()
    usd = (1000 * 1 + 500 * 5 + 2000 * 0.1 + 200 * 1.25 + 100 * 2) / 1e6 + 3 * 0.01
    assert call["spent_usd"] == spend.today == spend.month == spend.total == pytest.approx(usd)
    assert (call["sprite"], call["model"], call["status"], call["request_id"]) == ("ada", MODEL, 200, "req_011")
    assert (call["outcome"], call["is_estimate"], call["web_searches"]) == ("complete", 0, 3)
    assert (call["cache_read_tokens"], call["cache_write_tokens"], call["cache_write_1h_tokens"]) == (2000, 300, 100)


async def test_requested_model_determines_price(api: ScriptedUpstream, tmp_path: Path) -> None:
    """The response may name a cheaper model."""
    said = {"input_tokens": 1000, "output_tokens": 500}

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"type": "message", "model": "claude-haiku-4-5", "usage": said})

    api.answer = answer
    async with proxy(tmp_path, api.url) as running:
        async with running.post({**BODY, "model": "claude-opus-4-5"}) as response:
            assert response.status == 200
        (call,) = await running.calls()
    asked, named = price_of("claude-opus-4-5"), price_of("claude-haiku-4-5")
    assert asked is not None
    assert named is not None
    usage = Usage(input=1000, output=500)
    assert call["spent_usd"] == pytest.approx(asked.cost(usage))
    assert asked.cost(usage) > named.cost(usage)


async def test_spent_budget_returns_402_without_retry(api: ScriptedUpstream, tmp_path: Path) -> None:
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=0.0055)) as running:
        async with running.post() as response:
            assert response.status == 200  # it costs 0.002
        async with running.post({**BODY, "max_tokens": 100_000}) as response:
            assert response.status == 402
            assert response.headers["x-should-retry"] == "false"
            said = (await response.json())["error"]
            assert said["type"] == "billing_error"
            assert "$0.0055" in said["message"]
        async with running.post({**BODY, "max_tokens": 10}, path="/v1/messages/count_tokens") as response:
            assert response.status == 200, "counting tokens was refused"
    assert [asked.path for asked in api.asked] == ["/v1/messages", "/v1/messages/count_tokens"]


async def test_unpriced_speed_is_refused_under_budget(api: ScriptedUpstream, tmp_path: Path) -> None:
    """Without a budget, the call is recorded without a price."""
    fast = {**BODY, "speed": "fast"}
    async with (
        proxy(tmp_path, api.url, limits=Limits(monthly_usd=5.0)) as running,
        running.post(fast) as response,
    ):
        assert response.status == 403
        assert "price" in (await response.json())["error"]["message"]
    assert api.asked == []

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"model": "gpt-5", "usage": {"input_tokens": 5, "output_tokens": 6}})

    api.answer = answer
    async with proxy(tmp_path, api.url) as running:
        async with running.post(fast) as response:
            assert response.status == 200
        call = await running.call()
        (spend,) = await running.accounts.spend()
    assert (call["spent_usd"], call["output_tokens"]) == (None, 6)
    assert (spend.calls, spend.unpriced, spend.total) == (1, 1, 0)


async def test_unknown_model_costs_as_dearest(api: ScriptedUpstream, tmp_path: Path) -> None:
    """It is an estimate, for the call's reservation too."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"model": "gpt-5", "usage": {"input_tokens": 5, "output_tokens": 6}})

    api.answer = answer
    async with proxy(tmp_path, api.url, limits=Limits(monthly_usd=50.0)) as running:
        async with running.post({**BODY, "model": "gpt-5"}) as response:
            assert response.status == 200
        call = await running.call()
    dearest = max(price.input for price in PRICES.values()), max(price.output for price in PRICES.values())
    assert call["spent_usd"] == pytest.approx((5 * dearest[0] + 6 * dearest[1]) / 1e6)
    assert call["is_estimate"] == 1


async def test_answer_without_usage_costs_its_bound(api: ScriptedUpstream, tmp_path: Path) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"type": "message"})

    api.answer = answer
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=10.0)) as running:
        async with running.post() as response:
            assert response.status == 200
        call = await running.call()
    assert len(json.dumps(BODY)) * 1.25e-6 < call["spent_usd"] < held_for(BODY)
    assert call["is_estimate"] == 1


# --- the ledger ---


CRASHING = """
import asyncio, pathlib, sys
from bridge.proxy.budgets import Limits
from tests.model_proxy import proxy

async def main():
    limits = Limits(daily_usd=1.0)
    async with proxy(pathlib.Path(sys.argv[1]), sys.argv[2], limits=limits) as running:
        async with running.post() as response:
            await response.content.readany()
            await running.accounts.flush()
            print("open", await running.held(), flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_call_during_kill_costs_full_hold(api: ScriptedUpstream, tmp_path: Path) -> None:
    api.answer = never_ended
    process = await fork_code(CRASHING, str(tmp_path), api.url, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        held = float((await process.stdout.readline()).split()[1])
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert held > 0
    async with proxy(tmp_path, api.url, limits=Limits(daily_usd=1.0)) as running:
        assert await running.spent() == pytest.approx(held)
        assert (await running.call())["state"] == "lost"


async def test_full_disk_refuses_calls_and_keeps_rows(api: ScriptedUpstream, tmp_path: Path) -> None:
    async with proxy(tmp_path, api.url) as running:
        pages = rows(running.path, "PRAGMA page_count")[0]["page_count"]
        await running.database.write(lambda tx: tx.execute(f"PRAGMA max_page_count = {pages}"))
        # Rows fit into the free part of a page for a while.
        async with asyncio.timeout(PATIENCE):
            with suppress(UnavailableError):
                while True:
                    await running.accounts.open("bob", "m", None, 0.0)
        async with running.post() as response:
            assert response.status == 503
            assert (await response.json())["error"]["type"] == "api_error"
        assert api.asked == []
        await running.database.write(lambda tx: tx.execute("PRAGMA max_page_count = 1000000"))
        async with running.post() as response:
            assert response.status == 200


async def test_ledger_flushes_in_background(api: ScriptedUpstream, tmp_path: Path) -> None:
    async with proxy(tmp_path, api.url) as running:
        async with running.post() as response:
            assert response.status == 200
        async with asyncio.timeout(PATIENCE):
            # The file is read by another connection, which has no events.
            while not rows(running.path, "SELECT 1 FROM calls WHERE outcome = 'complete'"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


# --- prices ---


def test_deployment_page_lists_maximum_overspend() -> None:
    guide = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(claude-[a-z0-9-]+)` \| \$([\d.]+) \| \$([\d.]+) \| \$([\d.]+) \|$", guide, re.MULTILINE)
    assert len(table) >= 4
    for model, usual, most, with_tools in table:
        price = PRICES[model]
        assert usual == f"{price.most(50_000 + ADDED_TOKENS, 128_000):.2f}", model
        assert most == f"{price.most(1_000_000, 128_000):.2f}", model
        assert with_tools == f"{price.most(1_000_000, 128_000, 0, 10 * 1_000_000):.2f}", model


def test_bridge_and_sprite_share_price_table() -> None:
    models = Models()
    assert set(models.names()) == set(PRICES) == set(json.loads(TABLE.read_text())["models"])
    for model in PRICES:
        for prompt in (1000, 150_000):
            usage = Usage(prompt, 100, 5000, 600, 60)
            said = {
                "input_tokens": prompt,
                "output_tokens": 100,
                "cache_read_input_tokens": 5000,
                "cache_creation_input_tokens": 600,
                "cache_creation": {"ephemeral_1h_input_tokens": 60},
            }
            price = models.price(f"{model}-20261001")
            assert price is not None
            assert price.cost(usage) == pytest.approx(cost_usd(model, said))
            assert price.least(usage.prompt_tokens, 100) <= price.cost(usage) <= price.most(usage.prompt_tokens, 100)


def test_long_prompt_and_us_only_prices_apply() -> None:
    price = Models().price("claude-haiku-5-5")
    assert price.cost(Usage(input=100_000)) == pytest.approx(0.01)
    assert price.cost(Usage(input=100_001)) == pytest.approx(0.05, rel=1e-3)
    assert price.cost(Usage(input=100_000, is_us_only=True)) == pytest.approx(0.011)


def test_fake_model_is_free_under_any_name() -> None:
    free = Models(is_free=True).price("gpt-5")
    assert free.cost(Usage(10**6, 10**6, 0, 0, 0, 5)) == 0
    assert Models().allows("gpt-5")
    assert Models(allowed=("gpt-*",)).allows("gpt-5")
    assert not Models(allowed=("gpt-*",)).allows("offline")


async def test_person_raises_daily_limit_and_resumes(tmp_path: Path) -> None:
    """The page warns at 50% and 80%, pauses at the limit and resumes after one click."""
    async with OfflineModel() as model:
        model.script.agent({"match": "expensive", "usage": {"input_tokens": 200_000}})
        priced: dict[str, Any] = {"SPRITE_MODEL": "claude-sonnet-4-5", "ANTHROPIC_API_KEY": "key"}
        async with (
            running_bridge(tmp_path / "data", "--daily-usd", "0.5", ANTHROPIC_BASE_URL=model.url, **priced) as bridge,
            bridge.page(await bridge.login()) as page,
        ):
            await page.type("state_sync")
            assert (await page.end_of(await page.send("mission", {"text": "expensive"})))["event"] == "complete"
            warned = [m["payload"]["message"] for m in page.received if m["type"] == "error"]
            assert ["At least 80% of the day's budget of $0.50 is spent" in words for words in warned] == [True]
            end = await page.end_of(await page.send("mission", {"text": "count to ten"}))
            assert (end["event"], end["code"]) == ("error", "budget_used_up")
            status = (await page.ask("system", {"action": "status"}))["payload"]
            assert status["session"]["paused"]["by"] == "budget"
            await page.send("system", {"action": "go_on", "raise_limit": True})
            said = await page.until(lambda m: m["type"] == "chat_said" and m["payload"]["text"] == "Go on.")
            assert (await page.end_of(said["payload"]["mission_id"]))["event"] == "complete"
            status = (await page.ask("system", {"action": "status"}))["payload"]
            assert status["session"]["paused"] is None
            (request,) = [r for r in model.requests if r.user_text == "Go on."]
            assert "count to ten" in str(request.body["messages"])
