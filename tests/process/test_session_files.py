"""What the CLI writes down as it is lives no longer than its session: transcripts, subagents, long results, outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bridge.offline.model import OfflineModel
from tests.harness import sprite_process
from tests.inspection import chat, eventually, prompts, transcript

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


async def test_everything_that_the_cli_wrote_of_a_session_goes_when_it_ends(
    model: OfflineModel, workspace: Path
) -> None:
    long = {"command": f"for i in $(seq 1 20000); do echo {WORDS} $i; done"}
    behind = {"command": f"echo {WORDS}", "run_in_background": True}
    agent = {"description": "look", "prompt": f"{WORDS}, go on", "subagent_type": "general-purpose"}
    model.script.agent({"match": "much", "on": "prompt", "tool": "Bash", "input": long})
    model.script.agent({"match": "behind", "on": "prompt", "tool": "Bash", "input": behind})
    model.script.agent({"match": "delegate", "on": "prompt", "tool": "Agent", "input": agent})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "delegate", "much", "behind")
        assert outputs(model)
        assert all(path.is_relative_to(cli_folder(workspace)) for path in outputs(model))

        def kinds() -> set[str]:
            return {part for file in with_the_words(workspace) for part in Path(file).parts}

        await eventually(lambda: {"subagents", "tool-results", "tasks"} <= kinds(), "everything is written")
        await client.ask("system", {"action": "new_session"})
        assert not with_the_words(workspace)
        await chat(client, f"Hello {WORDS}")
        await eventually(lambda: with_the_words(workspace) != set(), "it is written")
    assert not with_the_words(workspace)
    assert not list(cli_folder(workspace).rglob("*.jsonl"))


async def test_a_killed_sprites_session_is_gone_on_with_and_what_others_left_goes_at_the_start(
    model: OfflineModel, workspace: Path
) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, f"Hello {WORDS}")
        await eventually(lambda: with_the_words(workspace) != set(), "it is written")
        await sprite.kill()
    (own,) = with_the_words(workspace)
    earlier = cli_folder(workspace) / Path(own).with_name("0b5c7c1e-0000-4000-8000-000000000001.jsonl")
    spill = earlier.with_suffix("") / "tool-results/long.txt"
    history = cli_folder(workspace) / "history.jsonl"
    for left in (earlier, spill, history):
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text(WORDS)
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        assert with_the_words(workspace) == {own}
        await chat(client, "Hello again")
    assert WORDS in str(prompts(model, "Hello again")[0].body["messages"])
    assert len(transcript(workspace, "SELECT id FROM sessions")) == 1
    assert not with_the_words(workspace)


async def test_what_a_session_left_that_had_ended_goes_at_the_next_start(model: OfflineModel, workspace: Path) -> None:
    left = cli_folder(workspace) / "projects/p/0b5c7c1e-0000-4000-8000-000000000001.jsonl"
    left.parent.mkdir(parents=True)
    left.write_text(WORDS)
    async with sprite_process(workspace, model.url):
        assert not left.exists()
