"""The plugin in the real Claude Code: installed by command, in sessions against the offline model."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.bridge_harness import running_bridge
from tests.claude_code import PLUGIN, REMOTE_PLUGIN, ClaudeCode, begun_with, boot_file, patient_plugins, tool_results
from tests.forking import forking_python
from tests.harness import ROOT
from tests.inspection import request_seen
from tests.memory_stores import seed_turns
from tests.scripted_model import OfflineModel

BOOT = "<sprite_memory >\nAda prefers tea in {}.\n</sprite_memory>"
SEARCH = "mcp__plugin_sprite-memory{}_memory__search_memory"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("what", [ROOT, *(pytest.param(p, marks=pytest.mark.soak) for p in (PLUGIN, REMOTE_PLUGIN))])
async def test_plugin_passes_validation(tmp_path: Path, what: Path) -> None:
    printed = await ClaudeCode(tmp_path / "home").run("plugin", "validate", str(what))
    assert "Validation passed" in printed


def _commit_plugins(repository: Path) -> None:
    patient_plugins(repository)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init",), ("add", "."), (*identity, "commit", "-m", "first")):
        subprocess.run(["git", *command], cwd=repository, check=True, capture_output=True)


async def test_installed_plugin_adds_memory_at_session_start(
    model: OfflineModel, tmp_path: Path, project: Path
) -> None:
    """Two commands install the plugin; each session start receives the current memory."""
    person, workspace = ClaudeCode(tmp_path / "home", model.url), tmp_path / "workspace"
    person.note(workspace, forking_python())
    repository = tmp_path / "repository"
    _commit_plugins(repository)
    # The documented address is on GitHub, so git redirects it to the local repository.
    for address in ("https://github.com/", "git@github.com:"):
        with (person.home / ".gitconfig").open("a") as config:
            config.write(f'[url "file://{repository}"]\n\tinsteadOf = {address}somebody/sprite.git\n')
    assert "Successfully installed" in await person.install("sprite-memory", "somebody/sprite")
    shutil.rmtree(repository)

    # A long memory arrives completely, and the model can search.
    kept = boot_file(workspace, project)
    lines = [f"{number}. Something that was said on one of many days, and is still true." for number in range(300)]
    kept.write_text(BOOT.replace("{}", "\n".join(lines)) + "\n")
    await seed_turns(workspace, "The harbour is in the north.")
    step = {"match": "ships go", "tool": SEARCH.format(""), "input": {"query": "harbour"}, "on": "prompt"}
    model.script.agent(step)
    await person.say("Where do ships go?", project)
    told = json.dumps((await request_seen(model, lambda r: r.user_text == "Where do ships go?")).body)
    assert [line for line in lines if line not in told] == []
    await request_seen(model, lambda r: "harbour is in the north" in tool_results(r))
    first = person.logs[-1]
    assert len(begun_with(first)["startup"]) == 3

    kept.write_text(BOOT.format("mugs") + "\n")
    async with person.talking(project, "--continue") as say:
        await say("Hello again")
        kept.write_text(BOOT.format("cups") + "\n")
        await say("/compact")
        kept.write_text(BOOT.format("pots") + "\n")
        await say("/clear")
    request = await request_seen(model, lambda r: r.user_text == "Hello again")
    assert "Ada prefers tea in mugs." in json.dumps(request.body)
    begun = begun_with(first)
    assert [begun[source] for source in ("resume", "compact")] == [[BOOT.format("mugs")], [BOOT.format("cups")]]
    assert begun_with(person.logs[-1]) == {"clear": [BOOT.format("pots")]}


# --- a bridge elsewhere ---


async def test_plugin_configure_connects_remote_bridge(model: OfflineModel, tmp_path: Path, project: Path) -> None:
    person = ClaudeCode(tmp_path / "laptop", model.url)
    await seed_turns(tmp_path / "data/workspaces/local", "The harbour is in the north.")
    async with running_bridge(tmp_path / "data") as bridge:
        _, printed, _ = await bridge.run("users", "token", "local", "--scope", "memory:read")
        token = printed.splitlines()[-1]
        await person.install("sprite-memory-remote", ROOT)
        values = json.dumps({"bridge_url": bridge.url, "token": token})
        await person.run("plugin", "configure", "sprite-memory-remote@sprite", "--values-stdin", typed=values)
        search = SEARCH.format("-remote")
        model.script.agent({"match": "ships go", "tool": search, "input": {"query": "harbour"}, "on": "prompt"})
        await person.say("Where do ships go?", project)
        await request_seen(model, lambda r: "harbour is in the north" in tool_results(r))
    settings = (person.home / ".claude/settings.json").read_text()
    assert bridge.url in settings
    assert token not in settings
