"""The agent's process is there before the first message: started ahead, and brought up to date."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from bridge.fake_model.model import OfflineModel
from tests.harness import Client, Sprite, SpriteProcess, observations, rows, running_sprite, sprite_process
from tests.inspection import agent_process, agents, chat, endings, eventually, prompts

#: The tests of the shared workspace run in their order: each takes over the agent that the one before left.
shared = pytest.mark.asyncio(loop_scope="module")
#: How long one waits for its first message, where a test does not have it started again.
SECONDS = 8
AHEAD = {"SPRITE_PREWARM_SECONDS": str(SECONDS)}


@dataclass(slots=True)
class Home:
    """A workspace, and the sprite that has it: a process until it is killed, then one in a thread."""

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
    """The process that was started ahead, once it is there."""
    found: list[int] = []

    def is_there() -> bool:
        found[:] = agents(sprite)
        return len(found) == 1

    await eventually(is_there, "an agent is started ahead")
    return found[0]


async def state(client: Client) -> dict[str, object]:
    status: dict[str, object] = (await client.ask("system", {"action": "status"}))["payload"]["session"]
    return status


@shared
async def test_it_starts_ahead_and_the_first_mission_is_its_own(home: Home) -> None:
    """One that has had a mission is a session's: it stays when its time as a spare is over."""
    async with home.sprite.client() as client:
        ahead = await spare(home.sprite)
        # It is no session, it is not busy, and the model has been asked nothing.
        assert ((await state(client))["session_id"], (await state(client))["running_mission_id"]) == (None, None)
        assert home.model.requests == []
        await chat(client, "My name is Ada Lovelace.")
        assert agent_process(home.sprite) == ahead
        await asyncio.sleep(SECONDS + 0.5)
        async with home.sprite.client() as other:
            await chat(other, "Hello again")
        # It has other, short-lived children.
        assert agents(home.sprite) == [ahead]


@shared
async def test_next_agent_starts_and_knows_newest_memory(home: Home) -> None:
    """The next agent starts when a session ends; what memory learns after that is in its first prompt."""
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
async def test_one_that_cannot_start_is_told_to_the_mission_that_needs_it(home: Home) -> None:
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
async def test_agent_resumes_ahead_after_kill(home: Home) -> None:
    """Errands wait for it while it starts. The agent that starts after the last one ends with its sprite."""
    assert isinstance(home.sprite, SpriteProcess)
    await home.sprite.kill()
    home.sprite = sprite = await home.stack.enter_async_context(running_sprite(home.workspace, home.model.url, **AHEAD))
    async with sprite.client() as client:
        ahead = await spare(sprite)
        mission = client.send("mission", {"text": "Hello after the kill"})
        fresh = client.send("system", {"action": "new_session"})
        await client.event("text_delta")
        assert agent_process(sprite) == ahead
        assert (await client.end_of(mission))["event"] == "complete"
        await client.reply(fresh)
        following = await spare(sprite)
        assert following != ahead
    assert "Hello, newcomer" in str(prompts(home.model, "Hello after the kill")[0].body["messages"])
    assert len(rows(home.workspace / ".os/memory/transcript.db", "SELECT * FROM sessions")) == 2
    await sprite.stop()
    assert not Path(f"/proc/{following}").exists()
    assert endings(home.workspace)[mission] == ["complete"]


async def test_unused_spare_ends_after_its_time(model: OfflineModel, workspace: Path) -> None:
    async with running_sprite(workspace, model.url, SPRITE_PREWARM_SECONDS="1") as sprite, sprite.client():
        ahead = await spare(sprite)
        await eventually(lambda: not Path(f"/proc/{ahead}").exists(), "the spare is ended")


async def test_it_can_be_turned_off(model: OfflineModel, workspace: Path) -> None:
    async with running_sprite(workspace, model.url, SPRITE_PREWARM_SECONDS="0") as sprite, sprite.client() as client:
        assert (await client.ask("heartbeat"))["payload"] == {"status": "done"}
        assert agents(sprite) == []
        log = (workspace.parent / "stderr.log").read_text()
        assert "the agent's sandbox" not in log, "nothing of the agent is loaded"
