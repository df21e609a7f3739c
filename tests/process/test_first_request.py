"""What the model is given with the first word: what this agent is for, and nothing of the CLI's that it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.offline.model import OfflineModel
from tests.harness import running_sprite
from tests.inspection import chat, prompts

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


async def test_the_agent_has_its_own_tools_and_of_the_clis_only_those_it_is_for(
    model: OfflineModel, workspace: Path
) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Hello")
    request = prompts(model, "Hello")[0].body
    assert {tool["name"] for tool in request["tools"] if not tool["name"].startswith("mcp__sprite__")} == {
        *("Bash", "Read", "Write", "Edit", "WebFetch", "WebSearch", "Agent", "TaskStop")
    }
    told = json.dumps([request["messages"], request["tools"]])
    for foreign in ("keybindings-help", "plugin-authoring", "statusline-setup", "CronCreate", "Co-Authored-By"):
        assert foreign not in told
    assert "attribution" not in told.casefold()
    assert "- general-purpose: " in told


async def test_a_subagent_has_no_more_and_is_asked_for_no_attribution_either(
    model: OfflineModel, workspace: Path
) -> None:
    model.script.agent(
        {"tool": "Agent", "input": {"description": "greet", "prompt": "say hello", "run_in_background": False}},
        {"text": "Greeted."},
    )
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Greet")
    main = prompts(model, "Greet")[0].body
    subagent = (await model.seen(lambda request: request.kind == "subagent")).body
    assert {tool["name"] for tool in subagent["tools"]} <= {tool["name"] for tool in main["tools"]}
    assert "attribution" not in json.dumps(subagent["messages"]).casefold()


#: What the CLI has to call the model later, again, elsewhere or beside, as it would be called.
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


@pytest.mark.parametrize("permissions", ["bypass", "ask"])
async def test_no_agent_can_have_the_cli_call_the_model_later_or_again(
    model: OfflineModel, workspace: Path, permissions: str
) -> None:
    calls: dict[str, Any] = {
        "blocks": [{"type": "tool_use", "name": name, "input": given} for name, given in SCHEDULING.items()]
    }
    hand_on = {"tool": "Agent", "input": {"description": "greet", "prompt": "say hello", "run_in_background": False}}
    model.script.agent(calls, hand_on, {"text": "Greeted."})
    model.script.agent(*({**step, "for": "subagent"} for step in (calls, {"text": "Hello."})))
    async with running_sprite(workspace, model.url, permissions=permissions) as sprite, sprite.client() as client:
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
    assert set(asked) <= {"Agent"}, "what is not there is not asked for"
    for kind in ("main", "subagent"):
        answered = next(r.body for r in model.requests if r.kind == kind and "No such tool" in json.dumps(r.body))
        blocks = [b for m in answered["messages"] if isinstance(m["content"], list) for b in m["content"]]
        results = [block for block in blocks if block["type"] == "tool_result"]
        assert len(results) == len(SCHEDULING)
        for name, result in zip(SCHEDULING, results, strict=True):
            assert f"No such tool available: {name}" in json.dumps(result), kind


async def test_a_skill_of_the_workspace_is_listed_and_read_when_it_is_needed(
    model: OfflineModel, workspace: Path
) -> None:
    skill = workspace / "skills/brew-tea/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL)
    model.script.agent(
        {"tool": "Read", "input": {"file_path": str(skill)}}, {"tool": "Bash", "input": {"command": "true"}}
    )
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Make me some tea")
    first = prompts(model, "Make me some tea")[0].body
    line = "- brew-tea (skills/brew-tea/SKILL.md): How tea is made in this house, with milk or without."
    assert line in first["system"][-1]["text"]
    assert "Warm the pot" not in json.dumps(first)
    assert "Warm the pot" in json.dumps(model.requests[-1].body["messages"])
    # What a skill would run by being there runs with nobody's leave.
    assert not list(workspace.rglob("hooked"))
    assert not list(workspace.rglob("injected"))
