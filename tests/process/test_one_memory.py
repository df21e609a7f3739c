"""One memory behind every agent a person uses: Claude Code, the page and an editor each know what the others were told.

A real bridge with its offline model, the plugin, the real CLI, and the follower of its logs.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bridge.offline.model import OfflineModel
from tests.acp_editor import editor
from tests.bridge_harness import Bridge, PageClient, running_bridge
from tests.claude_code import PLUGIN, ClaudeCode, begun_with, following, patient_plugins, tool_results
from tests.harness import ROOT, observations, rows
from tests.inspection import eventually, prompts

SEARCH = "mcp__plugin_sprite-memory_memory__search_memory"


@asynccontextmanager
async def fresh_machine(tmp_path: Path, model: OfflineModel) -> AsyncIterator[tuple[Bridge, ClaudeCode]]:
    """A bridge that has just been started for the first time, and its person's Claude Code with the plugin."""
    async with running_bridge(tmp_path / "data") as bridge:
        person = ClaudeCode(tmp_path / "home", model.url)
        (person.home / ".claude/projects").mkdir(parents=True)
        async with following(person.home / ".claude/projects", bridge.workspace):
            yield bridge, person


def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", str(folder)], check=True, capture_output=True)
    return folder


def observed(bridge: Bridge) -> list[dict[str, Any]]:
    """The turns of the log that were said to Claude Code."""
    return [turn for turn in observations(bridge.workspace) if turn["source"] == "claude-code"]


async def taken(bridge: Bridge, *said: str) -> dict[str, int]:
    """Waits until everything said to Claude Code so far is in the log, once each; the turn of each text."""

    def texts() -> list[str]:
        return [turn["user_message"] for turn in observed(bridge)]

    await eventually(lambda: len(texts()) >= len(said), "the follower did not take every turn")
    assert sorted(texts()) == sorted(said)
    return {turn["user_message"]: turn["id"] for turn in observed(bridge)}


async def reply_of(page: PageClient, text: str) -> str:
    """What the agent answers in the page."""
    end = await page.mission(text)
    assert end["event"] == "complete", end
    return str(end["text"])


async def found(page: PageClient, query: str) -> list[dict[str, Any]]:
    """The hits of a search in the page."""
    hits: list[dict[str, Any]] = (await page.ask("memory", {"op": "search", "query": query}))["payload"]["hits"]
    return hits


async def test_what_is_said_to_one_agent_is_known_to_the_others_with_the_turn_where_it_was_said(
    model: OfflineModel, tmp_path: Path
) -> None:
    plugin = patient_plugins(tmp_path / "checkout") / PLUGIN.relative_to(ROOT)
    # `test_claude_code_plugin.py` installs it.
    with_plugin = ("--plugin-dir", str(plugin))
    async with fresh_machine(tmp_path, model) as (bridge, person):
        ships, shop = repository(tmp_path / "ships"), repository(tmp_path / "shop")
        said = {
            "Our release is called Zanzibar.": (ships, ()),
            "The staging server listens on port 4711.": (shop, ()),
            "I prefer tea in the afternoon.": (shop, ("--continue",)),
        }
        for text, (folder, flags) in said.items():
            await person.say(text, folder, *with_plugin, *flags)
        turns = await taken(bridge, *said)
        assert {turn["user_message"]: turn["project"] for turn in observed(bridge)} == {
            text: str(folder) for text, (folder, _) in said.items()
        }

        # The page: the agent knows it, and a search names the turn.
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            assert "Zanzibar" in await reply_of(page, "What is our release called?")
            (hit,) = [
                hit for hit in await found(page, "Zanzibar") if hit["id"] == turns["Our release is called Zanzibar."]
            ]
            assert (hit["kind"], hit["project"]) == ("turn", str(ships))
            await reply_of(page, "My sister is called Belzoni.")

            # An editor, by the Agent Client Protocol.
            async with editor("--data", str(bridge.data)) as client:
                session = await client.start()
                await client.say(session, "/search 4711")
                assert f"turn {turns['The staging server listens on port 4711.']}" in client.shown(session)
                await client.say(session, "My favourite colour is Gruvbox yellow.")
            colour = next(t["id"] for t in observations(bridge.workspace) if "Gruvbox" in t["user_message"])
            sister = next(t["id"] for t in observations(bridge.workspace) if "Belzoni" in t["user_message"])

            # A new session of Claude Code begins with all of it, and can search it.
            boot = bridge.workspace / ".os/run/boot"
            await eventually(lambda: "Gruvbox" in "".join(p.read_text() for p in boot.glob("*.md")), "no boot memory")
            model.script.agent({"match": "look it up", "tool": SEARCH, "input": {"query": "Gruvbox"}, "on": "prompt"})
            await person.say("Please look it up.", ships, *with_plugin)
            (begun,) = begun_with(person.logs[-1])["startup"]
            for number, words in (
                (turns["Our release is called Zanzibar."], "Our release is called Zanzibar."),
                (turns["I prefer tea in the afternoon."], "I prefer tea in the afternoon."),
                (sister, "My sister is called Belzoni."),
                (colour, "My favourite colour is Gruvbox yellow."),
            ):
                assert re.search(rf"^\[turn {number}, .*\]\nUser: {re.escape(words)}$", begun, re.MULTILINE), begun
            # The CLI shows the model what is structured.
            assert f'"turn_id":{colour},' in tool_results(prompts(model, "Please look it up.")[-1])

            # What memory gave is no evidence: it is in no turn, and everything is learned once.
            await taken(bridge, *said, "Please look it up.")
            await page.ask("system", {"action": "flush"})
        assert [turn["id"] for turn in observed(bridge) if "sprite_memory" in json.dumps(turn)] == []
        learned = rows(bridge.workspace / ".os/memory/memory.db", "SELECT content, seen FROM learnings")
        for words in ("Zanzibar", "prefers tea", "Belzoni", "Gruvbox"):
            assert [each["seen"] for each in learned if words in each["content"]] == [1], learned
