"""A conversation of the terminal client over a real socket, with keyboard input and screen output in memory."""

from __future__ import annotations

import asyncio
import io
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.text import Text

from bridge.client.link import BridgeLink
from bridge.terminal.commands import Commands
from bridge.terminal.conversation import Conversation
from bridge.terminal.pipe import Pipe
from bridge.terminal.terminal import Terminal
from sprite.protocol.events import AnyAgentEvent
from sprite.protocol.messages import Ack, Gap
from tests.chat_stand_in import StandIn, Visitor, state_sync
from tests.harness import PATIENCE
from tests.relay_stage import Street, stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from prompt_toolkit.input import PipeInput

    from bridge.terminal.terminal import Screen
    from sprite.protocol.messages import StateSync


class Watched(io.StringIO):
    """A writer that records its text, and signals each write."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


class Chat:
    """A running conversation: `type` enters text, `seen` is the screen text."""

    def __init__(self, sprite: StandIn, visitor: Visitor, out: Watched, keys: int | PipeInput) -> None:
        self.sprite = sprite
        self.visitor = visitor
        self._out = out
        self._keys = keys
        self._seq = 0
        self.conversation: Conversation
        self.talking: asyncio.Task[None]

    def type(self, text: str) -> None:
        if isinstance(self._keys, int):
            os.write(self._keys, text.encode())
        else:
            self._keys.send_text(text)

    def end_input(self) -> None:
        """Close the input pipe."""
        assert isinstance(self._keys, int)
        os.close(self._keys)
        self._keys = -1

    @property
    def seen(self) -> str:
        return self._out.getvalue()

    async def until_seen(self, words: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while words not in self.seen:
                self._out.written.clear()
                await self._out.written.wait()

    async def until(self, condition: Callable[[Conversation], bool]) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(PATIENCE):
            await self.conversation.until(lambda: condition(self.conversation))

    async def reconnected(self, sync: StateSync, *, epoch: str = "e1") -> None:
        """Reconnect without a replay: the state snapshot replaces the missed events."""
        self.visitor.cut()
        self.visitor = await self.sprite.visitor()
        self._seq = 50
        await self.visitor.welcome(epoch=epoch, last_seq=self._seq)
        await self.visitor.send(Gap(oldest_seq=40))
        await self.visitor.send(sync)

    async def event(self, kind: Any, mission_id: str | None, **fields: Any) -> None:
        self._seq += 1
        usual = {"usage": None, "cost_usd": None, "duration_ms": 1} if kind == "complete" else {}
        event = {"event": kind, "mission_id": mission_id, **usual, **fields}
        await self.visitor.send(msgspec.convert(event, AnyAgentEvent), seq=self._seq)

    async def mission(self, text: str) -> str:
        """Send the person's message, and accept it on the sprite's side."""
        self.type(f"{text}\n" if isinstance(self._keys, int) else f"{text}\r")
        message = await self.visitor.receive("mission")
        assert message["payload"]["text"] == text
        mission_id: str = message["id"]
        await self.visitor.send(Ack(status="accepted", position=0), reply_to=mission_id)
        await self.event("started", mission_id)
        return mission_id

    async def answer(self, mission_id: str, *deltas: str) -> None:
        for delta in deltas:
            await self.event("text_delta", mission_id, text=delta)
        await self.event("text", mission_id, text="".join(deltas))
        await self.event("complete", mission_id, text="".join(deltas))


@asynccontextmanager
async def _chat(
    screen: Screen,
    out: Watched,
    keys: int | PipeInput,
    sync: StateSync,
    zone: str | None = None,
) -> AsyncIterator[Chat]:
    assert isinstance(screen, Pipe | Terminal)
    async with (
        StandIn() as sprite,
        stage(Street(sprite.port)) as bridge,
        BridgeLink(lambda: bridge.session.ws_connect(f"{bridge.url}/ws/local")) as link,
        asyncio.TaskGroup() as group,
    ):
        conversation = Conversation(link, screen, banner=lambda: Text("Welcome"), zone=zone)
        following = group.create_task(conversation.follow())
        commands = Commands(conversation, screen, link)
        talking = group.create_task(screen.talk(conversation, commands))
        visitor = await sprite.visitor()
        await visitor.welcome(sync=sync)
        chat = Chat(sprite, visitor, out, keys)
        chat.conversation, chat.talking = conversation, talking
        yield chat
        talking.cancel()
        following.cancel()


@asynccontextmanager
async def in_a_pipe(sync: StateSync | None = None) -> AsyncIterator[Chat]:
    read, write = os.pipe()
    out = Watched()
    async with _chat(Pipe(out, fd=read), out, write, sync or state_sync()) as chat:
        yield chat
        if not chat.talking.done():
            chat.end_input()


@asynccontextmanager
async def in_a_terminal(
    sync: StateSync | None = None, *, history: Path | None = None, zone: str | None = None
) -> AsyncIterator[Chat]:
    out = Watched()
    with create_pipe_input() as keys:
        output = Vt100_Output(out, lambda: Size(rows=40, columns=100), term="xterm")
        with create_app_session(input=keys, output=output):
            screen = Terminal(history, source=keys, output=output)
            async with _chat(screen, out, keys, sync or state_sync(), zone) as chat:
                await chat.until_seen("Welcome")
                yield chat
