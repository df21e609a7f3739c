"""A sprite started because it is missing: the real process, found again, restarted, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bridge.local_sprite import LocalSprite
from bridge.sprite_link import LinkChange, LinkRefusedError, SpriteConnection
from sprite.protocol import ServerMessage, StateSync

#: No key: the offline model answers. The sprite's folder of Python code is found from the root.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "SPRITE_"))} | {
    "PYTHONPATH": str(Path(__file__).parents[1])
}


async def sync_of(link: SpriteConnection) -> StateSync:
    async with asyncio.timeout(30):
        async for item in link:
            if isinstance(item, ServerMessage) and isinstance(item.payload, StateSync):
                return item.payload
    raise AssertionError


def process_of(workspace: Path) -> int:
    return int((workspace / ".os" / "run" / "lock").read_text())


async def test_a_second_client_joins_the_sprite_that_runs_and_leaves_it_running(tmp_path: Path) -> None:
    async with LocalSprite(tmp_path, environment=ENVIRONMENT) as first:
        endpoint = await first.locate()
        assert first.is_ours
        assert first.uses_offline_model
        async with LocalSprite(tmp_path, environment=ENVIRONMENT) as second:
            assert await second.locate() == endpoint
            assert not second.is_ours
        async with SpriteConnection(first.locate) as link:
            assert (await sync_of(link)).chat == []


async def test_a_sprite_that_was_killed_is_started_again_and_the_link_finds_it(tmp_path: Path) -> None:
    async with (
        LocalSprite(tmp_path, environment=ENVIRONMENT) as sprite,
        SpriteConnection(sprite.locate) as link,
    ):
        await sync_of(link)
        killed = process_of(tmp_path)
        os.kill(killed, signal.SIGKILL)
        async with asyncio.timeout(30):
            async for item in link:
                if item == LinkChange("ready"):
                    break
        assert process_of(tmp_path) != killed
        assert sprite.is_ours


async def test_the_sprite_ends_with_the_one_who_started_it(tmp_path: Path) -> None:
    async with LocalSprite(tmp_path, environment=ENVIRONMENT) as sprite:
        await sprite.locate()
        process = process_of(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_a_sprite_that_cannot_start_is_explained_in_its_own_words(tmp_path: Path) -> None:
    memory = tmp_path / ".os" / "memory"
    memory.mkdir(parents=True)
    (memory / "transcript.db").write_text("this is not a database, and long enough to be looked at " * 20)
    async with LocalSprite(tmp_path, environment=ENVIRONMENT) as sprite:
        with pytest.raises(LinkRefusedError, match=r"transcript\.db"):
            await sprite.locate()


async def test_a_workspace_that_cannot_be_made_is_said() -> None:
    async with LocalSprite(Path("/dev/null/workspace"), environment=ENVIRONMENT) as sprite:
        with pytest.raises(LinkRefusedError, match="The workspace cannot be made"):
            await sprite.locate()
