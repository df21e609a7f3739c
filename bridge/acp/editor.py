"""Calls to the editor: session updates, and questions that can be withdrawn."""

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
    """The program that started this one. Calls to a closed editor do nothing."""

    def __init__(self, transport: StdioTransport) -> None:
        self._transport = transport
        #: Set once the library has connected.
        self.client: Client | None = None

    async def update(self, session_id: str, update: SessionUpdate) -> None:
        """Send an update of a session."""
        if self.client is not None:
            with suppress(ConnectionError):
                await self.client.session_update(session_id, update)

    async def ask(self, session_id: str, call: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        """Ask the person about a tool call. Return the id of the chosen option, or None.

        Raises acp's RequestError if the editor cannot ask.
        """
        if self.client is None:
            return None
        try:
            answer = await self.client.request_permission(session_id, call, options)
        except ConnectionError:
            return None
        finally:
            # An answered question cannot be withdrawn any more; `withdraw` has taken the id already.
            self._transport.question_id(call.tool_call_id)
        return answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else None

    async def withdraw(self, tool_call_id: str) -> None:
        """Withdraw a question that was answered elsewhere or is obsolete."""
        if (question_id := self._transport.question_id(tool_call_id)) is not None:
            with suppress(ConnectionError):
                await self._transport.send(
                    {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": question_id}}
                )
