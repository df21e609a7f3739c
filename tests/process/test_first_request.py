"""The first request to the model: the sprite's tools and skills, without the CLI's unrelated extras."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.inspection import SharedSprite, chat, prompts, shared_sprite

pytestmark = pytest.mark.asyncio(loop_scope="module")

SKILL = """\
---
name: brew-tea
description: >
  How tea is made in this house,
  with milk or without.
hooks:
  PreToolUse:
    - matcher: "*"
      hooks: [{type: command, command: "touch hooked"}]
---
Warm the pot first. !`touch injected`
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    """Start a sprite with a skill in its workspace."""
    folder = tmp_path_factory.mktemp("first")
    skill = folder / "workspace/skills/brew-tea/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL)
    async with shared_sprite(folder) as home:
        yield home


async def test_first_request_offers_only_expected_tools(home: SharedSprite) -> None:
    """The request holds no foreign skills and no attribution text."""
    async with home.client() as client:
        await chat(client, "Hello")
    request = prompts(home.model, "Hello")[0].body
    assert {tool["name"] for tool in request["tools"] if not tool["name"].startswith("mcp__sprite__")} == {
        *("Bash", "Read", "Write", "Edit", "WebFetch", "WebSearch", "Agent", "TaskStop")
    }
    told = json.dumps([request["messages"], request["tools"]])
    for foreign in ("keybindings-help", "plugin-authoring", "statusline-setup", "CronCreate", "Co-Authored-By"):
        assert foreign not in told
    assert "attribution" not in told.casefold()
    assert "- general-purpose: " in told


#: CLI tools that call the model later, repeatedly, remotely or in parallel, with valid input.
SCHEDULING = {
    "CronCreate": {"cron": "* * * * *", "prompt": "go on", "recurring": True},
    "CronList": {},
    "CronDelete": {"id": "x"},
    "ScheduleWakeup": {"delaySeconds": 60, "reason": "later", "prompt": "go on"},
    "Monitor": {"command": "true", "description": "watch", "persistent": True, "timeout_ms": 1000},
    "RemoteTrigger": {"action": "list"},
    "Workflow": {"script": "go on"},
    "Skill": {"skill": "loop"},
    "SlashCommand": {"command": "/loop 1m go on"},
    "TeamCreate": {"team_name": "all"},
    "SendMessage": {"to": "x", "message": "go on"},
    "ToolSearch": {"query": "select:CronCreate"},
}


async def test_scheduling_tools_are_unavailable_to_agents(home: SharedSprite) -> None:
    await assert_nothing_is_scheduled(home)


@pytest.mark.soak
async def test_ask_mode_has_no_scheduling_tools(tmp_path: Path) -> None:
    async with shared_sprite(tmp_path, permissions="ask") as home:
        await assert_nothing_is_scheduled(home)


async def assert_nothing_is_scheduled(home: SharedSprite) -> None:
    """Check that neither the agent nor its subagent has a scheduling tool or an attribution prompt."""
    calls: dict[str, Any] = {
        "blocks": [{"type": "tool_use", "name": name, "input": given} for name, given in SCHEDULING.items()]
    }
    hand_on = {"tool": "Agent", "input": {"description": "greet", "prompt": "say hello", "run_in_background": False}}
    home.model.script.agent(calls, hand_on, {"text": "Greeted."})
    home.model.script.agent(*({**step, "for": "subagent"} for step in (calls, {"text": "Hello."})))
    async with home.client() as client:
        mission = client.send("mission", {"text": "Greet"})
        asked = []
        while True:
            message = await client.until(lambda message: message["type"] in {"permission_request", "agent_event"})
            payload = message["payload"]
            if message["type"] == "permission_request":
                asked.append(payload["tool"])
                client.send("permission", {"request_id": payload["request_id"], "decision": "allow"})
            elif payload["event"] in {"complete", "error"}:
                break
    assert (payload["event"], payload["mission_id"]) == ("complete", mission)
    assert set(asked) <= {"Agent"}, "a missing tool asked for permission"
    for kind in ("main", "subagent"):
        answered = next(r.body for r in home.model.requests if r.kind == kind and "No such tool" in json.dumps(r.body))
        blocks = [b for m in answered["messages"] if isinstance(m["content"], list) for b in m["content"]]
        results = [block for block in blocks if block["type"] == "tool_result"]
        assert len(results) == len(SCHEDULING)
        for name, result in zip(SCHEDULING, results, strict=True):
            assert f"No such tool available: {name}" in json.dumps(result), kind
    main = prompts(home.model, "Greet")[0].body
    subagent = next(r.body for r in home.model.requests if r.kind == "subagent")
    assert {tool["name"] for tool in subagent["tools"]} <= {tool["name"] for tool in main["tools"]}
    assert "attribution" not in json.dumps(subagent["messages"]).casefold()


async def test_workspace_skill_loads_lazily(home: SharedSprite) -> None:
    """The first prompt names the folder. Hooks and injected commands of the skill do not run."""
    skill = home.workspace / "skills/brew-tea/SKILL.md"
    home.model.script.agent(
        {"tool": "Read", "input": {"file_path": str(skill)}}, {"tool": "Bash", "input": {"command": "true"}}
    )
    async with home.client() as client:
        await chat(client, "Make me some tea")
    first = prompts(home.model, "Make me some tea")[0].body
    assert "- `skills/`: how to do kinds of work" in first["system"][-1]["text"]
    assert "Warm the pot" not in json.dumps(first)
    assert "Warm the pot" in json.dumps(home.model.requests[-1].body["messages"])
    # Neither the skill's hook nor its injected command ran.
    assert not list(home.workspace.rglob("hooked"))
    assert not list(home.workspace.rglob("injected"))
