"""An editor's session over a real hub, with a scripted sprite for states that a real one does not reach on demand."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from sprite.protocol.events import AnyAgentEvent
from sprite.protocol.memory import ChatResult
from sprite.protocol.messages import Ack, Gap
from tests.acp_editor import Editor
from tests.chat_stand_in import StandIn, Visitor, state_sync
from tests.relay_stage import Street, stage

if TYPE_CHECKING:
    from bridge.client.end import End
    from sprite.protocol.messages import StateSync
    from sprite.protocol.shapes import ChatMessage


class AcpStage:
    """`editor` has a `session`; `visitor` is the sprite's end."""

    def __init__(self, sprite: StandIn, editor: Editor, end: End) -> None:
        self.sprite = sprite
        self.editor = editor
        self.end = end
        self.visitor: Visitor
        self.session = ""
        #: Whether the bridge is currently unreachable.
        self.is_away = False
        self.socket: aiohttp.ClientWebSocketResponse
        self._seq = 0
        self._sent: dict[int, Any] = {}

    async def begin(self, sync: StateSync | None = None) -> None:
        """Initialize the editor, and open a session."""
        hello = asyncio.create_task(self.editor.connection.initialize(protocol_version=1))
        self.visitor = await self.sprite.visitor()
        await self.visitor.welcome(sync=sync or state_sync())
        await hello
        self.session = await self.editor.new_session()

    async def tell_chat(self, chat: list[ChatMessage]) -> None:
        """Answer a request for the chat history."""
        asked = await self.visitor.receive("memory")
        await self.visitor.send(ChatResult(chat), reply_to=asked["id"])

    def say(self, text: str) -> asyncio.Task[str]:
        """Send the person's message; return a task with the reason for its turn's end."""
        return asyncio.create_task(self.editor.say(self.session, text))

    async def taken(self, text: str, **ack: Any) -> str:
        """Accept the mission on the sprite's side; return its id."""
        message = await self.visitor.receive("mission")
        assert message["payload"]["text"] == text
        mission_id: str = message["id"]
        await self.visitor.send(Ack(**{"status": "accepted", "position": 0, **ack}), reply_to=mission_id)
        return mission_id

    async def event(self, kind: str, mission_id: str | None, **fields: Any) -> None:
        usual = {"usage": None, "cost_usd": None, "duration_ms": 1, "text": ""} if kind == "complete" else {}
        event = {"event": kind, "mission_id": mission_id, **usual, **fields}
        await self.send(msgspec.convert(event, AnyAgentEvent))

    async def send(self, payload: Any) -> None:
        """Broadcast an event."""
        self._seq += 1
        self._sent[self._seq] = payload
        await self.visitor.send(payload, seq=self._seq)

    async def reconnected(self, sync: StateSync, *, epoch: str = "e1") -> None:
        """Reconnect without a replay: the state snapshot replaces the missed events."""
        self.visitor.cut()
        self.visitor = await self.sprite.visitor()
        self._seq = 50
        await self.visitor.welcome(epoch=epoch, last_seq=self._seq)
        await self.visitor.send(Gap(oldest_seq=40))
        await self.visitor.send(sync)

    async def caught_up(self) -> None:
        """Answer the connection over which the hub brings a returning editor up to date."""
        own = await self.sprite.visitor()
        seen = (await own.welcome(last_seq=self._seq))["resume"]["last_seq"]
        for seq in range(seen + 1, self._seq + 1):
            await own.send(self._sent[seq], seq=seq)

    async def lose_bridge(self) -> None:
        """Close the connection to the bridge, and refuse new ones until `is_away` is unset."""
        self.is_away = True
        await self.socket.close()

    @property
    def shown(self) -> str:
        """Return the texts of the session, the person's in brackets."""
        return self.editor.shown(self.session)

    async def until_shown(self, words: str) -> None:
        """Wait until a text or a remark is shown."""
        await self.editor.until(lambda: any(words in str(update) for _, update in self.editor.updates))


@asynccontextmanager
async def acp_stage(*, reads: bool = True) -> AsyncIterator[AcpStage]:
    """Run an editor that has not started yet; if it never `reads`, the test writes its requests."""
    from acp.client.connection import ClientSideConnection

    from bridge.acp.program import opened, speaking
    from bridge.client.end import End

    to_agent, to_editor = os.pipe(), os.pipe()
    # Pipe transports close the pipes that they are given.
    source, target = os.fdopen(to_agent[0], "rb"), os.fdopen(to_editor[1], "wb")
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**26)
    back, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(to_editor[0], "rb"))
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    out, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(to_agent[1], "wb"))
    editor, end = Editor(), End()
    if reads:
        writer = asyncio.StreamWriter(out, protocol, None, loop)
        editor.connection = ClientSideConnection(editor, writer, reader, observers=[editor.observe])  # type: ignore[arg-type]
    else:
        back.pause_reading()
    try:
        async with StandIn() as sprite, stage(Street(sprite.port)) as bridge:
            transport = await opened(source, target)
            acp_stage = AcpStage(sprite, editor, end)

            async def connect() -> aiohttp.ClientWebSocketResponse:
                if acp_stage.is_away:
                    raise aiohttp.ClientConnectionError("No bridge answers.")
                acp_stage.socket = await bridge.session.ws_connect(f"{bridge.url}/ws/local")
                return acp_stage.socket

            async with speaking(connect, transport, end):
                yield acp_stage
    finally:
        if reads:
            await editor.connection.close()
        out.close()
        back.close()
