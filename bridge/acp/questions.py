"""The agent's questions for permission, asked in the editor: one session has each, and whoever answers first decides.

A question that the editor does not answer stays open, for a page or a terminal.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, Self

from acp.exceptions import RequestError
from acp.helpers import start_tool_call, update_tool_call
from acp.schema import PermissionOption, ToolCallUpdate

from bridge.acp import tool_calls
from bridge.chat.untrusted import one_line
from sprite.common.tasks import TaskSet
from sprite.protocol.messages import Permission

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from bridge.acp.editor import Editor
    from bridge.acp.session import Session
    from bridge.chat.bridge_link import BridgeLink
    from sprite.protocol.messages import PermissionRequest, PermissionResolved

    Decision = Literal["allow", "deny", "always"]

log = logging.getLogger(__name__)
_DECISIONS: dict[str, Decision] = {"allow": "allow", "always": "always", "deny": "deny"}


class _Question:
    """One that is open: where it is asked, as which tool call, and who waits for its answer."""

    def __init__(self, request: PermissionRequest) -> None:
        self.request = request
        self.session: Session | None = None
        self.call_id = ""
        #: Whether the call is on the screen for the sake of the question alone.
        self.is_own_call = False
        self.asking: asyncio.Task[None] | None = None
        self.is_answered = False


class Questions:
    """`keep` what is open, `resolved` what is not any more; `async with` it, and its asking ends with it."""

    def __init__(self, link: BridgeLink, editor: Editor, session_for: Callable[[str | None], Session | None]) -> None:
        """`session_for` has the session to ask in, by the mission that the question is about; None: no session yet."""
        self._link = link
        self._editor = editor
        self._session_for = session_for
        self._open: dict[str, _Question] = {}
        self._tasks = TaskSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.close()

    async def keep(self, asked: Iterable[PermissionRequest]) -> None:
        """Believes a snapshot: these are open, and no others."""
        requests = {request.request_id: request for request in asked if not request.redacted}
        for gone in self._open.keys() - requests.keys():
            # How it was decided is not known; a call that runs will say how it ended.
            await self._close(gone, None, is_decided=False)
        for request in requests.values():
            self.ask(request)

    def ask(self, request: PermissionRequest) -> None:
        """Asks one, if that has not been done; a redacted one is a copy of a question that is closed."""
        if request.redacted:
            return
        self._open.setdefault(request.request_id, _Question(request))
        self.go_on()

    def go_on(self) -> None:
        """A session has come, or its mode has changed: asks or answers what has waited for that."""
        for question in self._open.values():
            self._go_on(question)

    async def resolved(self, news: PermissionResolved) -> None:
        """One is not open any more."""
        await self._close(news.request_id, news.decision, is_decided=True)

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
            # The past is shown first, where a session begins with it.
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

    async def _close(self, request_id: str, decision: Decision | None, *, is_decided: bool) -> None:
        question = self._open.pop(request_id, None)
        if question is None or question.session is None or not question.call_id:
            return
        if question.asking is not None and not question.asking.done():
            await self._editor.withdraw(question.call_id)
            question.asking.cancel()
        if not is_decided and not question.is_own_call:
            return
        is_allowed = decision in {"allow", "always"}
        # A call that runs says itself how it ended; one that was shown for the question alone ends with it.
        status: Literal["completed", "in_progress", "failed"] = "failed"
        if is_allowed:
            status = "completed" if question.is_own_call else "in_progress"
        await self._editor.update(question.session.id, update_tool_call(question.call_id, status=status))


def _options(request: PermissionRequest) -> list[PermissionOption]:
    """What may be chosen; "always" only where it would allow little, and says what."""
    always = [] if request.always is None else [f"Always allow {one_line(request.always)}"]
    return [
        PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
        *(PermissionOption(option_id="always", name=name, kind="allow_always") for name in always),
        PermissionOption(option_id="deny", name="Deny", kind="reject_once"),
    ]
