"""The parts of `python -m bridge acp`: a connection to a bridge, the conversation over it, and the editor's pipes.

`StdioTransport` carries JSON-RPC messages, one per line, on stdin and stdout. Unlike the library's own transport, it
limits lines and the buffer for an editor that does not read. It answers invalid messages instead of failing.
"""

from __future__ import annotations

import asyncio
import json
import re
import selectors
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from acp.agent.connection import AgentSideConnection

from bridge.acp.agent import Editor, SpriteAgent
from bridge.acp.conversation import Conversation
from bridge.errors import FAULT, OperatorError
from bridge.telemetry import logs
from sprite.common.tasks import TaskDiedError, TaskSet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import BinaryIO

    from acp.interfaces import Agent

    from bridge.client.link import Connect
    from bridge.terminal.endpoints import RemoteEndpoint, RunningEndpoint


#: Fits pictures in base64. A longer line is skipped and refused.
MAX_LINE_BYTES = 32 * 1024 * 1024
_CHUNK_BYTES = 1 << 16
#: Buffer limit for a slow editor; senders wait beyond it.
_MAX_UNREAD_BYTES = 1024 * 1024
_FAREWELL_SECONDS = 2.0
#: Part of a skipped line that is searched for its id.
_HEAD_BYTES = 300
_ID = re.compile(rb'^\s*\{[^{}]{0,200}?"id"\s*:\s*(\d{1,15}|"[^"\\]{0,100}")')
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
_ASKS = "session/request_permission"


class StdioTransport:
    """See acp's Transport. Created by `opened`."""

    def __init__(
        self, source: asyncio.ReadTransport, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._source = source
        self._reader = reader
        self._writer = writer
        self._is_closed = False
        self._buffer = bytearray()
        #: Bytes of the buffer without a line end.
        self._scanned = 0
        #: Message ids of open questions, by tool call.
        self._question_ids: dict[str, int | str] = {}

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end."""
        while (line := await self._line()) is not None:
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(_PARSE_ERROR, "This line is not JSON.", None)
                continue
            if (problem := _problem(message)) is None:
                fit: dict[str, Any] = message
                return fit
            await self._refuse(_INVALID_REQUEST, problem, None)
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
        """Remove and return the message id of the question about a tool call, or None."""
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

    async def _line(self) -> bytes | None:
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._scanned = 0
                return line
            self._scanned = len(self._buffer)
            if len(self._buffer) > MAX_LINE_BYTES:
                await self._skip_line()
                continue
            chunk = await self._reader.read(_CHUNK_BYTES)
            if not chunk:
                return None
            self._buffer += chunk

    async def _skip_line(self) -> None:
        """Skip the current line and refuse it, with its id if the start of the line has one."""
        head = bytes(self._buffer[:_HEAD_BYTES])
        self._buffer.clear()
        self._scanned = 0
        while chunk := await self._reader.read(_CHUNK_BYTES):
            _, end, rest = chunk.partition(b"\n")
            if end:
                self._buffer += rest
                break
        found = _ID.match(head)
        words = f"A message may have {MAX_LINE_BYTES // 2**20} MiB at most. Send large files on their own, by the page."
        await self._refuse(_INVALID_REQUEST, words, None if found is None else json.loads(found[1]))

    async def _refuse(self, code: int, words: str, message_id: int | str | None) -> None:
        await self.send({"jsonrpc": "2.0", "id": message_id, "error": {"code": code, "message": words}})


def _problem(message: Any) -> str | None:
    """Return why the library would reject this message, or None."""
    if not isinstance(message, dict):
        return "A message is a JSON object."
    if not isinstance(message.get("method", ""), str):
        return "A message's method is a text."
    if not isinstance(message.get("id"), int | float | str | None):
        return "A message's id is a number or a text."
    return None


async def opened(source: BinaryIO | None = None, target: BinaryIO | None = None) -> StdioTransport:
    """Return a transport on stdin and stdout, or on other pipes. Raises OperatorError for other kinds of files."""
    source, target = source or sys.stdin.buffer, target or sys.stdout.buffer
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    try:
        _refuse_what_is_always_ready(source)
        incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        # A protocol with flow control for writers; asyncio's only public one is for readers.
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        transport, _ = await loop.connect_write_pipe(lambda: protocol, target)
    except (ValueError, PermissionError) as error:
        raise OperatorError(
            "This speaks the Agent Client Protocol on stdin and stdout: let an editor start it (docs/editors.md)."
        ) from error
    transport.set_write_buffer_limits(high=_MAX_UNREAD_BYTES)
    return StdioTransport(incoming, reader, asyncio.StreamWriter(transport, protocol, None, loop))


def _refuse_what_is_always_ready(source: BinaryIO) -> None:
    """Raise PermissionError for files that cannot be polled, such as /dev/null. asyncio reports them too late."""
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)


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
