"""The agent's process is there before the first message: started ahead, and brought up to date."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path

from bridge.offline.model import OfflineModel
from tests.harness import Client, SpriteProcess, observations, rows
from tests.harness import sprite_process as _running_sprite
from tests.inspection import agent_process, agents, chat, children, endings, eventually, prompts

sprite_process = partial(_running_sprite, SPRITE_SPARE_SECONDS="600")


async def spare(sprite: SpriteProcess) -> int:
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


async def test_it_starts_ahead_and_the_first_mission_is_its_own(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        ahead = await spare(sprite)
        # It is no session, it is not busy, and the model has been asked nothing.
        assert ((await state(client))["session_id"], (await state(client))["running_mission_id"]) == (None, None)
        assert model.requests == []
        await chat(client, "Hello")
        assert agent_process(sprite) == ahead
        async with sprite.client() as other:
            await chat(other, "Hello again")
        # It has other, short-lived children.
        assert agents(sprite) == [ahead]


async def test_the_next_one_starts_when_a_session_ends(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada Lovelace.")
        first = agent_process(sprite)
        await client.ask("system", {"action": "new_session"})
        second = await spare(sprite)
        assert second != first
        await chat(client, "Hello")
        assert agent_process(sprite) == second
    assert len({o["session_id"] for o in observations(workspace)}) == 2
    assert "Ada Lovelace" in prompts(model, "Hello")[0].body["system"][-1]["text"]


async def test_what_memory_has_learned_since_it_started_is_in_the_first_prompt(
    model: OfflineModel, workspace: Path
) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await spare(sprite)
        user = workspace / ".os/memory/user.md"
        user.write_text(user.read_text() + "\n- Drinks oolong only.\n")
        await chat(client, "Hello")
    assert "Drinks oolong only." in json.dumps(prompts(model, "Hello")[0].body)


async def test_one_that_dies_unseen_costs_the_first_mission_nothing(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        os.kill(await spare(sprite), signal.SIGKILL)
        await chat(client, "Hello")
    assert [o["outcome"] for o in observations(workspace)] == ["complete"]


async def test_one_that_cannot_start_is_told_to_the_mission_that_needs_it(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        os.kill(await spare(sprite), signal.SIGKILL)
        boot = workspace / ".os/run/boot.md"
        boot.unlink()
        boot.mkdir()
        async with sprite.client():
            end = await client.mission("Hello")
        assert (end["event"], end["code"]) == ("error", "storage")
        boot.rmdir()
        await chat(client, "Hello again")


async def test_messages_and_errands_that_come_while_it_starts_wait_for_that_one(
    model: OfflineModel, workspace: Path
) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        mission = client.send("mission", {"text": "Hello"})
        assert (await client.reply(mission))["payload"]["status"] == "accepted"
        fresh = client.send("system", {"action": "new_session"})
        second = client.send("mission", {"text": "Hello again"})
        assert (await client.end_of(mission))["event"] == "complete"
        await client.reply(fresh)
        assert (await client.end_of(second))["event"] == "complete"
        await client.ask("memory_request", {"op": "forget", "text": "Hello"})
        await eventually(lambda: len(children(sprite.process.pid)) <= 1, "there is one at most")
    assert set(map(tuple, endings(workspace).values())) == {("complete",)}


async def test_a_session_of_an_earlier_process_is_resumed_ahead(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada Lovelace.")
        await sprite.kill()
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        ahead = await spare(sprite)
        await chat(client, "Hello")
        assert agent_process(sprite) == ahead
    assert "Ada Lovelace" in str(prompts(model, "Hello")[0].body["messages"])
    sessions = rows(workspace / ".os/memory/transcript.db", "SELECT * FROM sessions")
    assert len(sessions) == 1


async def test_a_sprite_that_is_stopped_while_it_starts_one_ends_with_it(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite:
        ahead = await spare(sprite)
        assert await sprite.stop() == 0
    assert not Path(f"/proc/{ahead}").exists()


async def test_one_that_no_message_needs_is_ended_after_its_time(model: OfflineModel, workspace: Path) -> None:
    async with _running_sprite(workspace, model.url, SPRITE_SPARE_SECONDS="3") as sprite, sprite.client() as client:
        ahead = await spare(sprite)
        await eventually(lambda: not Path(f"/proc/{ahead}").exists(), "the spare is ended")
        await chat(client, "Hello")
        used = agent_process(sprite)
        async with sprite.client() as other:
            await asyncio.sleep(3.5)
            # One that has had a mission is a session's, and stays.
            await chat(other, "Hello again")
        assert agent_process(sprite) == used


async def test_it_can_be_turned_off(model: OfflineModel, workspace: Path) -> None:
    async with _running_sprite(workspace, model.url, SPRITE_SPARE_SECONDS="0") as sprite, sprite.client() as client:
        assert (await client.ask("heartbeat"))["payload"] == {"status": "done"}
        assert agents(sprite) == []
        log = (workspace.parent / "stderr.log").read_text()
        assert "the agent's sandbox" not in log, "nothing of the agent is loaded"
        await chat(client, "Hello")
        assert len(agents(sprite)) == 1
