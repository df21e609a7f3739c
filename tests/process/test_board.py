"""The agent and its canvas with the real CLI: across sessions, and while a person changes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.harness import Client, running_sprite
from tests.inspection import chat, found_on_disk, observation_of, prompts, workspace_db
from tests.scripted_model import OfflineModel, RecordedRequest

TABLE = {"columns": ["Item", "Value"], "rows": [["apples", "4"], ["pears", "2"]]}


async def card(workspace: Path, title: str) -> dict[str, Any]:
    (row,) = workspace_db(workspace, "SELECT * FROM cards WHERE title = ?", (title,))
    return {**row, "blocks": json.loads(row["blocks_json"])}


async def does(client: Client, action: str, **more: Any) -> None:
    answer = await client.ask("canvas_interaction", {"action": action, **more})
    assert answer["type"] == "ack", answer


def system_of(request: RecordedRequest) -> str:
    """Return a request's system prompt as text."""
    return "\n".join(block["text"] for block in request.body["system"])


def changes(body: Any) -> list[str]:
    """Return the lines of every `<canvas_changes>` part in a request, in order."""
    found = re.findall(r"<canvas_changes>\n(.*?)\n</canvas_changes>", "\n".join(texts(body)), re.DOTALL)
    return [line for part in found for line in part.split("\n")[1:]]


def texts(value: Any) -> list[str]:
    """Return every text in a JSON value."""
    if isinstance(value, str):
        return [value]
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for member in members for text in texts(member)]


async def test_agent_receives_canvas_changes_once(model: OfflineModel, workspace: Path) -> None:
    """A new session can change cards of an earlier session."""
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "make a table of apples 3, pears 5 titled Fruit", "make a note titled Plan with call Bo")
        drawn = await card(workspace, "Fruit")
        plan = await card(workspace, "Plan")
        (block,) = plan["blocks"]
        card_id, block_id = plan["card_id"], block["id"]
        for x in range(5):
            await does(client, "move_card", card_id=card_id, position={"x": x, "y": 0})
        note = {"content": "call Bo <private>about the divorce papers</private>"}
        await does(client, "update_block", card_id=card_id, block_id=block_id, data=note, seen=1)
        await chat(client, "hello one")
        told = changes(prompts(model, "hello one")[0].body)
        assert len(told) == 2
        assert "to x 4, y 0" in told[0]
        assert "about the divorce papers" in told[1]
        assert found_on_disk(workspace, ["divorce papers"]) == []
        await agents_late_change_is_refused(workspace, model, client, card_id, block_id)
        await does(client, "archive_card", card_id=card_id)
        await chat(client, "hello three")
        assert "off the canvas" in changes(prompts(model, "hello three")[0].body)[-1]
        await client.ask("system", {"action": "new_session"})
        await does(client, "restore_card", card_id=card_id)
        table = {"id": drawn["blocks"][0]["id"], "type": "table", "data": TABLE}
        model.script.agent(
            {"tool": "mcp__sprite__update_card", "input": {"card_id": drawn["card_id"], "blocks": [table]}}
        )
        mission = client.send("mission", {"text": "update the fruit table with apples 4, pears 2"})
        assert (await client.end_of(mission))["event"] == "complete"
        changed = await card(workspace, "Fruit")
        (block,) = changed["blocks"]
        assert (block["id"], block["data"], block["version"]) == (drawn["blocks"][0]["id"], TABLE, 2)
        request = prompts(model, "update the fruit table")[0]
        system = system_of(request)
        assert "<open_canvas>" in system
        assert changes(request.body) == []
        assert f'- "Fruit" (card {drawn["card_id"]}, table, on "Canvas"): {block["id"]} table' in system
        assert system.index('- "Plan" (card ') < system.index('- "Fruit" (card ')
        (looked,) = observation_of(workspace, mission)["tool_calls"]
        assert looked["name"] == "mcp__sprite__update_card"


async def agents_late_change_is_refused(
    workspace: Path, model: OfflineModel, client: Client, card_id: str, block_id: str
) -> None:
    """Check that the agent's late update is refused with the person's newer text."""
    update = {"card_id": card_id, "blocks": [{"id": block_id, "type": "note", "data": {"content": "the agent's"}}]}
    model.script.agent(
        {
            "match": "change it",
            "on": "prompt",
            "tool": "Bash",
            "input": {"command": "while [ ! -e go ]; do sleep 0.1; done"},
        },
        {"match": "change it", "on": "result", "tool": "mcp__sprite__update_card", "input": update},
        {"match": "change it", "on": "result", "text": "I keep what you wrote."},
    )
    mission = client.send("mission", {"text": "change it"})
    await client.event("tool_use")
    await does(client, "update_block", card_id=card_id, block_id=block_id, data={"content": "call Cy"}, seen=2)
    (workspace / "go").touch()
    assert (await client.end_of(mission))["event"] == "complete"
    assert len(changes(prompts(model, "change it")[0].body)) == 2, "a canvas change was repeated"
    refused = observation_of(workspace, mission)["tool_calls"][1]
    assert refused["is_error"]
    assert "the person changed what you would replace" in str(refused["result"])
    assert "call Cy" in str(refused["result"])
    kept = (await card(workspace, "Plan"))["blocks"][0]
    assert (kept["data"], kept["version"], kept["by"]) == ({"content": "call Cy"}, 3, "person")
