"""Messages to people about the model: missing, refusing, answering, or the free offline model."""

from __future__ import annotations

from pathlib import Path

import pytest

from sprite.common.prices import PRICES
from tests.command_line import command
from tests.harness import running_sprite
from tests.inspection import chat, transcript
from tests.memory_stores import open_stores
from tests.scripted_model import OfflineModel


async def test_mission_without_api_key_names_setting(workspace: Path) -> None:
    async with running_sprite(workspace, None) as sprite, sprite.client() as client:
        mission_id = client.send("mission", {"text": "Hello there"})
        end = await client.until(
            lambda m: (
                m["type"] == "agent_event"
                and m["payload"]["mission_id"] == mission_id
                and m["payload"]["event"] == "error"
            )
        )
    words = end["payload"]["message"]
    assert "ANTHROPIC_API_KEY" in words
    assert "/login" not in words


async def test_curator_refusal_appears_in_status(workspace: Path, model: OfflineModel) -> None:
    model.script.curator({"error": 400, "message": "Your credit is too low.", "times": -1})
    (workspace / ".os/memory").mkdir(parents=True)
    async with open_stores(workspace / ".os/memory") as stores:
        await stores.turn("My name is Ada.")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        status = (await client.ask("system", {"action": "flush"}))["payload"]
    assert "refused the request as invalid" in status["last_error"]
    assert "Your credit" not in status["last_error"]


async def test_doctor_asks_running_sprite_for_model(workspace: Path, model: OfflineModel) -> None:
    """The environment of the shell does not count while a sprite runs."""
    async with running_sprite(workspace, model.url):
        code, out, _ = await command(workspace, "doctor")
    assert "FAIL" not in out, out
    assert code == 0
    assert "asked by the running sprite" in out


async def test_offline_model_is_named_and_costs_nothing(workspace: Path, model: OfflineModel) -> None:
    """It meets no budget cap. An outage is reported once and retried."""
    offline = {"SPRITE_CURATOR_MODEL": "offline", "SPRITE_DAILY_USD": "0", "CLAUDE_CODE_MAX_RETRIES": "6"}
    model.script.agent({"match": "Hello there", "error": 529, "type": "overloaded_error", "times": 3})
    async with running_sprite(workspace, model.url, **offline) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada")
        status = (await client.ask("system", {"action": "flush"}))["payload"]
        ends = [m["payload"] for m in client.received if m["type"] == "agent_event" and "cost_usd" in m["payload"]]
        assert [end["cost_usd"] for end in ends] == [0]
        await chat(client, "Hello there")
        said = [m["payload"] for m in client.received if m["type"] == "error"]
    assert [each["code"] for each in said] == ["model_away"]
    assert said[0]["message"] == "The model is overloaded. Trying again, for some minutes if necessary."
    assert status["model"] == "demo model, not Claude"
    assert status["last_error"] is None
    assert status["memory"]["waiting"] == 0
    assert status["memory"]["spend_usd"] == 0
    assert {row["cost_usd"] for row in transcript(workspace, "SELECT cost_usd FROM model_calls")} == {0}


async def test_status_tells_spend_of_agent_and_memory(workspace: Path, model: OfflineModel) -> None:
    async with (
        running_sprite(workspace, model.url, SPRITE_MODEL="claude-haiku-4-5") as sprite,
        sprite.client() as client,
    ):
        await chat(client, "My name is Ada", "Search memory for Ada")
        spend = (await client.ask("system", {"action": "flush"}))["payload"]["spend"]
        health = (await client.ask("memory", {"op": "health"}))["payload"]["health"]
        ends = [m["payload"] for m in client.received if m["payload"].get("event") == "complete"]
    costs = [end["cost_usd"] for end in ends]
    usage, (found,) = ends[-1]["usage"], ends[-1]["memory_found"]
    assert (usage["settled_usd"], usage["estimated_usd"]) == (pytest.approx(costs[-1]), 0)
    assert min(usage["input_tokens"], usage["output_tokens"]) > 0
    assert (found["kind"], found["id"], found["turn"]) == ("turn", 1, 1)
    assert "Ada" in found["text"]
    assert spend["today"] == spend["session"]
    assert spend["today"]["agent"] == {"settled": pytest.approx(sum(costs)), "estimated": 0}
    assert spend["today"]["memory"]["settled"] > 0
    assert spend["today"]["schedules"] == {"settled": 0, "estimated": 0}
    assert spend["turn"] == {"settled": pytest.approx(costs[-1]), "estimated": 0}
    assert min(costs) > 0
    assert health["spend"] == spend


async def test_interrupted_call_counts_as_estimated_spend(workspace: Path, model: OfflineModel) -> None:
    model.script.agent({"text": "One, two. " * 50, "hang": True, "usage": {"input_tokens": 20_000}})
    async with (
        running_sprite(workspace, model.url, SPRITE_MODEL="claude-haiku-4-5") as sprite,
        sprite.client() as client,
    ):
        mission_id = client.send("mission", {"text": "Count"})
        await client.until(lambda m: m["payload"].get("event") == "text_delta")
        client.send("interrupt", {})
        await client.end_of(mission_id)
        spend = (await client.ask("system", {"action": "status"}))["payload"]["spend"]
    assert spend["turn"]["estimated"] == spend["today"]["agent"]["estimated"] >= 0.02
    assert spend["turn"]["settled"] < 0.01


async def test_memory_of_unknown_price_counts_at_dearest(workspace: Path, model: OfflineModel) -> None:
    model.script.curator({"raw_text": "", "usage": {"input_tokens": 10_000}})
    async with (
        running_sprite(workspace, model.url, SPRITE_CURATOR_MODEL="nobody-knows-1") as sprite,
        sprite.client() as client,
    ):
        await chat(client, "My name is Ada")
        memory = (await client.ask("system", {"action": "flush"}))["payload"]["spend"]["today"]["memory"]
    assert memory["settled"] == 0
    assert memory["estimated"] >= 10_000 * max(price.input for price in PRICES.values()) / 1e6
