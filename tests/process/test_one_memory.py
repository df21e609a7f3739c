"""One memory for all agents of a person: Claude Code, the page and an editor share what each was told.

The test runs a real bridge with its fake model, the plugin, the real CLI, and a follower of its logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
import subprocess
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.acp_editor import editor
from tests.bridge_harness import Bridge, BridgeProcess, PageClient, bridge_process
from tests.claude_code import PLUGIN, ClaudeCode, begun_with, boot_file, patient_plugins, tool_results
from tests.forking import fork_module
from tests.harness import ROOT, observations, rows, sprite_environment
from tests.inspection import eventually, prompts
from tests.scripted_model import OfflineModel
from tests.session_logs import BEGINNING, Recorded, write_many

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SEARCH = "mcp__plugin_sprite-memory_memory__search_memory"


@asynccontextmanager
async def fresh_machine(tmp_path: Path, model: OfflineModel) -> AsyncIterator[tuple[BridgeProcess, ClaudeCode]]:
    """Start a new bridge and a follower of its person's Claude Code."""
    person = ClaudeCode(tmp_path / "home", model.url)
    logs = person.home / ".claude/projects"
    logs.mkdir(parents=True)
    async with bridge_process(tmp_path / "data", forks_sprites=True) as bridge:
        follower = await fork_module(
            *("sprite", "follow", "--workspace", str(bridge.workspace), str(logs)),
            env=sprite_environment(None),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield bridge, person
        finally:
            follower.terminate()
            await follower.wait()


def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", str(folder)], check=True, capture_output=True)
    return folder


def written(person: ClaudeCode, recorded: Recorded, text: str, folder: Path) -> Path:
    """Write a one-turn session log with this text and folder. Return its path."""
    aside, logs = person.home / "aside", person.home / ".claude/projects/written"
    write_many(recorded.log("everyday"), aside, sessions=1, turns=1)
    (log,) = aside.iterdir()
    (project,) = set(re.findall(r'"cwd":"([^"]+)"', log.read_text()))
    # Only recent turns are part of the boot text.
    changes = {"Hello there": text, project: str(folder), f"{BEGINNING:%Y-%m-%d}": f"{datetime.now(UTC):%Y-%m-%d}"}
    for was, now in changes.items():
        log.write_text(log.read_text().replace(was, now))
    # The log appears at once, so that the follower does not read a partial file.
    logs.parent.mkdir(parents=True, exist_ok=True)
    aside.rename(logs)
    return logs / log.name


def observed(bridge: Bridge) -> list[dict[str, Any]]:
    """Return the stored turns that came from Claude Code."""
    # The database may not exist yet.
    with contextlib.suppress(sqlite3.OperationalError):
        return [turn for turn in observations(bridge.workspace) if turn["source"] == "claude-code"]
    return []


def say_again(log: Path, other: dict[str, str]) -> None:
    """Write a log of another session, equal to this one except for its text and ids."""
    text = log.read_text()
    for was, now in other.items():
        text = text.replace(was, now)
    ids: dict[str, str] = defaultdict(lambda: str(uuid.uuid4()))
    text = _UUID.sub(lambda found: ids[found[0]], text)
    log.with_name(f"{ids[log.stem]}.jsonl").write_text(text)


async def taken(bridge: Bridge, *said: str) -> dict[str, int]:
    """Wait until all texts sent to Claude Code are stored once. Return the turn of each text."""

    def texts() -> list[str]:
        return [turn["user_message"] for turn in observed(bridge)]

    await eventually(lambda: len(texts()) >= len(said), "the follower did not take every turn")
    assert sorted(texts()) == sorted(said)
    return {turn["user_message"]: turn["id"] for turn in observed(bridge)}


async def reply_of(page: PageClient, text: str) -> str:
    """Return the agent's answer on the page."""
    end = await page.mission(text)
    assert end["event"] == "complete", end
    return str(end["text"])


async def found(page: PageClient, query: str) -> list[dict[str, Any]]:
    """Return the hits of a search on the page."""
    hits: list[dict[str, Any]] = (await page.ask("memory", {"op": "search", "query": query}))["payload"]["hits"]
    return hits


async def test_agents_share_one_memory(model: OfflineModel, recorded: Recorded, tmp_path: Path) -> None:
    """Memory names the source turn."""
    plugin = patient_plugins(tmp_path / "checkout") / PLUGIN.relative_to(ROOT)
    async with fresh_machine(tmp_path, model) as (bridge, person), bridge.page(await bridge.login()) as page:
        await page.link("ready")
        ships, shop = repository(tmp_path / "ships"), repository(tmp_path / "shop")
        said = {"Our release is called Zanzibar.": ships, "The staging server listens on port 4711.": shop}
        first, second = said
        log = written(person, recorded, first, ships)
        await taken(bridge, first)
        begins = boot_file(bridge.workspace, ships)
        await eventually(lambda: begins.exists() and first in begins.read_text(), "the boot file lacks the turn")
        say_again(log, {first: second, str(ships): str(shop)})
        turns = await taken(bridge, *said)
        assert {turn["user_message"]: turn["project"] for turn in observed(bridge)} == {
            text: str(folder) for text, folder in said.items()
        }

        # The page: the agent knows the fact, and a search names the turn.
        assert "Zanzibar" in await reply_of(page, "What is our release called?")
        (hit,) = [hit for hit in await found(page, "Zanzibar") if hit["id"] == turns[first]]
        assert (hit["kind"], hit["project"]) == ("turn", str(ships))
        await reply_of(page, "My sister is called Belzoni.")

        # An editor, over the Agent Client Protocol.
        async with editor("--data", str(bridge.data)) as client:
            session = await client.start()
            await client.say(session, "My favourite colour is Gruvbox yellow.")
        colour = next(t["id"] for t in observations(bridge.workspace) if "Gruvbox" in t["user_message"])
        sister = next(t["id"] for t in observations(bridge.workspace) if "Belzoni" in t["user_message"])

        # A new session of Claude Code starts with all facts, and can search them.
        boot = bridge.workspace / ".os/run/boot"
        await eventually(lambda: "Gruvbox" in "".join(p.read_text() for p in boot.glob("*.md")), "no boot memory")
        model.script.agent({"match": "look it up", "tool": SEARCH, "input": {"query": "Gruvbox"}, "on": "prompt"})
        # `test_claude_code_plugin.py` installs the plugin.
        await person.say("Please look it up.", ships, "--plugin-dir", str(plugin))
        (begun,) = begun_with(person.logs[-1])["startup"]
        for number, words in (
            (turns[first], first),
            (sister, "My sister is called Belzoni."),
            (colour, "My favourite colour is Gruvbox yellow."),
        ):
            assert re.search(rf"^\[turn {number}, .*\]\nUser: {re.escape(words)}$", begun, re.MULTILINE), begun
        # The CLI passes structured results to the model.
        assert f'"turn_id":{colour},' in tool_results(prompts(model, "Please look it up.")[-1])

        # Text from memory is not learned again: no turn contains it, and each fact is learned once.
        await taken(bridge, *said, "Please look it up.")
        await page.ask("system", {"action": "flush"})
        assert await bridge.stop() == 0
        assert [turn["id"] for turn in observed(bridge) if "sprite_memory" in json.dumps(turn)] == []
        learned = rows(bridge.workspace / ".os/memory/memory.db", "SELECT content, seen FROM learnings")
        for words in ("Zanzibar", "Belzoni", "Gruvbox"):
            assert [each["seen"] for each in learned if words in each["content"]] == [1], learned
