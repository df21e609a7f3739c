"""The plugin in the real Claude Code: installed as a person installs it, in sessions against the offline model."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from bridge.offline.model import OfflineModel
from tests.bridge_harness import running_bridge
from tests.claude_code import PLUGIN, REMOTE_PLUGIN, ClaudeCode, begun_with, boot_file, patient_plugins, tool_results
from tests.harness import ROOT
from tests.inspection import request_seen
from tests.memory_stores import seed_turns

BOOT = "<sprite_memory >\nAda prefers tea in {}.\n</sprite_memory>"
SEARCH = "mcp__plugin_sprite-memory{}_memory__search_memory"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


@pytest.fixture
def person(model: OfflineModel, tmp_path: Path, project: Path) -> ClaudeCode:
    """A person with Claude Code, and with a sprite that keeps something for the project."""
    person = ClaudeCode(tmp_path / "home", model.url)
    workspace = tmp_path / "workspace"
    person.note(workspace)
    boot_file(workspace, project).write_text(BOOT.format("cups") + "\n")
    return person


@pytest.mark.parametrize("what", [ROOT, PLUGIN, REMOTE_PLUGIN])
async def test_claude_code_finds_no_fault_with_it(tmp_path: Path, what: Path) -> None:
    printed = await ClaudeCode(tmp_path / "home").run("plugin", "validate", str(what))
    assert "Validation passed" in printed


async def test_two_commands_install_it_from_a_repository(person: ClaudeCode, project: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    _commit_plugins(repository)
    # What people name is on GitHub, which is not here.
    for address in ("https://github.com/", "git@github.com:"):
        with (person.home / ".gitconfig").open("a") as config:
            config.write(f'[url "file://{repository}"]\n\tinsteadOf = {address}somebody/sprite.git\n')
    assert "Successfully installed" in await person.install("sprite-memory", "somebody/sprite")
    shutil.rmtree(repository)
    await person.say("Hello there", project)
    assert begun_with(person.logs[-1])["startup"] == [BOOT.format("cups")]


def _commit_plugins(repository: Path) -> None:
    patient_plugins(repository)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init",), ("add", "."), (*identity, "commit", "-m", "first")):
        subprocess.run(["git", *command], cwd=repository, check=True, capture_output=True)


# --- sessions ---

#: For tests of the installation that they share.
shared = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True)
class Home:
    """A person whose Claude Code has the plugin, by the two commands, and the sprite of this machine."""

    model: OfflineModel
    person: ClaudeCode
    workspace: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def home_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Home]:
    folder = tmp_path_factory.mktemp("plugin")
    async with OfflineModel() as model:
        person = ClaudeCode(folder / "home", model.url)
        person.note(folder / "workspace")
        assert "Successfully installed" in await person.install("sprite-memory", patient_plugins(folder / "checkout"))
        yield Home(model, person, folder / "workspace")


@shared
async def test_each_beginning_of_a_session_has_memory_as_it_is_then(home: Home, project: Path) -> None:
    kept = boot_file(home.workspace, project)
    kept.write_text(BOOT.format("cups") + "\n")
    await home.person.say("Hello there", project)
    first = home.person.logs[-1]
    request = await request_seen(home.model, lambda r: r.user_text == "Hello there")
    assert "Ada prefers tea in cups." in json.dumps(request.body)
    kept.write_text(BOOT.format("mugs") + "\n")
    await home.person.say("/compact", project, "--continue")
    assert [begun_with(first)[source] for source in ("resume", "compact")] == [[BOOT.format("mugs")]] * 2
    kept.write_text(BOOT.format("pots") + "\n")
    await home.person.say("/clear", project, "--continue")
    assert begun_with(home.person.logs[-1]) == {"clear": [BOOT.format("pots")]}
    assert begun_with(first)["startup"] == [BOOT.format("cups")]


@shared
async def test_a_long_memory_comes_whole_and_the_model_can_search(home: Home, project: Path) -> None:
    lines = [f"{number}. Something that was said on one of many days, and is still true." for number in range(300)]
    boot_file(home.workspace, project).write_text(BOOT.replace("{}", "\n".join(lines)) + "\n")
    await seed_turns(home.workspace, "The harbour is in the north.")
    step = {"match": "ships go", "tool": SEARCH.format(""), "input": {"query": "harbour"}, "on": "prompt"}
    home.model.script.agent(step)
    await home.person.say("Where do ships go?", project)
    told = json.dumps((await request_seen(home.model, lambda r: r.user_text == "Where do ships go?")).body)
    assert [line for line in lines if line not in told] == []
    assert len(begun_with(home.person.logs[-1])["startup"]) == 3
    await request_seen(home.model, lambda r: "harbour is in the north" in tool_results(r))


# --- a bridge elsewhere ---


async def test_one_command_more_connects_it_to_a_bridge_elsewhere(
    model: OfflineModel, tmp_path: Path, project: Path
) -> None:
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
