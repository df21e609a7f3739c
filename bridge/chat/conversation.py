"""The conversation as this client knows it: what was sent, what runs, what waits for a word.

Owns that state and turns each message of the sprite's into something to see. Knows the link and the screen
only by what they offer; how a key or a line is read, and how anything is drawn, is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from rich.text import Text

from bridge.chat import drawing
from bridge.chat.bridge_link import NotConnectedError
from bridge.chat.cards import draw_card
from bridge.chat.turn import Turns
from bridge.chat.untrusted import one_line
from sprite.protocol.events import AgentEvent, Ending, Failed, Started
from sprite.protocol.frames import RelayedMessage
from sprite.protocol.messages import (
    MAX_MISSION_CHARS,
    Ack,
    CanvasUpdate,
    ChatSaid,
    Error,
    Gap,
    Interrupt,
    LinkState,
    MemoryUpdate,
    Mission,
    Permission,
    PermissionRequest,
    PermissionResolved,
    SessionUpdate,
    StateSync,
    Status,
    System,
)
from sprite.protocol.shapes import Card

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from bridge.chat.bridge_link import BridgeLink
    from bridge.chat.screen import Screen
    from bridge.chat.turn import Turn
    from sprite.protocol.shapes import BackgroundWork, MemoryState, SessionState, Stopped

Decision = Literal["allow", "deny", "always"]
DECISIONS: dict[str, Decision] = {
    "y": "allow",
    "yes": "allow",
    "n": "deny",
    "no": "deny",
    "a": "always",
    "always": "always",
}
_OUTCOMES: dict[Decision, tuple[str, str]] = {
    "allow": ("  ✓ allowed", "green"),
    "deny": ("  ✗ denied", "red"),
    "always": ("  ✓ allowed from now on", "green"),
}


class Conversation:
    """`follow` reads the link until it ends; the other methods are what a person does."""

    def __init__(self, link: BridgeLink, screen: Screen, *, banner: Callable[[], RenderableType]) -> None:
        self.cards: dict[str, Card] = {}
        self.questions: deque[PermissionRequest] = deque()
        #: What a command waits for, in a word; empty while none does.
        self.busy_with = ""
        self.link_text = "starting…"
        self.turns = 0
        self.waiting = 0
        self.learnings = 0
        #: What the agent has at work beside its turns.
        self.background: list[BackgroundWork] = []
        #: What of it was to be stopped, by its id: it is gone when the answer comes.
        self._stopping: dict[str, str] = {}
        self.synced = False
        self._link = link
        self._screen = screen
        self._banner: Callable[[], RenderableType] | None = banner
        self._outstanding: dict[str, str] = {}
        self._queued: set[str] = set()
        self._refreshing: set[str] = set()
        self._turns = Turns(screen)
        self._changed = asyncio.Condition()

    @property
    def turn(self) -> Turn | None:
        """The turn under way."""
        return self._turns.current

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Shows what a command waits for while the block runs."""
        self.busy_with = doing
        try:
            yield
        finally:
            self.busy_with = ""

    # --- what a person does -------------------------------------------------------------------

    async def say(self, text: str) -> str | None:
        """Sends a message to the agent; the mission's id, or None if it cannot be sent."""
        if len(text) > MAX_MISSION_CHARS:
            problem = f"That message has {len(text):,} characters; {MAX_MISSION_CHARS:,} is the most."
            await self._screen.show(drawing.problem(problem, "Put it into a file of the workspace instead."))
            return None
        await self._screen.show(drawing.said(text))
        mission_id = self._link.post(Mission(text=text))
        self._outstanding[mission_id] = text
        if not self._link.is_ready and self.synced:
            problem = "  not connected: it goes out when the sprite is back"
            await self._screen.line(drawing.note(problem), below=True)
        return mission_id

    async def interrupt(self) -> bool:
        """Stops the running turn, or what goes on where none runs; False if nothing does."""
        if self.turn is None and not self._outstanding and not self.background:
            return False
        self._stopping = {work.id: work.title for work in self.background}
        try:
            self._link.post(Interrupt())
        except NotConnectedError:
            await self._screen.line(drawing.note("  not connected: the turn cannot be stopped right now"))
        else:
            if self.turn is not None:
                self.turn.doing = "stopping"
        return True

    async def answer(self, decision: Decision, request_id: str | None = None) -> None:
        """Gives the person's word on the question that is shown: on the named one, if that is still the one."""
        if request_id is not None and (not self.questions or self.questions[0].request_id != request_id):
            await self._screen.line(drawing.note("  that question is not open any more"), below=True)
            return
        if not self.questions:
            return
        request = self.questions.popleft()
        self._link.post(Permission(request_id=request.request_id, decision=decision))
        await self._screen.line(drawing.line(_OUTCOMES[decision]), below=True)
        await self._ask_next()

    def is_outstanding(self, mission_id: str) -> bool:
        """Whether a mission has not ended yet."""
        return mission_id in self._outstanding

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until something that was heard makes the condition true."""
        async with self._changed:
            await self._changed.wait_for(condition)

    # --- what the sprite says -----------------------------------------------------------------

    async def follow(self) -> None:
        """Shows what comes over the link, until it is refused (BridgeUnreachableError) or we are cancelled."""
        async for item in self._link:
            await self._heard(item)
            async with self._changed:
                self._changed.notify_all()

    async def _link_changed(self, change: LinkState) -> None:
        if change.state == "ready":
            if self.link_text.startswith("reconnecting"):
                await self._screen.line(drawing.note("connected again"))
            self.link_text = ""
            if self._banner is not None:
                await self._screen.show(self._banner())
                self._banner = None
        elif change.state == "unavailable":
            if not self.link_text.startswith("reconnecting") and self.synced:
                await self._screen.line(drawing.note(f"{change.detail} Reconnecting…"))
            self.link_text = f"reconnecting… {change.detail}"
            await self._turns.lose()
        elif not self.link_text.startswith("reconnecting"):
            self.link_text = change.detail or "connecting…"

    async def _heard(self, message: RelayedMessage) -> None:
        match message.payload:
            case LinkState() as change:
                await self._link_changed(change)
            case Ack() | Error() as answer:
                await self._answered(answer, message.reply_to)
            case Status(session=session, memory=memory):
                self._refreshing.discard(message.reply_to or "")
                self._count(session, memory)
            case StateSync() as sync:
                await self._sync(sync)
            case Gap():
                await self._screen.line(drawing.note("some of what happened meanwhile is not kept any more"))
            case event:
                await self._event(event)

    async def _event(self, event: object) -> None:
        match event:
            case AgentEvent():
                await self._agent_event(event)
            case CanvasUpdate():
                await self._canvas(event)
            case MemoryUpdate():
                await self._screen.line(drawing.remembered(event))
                self._refresh()
            case PermissionRequest(request_id=request_id):
                await self._keep_questions([*(q for q in self.questions if q.request_id != request_id), event])
            case PermissionResolved(request_id=request_id):
                await self._keep_questions([q for q in self.questions if q.request_id != request_id])
            case SessionUpdate(session=session):
                self._count_session(session)
                if not session.background:
                    await self._keep_questions([q for q in self.questions if not q.background])
            case ChatSaid(mission_id=mission_id, text=text) if mission_id not in self._outstanding:
                # Somebody's other page or terminal.
                await self._screen.show(drawing.said(text))
            case _:
                pass

    async def _answered(self, answer: Ack | Error, reply_to: str | None) -> None:
        if reply_to is not None and reply_to in self._refreshing:
            # Only an error answers so: the numbers stay as they were.
            self._refreshing.discard(reply_to)
        elif isinstance(answer, Error):
            self._outstanding.pop(reply_to or "", None)
            await self._screen.show(drawing.problem(answer.message))
        elif isinstance(answer, Ack) and answer.stopped:
            await self._tell_stopped(answer.stopped)
        elif answer.status == "queued" and reply_to is not None and reply_to in self._outstanding:
            self._queued.add(reply_to)
            await self._screen.line(drawing.note(f"  queued, position {answer.position}"), below=True)

    async def _agent_event(self, event: AgentEvent) -> None:
        if isinstance(event, Started) and event.mission_id in self._queued:
            # Its turn has come, a while after it was typed: say again what is being answered.
            self._queued.discard(event.mission_id)
            await self._screen.show(drawing.said(self._outstanding.get(event.mission_id, "")))
        await self._turns.show(event, is_ours=event.mission_id in self._outstanding)
        if not isinstance(event, Ending):
            return
        if event.mission_id is not None:
            self._outstanding.pop(event.mission_id, None)
        # A turn that is over waits for no word any more, whoever answered; what it left at work may.
        crashed = isinstance(event, Failed) and event.code == "crashed"
        await self._keep_questions(
            [q for q in self.questions if q.mission_id != event.mission_id or (q.background and not crashed)]
        )
        self._refresh()

    async def _tell_stopped(self, stopped: list[Stopped]) -> None:
        """Turns say themselves that they ended; nothing else says it of what went on beside them."""
        for one in stopped:
            if one.kind not in {"mission", "turn"}:
                what = one_line(self._stopping.get(one.id, "")) or f"the {one.kind} in the background"
                await self._screen.line(Text(f"■ stopped {what}", style="yellow"))

    async def _keep_questions(self, asked: list[PermissionRequest]) -> None:
        """Shows the first of the open questions, if it is not the one that is shown."""
        before = self.questions[0].request_id if self.questions else None
        self.questions = deque(asked)
        if self.questions and self.questions[0].request_id != before:
            await self._ask_next()

    async def _ask_next(self) -> None:
        if self.questions:
            await self._screen.show(drawing.question(self.questions[0]))

    async def _canvas(self, update: CanvasUpdate) -> None:
        if update.command == "close_card":
            self.cards.pop(update.card_id, None)
            await self._screen.line(drawing.note(f"card closed: {one_line(update.title)}"))
            return
        self.cards[update.card_id] = Card(
            update.card_id, update.stack_id, update.title, update.card_type, None, None, update.blocks, archived=False
        )
        changed = "changed" if update.command == "update_card" else ""
        await self._screen.show(draw_card(update.title, update.blocks, subtitle=changed))

    async def _sync(self, sync: StateSync) -> None:
        self._count(sync.session, sync.memory)
        self.cards = {card.card_id: card for card in sync.cards if not card.archived}
        running = sync.running.mission_id if sync.running is not None else None
        self._turns.set_running(running or sync.session.running_mission_id)
        await self._keep_questions(sync.permissions)
        if self.synced:
            await self._settle(sync)
            return
        self.synced = True
        shown = [message for message in sync.chat if message.mission_id not in self._outstanding]
        if (past := drawing.history(shown)) is not None:
            await self._screen.show(past)
        if self.cards:
            count = f"{len(self.cards)} card{'s' if len(self.cards) > 1 else ''}"
            await self._screen.line(drawing.note(f"{count} on the canvas: /cards draws"))

    async def _settle(self, sync: StateSync) -> None:
        """After a gap: show the answers whose events we missed."""
        for mission_id in list(self._outstanding):
            ours = [message for message in sync.chat if message.mission_id == mission_id]
            answers = [message for message in ours if message.role != "user"]
            runs = sync.session.running_mission_id == mission_id
            if runs or not ours or (not answers and sync.session.queued):
                continue
            del self._outstanding[mission_id]
            for message in answers:
                if message.role == "error":
                    await self._screen.show(drawing.problem(message.text))
                else:
                    await self._turns.show_missed(message.text)

    def _count(self, session: SessionState, memory: MemoryState) -> None:
        self._count_session(session)
        self.waiting = memory.waiting
        self.learnings = memory.learnings

    def _count_session(self, session: SessionState) -> None:
        self.turns = session.turns
        self.background = session.background

    def _refresh(self) -> None:
        """Asks for the numbers of the state line, where that can be done."""
        if self._link.is_ready:
            self._refreshing.add(self._link.post(System(action="status")))
