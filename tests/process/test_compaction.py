"""Compaction flushes memory first, and the changed files arrive with the next prompt."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.harness import observations
from tests.inspection import SharedSprite, chat, curations, learnings, observation_of, prompts, shared_sprite
from tests.scripted_model import Script

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEWS = "UserPromptSubmit hook additional context"


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("compaction")) as home:
        yield home


@pytest.mark.parametrize(("how", "name"), [("by itself", "Ada Lovelace"), ("when asked to", "Grace Hopper")])
async def test_compaction_flushes_and_updates_next_prompt(home: SharedSprite, how: str, name: str) -> None:
    home.model.requests.clear()
    async with home.client() as client:
        before = len(curations(home.workspace))
        (said,) = await chat(client, f"My name is {name}.")
        assert len(curations(home.workspace)) == before
        if how == "by itself":
            home.model.script.agent({"match": "a very long", "usage": {"input_tokens": 990_000}})
            await chat(client, "Hello, a very long story", "Hello, this is too much")
        else:
            await chat(client, "/compact")
        kinds = [request.kind for request in home.model.requests]
        assert kinds.index("curator") < kinds.index("compaction")
        assert [o["processed"] for o in observations(home.workspace) if o["mission_id"] == said] == [1]
        assert any(name in content for content in learnings(home.workspace))
        names = [event["event"] for event in client.events()]
        assert names.index("compacting") < names.index("compacted")

        next_, last = f"Hello once more, {name}", f"Hello for the last time, {name}"
        await chat(client, next_, last)
        told = json.dumps(prompts(home.model, next_)[0].body["messages"])
        assert NEWS in told
        assert "not readable here" in told
        news = told[told.index(NEWS) :]
        assert "user.md" in news
        assert name in news
        # The news appears only once.
        assert json.dumps(prompts(home.model, last)[0].body["messages"]).count(NEWS) == 1
        assert all(o["outcome"] == "complete" for o in observations(home.workspace))


async def test_failing_curator_does_not_block_compaction(home: SharedSprite) -> None:
    home.model.script.curator({"error": 500, "times": 2})
    home.model.requests.clear()
    async with home.client() as client:
        await chat(client, "I prefer oolong.", "/compact", "Hello again")
        assert any(request.kind == "compaction" for request in home.model.requests)
        # The retry comes about a second later, before or after the last mission's end.
        await client.ever(lambda m: m["type"] == "memory_update" and "user.md" in m["payload"]["files"])
        assert any("oolong" in content for content in learnings(home.workspace))


@pytest.mark.parametrize("how", ["by itself", "when asked to"])
async def test_failed_compaction_says_why(home: SharedSprite, how: str) -> None:
    async with home.client() as client:
        await client.ask("system", {"action": "new_session"})
        await client.mission("Hello")
        home.model.script.agent({"for": "compaction", "error": 529, "times": -1})
        if how == "by itself":
            home.model.script.agent({"match": "a very long", "usage": {"input_tokens": 990_000}})
            await client.mission("Hello, a very long story")
        mission = client.send("mission", {"text": "Hello" if how == "by itself" else "/compact"})
        end = await client.end_of(mission)
        home.model.script = Script()
        words = "The model is overloaded. Send it again in a moment."
        assert (end["event"], end["message"], end["retryable"]) == ("error", words, True)
        assert not [event for event in client.events(mission) if event["event"] == "text"]
    turn = observation_of(home.workspace, mission)
    assert (turn["agent_response"], turn["notice"]) == ("", words)


async def test_nothing_to_compact_is_said(home: SharedSprite) -> None:
    async with home.client() as client:
        await client.ask("system", {"action": "new_session"})
        end = await client.end_of(client.send("mission", {"text": "/compact"}))
    assert (end["event"], end["message"]) == ("error", "There is nothing to compact yet.")
