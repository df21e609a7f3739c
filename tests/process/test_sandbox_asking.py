"""In a sandbox the agent works in its workspace without a question; the person is asked about what reaches further."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.harness import Client
from tests.inspection import SharedSprite, eventually, observation_of, prompts, shared_sprite, transcript

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="bubblewrap is Linux's"),
]

SCRATCH = "/tmp/sprite-scratch.txt"  # noqa: S108 - the sandbox's own


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    folder = tmp_path_factory.mktemp("contained")
    (folder / "workspace/.vscode").mkdir(parents=True)
    (folder / "workspace/.vscode/tasks.json").write_text("{}")
    (folder / "outside").mkdir()
    async with shared_sprite(folder, permissions="ask", SPRITE_SANDBOX="on") as home:
        yield home


async def _calls(
    home: SharedSprite, client: Client, *wanted: tuple[str, dict[str, Any]], decision: str = "deny"
) -> tuple[list[str], list[dict[str, Any]]]:
    """Run a turn with these calls. Return the tools that were asked about, and the calls as logged."""
    blocks = [{"type": "tool_use", "name": tool, "input": tool_input} for tool, tool_input in wanted]
    home.model.script.agent({"on": "prompt", "blocks": blocks})
    mission = client.send("mission", {"text": "Do it"})
    asked: list[str] = []
    while True:
        message = await client.until(
            lambda m: m["type"] == "permission_request" or m["payload"].get("event") in {"complete", "error"}
        )
        if message["type"] == "agent_event":
            return asked, observation_of(home.workspace, mission)["tool_calls"]
        asked.append(message["payload"]["input"].get("file_path", message["payload"]["tool"]))
        await client.ask("permission", {"request_id": message["payload"]["request_id"], "decision": decision})


async def test_workspace_changes_need_no_permission(home: SharedSprite) -> None:
    note = str(home.workspace / "documents/note.md")
    async with home.client() as client:
        asked, logged = await _calls(
            home,
            client,
            ("Bash", {"command": "mkdir -p a && echo one > a/b && rm a/b && git init -q r && chmod 700 r"}),
            ("Write", {"file_path": note, "content": "one"}),
            ("Edit", {"file_path": note, "old_string": "one", "new_string": "two"}),
            ("Write", {"file_path": SCRATCH, "content": "one"}),
        )
    assert asked == []
    assert [call["result"] for call in logged if call["is_error"]] == []
    assert (home.workspace / "documents/note.md").read_text() == "two"
    assert not Path(SCRATCH).exists()


async def test_writing_outside_is_refused_with_reason(home: SharedSprite) -> None:
    outside = home.workspace.parent / "outside/x"
    async with home.client() as client:
        asked, logged = await _calls(home, client, ("Write", {"file_path": "/usr/x", "content": "x"}))
        assert (asked, "in the workspace and in /tmp only" in str(logged[0]["result"])) == ([], True)
        await _calls(home, client, ("Bash", {"command": f"mkdir -p {outside.parent}; echo x > {outside}"}))
    assert not outside.exists()


async def test_files_that_run_later_are_kept_or_asked_about(home: SharedSprite) -> None:
    kept, new = home.workspace / ".vscode/tasks.json", home.workspace / ".envrc"
    async with home.client() as client:
        asked, logged = await _calls(home, client, ("Write", {"file_path": str(kept), "content": "x"}))
        assert asked == []
        assert logged[0]["is_error"]
        assert (await _calls(home, client, ("Write", {"file_path": str(new), "content": "x"})))[0] == [str(new)]
        assert not new.exists()
        await _calls(home, client, ("Bash", {"command": "echo x > .vscode/tasks.json; mv .vscode v; rm -r .vscode"}))
    assert kept.read_text() == "{}"


@pytest.mark.parametrize("decision", ["deny", "allow"])
async def test_new_file_of_command_is_asked_about(home: SharedSprite, decision: str) -> None:
    new = home.workspace / decision / ".envrc"
    command = f"mkdir -p {decision}; echo x > {decision}/.envrc"
    async with home.client() as client:
        home.model.script.agent({"tool": "Bash", "input": {"command": command}})
        await client.mission(f"Make it: {decision}")
        # It belongs to no turn.
        assert [m for m in client.received if m["type"] == "permission_request"] == []
        asked = (await client.ever(lambda m: m["type"] == "permission_request"))["payload"]
        assert asked["input"] == {"file_path": str(new), "content": "x\n"}
        assert not new.exists()
        await client.ask("permission", {"request_id": asked["request_id"], "decision": decision})
        told = "SELECT what FROM file_deeds"
        await eventually(lambda: new.exists() or bool(transcript(home.workspace, told)), "the answer has no effect")
        await client.mission(f"And now: {decision}")
    assert (new.exists(), new.with_name(".envrc.held").exists()) == (decision == "allow", decision == "deny")
    (prompt,) = {request.raw for request in prompts(home.model, f"And now: {decision}")}
    assert (f"{decision}/.envrc.held".encode() in prompt) == (decision == "deny")
