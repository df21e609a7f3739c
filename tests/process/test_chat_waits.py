"""The chat client in a pipe before its agent is ready: stderr shows the reason."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from rich.text import Text

from bridge.client.link import BridgeLink
from bridge.providers.provider import Report
from bridge.terminal import pipe
from bridge.terminal.commands import Commands
from bridge.terminal.conversation import Conversation
from bridge.terminal.pipe import Pipe
from bridge.terminal.terminal import state_line
from tests.chat_stage import Watched
from tests.chat_stand_in import StandIn, state_sync
from tests.harness import PATIENCE
from tests.relay_stage import Stage, Street, stage


@dataclass
class Waiting:
    """A pipe whose agent is not ready yet."""

    sprite: StandIn
    street: Street
    bridge: Stage
    out: Watched
    err: Watched
    pipe: int
    conversation: Conversation

    def type(self, text: str) -> None:
        os.write(self.pipe, text.encode())

    async def until_warned(self, words: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while words not in self.err.getvalue():
                self.err.written.clear()
                await self.err.written.wait()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the delay before the reason is shown."""
    monkeypatch.setattr(pipe, "_SILENT_SECONDS", 0.2)


@asynccontextmanager
async def waiting(
    before: Callable[[Report], Awaitable[None]],
) -> AsyncIterator[Waiting]:
    read, write = os.pipe()
    async with StandIn() as sprite:
        street = Street(sprite.port)
        street.before = before
        async with (
            stage(street) as bridge,
            BridgeLink(lambda: bridge.session.ws_connect(f"{bridge.url}/ws/local")) as link,
            asyncio.TaskGroup() as group,
        ):
            out, err = Watched(), Watched()
            screen = Pipe(out, fd=read, err=err)
            conversation = Conversation(link, screen, banner=lambda: Text("Welcome"))
            it = Waiting(sprite, street, bridge, out, err, write, conversation)
            following = group.create_task(conversation.follow())
            commands = Commands(conversation, screen, link)
            talking = group.create_task(screen.talk(conversation, commands))
            yield it
            talking.cancel()
            following.cancel()
            os.close(write)


async def test_terminal_counts_seconds_of_start() -> None:
    asked = asyncio.Event()

    async def before(report: Report) -> None:
        await asked.wait()
        report("waking", "The sprite is being started.")
        await asyncio.Event().wait()

    async with waiting(before) as it:
        later = it.conversation.link_since + 8
        assert state_line(it.conversation, later).endswith(" Starting the agent… 0:08")
        asked.set()
        await it.until_warned("The sprite is being started.")
        assert state_line(it.conversation, later).endswith(" The sprite is being started. 0:08")


async def test_pipe_reports_waiting_on_stderr() -> None:
    awake = asyncio.Event()

    async def before(report: Report) -> None:
        report("waking", "The sprite is being started.")
        await awake.wait()

    async with waiting(before) as it:
        it.type("hello\n")
        await it.until_warned("bridge: waiting for the agent: The sprite is being started.\n")
        assert it.out.getvalue() == ""
        awake.set()
        visitor = await it.sprite.visitor()
        await visitor.welcome(sync=state_sync())
        assert (await visitor.receive("mission"))["payload"]["text"] == "hello"
    assert it.err.getvalue().count("The sprite is being started.") == 1
