"""What we say to the editor: updates of its sessions, and questions that can be taken back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from acp.schema import AllowedOutcome

if TYPE_CHECKING:
    from acp.helpers import SessionUpdate
    from acp.interfaces import Client
    from acp.schema import PermissionOption, ToolCallUpdate

    from bridge.acp.stdio import StdioTransport


class Editor:
    """The program that started this one. An editor that has left hears nothing, and nobody waits for it."""

    def __init__(self, transport: StdioTransport) -> None:
        self._transport = transport
        #: Set once the library has put its side of the connection together.
        self.client: Client | None = None

    async def update(self, session_id: str, update: SessionUpdate) -> None:
        """Tells what is new in a session."""
        if self.client is not None:
            with suppress(ConnectionError):
                await self.client.session_update(session_id, update)

    async def ask(self, session_id: str, call: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        """Asks the person about a tool call: the id of the option they chose, None where they chose none.

        acp's RequestError where the editor cannot ask.
        """
        if self.client is None:
            return None
        try:
            answer = await self.client.request_permission(session_id, call, options)
        except ConnectionError:
            return None
        finally:
            # What was answered is not withdrawn any more; what is withdrawn has taken its id by now.
            self._transport.question_id(call.tool_call_id)
        return answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else None

    async def withdraw(self, tool_call_id: str) -> None:
        """Takes a question back: it was answered elsewhere, or nobody waits for the answer."""
        if (question_id := self._transport.question_id(tool_call_id)) is not None:
            with suppress(ConnectionError):
                await self._transport.send(
                    {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": question_id}}
                )
