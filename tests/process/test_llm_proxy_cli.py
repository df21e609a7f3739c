"""The real agent behind the model proxy, with a sprite token instead of an API key.

All tests share one proxy and one sprite, and run in file order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from bridge.proxy.budgets import Limits
from bridge.proxy.calls import ModelCall, bar
from bridge.proxy.upstream import Upstream
from tests import api_grammar
from tests.accounts import settled
from tests.harness import SpriteServer, running_sprite
from tests.model_proxy import KEY, MODEL, Proxy, proxy
from tests.scripted_model import OfflineModel, Step

pytestmark = pytest.mark.asyncio(loop_scope="module")

DAILY_USD = 20.0
SEARCHES = (
    {"tool": "WebSearch", "input": {"query": "tea today"}},
    {"tool": "Agent", "input": {"description": "greet", "prompt": "say hello", "run_in_background": False}},
    {"text": "Done."},
)


@dataclass(frozen=True, slots=True)
class Home:
    """A sprite, its proxy, and the model behind the proxy."""

    model: OfflineModel
    proxy: Proxy
    sprite: SpriteServer


def access(running: Proxy) -> dict[str, str]:
    """Return a sprite's environment, with a finite number of retries."""
    return {"ANTHROPIC_API_KEY": running.token, "CLAUDE_CODE_MAX_RETRIES": "5"}


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Home]:
    folder = tmp_path_factory.mktemp("behind")
    workspace = folder / "workspace"
    workspace.mkdir()
    async with (
        OfflineModel() as model,
        proxy(folder, Upstream(model.url, api_key=KEY), limits=Limits(daily_usd=DAILY_USD)) as running,
        running_sprite(workspace, running.url, **access(running)) as sprite,
    ):
        yield Home(model, running, sprite)


async def test_turn_through_proxy_is_charged(home: Home) -> None:
    async with home.sprite.client() as client:
        ended = await client.mission("run `echo planted-in-a-turn`")
        assert ended["event"] == "complete", ended
    calls = await home.proxy.calls()
    assert len(calls) >= 2, "a call for the tool or for its result is missing"
    assert {(call["sprite"], call["outcome"], call["status"], call["is_estimate"]) for call in calls} == {
        ("ada", "complete", 200, 0)
    }
    assert await home.proxy.spent() == sum(call["spent_usd"] for call in calls) > 0
    assert b"planted-in-a-turn" not in home.proxy.path.read_bytes()


async def test_agent_retries_overloaded_api(home: Home) -> None:
    before = len(await home.proxy.calls())
    home.model.script.agent(Step(error=529, message="busy", retry_after=0))
    async with home.sprite.client() as client:
        ended = await client.mission("hello")
        assert ended["event"] == "complete", ended
    assert [call["status"] for call in await home.proxy.calls()][before : before + 2] == [529, 200]


async def test_agent_searches_and_delegates_within_budget(home: Home) -> None:
    before = len(await home.proxy.calls())
    home.model.script.agent(*SEARCHES)
    home.model.requests.clear()
    async with home.sprite.client() as client:
        ended = await client.mission("search")
        assert ended["event"] == "complete", ended
    assert {call["status"] for call in (await home.proxy.calls())[before:]} == {200}
    assert {request.kind for request in home.model.requests} >= {"main", "side", "subagent"}
    # The proxy forwards the CLI's beta header.
    assert all(request.headers.get("anthropic-beta") for request in home.model.requests)


async def test_stopped_turn_costs_known_usage(home: Home) -> None:
    home.model.script.agent({"blocks": [api_grammar.HIDDEN, api_grammar.TEXT], "hang": True, "at": "in_block"})
    async with home.sprite.client() as client:
        mission = client.send("mission", {"text": "hello"})
        await client.event("text_delta")
        held = await home.proxy.held()
        began = time.monotonic()
        client.send("interrupt", {"mission_id": mission})
        assert (await client.end_of(mission))["event"] == "interrupted"
        (call,) = [call for call in await home.proxy.calls() if call["outcome"] == "client_gone"]
        assert time.monotonic() - began < 3.0
    assert call["is_estimate"] == 1
    assert 0 < call["spent_usd"] < held / 10


async def test_spent_budget_ends_turn_without_retry(home: Home) -> None:
    spent = ModelCall("ada", MODEL, DAILY_USD, time.time(), state="settled")
    await bar(home.proxy.database, settled(spent, DAILY_USD))
    before = len(await home.proxy.calls())
    home.model.requests.clear()
    async with home.sprite.client() as client:
        ended = await client.mission("hello")
    assert ended["event"] == "error", ended
    assert "budget of $20.00 is used up" in ended["message"], ended
    assert not ended["retryable"], ended
    assert len(await home.proxy.calls()) == before
    assert home.model.requests == []


@pytest.mark.soak
async def test_proxy_preserves_cli_headers(tmp_path: Path) -> None:
    """The comparison counts each kind of request separately."""
    said = []
    for through in (True, False):
        workspace = tmp_path / str(through) / "workspace"
        workspace.mkdir(parents=True)
        async with (
            OfflineModel() as model,
            proxy(workspace.parent, Upstream(model.url, api_key=KEY), limits=Limits(daily_usd=1.0)) as running,
        ):
            model.script.agent(*SEARCHES)
            url = running.url if through else model.url
            async with running_sprite(workspace, url, **access(running)) as sprite, sprite.client() as client:
                ended = await client.mission("search")
                assert ended["event"] == "complete", ended
            # Concurrent requests have no fixed order, so only their counts are compared.
            said.append(Counter((r.kind, r.headers.get("anthropic-beta"), "tools" in r.body) for r in model.requests))
    assert said[0] == said[1]
