"""Turns recorded by other programs, sent to a real sprite: stored, found, curated, and included in their boot files."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import Any

from sprite.boot.project import boot_file_name
from tests.command_line import command
from tests.harness import running_sprite
from tests.inspection import curations, eventually, transcript
from tests.scripted_model import OfflineModel

#: The CLI rejects a bare `sleep`.
LONG_COMMAND = "run `python3 -c 'import time; time.sleep(300)'`"
PROJECT = "/home/ada/web shop"


def turn(number: int, user: str, **more: Any) -> dict[str, Any]:
    return {"external_id": f"t-{number}", "session": "s-1", "at": time.time(), "user": user, "reply": "Done.", **more}


def text_of(path: Path) -> str:
    """Return a file's text, or an empty string for a project without a file."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


async def test_external_turns_are_stored_searched_and_booted(workspace: Path, model: OfflineModel) -> None:
    boot = workspace / ".os/run/boot" / boot_file_name(PROJECT)
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        assert (await client.ask("memory", {"op": "boot", "project": PROJECT}))["payload"]["text"] == ""
        sent = {"source": "claude-code", "project": PROJECT, "turns": [turn(1, "Deploy with make ship"), turn(2, "Hm")]}
        answers = [await client.ask("observe", sent), await client.ask("observe", sent)]
        assert [each["payload"] for each in answers] == [
            {"stored": 2, "known": 0, "refused": []},
            {"stored": 0, "known": 2, "refused": []},
        ]
        refused = await client.ask("observe", {**sent, "project": "../.."})
        assert len(refused["payload"]["refused"]) == 2

        around = (await client.ask("memory", {"op": "around", "turn": 1, "before": 0, "after": 1}))["payload"]["turns"]
        assert [(each["id"], each["project"], each["source"]) for each in around] == [
            (1, PROJECT, "claude-code"),
            (2, PROJECT, "claude-code"),
        ]
        missing = await client.ask("memory", {"op": "around", "turn": 99})
        assert missing["payload"]["code"] == "not_found"
        found = await client.ask("memory", {"op": "search", "query": "how do I deploy?", "project": PROJECT})
        assert [hit["project"] for hit in found["payload"]["hits"]] == [PROJECT]

        told = (await client.ask("memory", {"op": "boot", "project": PROJECT}))["payload"]["text"]
        assert "make ship" in told
        await eventually(lambda: text_of(boot) == told, "the boot file differs from the answer")
        assert stat.S_IMODE(boot.stat().st_mode) == 0o600

        await client.ask("system", {"action": "flush"})
        assert transcript(workspace, "SELECT DISTINCT processed FROM observations") == [{"processed": 1}]
        # Twenty-five turns of two projects are one call, like turns of the sprite itself.
        for project, numbers in ((PROJECT, range(10, 23)), ("/home/ada/api", range(23, 35))):
            more = [turn(number, f"Step {number} is done") for number in numbers]
            await client.ask("observe", {"source": "codex", "project": project, "turns": more})
        waiting = "SELECT count(*) AS n FROM observations WHERE processed = 0"
        await eventually(lambda: transcript(workspace, waiting)[0]["n"] == 0, "turns are still pending")
        (_, batch) = [row for row in curations(workspace) if row["kind"] == "batch"]
        assert batch["last_observation_id"] - batch["first_observation_id"] >= 24

        before = time.time()
        content = f"# Context\n\n## Project: {PROJECT}\n- Ships on Fridays.\n"
        await client.ask("memory", {"op": "edit", "name": "context.md", "content": content})
        await eventually(lambda: "Ships on Fridays." in text_of(boot), "the boot file lacks the edit")
        now = {"op": "file", "name": "context.md", "project": PROJECT}
        shown = [
            (await client.ask("memory", {**now, **more}))["payload"]["content"] for more in ({}, {"project": "/x"})
        ]
        assert ["Fridays" in content for content in shown] == [True, False]
        then = (await client.ask("memory", {**now, "as_of": before - 0.001}))["payload"]["content"]
        assert "Fridays" not in then

        code, out, _ = await command(workspace, "memory", "file", "context.md", "--project", "/x", "--json")
        assert (code, "Fridays" in out) == (0, False)
        code, out, _ = await command(workspace, "memory", "search", "deploy", "--project", "web shop")
        assert (code, PROJECT in out) == (0, True)
        code, out, _ = await command(workspace, "memory", "search", "deploy", "project:nowhere")
        assert (code, f", {PROJECT}." in out) == (1, True)

        await client.ask("memory", {"op": "forget", "text": "Fridays", "yes": True})
        await eventually(lambda: "Fridays" not in text_of(boot), "the boot file still has the forgotten text")

        # A running turn of the agent does not delay observations.
        mission = client.send("mission", {"text": LONG_COMMAND})
        await client.event("tool_use")
        sent = {"source": "codex", "turns": [turn(3, "Said elsewhere meanwhile")]}
        assert (await client.ask("observe", sent))["payload"]["stored"] == 1
        await client.ask("interrupt", {"mission_id": mission})
