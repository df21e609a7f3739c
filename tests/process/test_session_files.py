"""The CLI's unredacted files live no longer than their session: transcripts, subagents, long results and outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.harness import running_sprite, sprite_process
from tests.inspection import chat, eventually, journal, transcript
from tests.scripted_model import OfflineModel

#: These words are never redacted, so only deletion removes them.
WORDS = "zebra-walks-at-noon"


def cli_folder(workspace: Path) -> Path:
    return workspace / ".os/run/claude"


def with_the_words(workspace: Path) -> set[str]:
    """Return the files in the CLI's folder that contain WORDS."""
    folder = cli_folder(workspace)
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)) for path in files if WORDS.encode() in path.read_bytes()}


def outputs(model: OfflineModel) -> list[Path]:
    """Return the output files of background work that the CLI has named."""
    told = " ".join(json.dumps(request.body) for request in model.requests)
    return [Path(path) for path in set(re.findall(r"/[^ \"\\]+/tasks/\w+\.output", told))]


async def test_cli_files_are_deleted_with_session(model: OfflineModel, workspace: Path) -> None:
    """They survive a kill; a start deletes files of earlier sessions."""
    calls = (
        ("Agent", {"description": "look", "prompt": f"{WORDS}, go on", "subagent_type": "general-purpose"}),
        ("Bash", {"command": f"for i in $(seq 1 20000); do echo {WORDS} $i; done"}),
        ("Bash", {"command": f"echo {WORDS}", "run_in_background": True}),
    )
    blocks = [{"type": "tool_use", "name": tool, "input": given} for tool, given in calls]
    model.script.agent({"match": "much", "on": "prompt", "blocks": blocks})
    earlier = cli_folder(workspace) / "projects/p/0b5c7c1e-0000-4000-8000-000000000001.jsonl"
    earlier.parent.mkdir(parents=True)
    earlier.write_text(WORDS)
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        assert not earlier.exists(), "the file of an ended session remains"
        await chat(client, f"much of {WORDS}")
        assert outputs(model)
        assert all(path.is_relative_to(cli_folder(workspace)) for path in outputs(model))

        def kinds() -> set[str]:
            return {part for file in with_the_words(workspace) for part in Path(file).parts}

        await eventually(
            lambda: {"subagents", "tool-results", "tasks"} <= kinds(), "the CLI did not write all kinds of files"
        )
        # The agent's report may have started another turn.
        await eventually(lambda: journal(workspace) == [], "a turn is still running")
        await sprite.kill()
    # The session continues; the start deletes files of other sessions.
    kept = with_the_words(workspace)
    (own,) = [file for file in kept if "subagents" not in file and file.endswith(".jsonl")]
    earlier = cli_folder(workspace) / Path(own).with_name(earlier.name)
    spill = earlier.with_suffix("") / "tool-results/long.txt"
    history = cli_folder(workspace) / "history.jsonl"
    for left in (earlier, spill, history):
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text(WORDS)
    async with running_sprite(workspace, model.url) as again, again.client() as client:
        assert not any(left.exists() for left in (earlier, spill, history))
        assert own in with_the_words(workspace)
        assert with_the_words(workspace) <= kept
        await client.ask("system", {"action": "new_session"})
        assert not with_the_words(workspace)
        assert len(transcript(workspace, "SELECT id FROM sessions")) == 1
    assert not list(cli_folder(workspace).rglob("*.jsonl"))
