"""Prewarming: the agent's process starts before the first message, with the newest memory."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.harness import Client, Sprite, SpriteProcess, observations, rows, running_sprite, sprite_process
from tests.inspection import agent_process, agents, chat, endings, eventually, prompts
from tests.scripted_model import OfflineModel

#: Tests of the shared workspace run in file order, and each continues with the previous test's agent.
shared = pytest.mark.asyncio(loop_scope="module")
#: Lifetime of an unused prewarmed agent in the shared workspace.
SECONDS = 8
AHEAD = {"SPRITE_PREWARM_SECONDS": str(SECONDS)}


@dataclass(slots=True)
class Home:
    """A workspace and its sprite: a process until the kill, then a server in a thread."""

    model: OfflineModel
    workspace: Path
    stack: AsyncExitStack
    sprite: Sprite


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Home]:
    workspace = tmp_path_factory.mktemp("spare") / "workspace"
    workspace.mkdir()
    async with OfflineModel() as model, AsyncExitStack() as stack:
        sprite = await stack.enter_async_context(sprite_process(workspace, model.url, **AHEAD))
        yield Home(model, workspace, stack, sprite)


async def spare(sprite: Sprite) -> int:
    """Wait for the prewarmed agent and return its process id."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = agents(sprite)
        return len(found) == 1

    await eventually(is_there, "no agent is prewarmed")
    return found[0]


async def state(client: Client) -> dict[str, object]:
    status: dict[str, object] = (await client.ask("system", {"action": "status"}))["payload"]["session"]
    return status


@shared
async def test_prewarmed_agent_takes_first_mission(home: Home) -> None:
    """An agent with a mission belongs to a session; after a time without one it ends, and is resumed."""
    async with home.sprite.client() as client:
        ahead = await spare(home.sprite)
        # The prewarmed agent has no session and no mission, and has not called the model.
        assert ((await state(client))["session_id"], (await state(client))["running_mission_id"]) == (None, None)
        assert home.model.requests == []
        await chat(client, "My name is Ada Lovelace.")
        assert agent_process(home.sprite) == ahead
        await eventually(lambda: agents(home.sprite) == [], "the idle agent does not end")
        await chat(client, "Hello again")
        assert agent_process(home.sprite) != ahead
        assert "My name is Ada" in str(prompts(home.model, "Hello again")[0].body["messages"])


@shared
async def test_prewarmed_agent_reads_newest_memory(home: Home) -> None:
    """The next agent starts when a session ends, and later memory edits still reach its first prompt."""
    async with home.sprite.client() as client:
        first = agent_process(home.sprite)
        await client.ask("system", {"action": "new_session"})
        assert await spare(home.sprite) != first
        user = home.workspace / ".os/memory/user.md"
        user.write_text(user.read_text() + "\n- Drinks oolong only.\n")
        await chat(client, "Hello, newcomer")
    assert len({o["session_id"] for o in observations(home.workspace)}) == 2
    system = prompts(home.model, "Hello, newcomer")[0].body["system"][-1]["text"]
    assert "Ada Lovelace" in system
    assert "Drinks oolong only." in system


@shared
async def test_prewarm_failure_is_reported_to_mission(home: Home) -> None:
    async with home.sprite.client() as client:
        os.kill(agent_process(home.sprite), signal.SIGKILL)
        boot = home.workspace / ".os/run/boot.md"
        boot.unlink()
        boot.mkdir()
        async with home.sprite.client():
            end = await client.mission("Hello")
        assert (end["event"], end["code"]) == ("error", "storage")
        boot.rmdir()


@shared
async def test_prewarmed_agent_resumes_session_after_kill(home: Home) -> None:
    """Internal jobs wait while the agent starts, and the last prewarmed agent ends with its sprite."""
    assert isinstance(home.sprite, SpriteProcess)
    await home.sprite.kill()
    home.sprite = sprite = await home.stack.enter_async_context(running_sprite(home.workspace, home.model.url, **AHEAD))
    async with sprite.client() as client:
        ahead = await spare(sprite)
        mission = client.send("mission", {"text": "Hello after the kill"})
        fresh = client.send("system", {"action": "new_session"})
        await client.event("text_delta")
        # The new session may have ended it already.
        assert set(agents(sprite)) <= {ahead}
        assert (await client.end_of(mission))["event"] == "complete"
        await client.reply(fresh)
        following = await spare(sprite)
        assert following != ahead
        (row, first) = (await client.ask("memory", {"op": "sessions"}))["payload"]["sessions"]
        assert (row["title"], row["turns"], first["title"]) == ("Hello, newcomer", 3, "My name is Ada Lovelace.")
        await client.ask("memory", {"op": "rename_session", "session_id": first["session_id"], "title": "Ada"})
        resumed = await client.ask("system", {"action": "resume_session", "session_id": first["session_id"]})
        assert resumed["payload"]["session"]["session_id"] == first["session_id"]
        await chat(client, "Hello from before")
        (row, _) = (await client.ask("memory", {"op": "sessions"}))["payload"]["sessions"]
        assert (row["title"], row["turns"]) == ("Ada", 3)
        following = agent_process(sprite)
    (asked,) = prompts(home.model, "Hello from before")
    assert "continued now" in str(asked.body["messages"])
    assert "User: My name is Ada Lovelace." in str(asked.body["messages"])
    assert "Hello, newcomer" in str(prompts(home.model, "Hello after the kill")[0].body["messages"])
    assert len(rows(home.workspace / ".os/memory/transcript.db", "SELECT * FROM sessions")) == 2
    await sprite.stop()
    assert not Path(f"/proc/{following}").exists()
    assert endings(home.workspace)[mission] == ["complete"]


async def test_unused_prewarmed_agent_times_out(model: OfflineModel, workspace: Path) -> None:
    async with running_sprite(workspace, model.url, SPRITE_PREWARM_SECONDS="1") as sprite, sprite.client():
        ahead = await spare(sprite)
        await eventually(lambda: not Path(f"/proc/{ahead}").exists(), "the prewarmed agent does not end")


async def test_prewarm_setting_zero_starts_no_agent(model: OfflineModel, workspace: Path) -> None:
    async with running_sprite(workspace, model.url, SPRITE_PREWARM_SECONDS="0") as sprite, sprite.client() as client:
        assert (await client.ask("heartbeat"))["payload"] == {"status": "done"}
        assert agents(sprite) == []
        log = (workspace.parent / "stderr.log").read_text()
        assert "the agent's sandbox" not in log, "the agent's modules are loaded"
