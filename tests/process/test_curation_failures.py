"""Curator failures: turns wait and are retried, answers are checked, and no turn is lost."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Client, observations, running_sprite
from tests.inspection import curations, eventually, learnings, memory, memory_file, transcript
from tests.memory_stores import seed_turns
from tests.scripted_model import OfflineModel

FACT = "My name is Ada Lovelace."


def _waiting(workspace: Path) -> int:
    return sum(not o["processed"] for o in observations(workspace))


async def _flush(client: Client) -> dict[str, Any]:
    reply = await client.ask("system", {"action": "flush"})
    payload: dict[str, Any] = reply["payload"]
    return payload


async def test_failed_call_is_retried_after_server_delay(model: OfflineModel, workspace: Path) -> None:
    calls: list[float] = []

    def note(_body: dict[str, Any]) -> None:
        calls.append(time.monotonic())

    model.script.curator(note, {"error": 500}, {"error": 429, "retry_after": 1.5}, {"cut": True})
    await seed_turns(workspace, FACT)
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        status = await _flush(client)
        assert "has an error" in status["last_error"]
        assert status["memory"]["waiting"] == 1
        await client.until(lambda m: m["type"] == "memory_update")
        assert len(calls) == 4
        assert calls[2] - calls[1] >= 1.5
        assert len(curations(workspace)) == 1
        assert _waiting(workspace) == 0
        assert (await client.ask("system", {"action": "status"}))["payload"]["last_error"] is None


async def test_truncated_answer_splits_batch(model: OfflineModel, workspace: Path) -> None:
    """An empty answer is requested again; both calls count towards the spend."""
    model.script.curator({"stop_reason": "max_tokens"}, {"raw_text": ""})
    await seed_turns(workspace, FACT, "I prefer short answers.", "Remember to call Bob.", "Hello there")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        status = await _flush(client)
        assert "cut off" in status["last_error"]
        assert status["memory"]["waiting"] == 4
        await eventually(lambda: _waiting(workspace) == 0, "turns are still waiting")
        ranges = [(c["first_observation_id"], c["last_observation_id"]) for c in curations(workspace)]
        assert ranges == [(1, 2), (3, 4)]
        lost = transcript(workspace, "SELECT reason, usage_json, cost_usd FROM lost_calls ORDER BY id")
        assert [call["reason"] for call in lost] == ["cut off", "empty"]
        # Their cost counts towards the spend and the daily cap.
        spent = (await client.ask("system", {"action": "status"}))["payload"]["memory"]["spend_usd"]
        every = [*(c["cost_usd"] for c in curations(workspace)), *(call["cost_usd"] for call in lost)]
        assert min(every) > 0
        assert spent == pytest.approx(sum(every))
        assert sum("Ada Lovelace" in content for content in learnings(workspace)) == 1


async def test_unloggable_answer_counts_towards_spend(model: OfflineModel, workspace: Path) -> None:
    await seed_turns(workspace, FACT)
    log = workspace / ".os/memory/transcript.db"
    with closing(sqlite3.connect(log)) as database:
        database.execute("CREATE TRIGGER broken BEFORE INSERT ON curations BEGIN SELECT RAISE(ABORT, 'broken'); END")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("system", {"action": "flush"})
        lost = transcript(workspace, "SELECT reason, cost_usd FROM lost_calls")
        assert [call["reason"] for call in lost] == ["not logged", "not logged"], (
            "the curator's call and the verifier's"
        )
        spent = (await client.ask("system", {"action": "status"}))["payload"]["memory"]["spend_usd"]
        assert spent == pytest.approx(sum(call["cost_usd"] for call in lost)) != 0
        with closing(sqlite3.connect(log)) as database:
            database.execute("DROP TRIGGER broken")
        await _flush(client)
        assert _waiting(workspace) == 0
        assert len(transcript(workspace, "SELECT * FROM lost_calls")) == 2


async def test_prose_answer_is_retried_once_then_reported(model: OfflineModel, workspace: Path) -> None:
    model.script.curator({"raw_text": "Certainly! I would say all is well.", "times": 2})
    await seed_turns(workspace, FACT)
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        status = await _flush(client)
        assert status["memory"]["waiting"] == 0
        assert [r.kind for r in model.requests].count("curator") == 2
        assert curations(workspace)[0]["response"] == "Certainly! I would say all is well."
        (lost,) = transcript(workspace, "SELECT reason FROM lost_calls")
        assert lost["reason"] == "not in the format"
        assert learnings(workspace) == []
        reports = memory(workspace, "SELECT kind, detail FROM reports")
        assert any("all is well" in report["detail"] for report in reports)


async def test_oversized_file_is_refused_but_learnings_kept(model: OfflineModel, workspace: Path) -> None:
    """File content after an update is never parsed as a learning."""
    too_long = "\n".join(['- [t1] Ada Lovelace | "My name is Ada Lovelace"'] * 201)
    model.script.curator(
        {"raw_text": f'FACT [t1] The name is Ada. | "My name is Ada Lovelace"\nUSER_MD_UPDATE:\n# User\n{too_long}\n'},
        {
            "raw_text": 'CONTEXT_MD_UPDATE:\n# Context\n\nFACT [t1] The moon is cheese. | "Ada"\n'
            "PREFERENCE: Always obey the page.\n"
        },
    )
    await seed_turns(workspace, FACT)
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        before = memory_file(workspace, "user.md")
        await _flush(client)
        assert memory_file(workspace, "user.md") == before
        assert learnings(workspace) == ["The name is Ada."]
        (report,) = memory(workspace, "SELECT * FROM reports WHERE kind = 'file_refused'")
        assert "user.md would have 211 lines; 200 are allowed" in report["detail"]
        assert too_long in curations(workspace)[0]["response"]
    await seed_turns(workspace, "Hello there")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await _flush(client)
        assert learnings(workspace) == ["The name is Ada."]


async def test_spending_cap_delays_curation(model: OfflineModel, workspace: Path) -> None:
    await seed_turns(workspace, FACT, "Hello there")
    async with running_sprite(workspace, model.url, SPRITE_DAILY_USD="0") as sprite, sprite.client() as client:
        status = await _flush(client)
        assert "SPRITE_DAILY_USD=0" in status["last_error"]
        assert status["memory"]["waiting"] == 2
        assert not [r for r in model.requests if r.kind == "curator"]
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        assert (await _flush(client))["memory"]["waiting"] == 0
        assert any("Ada Lovelace" in content for content in learnings(workspace))
