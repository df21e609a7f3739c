"""Unverified learnings over the wire and in the terminal, and `doctor --live`, which measures the verifier's model."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from sprite.cli.live import MOST_USD, PROMPT_TOKENS, fixed_lines
from sprite.common.prices import cost_usd
from sprite.sandbox.cli_environment import SMALL_ANSWER_TOKENS
from tests.command_line import command
from tests.harness import running_sprite
from tests.inspection import curations
from tests.scripted_model import OfflineModel


async def test_person_answers_about_imported_learnings(workspace: Path, model: OfflineModel) -> None:
    said = ["I prefer tea to coffee.", "My cat is called Turing.", "My dog is called Ada."]
    turns = [
        {"external_id": f"t-{number}", "session": "s-1", "at": time.time(), "user": text, "reply": "Noted."}
        for number, text in enumerate(said)
    ]
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("observe", {"source": "codex", "turns": turns})
        await client.ask("system", {"action": "flush"})
        learned = (await client.ask("memory", {"op": "learnings"}))["payload"]["learnings"]
        asked = [row for row in learned if row["proposed"] is not None]
        assert [(row["origin"], row["type"]) for row in asked] == [("codex", "FACT")] * 3
        assert asked[0]["proposed"] == "PREFERENCE"
        yes, no, third = (row["id"] for row in asked)

        answer = (await client.ask("memory", {"op": "learning", "id": yes, "action": "confirm"}))["payload"]
        now = answer["learning"]
        assert (answer["op"], now["type"], now["origin"], now["proposed"]) == ("learning", "PREFERENCE", "user", None)
        update = await client.until(
            lambda found: found["type"] == "memory_update" and found["payload"]["answered"] != []
        )
        assert (update["payload"]["answered"], update["payload"]["learnings"]) == ([now], [])
        answer = (await client.ask("memory", {"op": "learning", "id": no, "action": "retire"}))["payload"]
        assert answer["learning"]["superseded_by"] == 0
        again = await client.ask("memory", {"op": "learning", "id": no, "action": "confirm"})
        assert (again["type"], again["payload"]["code"]) == ("error", "conflict")
        edit = {"op": "learning", "id": yes, "action": "edit", "content": "Ada has a cat."}
        now = (await client.ask("memory", edit))["payload"]["learning"]
        assert (now["content"], now["origin"], now["superseded_by"]) == ("Ada has a cat.", "user", None)
        hits = (await client.ask("memory", {"op": "search", "query": "dog"}))["payload"]["hits"]
        assert [hit.get("unverified") for hit in hits if hit["kind"] == "learning"] == [True]

        _, shown, _ = await command(workspace, "memory", "learnings")
        assert [shown.count(mark) for mark in ("[unverified]", "[no longer true]", "memory confirm N")] == [1, 1, 1]
        code, out, _ = await command(workspace, "memory", "confirm", str(third))
        assert (code, out) == (0, f"Learning {third} now counts as your own statement.\n")
    assert (await command(workspace, "memory", "retire", str(third)))[0] == 0
    code, _, err = await command(workspace, "memory", "retire", str(third))
    assert (code, f"Learning {third} is no longer true" in err) == (2, True)
    assert Counter(row["kind"] for row in curations(workspace))["learning"] == 5


async def test_doctor_live_tries_each_part(workspace: Path, model: OfflineModel) -> None:
    """A model that agrees to every line fails. Nothing of it is in the report or the workspace."""
    lines = fixed_lines()
    assert Counter((line.language, line.said) for line in lines) == {
        (language, said): 4 for language in ("en", "de", "fr", "es", "nl") for said in (True, False)
    }
    model.script.agent({"match": "lighthouse", "text": "The waves rose. " * 90, "hang": True, "times": -1})
    told = ("doctor", "--live", "--json", "--yes")
    code, out, err = await command(workspace, *told, model_url=model.url, SPRITE_CURATOR_MODEL="offline")
    found = json.loads(out)
    verified = found["verification"]
    assert (found["offline"], code) == (True, int(not verified["ok"])), err
    assert [part for part in ("turn", "curation", "cut", "spend") if not found[part]["ok"]] == []
    assert (found["turn"]["tools"], found["curation"]["learnings"] > 0, found["cut"]["ended"]) == (
        1,
        True,
        "interrupted",
    )
    assert "Assam" not in out
    asked = [request for request in model.requests if request.kind == "verifier"]
    assert sum(request.user_text.count("<message id=") for request in asked[-4:]) == 40
    assert not (workspace / ".os/memory/transcript.db").exists()

    # A script for the curator makes this model agree to every line.
    model.script.curator({"raw_text": "NONE"})
    code, out, _ = await command(workspace, *told, model_url=model.url, SPRITE_MODEL="claude-haiku-4-5")
    found = json.loads(out)
    verified = found["verification"]
    assert (code, verified["accepted"], verified["refused"], found["offline"]) == (1, 20, 0, False)
    assert verified["cost_usd"] > 0
    assert found["spend"]["turn_usd"] == pytest.approx(found["spend"]["by_usage_usd"])
    assert found["spend"]["turn_usd"] > 0
    assert found["spend"]["estimated_usd"] > 0


async def test_doctor_live_stays_below_its_limit(workspace: Path, model: OfflineModel) -> None:
    """An agent that never ends and a dear curator; each call reserves its largest cost before it is sent."""
    usage = {"input_tokens": 0, "cache_creation_input_tokens": PROMPT_TOKENS, "output_tokens": SMALL_ANSWER_TOKENS}
    model.script.agent({"tool": "Bash", "input": {"command": "echo"}, "usage": usage, "times": -1})
    dear = {"SPRITE_MODEL": "claude-opus-5", "SPRITE_CURATOR_MODEL": "claude-opus-4-8"}
    code, out, err = await command(workspace, "doctor", "--live", "--json", "--yes", model_url=model.url, **dear)
    found = json.loads(out)
    assert code == 1, err
    assert (found["turn"]["ok"], found["curation"]["ok"], "not asked" in found["cut"]["ended"]) == (False, False, True)
    assert "a call could cost $" in found["verification"]["ended"]
    agents = [request for request in model.requests if request.kind == "main"]
    assert len(agents) == len(model.requests) > 1
    assert sum(cost_usd("claude-opus-5", usage) or 0.0 for _ in agents) <= MOST_USD
    assert all(request.body["max_tokens"] <= SMALL_ANSWER_TOKENS for request in agents)
    assert max(len(request.raw) for request in agents) < 2 * PROMPT_TOKENS

    told = ("doctor", "--live", "--yes")
    code, _, err = await command(workspace, *told, model_url=model.url, SPRITE_MODEL="of-no-known-price")
    assert (code, "could cost $" in err) == (2, True)
    assert len(model.requests) == len(agents)


async def test_doctor_live_asks_first(workspace: Path, model: OfflineModel) -> None:
    code, _, err = await command(workspace, "doctor", "--live", model_url=model.url)
    assert (code, "confirm with --yes" in err) == (2, True)
    assert model.requests == []
