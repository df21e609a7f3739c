"""Many unauthenticated clients at a sprite with few descriptors, and a sprite without descriptors for its agent."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.harness import Client, Message, SpriteProcess, observations, sprite_process
from tests.inspection import chat
from tests.scripted_model import OfflineModel

DESCRIPTORS = 80
STRANGERS = 100
#: Half of the descriptors are for connections.
CLIENTS = DESCRIPTORS // 2


@asynccontextmanager
async def crowd(sprite: SpriteProcess, count: int) -> AsyncIterator[list[Client]]:
    """Open `count` connections that send nothing or half a frame."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(sprite.raw()) for _ in range(count)]
        for client in clients[::2]:
            client.writer.write(b'{"type": "auth", ')
        yield clients


@contextmanager
def no_descriptors(sprite: SpriteProcess) -> Iterator[None]:
    """Prevent the sprite from opening descriptors during the block; open ones stay open."""
    pid = sprite.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


async def test_crowd_does_not_block_owner(model: OfflineModel, workspace: Path) -> None:
    """A client beyond the limit gets an error, and connects after another one has left."""
    async with sprite_process(workspace, model.url, TESTS_OPEN_FILES=str(DESCRIPTORS)) as sprite:
        async with sprite.client() as first, crowd(sprite, STRANGERS) as strangers:
            async with sprite.client() as owner:
                await chat(owner, "Hello")
            assert (await first.ask("system", {"action": "status"}))["type"] == "status"
            told = await strangers[1].next()
            assert told is None or told["payload"]["code"] == "too_many_connections"
        log = (workspace.parent / "stderr.log").read_text()
        assert "Traceback" not in log
        assert len(log) < 20_000, log[-2000:]
        async with contextlib.AsyncExitStack() as stack:
            clients: list[Client] = []
            while len(clients) < CLIENTS:  # the server notices only gradually that the crowd has left
                with contextlib.suppress(ConnectionError, AssertionError):
                    clients.append(await stack.enter_async_context(sprite.client()))
            async with sprite.raw() as late:
                told = await late.next()
                assert told is not None
                assert told["payload"]["code"] == "too_many_connections"
                assert await late.next() is None
            await clients[0].close()
            while not await _let_in(sprite):
                pass


async def _let_in(sprite: SpriteProcess) -> bool:
    try:
        async with sprite.client() as client:
            return bool((await client.ask("system", {"action": "status"}))["type"] == "status")
    except (ConnectionError, AssertionError):
        return False


async def test_mission_without_descriptors_fails_with_message(model: OfflineModel, workspace: Path) -> None:
    """The next mission runs."""
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await client.until(lambda m: m["type"] == "state_sync")
        with no_descriptors(sprite):
            ends = [await client.mission(text) for text in ("Hello", "Hello?")]
        for told in ends:
            assert_a_shortage(told)
        assert all(end["retryable"] for end in ends)
        await chat(client, "Hello again")
        assert [o["outcome"] for o in observations(workspace)][-1] == "complete"
        # The same with a running agent.
        with no_descriptors(sprite):
            end = await client.mission("And again")
        assert end["event"] == "complete" or end["code"] == "shortage"
        await chat(client, "Once more")


async def test_shortage_right_after_start_does_not_end_sprite(model: OfflineModel, workspace: Path) -> None:
    """Everything that a start opens is open once the sprite tells its address."""
    for _ in range(3):
        async with sprite_process(workspace, model.url) as sprite:
            with no_descriptors(sprite):
                await asyncio.sleep(0.5)
            async with sprite.client() as client:
                await chat(client, "Hello")


def assert_a_shortage(told: Message) -> None:
    assert told["code"] == "shortage"
    assert "open files" in told["message"]
    assert "Errno" not in told["message"]
