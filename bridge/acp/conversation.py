"""The person's conversation with their agent, shared by all sessions of an editor, which decide what each shows.

Each permission request is asked in one session. The first answer decides; without one in the editor, the request stays
open for a page or a terminal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from acp.exceptions import RequestError
from acp.helpers import start_tool_call, update_tool_call
from acp.schema import PermissionOption, ToolCallUpdate

from bridge.acp import tool_calls
from bridge.acp.session import Prompt, Session
from bridge.client.link import BridgeLink, BridgeUnreachableError, Connect, NotConnectedError
from bridge.client.turns import Turns
from bridge.terminal import drawing
from bridge.terminal.drawing import one_line
from sprite.common.tasks import Service, TaskSet, owned_task
from sprite.protocol import messages
from sprite.protocol.events import Interrupted
from sprite.protocol.frames import RelayedMessage
from sprite.protocol.pasted import Marked
from sprite.protocol.shapes import Effort, Paused, SessionState

if TYPE_CHECKING:
    from bridge.acp.agent import Editor


_T = TypeVar("_T")
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Question:
    """An open request: its session, its tool call and the task that waits for the answer."""

    request: messages.PermissionRequest
    session: Session | None = None
    call_id: str = ""
    #: Whether the tool call was shown only for this request.
    is_own_call: bool = False
    asking: asyncio.Task[None] | None = None


class Questions:
    """Show the agent's permission requests to the person in the editor, and send the answers to the sprite."""

    def __init__(
        self, link: BridgeLink, editor: Editor, tasks: TaskSet, session_for: Callable[[str | None], Session | None]
    ) -> None:
        """`session_for` returns the session for a mission's request, or None if there is no session yet."""
        self._link = link
        self._editor = editor
        self._session_for = session_for
        self._open: dict[str, _Question] = {}
        self._tasks = tasks

    async def keep(
        self, requests: Mapping[str, messages.PermissionRequest], decision: messages.Decision | None = None
    ) -> None:
        """Ask the editor all these open permission requests, and close the shown ones that are not among them.

        `decision` is the answer to a request that was just closed. Without it, a running tool call keeps its status.
        """
        for gone in self._open.keys() - requests.keys():
            await self._close(self._open.pop(gone), decision)
        for request in requests.values():
            self._open.setdefault(request.request_id, _Question(request))
        self.go_on()

    def go_on(self) -> None:
        """Show the permission requests that had no session of the editor before, if there is one now."""
        for question in self._open.values():
            session = self._session_for(question.request.mission_id)
            if session is not None and question.asking is None:
                question.session = session
                question.asking = self._tasks.start(self._ask(question, session), "acp-question")

    async def _ask(self, question: _Question, session: Session) -> None:
        request = question.request
        known = session.call_of(request)
        call_id = known or f"question-{request.request_id}"
        question.call_id, question.is_own_call = call_id, known is None
        title, content = tool_calls.question(request)
        kind = tool_calls.kind_of(request.tool)
        if known is None:
            shown = start_tool_call(call_id, title, kind=kind, status="pending", content=content)
            await self._editor.update(session.id, shown)
        call = ToolCallUpdate(
            tool_call_id=call_id, title=title, kind=kind, status="pending", content=content, raw_input=request.input
        )
        try:
            chosen = await self._editor.ask(session.id, call, _options(request))
        except RequestError as error:
            log.warning("the editor cannot ask for permission (%s): the question stays open elsewhere", error)
            return
        decision = next((each for each in get_args(messages.Decision) if each == chosen), None)
        if decision is not None:
            self._link.post(messages.Permission(request.request_id, decision))

    async def _close(self, question: _Question, decision: messages.Decision | None) -> None:
        if question.session is None or not question.call_id:
            return
        if question.asking is not None and not question.asking.done():
            await self._editor.withdraw(question.call_id)
            question.asking.cancel()
        if decision is None and not question.is_own_call:
            return
        # A running call reports its own end. A call shown only for the request ends with it.
        status: Literal["completed", "in_progress", "failed"] = "failed"
        if decision in {"allow", "session", "always"}:
            status = "completed" if question.is_own_call else "in_progress"
        await self._editor.update(question.session.id, update_tool_call(question.call_id, status=status))


