"""The agent's permission requests in the editor: each in one session, and the first answer decides.

A request without an answer in the editor stays open for a page or a terminal.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from acp.exceptions import RequestError
from acp.helpers import start_tool_call, update_tool_call
from acp.schema import PermissionOption, ToolCallUpdate

from bridge.acp import tool_calls
from bridge.terminal.drawing import one_line
from sprite.protocol.messages import Permission

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from bridge.acp.agent import Editor
    from bridge.acp.session import Session
    from bridge.client.link import BridgeLink
    from bridge.client.turns import Decision
    from sprite.common.tasks import TaskSet
    from sprite.protocol.messages import PermissionRequest

log = logging.getLogger(__name__)
_DECISIONS: dict[str, Decision] = {"allow": "allow", "always": "always", "deny": "deny"}


@dataclass(slots=True)
class _Question:
    """An open request: its session, its tool call and the task that waits for the answer."""

    request: PermissionRequest
    session: Session | None = None
    call_id: str = ""
    #: Whether the tool call was shown only for this request.
    is_own_call: bool = False
    asking: asyncio.Task[None] | None = None
    is_answered: bool = False


class Questions:
    """Open permission requests."""

    def __init__(
        self, link: BridgeLink, editor: Editor, tasks: TaskSet, session_for: Callable[[str | None], Session | None]
    ) -> None:
        """`session_for` returns the session for a mission's request, or None if there is no session yet."""
        self._link = link
        self._editor = editor
        self._session_for = session_for
        self._open: dict[str, _Question] = {}
        self._tasks = tasks

    async def keep(self, requests: Mapping[str, PermissionRequest], decision: Decision | None = None) -> None:
        """Ask the open requests and close the others. `decision` is that of a request that was just answered.

        Without it, a running call reports its own end.
        """
        for gone in self._open.keys() - requests.keys():
            await self._close(self._open.pop(gone), decision)
        for request in requests.values():
            self._open.setdefault(request.request_id, _Question(request))
        self.go_on()

    def go_on(self) -> None:
        """Ask or answer waiting requests after a session was opened or its mode changed."""
        for question in self._open.values():
            self._go_on(question)

    def _go_on(self, question: _Question) -> None:
        session = question.session or self._session_for(question.request.mission_id)
        if session is None or question.is_answered:
            return
        question.session = session
        if session.mode == "bypass" and question.request.mission_id in session.missions:
            self._answer(question, "allow")
        elif question.asking is None:
            question.asking = self._tasks.start(self._ask(question, session), "acp-question")

    async def _ask(self, question: _Question, session: Session) -> None:
        request = question.request
        async with session.busy:
            # In a loaded session the past is shown first.
            known = session.call_of(request)
        question.call_id, question.is_own_call = known or f"question-{request.request_id}", known is None
        title, content = tool_calls.question(request)
        kind = tool_calls.kind_of(request.tool)
        if question.is_own_call:
            await self._editor.update(
                session.id, start_tool_call(question.call_id, title, kind=kind, status="pending", content=content)
            )
        call = ToolCallUpdate(
            tool_call_id=question.call_id,
            title=title,
            kind=kind,
            status="pending",
            content=content,
            raw_input=request.input,
        )
        try:
            chosen = await self._editor.ask(session.id, call, _options(request))
        except RequestError as error:
            log.warning("the editor cannot ask for permission (%s): the question stays open elsewhere", error)
            return
        decision = _DECISIONS.get(chosen or "")
        if decision is not None and not question.is_answered:
            self._answer(question, decision)

    def _answer(self, question: _Question, decision: Decision) -> None:
        question.is_answered = True
        self._link.post(Permission(question.request.request_id, decision))

    async def _close(self, question: _Question, decision: Decision | None) -> None:
        if question.session is None or not question.call_id:
            return
        if question.asking is not None and not question.asking.done():
            await self._editor.withdraw(question.call_id)
            question.asking.cancel()
        if decision is None and not question.is_own_call:
            return
        # A running call reports its own end. A call shown only for the request ends with it.
        status: Literal["completed", "in_progress", "failed"] = "failed"
        if decision in {"allow", "always"}:
            status = "completed" if question.is_own_call else "in_progress"
        await self._editor.update(question.session.id, update_tool_call(question.call_id, status=status))


def _options(request: PermissionRequest) -> list[PermissionOption]:
    """Return the options. "always" appears only with a narrow rule, and names it."""
    always = [] if request.always is None else [f"Always allow {one_line(request.always)}"]
    return [
        PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
        *(PermissionOption(option_id="always", name=name, kind="allow_always") for name in always),
        PermissionOption(option_id="deny", name="Deny", kind="reject_once"),
    ]
