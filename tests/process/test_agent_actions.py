"""The agent's actions through the real CLI: no permission is needed, and the log is written first."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.harness import rows
from tests.inspection import SharedSprite, observation_of, shared_sprite

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("acting"), permissions="ask") as home:
        yield home


def action_rows(home: SharedSprite) -> list[dict[str, Any]]:
    log = home.workspace / ".os/memory/transcript.db"
    return [json.loads(row["response"]) for row in rows(log, "SELECT response FROM curations WHERE kind = 'action'")]


async def test_agent_schedule_is_logged_and_announced(home: SharedSprite) -> None:
    """The log row belongs to the turn, and every client receives the action."""
    due = {"content": "Water the ficus", "due": "2099-12-01", "rrule": "FREQ=WEEKLY;BYDAY=TU"}
    home.model.script.agent({"match": "water the ficus", "tool": "mcp__sprite__schedule", "input": due})
    home.model.script.agent({"match": "what is on my list", "tool": "mcp__sprite__list_actions", "input": {}})
    async with home.client() as client, home.client() as other:
        await client.ask("system", {"action": "zone", "tz": "Europe/Berlin"})
        mission = client.send("mission", {"text": "water the ficus"})
        told = await other.until(lambda m: m["type"] == "action_update")
        # The mode is `ask`, but scheduling asks no permission.
        assert (await client.end_of(mission))["event"] == "complete"
        action = told["payload"]["action"]
        assert (action["content"], action["origin"], action["tz"]) == ("Water the ficus", "agent", "Europe/Berlin")
        assert action["history"][0]["by"] == "agent"
        added = action_rows(home)[-1]
        assert (added["op"], added["by"], added["mission"]) == ("add", "agent", mission)
        (call,) = observation_of(home.workspace, mission)["tool_calls"]
        assert "When: Tue 2099-12-01 09:00 Europe/Berlin, then every Tuesday" in call["result"]

        mission = client.send("mission", {"text": "what is on my list"})
        await client.end_of(mission)
        (call,) = observation_of(home.workspace, mission)["tool_calls"]
        assert (
            f"[{action['id']}] Water the ficus (due Tue 2099-12-01 09:00 Europe/Berlin; every Tuesday; you"
            in call["result"]
        )

        status = (await client.ask("system", {"action": "status"}))["payload"]
        assert (status["tz"], status["next_due"]) == ("Europe/Berlin", {"action_id": action["id"], "at": action["due"]})

        home.model.script.agent(
            {"match": "it is done", "tool": "mcp__sprite__complete_action", "input": {"id": action["id"], "note": "Ok"}}
        )
        home.model.script.agent(
            {
                "match": "never again",
                "tool": "mcp__sprite__complete_action",
                "input": {"id": action["id"], "stop": True},
            }
        )
        await client.end_of(client.send("mission", {"text": "it is done"}))
        (listed,) = (await client.ask("memory", {"op": "actions"}))["payload"]["actions"]
        assert (listed["status"], listed["due"]) == ("open", action["due"])
        assert listed["history"][-1]["what"] == "done this time: Ok"
        await client.end_of(client.send("mission", {"text": "never again"}))
        (listed,) = (await client.ask("memory", {"op": "actions"}))["payload"]["actions"]
        assert listed["status"] == "done"
        # No memory update is sent: nothing was curated.
        assert not [message for message in client.received if message["type"] == "memory_update"]


async def test_reminder_in_plain_words_is_scheduled(home: SharedSprite) -> None:
    async with home.client() as client:
        end = await client.end_of(client.send("mission", {"text": "Every weekday at 8 draw my open actions"}))
        assert "draw my open actions" in end["text"]
        assert "then every weekday at 08:00" in end["text"]
        end = await client.end_of(client.send("mission", {"text": "What is on my list?"}))
        assert "draw my open actions" in end["text"]


async def test_invalid_action_returns_reason_to_agent(home: SharedSprite) -> None:
    refused = {"content": "Too often", "rrule": "FREQ=MINUTELY"}
    home.model.script.agent({"match": "every minute", "tool": "mcp__sprite__schedule", "input": refused})
    home.model.script.agent({"match": "finish it", "tool": "mcp__sprite__complete_action", "input": {"id": 4711}})
    async with home.client() as client:
        for text, words in (("every minute", "at most every 5 minutes"), ("finish it", "There is no action 4711")):
            mission = client.send("mission", {"text": text})
            assert (await client.end_of(mission))["event"] == "complete"
            (call,) = observation_of(home.workspace, mission)["tool_calls"]
            assert words in call["result"]
            assert call["is_error"]


async def test_person_adds_changes_and_closes_actions(home: SharedSprite) -> None:
    """Invalid requests get an error code."""
    async with home.client() as client, home.client() as other:
        asked = {"op": "add_action", "content": "Call Bo", "due": "2099-01-01 10:00", "tz": "UTC", "priority": 1}
        answer = (await client.ask("memory", asked))["payload"]
        made = answer["action"]
        assert made in answer["actions"]
        assert (made["origin"], made["tz"]) == ("person", "UTC")
        told = await other.until(lambda m: m["type"] == "action_update")
        assert told["payload"]["action"] == made
        changed = (await client.ask("memory", {"op": "update_action", "id": made["id"], "due": ""}))["payload"][
            "action"
        ]
        assert (changed["due"], changed["content"]) == (None, "Call Bo")
        for wrong, code in (
            ({**asked, "due": "2020-01-01"}, "past"),
            ({**asked, "due": "someday"}, "bad_due"),
            ({**asked, "tz": "Mars/Olympus"}, "unknown_zone"),
            ({**asked, "rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "never"),
            ({"op": "update_action", "id": 4711, "content": "x"}, "not_found"),
        ):
            refused = await client.ask("memory", wrong)
            assert (refused["type"], refused["payload"]["code"]) == ("error", code)
        zone = await client.ask("system", {"action": "zone", "tz": "Mars/Olympus"})
        assert zone["payload"]["code"] == "unknown_zone"
        for status in ("done", "open"):
            closed = (await client.ask("memory", {"op": "resolve_action", "id": made["id"], "status": status}))[
                "payload"
            ]
            assert {action["id"]: action["status"] for action in closed["actions"]}[made["id"]] == status