def _options(request: messages.PermissionRequest) -> list[PermissionOption]:
    """Return the possible answers to a permission request. "always" appears only with a narrow rule, and names it."""
    always = [] if request.always is None else [f"Always allow {one_line(request.always)}"]
    session = [] if request.session is None else [f"Allow {one_line(request.session)} in this session"]
    return [
        PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
        *(PermissionOption(option_id="session", name=name, kind="allow_always") for name in session),
        *(PermissionOption(option_id="always", name=name, kind="allow_always") for name in always),
        PermissionOption(option_id="deny", name="Deny", kind="reject_once"),
    ]


#: Enough for a sleeping VM to wake.
_READY_SECONDS = 90.0
_ASK_SECONDS = 15.0
#: Limit for the end of a stopped message.
_STOP_SECONDS = 30.0
#: Time to deliver the final error answers to the editor.
_LAST_WORDS_SECONDS = 0.5
#: Error codes of the bridge for messages that it could not forward.
_LATER = frozenset({"unavailable", "busy"})
#: An editor opens one session per thread, and need not close it.
MAX_SESSIONS = 100
_UNEXPECTED = "The sprite sent an unexpected answer. The sprite and the bridge have different versions: update both."


class Conversation(Service):
    """Connect an editor's sessions to a sprite: use with `async with`, `open`, then `join` sessions and `send`."""

    def __init__(self, connect: Connect, editor: Editor, on_end: Callable[[], None]) -> None:
        """`on_end` is called once the bridge is permanently unreachable."""
        self.link = BridgeLink(connect)
        self._tasks = TaskSet()
        self.questions = Questions(self.link, editor, self._tasks, self._session_for)
        #: The editor's sessions by id, the least recently used first.
        self.sessions: dict[str, Session] = {}
        #: Why the conversation ended, once it has.
        self.failure: BridgeUnreachableError | None = None
        #: Why the agent is paused, if it is.
        self.paused: Paused | None = None
        #: The model and effort of the agent's session, as far as known.
        self.choice: tuple[str | None, Effort | None] = (None, None)
        self._on_end = on_end
        self._changed = asyncio.Condition()
        self._is_open = False
        #: Whether the bridge has answered, and whether the sprite's state has arrived.
        self._is_reached = self._is_synced = False
        #: Whether the waiting sessions were told about the lost connection.
        self._told_away = False
        self._turns = Turns()
        #: Cancelled missions whose stop could not be delivered.
        self._to_stop: set[str] = set()

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._tasks)

    async def open(self) -> None:
        """Connect and wait for the bridge's answer. Raise RequestError if the bridge is unreachable."""
        if not self._is_open:
            self._is_open = True
            await self._stack.enter_async_context(self.link)
            await self._stack.enter_async_context(
                owned_task(self._follow(), name="acp-follow", on_death=self._on_end, may_return=True)
            )
        await self._until(lambda: self._is_reached)

    async def ready(self) -> None:
        """Wait for the sprite. Raises RequestError if it does not connect in time."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self._until(lambda: self._is_synced and self.link.is_ready)
        except TimeoutError:
            words = f"The sprite did not connect within {_READY_SECONDS:.0f} seconds. Try again in a moment."
            raise unavailable(words) from None

    async def ask(self, payload: messages.ClientPayload, expected: type[_T], seconds: float = _ASK_SECONDS) -> _T:
        """Send a request to the sprite. Raise RequestError if the sprite refuses or does not answer."""
        await self.ready()
        try:
            answer = (await self.link.ask(payload, timeout_seconds=seconds)).payload
        except NotConnectedError:
            raise unavailable("The connection broke. Try again in a moment.") from None
        except TimeoutError:
            words = f"No answer within {seconds:.0f} seconds. The request may still be carried out."
            raise unavailable(words) from None
        if isinstance(answer, messages.Error):
            raise RequestError(-32603, answer.message)
        if not isinstance(answer, expected):
            raise unavailable(_UNEXPECTED)
        return answer

    def join(self, session: Session) -> None:
        """Add a session of the editor. It shows no earlier messages.

        Beyond the limit, the idle session that was used least recently is removed.
        """
        quiet = [each.id for each in self.sessions.values() if not each.waits]
        if len(self.sessions) >= MAX_SESSIONS and quiet:
            del self.sessions[quiet[0]]
        self.sessions[session.id] = session
        session.skip(self._turns.turns.values())

    def touched(self, session: Session) -> None:
        """Record that the person uses this session now: questions about other missions appear in it."""
        if session.id in self.sessions:
            self.sessions[session.id] = self.sessions.pop(session.id)

    def _session_for(self, mission_id: str | None) -> Session | None:
        newest_first = list(reversed(self.sessions.values()))
        own = [session for session in newest_first if mission_id in session.missions]
        return next(iter(own + newest_first), None)

    def send(self, session: Session, prompt: Prompt, message: Marked, pictures: Sequence[str] = ()) -> None:
        """Send a message to the sprite. It is delivered once, even if the connection breaks."""
        images = [messages.Image(path=path) for path in pictures]
        mission_id = self.link.post(messages.Mission(message.text, pasted=list(message.pasted), images=images))
        prompt.mission_id = mission_id
        session.missions.add(mission_id)
        self._turns.send(mission_id, message.text)

    def cancel(self, session: Session) -> None:
        """Mark a session's messages as cancelled, and stop the turns of those that have not ended."""
        for prompt in session.prompts:
            prompt.is_cancelled = True
            if prompt.mission_id is not None and not prompt.ended.done():
                self._tasks.start(self._stop(prompt, prompt.mission_id), "acp-stop")

    async def _stop(self, prompt: Prompt, mission_id: str) -> None:
        """Ask the sprite to stop a mission. End its prompt even without an answer: the editor waits for that."""
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                answer = (await self.link.ask(messages.Interrupt(mission_id), timeout_seconds=_ASK_SECONDS)).payload
                if not (isinstance(answer, messages.Error) and answer.code in _LATER):
                    await asyncio.wait([prompt.ended])
                    return
        except (NotConnectedError, TimeoutError):
            pass
        self._to_stop.add(mission_id)
        prompt.end(Interrupted(mission_id))

    async def _follow(self) -> None:
        try:
            async for message in self.link:
                await self._heard(message)
                async with self._changed:
                    self._changed.notify_all()
        except BridgeUnreachableError as error:
            self.failure = error
            for session in self.sessions.values():
                for prompt in session.prompts:
                    prompt.end(None)
            async with self._changed:
                self._changed.notify_all()
            # First, the editor gets its answers.
            asyncio.get_running_loop().call_later(_LAST_WORDS_SECONDS, self._on_end)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: condition() or self.failure is not None)
        if self.failure is not None:
            raise unavailable(str(self.failure))

    async def _heard(self, message: RelayedMessage) -> None:
        # The link's own messages about an unreachable bridge have no id.
        self._is_reached |= bool(message.id)
        changed = self._turns.hear(message.payload, message.reply_to)
        decision: messages.Decision | None = None
        match message.payload:
            case messages.LinkState() as change:
                await self._link_changed(change)
            case messages.Ack(status="queued", position=position):
                await self._queued(message.reply_to, position)
            case messages.StateSync() | messages.SessionUpdate() as update:
                self._is_synced |= isinstance(update, messages.StateSync)
                await self._session_changed(update.session)
            case messages.PermissionResolved(decision=decided):
                decision = decided or "deny"
            case _:
                pass
        for session in self._all():
            # The session's own missions first: until they have ended, it shows no others.
            for turn in sorted(changed, key=lambda each: each.id not in session.missions):
                await session.show(turn)
        self._to_stop -= {turn.id for turn in changed if turn.ending is not None}
        await self.questions.keep(self._turns.questions, decision)

    async def _session_changed(self, state: SessionState) -> None:
        paused, choice = self.paused, self.choice
        self.paused, self.choice = state.paused, (state.model, state.effort)
        for session in self._all():
            if state.paused is not None and state.paused != paused:
                await session.note(f"{state.paused.why} {drawing.how_to_go_on(state.paused)}")
            if self.choice != choice:
                await session.configure(self.choice)

    async def _link_changed(self, change: messages.LinkState) -> None:
        if change.state == "ready":
            self._told_away = False
            for mission_id in self._to_stop:
                with suppress(NotConnectedError):
                    self.link.post(messages.Interrupt(mission_id))
        elif change.state == "unavailable" and not self._told_away:
            self._told_away = True
            words = f"{change.detail} Nothing you sent is lost. It continues when the connection is back."
            for session in self._all():
                if session.waits:
                    await session.note(words)

    async def _queued(self, mission_id: str | None, position: int | None) -> None:
        for session in self._all():
            if session.prompt_of(mission_id) is not None:
                await session.note(f"Queued at position {position}: the agent finishes its current work first.")

    def _all(self) -> list[Session]:
        # A copy, because the editor may open another session meanwhile.
        return list(self.sessions.values())


def unavailable(words: str) -> RequestError:
    """Return the RequestError with this message, which the editor shows to the person."""
    return RequestError(-32603, words)
