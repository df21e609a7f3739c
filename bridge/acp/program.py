"""The parts of `python -m bridge acp`: a connection to a bridge, the conversation over it, and the editor's pipes."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from acp.agent.connection import AgentSideConnection

from bridge.acp.agent import Editor, SpriteAgent
from bridge.acp.conversation import Conversation
from bridge.acp.stdio import opened
from bridge.errors import FAULT
from bridge.telemetry import logs
from sprite.common.tasks import TaskDiedError, TaskSet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from acp.interfaces import Agent

    from bridge.acp.stdio import StdioTransport
    from bridge.client.link import Connect
    from bridge.terminal.endpoints import RemoteEndpoint, RunningEndpoint

_SIGNALLED = 128
#: Time to deliver the final error answers to the editor.
_LAST_WORDS_SECONDS = 0.5


class End:
    """Why the program ends: the editor disconnected (0), a signal, or an unreachable bridge (1)."""

    def __init__(self) -> None:
        self.status = 0
        self._has_come = asyncio.Event()

    def come(self, status: int) -> None:
        """Set the exit status. Only the first call counts."""
        if not self._has_come.is_set():
            self.status = status
            self._has_come.set()

    def fail(self) -> None:
        """End with a fault shortly, after the editor got its answers."""
        asyncio.get_running_loop().call_later(_LAST_WORDS_SECONDS, self.come, FAULT)

    async def wait(self) -> None:
        """Wait for the end."""
        await self._has_come.wait()


async def serve(endpoint: RunningEndpoint | RemoteEndpoint) -> int:
    """Serve the editor until it disconnects. Return the exit status. stdout carries the protocol only."""
    logs.set_up_for_an_editor()
    transport = await opened()
    end = End()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end.come, _SIGNALLED + number)
    try:
        async with endpoint, speaking(endpoint.connect, transport, end) as conversation:
            await end.wait()
        if conversation.failure is not None:
            sys.stderr.write(f"bridge acp: {conversation.failure}\n")
            return FAULT
    except TaskDiedError as death:
        sys.stderr.write(f"bridge acp: {death}\n")
        return FAULT
    return end.status


@asynccontextmanager
async def speaking(connect: Connect, transport: StdioTransport, end: End) -> AsyncIterator[Conversation]:
    """Answer an editor while the block runs. Sets `end` if that cannot continue."""
    editor = Editor(transport)
    async with (
        Conversation(connect, editor, end.fail) as conversation,
        SpriteAgent(conversation, editor) as agent,
        TaskSet() as tasks,
    ):
        # It has only the methods of its capabilities; the library answers the rest.
        connection = AgentSideConnection(cast("Agent", agent), transport, listening=False)
        tasks.start(_listen(connection, end), "acp-listen")
        try:
            yield conversation
        finally:
            await connection.close()


async def _listen(connection: AgentSideConnection, end: End) -> None:
    try:
        await connection.listen()
    except ConnectionError:
        # The editor disconnected in the middle of an answer.
        pass
    finally:
        end.come(0)
