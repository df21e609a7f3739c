"""What the CLI writes down as it is lives no longer than its session: transcripts, subagents, long results, outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bridge.fake_model.model import OfflineModel
from tests.harness import running_sprite, sprite_process
from tests.inspection import chat, eventually, journal, transcript

#: Never said to be secret, so that only its absence shows that files are gone.
WORDS = "zebra-walks-at-noon"


def cli_folder(workspace: Path) -> Path:
    return workspace / ".os/run/claude"


def with_the_words(workspace: Path) -> set[str]:
    """The files of the CLI's folder that hold them."""
    folder = cli_folder(workspace)
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)) for path in files if WORDS.encode() in path.read_bytes()}


def outputs(model: OfflineModel) -> list[Path]:
    """Where the CLI said that the output of work in the background is."""
    told = " ".join(json.dumps(request.body) for request in model.requests)
    return [Path(path) for path in set(re.findall(r"/[^ \"\\]+/tasks/\w+\.output", told))]


async def test_cli_files_live_as_long_as_session(model: OfflineModel, workspace: Path) -> None:
    """Across a kill, and to the session's end; what an ended one left goes at the start."""
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
        assert not earlier.exists(), "an ended session left it"
        await chat(client, f"much of {WORDS}")
        assert outputs(model)
        assert all(path.is_relative_to(cli_folder(workspace)) for path in outputs(model))

        def kinds() -> set[str]:
            return {part for file in with_the_words(workspace) for part in Path(file).parts}

        await eventually(lambda: {"subagents", "tool-results", "tasks"} <= kinds(), "everything is written")
        # The agent's report may have begun a turn of its own.
        await eventually(lambda: journal(workspace) == [], "the turns are over")
        await sprite.kill()
    # The session goes on; what others left goes at the start.
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
