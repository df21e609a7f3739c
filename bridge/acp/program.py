"""The parts of `python -m bridge acp`: a connection to a bridge, the conversation over it, and the editor's pipes."""

import asyncio
import json
import logging
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, BinaryIO, cast

from acp.agent.connection import AgentSideConnection
from acp.interfaces import Agent

from bridge.acp.agent import Editor, SpriteAgent
from bridge.acp.conversation import Conversation
from bridge.client.end import End
from bridge.client.link import Connect
from bridge.errors import FAULT, OperatorError
from bridge.telemetry import logs
from bridge.terminal.endpoints import LocalEndpoint, RemoteEndpoint
from sprite.common.tasks import TaskDiedError, TaskSet

log = logging.getLogger(__name__)

#: Fits pictures in base64.
MAX_LINE_BYTES = 32 * 1024 * 1024
#: Buffer limit for a slow editor; senders wait beyond it.
_MAX_UNREAD_BYTES = 1024 * 1024
_FAREWELL_SECONDS = 2.0
_ASKS = "session/request_permission"
_NO_EDITOR = "This command speaks the Agent Client Protocol on stdin and stdout. An editor starts it (docs/editors.md)."


class StdioTransport:
    """Implement acp's `Transport` on stdin and stdout, with a JSON-RPC message per line; `opened` creates one.

    Unlike the library's own, it limits the buffer for an editor that does not read, and ends with an editor that left.
    """

    def __init__(
        self, source: asyncio.ReadTransport, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._source = source
        self._reader = reader
        self._writer = writer
        self._is_closed = False
        #: Message ids of open questions, by tool call.
        self._question_ids: dict[str, int | str] = {}

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end. Raises ConnectionError for a line that is too long."""
        try:
            while line := await self._reader.readline():
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    log.warning("the editor sends a line that is not JSON")
                    continue
                if isinstance(message, dict):
                    return message
        except ValueError as error:
            raise ConnectionError(f"The editor sent a message of more than {MAX_LINE_BYTES >> 20} MiB.") from error
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message, in the order of calls. Waits for a slow editor. Raises ConnectionError if it disconnected."""
        if message.get("method") == _ASKS:
            self._question_ids[message["params"]["toolCall"]["toolCallId"]] = message["id"]
        # pydantic's error details can contain exceptions.
        line = json.dumps(message, separators=(",", ":"), default=str)
        self._writer.write(line.encode("utf-8", "replace") + b"\n")
        await self._writer.drain()

    def question_id(self, tool_call_id: str) -> int | str | None:
        """Return the JSON-RPC id of the permission question about a tool call and forget it; None if there is none."""
        return self._question_ids.pop(tool_call_id, None)

    async def close(self) -> None:
        """Close both directions, dropping unread data after 2 s."""
        if self._is_closed:
            return
        self._is_closed = True
        self._source.close()
        self._writer.close()
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._writer.wait_closed()
        except TimeoutError:
            self._writer.transport.abort()
        except ConnectionError:
            # The editor disconnected before.
            pass


async def opened(source: BinaryIO | None = None, target: BinaryIO | None = None) -> StdioTransport:
    """Return a transport on stdin and stdout, or on other pipes. Raises OperatorError for other kinds of files."""
    source, target = source or sys.stdin.buffer, target or sys.stdout.buffer
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    if stat.S_ISCHR(os.fstat(source.fileno()).st_mode) and not source.isatty():
        # No event tells when /dev/null can be read.
        raise OperatorError(_NO_EDITOR)
    try:
        incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        # A protocol with flow control for writers; asyncio's only public one is for readers.
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        transport, _ = await loop.connect_write_pipe(lambda: protocol, target)
    except ValueError as error:
        raise OperatorError(_NO_EDITOR) from error
    transport.set_write_buffer_limits(high=_MAX_UNREAD_BYTES)
    return StdioTransport(incoming, reader, asyncio.StreamWriter(transport, protocol, None, loop))


async def serve(endpoint: LocalEndpoint | RemoteEndpoint) -> int:
    """Serve the editor until it disconnects. Return the exit status. stdout carries the protocol only."""
    logs.set_up_for_an_editor()
    transport = await opened()
    with End(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as end:
        try:
            async with endpoint, speaking(endpoint.connect, transport, end) as conversation:
                status = await end.status
            if conversation.failure is None:
                return status
            sys.stderr.write(f"bridge acp: {conversation.failure}\n")
        except TaskDiedError as death:
            sys.stderr.write(f"bridge acp: {death}\n")
    return FAULT


@asynccontextmanager
async def speaking(connect: Connect, transport: StdioTransport, end: End) -> AsyncIterator[Conversation]:
    """Connect to a bridge and answer the editor's requests while the block runs. `end` comes when either is gone."""
    editor = Editor(transport)
    async with (
        Conversation(connect, editor, partial(end.come, FAULT)) as conversation,
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
