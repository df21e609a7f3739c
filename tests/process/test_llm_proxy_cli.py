"""The real agent behind the model proxy: a sprite process, the SDK and the CLI, with a token instead of a key."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from bridge.llm.budgets import Limits
from bridge.llm.upstream import Upstream
from bridge.offline.model import OfflineModel
from bridge.offline.script import Step
from tests import api_grammar
from tests.harness import running_sprite
from tests.model_proxy import KEY, Proxy, proxy


def access(running: Proxy) -> dict[str, str]:
    """What a sprite is given; it tries again as often as it does for people."""
    return {"ANTHROPIC_API_KEY": running.token, "CLAUDE_CODE_MAX_RETRIES": "5"}


async def test_a_turn_goes_through_the_proxy_and_is_paid_for(
    tmp_path: Path, workspace: Path, model: OfflineModel
) -> None:
    async with (
        proxy(tmp_path, Upstream(model.url, api_key=KEY), limits=Limits(daily_usd=5.0)) as running,
        running_sprite(workspace, running.url, **access(running)) as sprite,
        sprite.client() as client,
    ):
        ended = await client.mission("run `echo planted-in-a-turn`")
        assert ended["event"] == "complete", ended
        calls = await running.calls()
        assert len(calls) >= 2, "one that asks for the tool, one with its result"
        assert {(call["sprite"], call["outcome"], call["status"], call["is_estimate"]) for call in calls} == {
            ("ada", "complete", 200, 0)
        }
        assert running.budgets.spent("ada").today == sum(call["spent_usd"] for call in calls) > 0
        assert b"planted-in-a-turn" not in running.path.read_bytes()


async def test_all_that_the_agent_sends_passes_and_it_searches_within_its_budget(
    tmp_path: Path, workspace: Path, model: OfflineModel
) -> None:
    said = []
    for through in (True, False):
        model.script.agent(
            {"tool": "WebSearch", "input": {"query": "tea today"}},
            {"tool": "Agent", "input": {"description": "greet", "prompt": "say hello", "run_in_background": False}},
            {"text": "Done."},
        )
        model.requests.clear()
        async with proxy(tmp_path, Upstream(model.url, api_key=KEY), limits=Limits(daily_usd=1.0)) as running:
            url = running.url if through else model.url
            async with running_sprite(workspace, url, **access(running)) as sprite, sprite.client() as client:
                ended = await client.mission("search")
                assert ended["event"] == "complete", ended
            if through:
                assert {call["status"] for call in await running.calls()} == {200}
        # What the CLI says in its headers, kind by kind, and that the API is asked to search.
        said.append([(request.kind, request.headers, "tools" in request.body) for request in model.requests])
        assert {kind for kind, _, _ in said[-1]} >= {"main", "side", "subagent"}
    # Which of those that go on at the same time comes first is nobody's word.
    by_proxy, direct = (
        Counter((kind, headers.get("anthropic-beta"), tools) for kind, headers, tools in one) for one in said
    )
    assert by_proxy == direct


async def test_stopped_turn_costs_what_is_known(tmp_path: Path, workspace: Path, model: OfflineModel) -> None:
    model.script.agent({"blocks": [api_grammar.HIDDEN, api_grammar.TEXT], "hang": True, "at": "in_block"})
    async with (
        proxy(tmp_path, Upstream(model.url, api_key=KEY), limits=Limits(daily_usd=20.0)) as running,
        running_sprite(workspace, running.url, **access(running)) as sprite,
        sprite.client() as client,
    ):
        mission = client.send("mission", {"text": "hello"})
        await client.event("text_delta")
        held = running.budgets.held("ada")
        began = time.monotonic()
        client.send("interrupt", {"mission_id": mission})
        assert (await client.end_of(mission))["event"] == "interrupted"
        (call,) = [call for call in await running.calls() if call["outcome"] == "client_gone"]
        assert time.monotonic() - began < 3.0
    assert call["is_estimate"] == 1
    assert 0 < call["spent_usd"] < held / 10


async def test_a_spent_budget_ends_the_turn_with_words_and_is_not_asked_again(
    tmp_path: Path, workspace: Path, model: OfflineModel
) -> None:
    async with (
        proxy(tmp_path, Upstream(model.url, api_key=KEY), limits=Limits(daily_usd=0.0)) as running,
        running_sprite(workspace, running.url, **access(running)) as sprite,
        sprite.client() as client,
    ):
        ended = await client.mission("hello")
        assert ended["event"] == "error", ended
        assert "budget of $0.00 is used up" in ended["message"], ended
        assert not ended["retryable"], ended
        assert await running.calls() == []
    assert model.requests == []


async def test_the_agent_outlasts_an_api_that_is_overloaded_for_a_moment(
    tmp_path: Path, workspace: Path, model: OfflineModel
) -> None:
    async with (
        proxy(tmp_path, Upstream(model.url, api_key=KEY)) as running,
        running_sprite(workspace, running.url, **access(running)) as sprite,
        sprite.client() as client,
    ):
        model.script.agent(Step(error=529, message="busy", retry_after=0))
        ended = await client.mission("hello")
        assert ended["event"] == "complete", ended
        assert [call["status"] for call in await running.calls()][:2] == [529, 200]
