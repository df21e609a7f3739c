"""The plugin in the real Claude Code: installed as a person installs it, in sessions against the offline model."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bridge.offline.model import OfflineModel
from tests.bridge_harness import running_bridge
from tests.claude_code import PLUGIN, REMOTE_PLUGIN, ClaudeCode, begun_with, boot_file, tool_results
from tests.harness import ROOT
from tests.memory_stores import open_stores

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


async def test_two_commands_install_it_from_a_checkout(model: OfflineModel, person: ClaudeCode, project: Path) -> None:
    assert "Successfully installed" in await person.install()
    await person.say("Hello there", project)
    (given,) = begun_with(person.logs[-1])["startup"]
    assert given == BOOT.format("cups")
    request = await model.seen(lambda r: r.user_text == "Hello there")
    assert "Ada prefers tea in cups." in json.dumps(request.body)


async def test_two_commands_install_it_from_a_repository(person: ClaudeCode, project: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    _commit_plugins(repository)
    # What people name is on GitHub, which is not here.
    for address in ("https://github.com/", "git@github.com:"):
        with (person.home / ".gitconfig").open("a") as config:
            config.write(f'[url "file://{repository}"]\n\tinsteadOf = {address}somebody/sprite.git\n')
    assert "Successfully installed" in await person.install(marketplace="somebody/sprite")
    shutil.rmtree(repository)
    await person.say("Hello there", project)
    assert begun_with(person.logs[-1])["startup"] == [BOOT.format("cups")]
    assert "Successfully uninstalled" in await person.run("plugin", "uninstall", "sprite-memory@sprite")
    await person.say("Hello again", project)
    assert begun_with(person.logs[-1]) == {}


def _commit_plugins(repository: Path) -> None:
    shutil.copytree(ROOT / ".claude-plugin", repository / ".claude-plugin")
    shutil.copytree(ROOT / "integrations", repository / "integrations", symlinks=True)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init",), ("add", "."), (*identity, "commit", "-m", "first")):
        subprocess.run(["git", *command], cwd=repository, check=True, capture_output=True)


# --- sessions ---


@pytest.fixture
async def settled(person: ClaudeCode) -> ClaudeCode:
    """A person whose Claude Code has the plugin."""
    await person.install()
    return person


async def test_each_beginning_of_a_session_has_memory_as_it_is_then(
    settled: ClaudeCode, project: Path, tmp_path: Path
) -> None:
    kept = boot_file(tmp_path / "workspace", project)
    await settled.say("Hello there", project)
    (first,) = settled.logs
    for source, said, what in (("resume", "Hello again", "mugs"), ("compact", "/compact", "bowls")):
        kept.write_text(BOOT.format(what) + "\n")
        await settled.say(said, project, "--continue")
        assert begun_with(first)[source][-1] == BOOT.format(what)
    kept.write_text(BOOT.format("pots") + "\n")
    await settled.say("/clear", project, "--continue")
    assert begun_with(settled.logs[-1]) == {"clear": [BOOT.format("pots")]}
    assert begun_with(first)["startup"] == [BOOT.format("cups")]


async def test_a_long_memory_comes_whole_and_a_folder_without_any_begins_as_ever(
    model: OfflineModel, settled: ClaudeCode, project: Path, tmp_path: Path
) -> None:
    lines = [f"{number}. Something that was said on one of many days, and is still true." for number in range(300)]
    boot_file(tmp_path / "workspace", project).write_text(BOOT.replace("{}", "\n".join(lines)) + "\n")
    await settled.say("Hello there", project)
    told = json.dumps((await model.seen(lambda r: r.user_text == "Hello there")).body)
    assert [line for line in lines if line not in told] == []
    assert len(begun_with(settled.logs[-1])["startup"]) == 3
    (tmp_path / "other").mkdir()
    await settled.say("Hello elsewhere", tmp_path / "other")
    assert begun_with(settled.logs[-1]) == {}


async def test_the_model_can_search_the_memory_of_this_machine(
    model: OfflineModel, settled: ClaudeCode, project: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "workspace/.os/memory"
    folder.mkdir(parents=True)
    async with open_stores(folder) as stores:
        await stores.turn("Where is the harbour?", "In the north.")
    model.script.agent({"match": "ships go", "tool": SEARCH.format(""), "input": {"query": "harbour"}, "on": "prompt"})
    await settled.say("Where do ships go?", project)
    await model.seen(lambda r: "In the north." in tool_results(r))


# --- the bridge on this machine ---


async def test_a_bridge_on_this_machine_is_found_without_a_word_from_anybody(
    model: OfflineModel, tmp_path: Path, project: Path
) -> None:
    person = ClaudeCode(tmp_path / "home", model.url)
    async with running_bridge(tmp_path / "data") as bridge:
        boot_file(bridge.workspace, project).write_text(BOOT.format("cups") + "\n")
        await person.say("Hello there", project, "--plugin-dir", str(PLUGIN))
    assert begun_with(person.logs[-1])["startup"] == [BOOT.format("cups")]


# --- a bridge elsewhere ---


async def test_one_command_more_connects_it_to_a_bridge_elsewhere(
    model: OfflineModel, tmp_path: Path, project: Path
) -> None:
    person = ClaudeCode(tmp_path / "laptop", model.url)
    async with running_bridge(tmp_path / "data") as bridge:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            await page.mission("The harbour is in the north.")
        _, printed, _ = await bridge.run("users", "token", "local", "--scope", "memory:read")
        token = printed.splitlines()[-1]
        await person.install("sprite-memory-remote")
        values = json.dumps({"bridge_url": bridge.url, "token": token})
        await person.run("plugin", "configure", "sprite-memory-remote@sprite", "--values-stdin", typed=values)
        search = SEARCH.format("-remote")
        model.script.agent({"match": "ships go", "tool": search, "input": {"query": "harbour"}, "on": "prompt"})
        await person.say("Where do ships go?", project)
        await model.seen(lambda r: "harbour is in the north" in tool_results(r))
    settings = (person.home / ".claude/settings.json").read_text()
    assert bridge.url in settings
    assert token not in settings
