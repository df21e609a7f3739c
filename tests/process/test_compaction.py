"""Before the context goes, memory is brought up to date; what changed comes with the next prompt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.offline.model import OfflineModel
from tests.harness import observations, running_sprite
from tests.inspection import chat, curations, learnings, prompts

NEWS = "UserPromptSubmit hook additional context"


@pytest.mark.parametrize("how", ["by itself", "when asked to"])
async def test_a_compaction_flushes_first_and_the_changed_files_reach_the_next_prompt(
    model: OfflineModel, workspace: Path, how: str
) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada Lovelace.")
        assert curations(workspace) == []
        if how == "by itself":
            model.script.agent({"match": "a very long", "usage": {"input_tokens": 990_000}})
            await chat(client, "Hello, a very long story", "Hello, this is too much")
        else:
            await chat(client, "/compact")
        kinds = [request.kind for request in model.requests]
        assert kinds.index("curator") < kinds.index("compaction")
        assert [o["processed"] for o in observations(workspace)][:1] == [1]
        assert any("Ada Lovelace" in content for content in learnings(workspace))
        names = [event["event"] for event in client.events()]
        assert names.index("compacting") < names.index("compacted")

        await chat(client, "Hello once more", "Hello for the last time")
        told = json.dumps(prompts(model, "Hello once more")[0].body["messages"])
        assert NEWS in told
        news = told[told.index(NEWS) :]
        assert "user.md" in news
        assert "Ada Lovelace" in news
        # It is said once.
        assert json.dumps(prompts(model, "Hello for the last time")[0].body["messages"]).count(NEWS) == 1
        assert all(o["outcome"] == "complete" for o in observations(workspace))


async def test_a_curator_that_fails_does_not_keep_the_agent_from_compacting(
    model: OfflineModel, workspace: Path
) -> None:
    model.script.curator({"error": 500, "times": 2})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada Lovelace.", "/compact", "Hello again")
        assert any(request.kind == "compaction" for request in model.requests)
        # Tried again about a second later, which may be before or after the last mission's end.
        await client.ever(lambda m: m["type"] == "memory_update" and "user.md" in m["payload"]["files"])
        assert any("Ada Lovelace" in content for content in learnings(workspace))
