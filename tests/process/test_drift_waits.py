"""Changes to memory files while the agent works wait for the person's decision: with the real CLI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.command_line import command
from tests.harness import Client, running_sprite
from tests.inspection import SharedSprite, curations, eventually, memory_file, shared_sprite
from tests.memory_stores import open_stores
from tests.scripted_model import OfflineModel

PERSON = "# User\n\nAda drinks tea.\n"
OTHER = PERSON + "Ada lives in Bern.\n"


async def drift_of(client: Client) -> list[str]:
    found: list[str] = (await client.ask("system", {"action": "status"}))["payload"]["memory"]["drift"]
    return found


async def edit(client: Client) -> None:
    await client.ask("memory", {"op": "edit", "name": "user.md", "content": PERSON})


def write(workspace: Path, text: str = OTHER) -> None:
    (workspace / ".os/memory/user.md").write_text(text)


#: Marks tests that share one sprite.
shared = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def home_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("drift")) as home:
        yield home


@shared
async def test_file_change_during_turn_waits_for_decision(home: SharedSprite) -> None:
    async with home.client() as client:
        await edit(client)
        home.model.script.agent({"tool": "Bash", "input": {"command": "until [ -e go ]; do sleep 0.02; done"}})
        mission = client.send("mission", {"text": "Wait for it"})
        await client.event("tool_use")
        await eventually((home.workspace / ".os/memory/.agent-at-work").exists, "the turn has not begun")
        write(home.workspace)
        (home.workspace / "go").touch()
        await client.end_of(mission)
        assert await drift_of(client) == ["user.md"]
        update = next(m for m in reversed(client.received) if m["type"] == "memory_update")
        assert update["payload"]["drift"] == ["user.md"]
        file = (await client.ask("memory", {"op": "file", "name": "user.md"}))["payload"]
        assert (file["content"], file["drift"]) == (PERSON, OTHER)
        health = (await client.ask("memory", {"op": "health"}))["payload"]["health"]
        assert health["drift"] == [file["drifted"]]
        decision = {"op": "accept", "name": "user.md"}
        stale = (await client.ask("memory", {**decision, "curation_id": 1}))["payload"]
        assert (stale["code"], await drift_of(client)) == ("conflict", ["user.md"])
        seen = file["drifted"]["curation_id"]
        accepted = (await client.ask("memory", {**decision, "curation_id": seen}))["payload"]
        assert (accepted["op"], accepted["content"], accepted["version"]) == ("accept", OTHER, 2)
        assert await drift_of(client) == []
    assert [row["kind"] for row in curations(home.workspace) if row["kind"] != "batch"] == ["edit", "drift", "edit"]


@shared
async def test_background_work_counts_as_agent_time(home: SharedSprite) -> None:
    """A change while the agent is idle is accepted at once."""
    async with home.client() as client:
        await edit(client)
        waiting = {"command": "until [ -e on ]; do sleep 0.02; done", "run_in_background": True}
        home.model.script.agent({"tool": "Bash", "input": waiting})
        await client.mission("Wait for it behind")
        write(home.workspace)
        (home.workspace / "on").touch()
        # When the work ends, the agent begins a background turn and works again.
        await client.end_of((await client.event("started"))["mission_id"])
        await eventually(
            lambda: not (home.workspace / ".os/memory/.agent-at-work").exists(), "the agent is still working"
        )
        assert await drift_of(client) == ["user.md"]
        rejected = (await client.ask("memory", {"op": "reject", "name": "user.md"}))["payload"]
        assert (rejected["op"], rejected["content"]) == ("reject", PERSON)
        assert memory_file(home.workspace, "user.md") == PERSON
        write(home.workspace)
        await client.mission("Hello")
        assert await drift_of(client) == []
        file = (await client.ask("memory", {"op": "file", "name": "user.md"}))["payload"]
        assert file["content"] == OTHER


async def test_drift_found_after_kill_is_decided_later(workspace: Path, model: OfflineModel) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await edit(client)
    # The state that a sprite leaves when it is killed in a turn (as test_crashes.py does).
    async with open_stores(workspace / ".os/memory") as stores:
        await stores.projection.agent_begins()
    write(workspace)
    async with running_sprite(workspace, model.url) as again, again.client() as client:
        assert await drift_of(client) == ["user.md"]
        assert "+Ada lives in Bern." in (await command(workspace, "memory", "drift"))[1]
        assert "user.md changed while the agent was at work" in (await command(workspace, "status"))[1]
        await command(workspace, "memory", "accept", "user.md")
        assert await drift_of(client) == []
    code, _, words = await command(workspace, "memory", "reject", "user.md")
    assert code == 2
    assert "waits" in words
    assert memory_file(workspace, "user.md") == OTHER


async def test_oversized_manual_edit_is_accepted_and_reported(workspace: Path, model: OfflineModel) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        write(workspace, "Ada drinks tea.\n" * 201)
        await client.ask("system", {"action": "flush"})
        _, shown, _ = await command(workspace, "status")
        assert "over limit  curation 1: user.md would have 201 lines; 200 are allowed" in shown
