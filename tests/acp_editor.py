"""An editor for tests: the client library of the Agent Client Protocol, and `python -m bridge acp` as its process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tests.bridge_harness import bridge_environment
from tests.forking import fork_module
from tests.harness import PATIENCE, ROOT, Process

# Importing the library takes 0.7 s: each function that needs it imports it.
if TYPE_CHECKING:
    import acp
    from acp.client.connection import ClientSideConnection
    from acp.connection import StreamEvent
    from acp.schema import PermissionOption, RequestPermissionResponse, ToolCallProgress, ToolCallStart, ToolCallUpdate


class Editor:
    """Records updates by session, and answers questions as configured."""

    def __init__(self) -> None:
        self.updates: list[tuple[str, Any]] = []
        #: Per question: the session, the call and the options.
        self.questions: list[tuple[str, ToolCallUpdate, list[PermissionOption]]] = []
        #: The option that answers, "cancelled", or None: the question stays open.
        self.answer: str | None = None
        #: Every message on the pipe.
        self.messages: list[dict[str, Any]] = []
        self.connection: ClientSideConnection
        self.process: Process
        self._news = asyncio.Condition()

    # --- called by the library ---

    async def session_update(self, session_id: str, update: Any, **_rest: Any) -> None:
        self.updates.append((session_id, update))
        await self._tell()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_rest: Any
    ) -> RequestPermissionResponse:
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        self.questions.append((session_id, tool_call, options))
        await self._tell()
        if self.answer is None:
            await asyncio.Event().wait()
        if self.answer == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.answer or ""))

    async def observe(self, event: StreamEvent) -> None:
        """Record the pipe's traffic in both directions."""
        self.messages.append(event.message)
        await self._tell()

    # --- called by tests ---

    async def start(self) -> str:
        """Initialize, and open a session; return its id."""
        import acp

        await self.connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        return await self.new_session()

    async def new_session(self) -> str:
        session_id: str = (await self.connection.new_session(cwd=str(ROOT), mcp_servers=[])).session_id
        return session_id

    async def say(self, session_id: str, *texts: str) -> str:
        """Send a message; return the reason for the turn's end."""
        import acp

        blocks = [acp.text_block(text) for text in texts]
        async with asyncio.timeout(PATIENCE):
            return (await self.connection.prompt(session_id=session_id, prompt=[*blocks])).stop_reason

    def shown(self, session_id: str) -> str:
        """Return the texts of a session, the person's in brackets."""
        from acp.schema import AgentMessageChunk, UserMessageChunk

        texts = []
        for of, update in self.updates:
            if of == session_id and isinstance(update, AgentMessageChunk | UserMessageChunk):
                text = update.content.text
                texts.append(text if isinstance(update, AgentMessageChunk) else f"<{text}>")
        return "".join(texts)

    def calls(self, session_id: str) -> list[ToolCallStart | ToolCallProgress]:
        """Return the tool calls of a session with their outcomes."""
        from acp.schema import ToolCallProgress, ToolCallStart

        return [
            update
            for of, update in self.updates
            if of == session_id and isinstance(update, ToolCallStart | ToolCallProgress)
        ]

    async def until(self, condition: Any) -> None:
        """Wait until the updates satisfy a condition."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(condition)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


@asynccontextmanager
async def editor(*arguments: str, folder: Path = ROOT, **variables: str) -> AsyncIterator[Editor]:
    """Start `python -m bridge acp ARGUMENTS` as a forked process, as an editor does; end its input at the end."""
    from acp.client.connection import ClientSideConnection

    client = Editor()
    process = await fork_module(
        "bridge",
        "acp",
        *arguments,
        env=bridge_environment(**variables),
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    client.process = process
    client.connection = ClientSideConnection(
        cast("acp.Client", client), process.stdin, process.stdout, observers=[client.observe]
    )
    try:
        yield client
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        finally:
            process.kill()
            await client.connection.close()
