"""The client's state of the conversation, which turns each message of the sprite into output."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import RenderableType

from bridge.client.link import BridgeLink, NotConnectedError
from bridge.client.turns import Turn, Turns
from bridge.terminal import drawing
from bridge.terminal.drawing import draw_card, one_line
from bridge.terminal.terminal import Screen
from bridge.terminal.turn import ShownTurns
from sprite.protocol import messages
from sprite.protocol.events import ToolUse
from sprite.protocol.frames import RelayedMessage
from sprite.protocol.pasted import Spans
from sprite.protocol.shapes import BackgroundWork, Card, Paused, SessionState, Stopped, counted
from sprite.protocol.tools import NETWORK

#: Shown until the bridge gives a reason.
_STARTING = "Starting the agent…"
_DECISIONS: dict[str, messages.Decision] = {"y": "allow", "n": "deny", "s": "session", "a": "always"}
_DECISIONS |= {"yes": "allow", "no": "deny", "session": "session", "always": "always"}
_OUTCOMES: dict[str, tuple[str, str]] = {
    "allow": ("  ✓ allowed", "green"),
    "session": ("  ✓ allowed in this session", "green"),
    "deny": ("  ✗ denied", "red"),
}

_OPEN_THE_PAGE = "Choose on your page what to do, or ask an operator (`python -m bridge restore`)."

_OUTPUT_LINES = 6
#: With so many turns waiting, as after an import, one line tells what was learned from all of them.
_MANY_WAITING = 50
#: Kinds of stopped work that report their end in an event.
_TURNS = frozenset({"mission", "turn"})


class Conversation:
    """The conversation: `follow` reads the link until it ends, the other methods are the person's actions."""

    def __init__(
        self, link: BridgeLink, screen: Screen, *, banner: Callable[[], RenderableType], zone: str | None = None
    ) -> None:
        """`zone` is the person's time zone, if this machine knows it; the first message tells it to the sprite."""
        #: The open cards by id, oldest first.
        self.cards: dict[str, Card | messages.CanvasUpdate] = {}
        #: Files that wait for the person's decision.
        self.drift: list[str] = []
        #: The operation that a command waits for, or "".
        self.busy_with = ""
        #: Why there is no link, or "", and since when (monotonic seconds).
        self.link_text, self.link_since = _STARTING, time.monotonic()
        self.turns = self.waiting = 0
        #: Number of times that something was remembered since the start.
        self.remembered = 0
        #: Updates of memory that are not shown yet, because more will follow.
        self._untold: list[messages.MemoryUpdate] = []
        #: The agent's background work.
        self.background: list[BackgroundWork] = []
        #: Titles of all background work by id. It has left `background` when the answer to a stop arrives.
        self._titles: dict[str, str] = {}
        self.synced = False
        #: The last shown advice about the bridge's offer.
        self._advised = ""
        self.next_due: messages.NextDue | None = None
        #: Why the agent is paused, if it is.
        self.paused: Paused | None = None
        #: The untrusted content that the session has read.
        self.sources: list[str] = []
        #: The person's zone as stored by the sprite.
        self.tz = ""
        #: Pictures for the next message.
        self.attached: list[messages.Image] = []
        #: The zone to tell the sprite, until it was told.
        self._zone = zone
        self._link = link
        self._screen = screen
        self._banner: Callable[[], RenderableType] | None = banner
        self._queued: set[str] = set()
        self._refreshing: set[str] = set()
        #: Whether the shown question was closed elsewhere, and no line was entered since.
        self._lost_question = False
        self._turns = Turns()
        self._shown = ShownTurns(screen)
        #: The turn that the person stops.
        self._stopping = ""
        self._changed = asyncio.Condition()

    @property
    def turn(self) -> Turn | None:
        """Return the running turn."""
        return self._turns.running

    @property
    def questions(self) -> dict[str, messages.PermissionRequest]:
        """Return the open questions, the shown one first."""
        return self._turns.questions

    @property
    def doing(self) -> str:
        """Return what the running turn does: the tool in use, or ""."""
        turn = self.turn
        if turn is None or turn.compacting:
            return "making room" if turn is not None else ""
        tools = [drawing.tool_name(call.use.name or "a tool") for call in turn.calls if not call.is_over]
        return "stopping" if turn.id == self._stopping else "".join(tools[-1:])

    @property
    def output(self) -> list[str]:
        """Return the last lines that the running commands have printed."""
        calls = [] if self.turn is None else [call for call in self.turn.calls if not call.is_over]
        return [line for call in calls for line in call.output.splitlines()][-_OUTPUT_LINES:]

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Show what a command waits for while the block runs."""
        self.busy_with = doing
        try:
            yield
        finally:
            self.busy_with = ""

    async def say(self, text: str, pasted: Spans = ()) -> str | None:
        """Send a message to the agent. Return the mission's id, or None if it is too long."""
        if len(text) > messages.MAX_MISSION_CHARS:
            problem = f"The message has {len(text):,} characters; at most {messages.MAX_MISSION_CHARS:,} are allowed."
            await self._screen.show(drawing.problem(problem, "Put it into a file of the workspace instead."))
            return None
        await self._screen.show(drawing.said(text))
        self._tell_zone()
        images, self.attached = self.attached, []
        mission_id = self._link.post(messages.Mission(text=text, pasted=list(pasted), images=images))
        self._shown.skip(self._turns.send(mission_id, text))
        if self.questions:
            await self._screen.line(drawing.note("  sent as a message; the agent's question is still open"), below=True)
        if not self._link.is_ready and self.synced:
            problem = "  not connected: it goes out when the sprite is back"
            await self._screen.line(drawing.note(problem), below=True)
        return mission_id

    def _tell_zone(self) -> None:
        """Send the time zone with the first message, so that "tomorrow at 9" means the person's."""
        if self._zone not in {None, self.tz} and self._link.is_ready:
            self._refreshing.add(self._link.post(messages.System(action="zone", tz=self._zone)))
            self._zone = None

    async def interrupt(self, *, background: bool = True) -> bool:
        """Stop the running turn, or the background work if none runs. Return False if there is neither."""
        # By id, because a mission may wait for the end of the agent's own turn.
        own = next((turn for turn in self._turns.turns.values() if turn.is_own and turn.ending is None), None)
        turn = self.turn or own
        if turn is None and not (background and self.background):
            return False
        try:
            self._link.post(messages.Interrupt(None if turn is None else turn.id))
        except NotConnectedError:
            await self._screen.line(drawing.note("  not connected: the turn cannot be stopped right now"))
        else:
            self._stopping = "" if turn is None else turn.id
        return True

    @property
    def asked(self) -> str | None:
        """Return the id of the shown question."""
        return next(iter(self.questions), None)

    def decision_of(self, line: str) -> messages.Decision | None:
        """Return the answer in a line, or None if it is not one that the shown question offers."""
        decision = _DECISIONS.get(line.lower())
        is_offered = self.asked is not None and self.questions[self.asked].session is not None
        return None if decision == "session" and not is_offered else decision

    async def takes(self, line: str, asked: str | None) -> bool:
        """Handle a line that answers a question, and return whether it was one; `asked` was shown when it was begun.

        An answer to a closed question, or to one that appeared during typing, does nothing. A leading space makes any
        word a message.
        """
        lost, self._lost_question = self._lost_question, False
        decision = self.decision_of(line.rstrip())
        if decision is None and asked is not None and asked == self.asked and len(line.rstrip()) == 1:
            words = f"  {one_line(line)} is not a possible answer: nothing was sent (put a space before it to send it)"
            await self._screen.line(drawing.note(words))
            await self._ask_next()
            return True
        if decision is None or (asked is None and self.asked is None and not lost):
            return False
        if asked is not None and asked == self.asked:
            await self.answer(decision)
            return True
        over = "a question came while you typed" if self.questions else "that question is not open any more"
        await self._screen.line(drawing.note(f"  {over}: nothing was sent (put a space before it to send it)"))
        await self._ask_next()
        return True

    async def answer(self, decision: messages.Decision) -> None:
        """Answer the shown question. "always" means once if the question does not offer it."""
        if self.asked is None:
            return
        request = self.questions.pop(self.asked)
        if decision == "always" and request.always is not None:
            outcome = drawing.allowed_always(request)
        else:
            decision = decision if decision in {"deny", "session"} else "allow"
            outcome = drawing.line(_OUTCOMES[decision])
        self._link.post(messages.Permission(request_id=request.request_id, decision=decision))
        await self._screen.line(outcome, below=True)
        await self._ask_next()

    async def tell_stopped(self, stopped: list[Stopped]) -> None:
        """Show the stopped background work. Turns report their own end."""
        beside = [self._titles.get(one.id) or f"a {one.kind}" for one in stopped if one.kind not in _TURNS]
        if beside:
            await self._screen.line(drawing.stopped(beside))

    def is_outstanding(self, mission_id: str) -> bool:
        """Return whether a mission has not ended yet."""
        return self._turns.is_outstanding(mission_id)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true; it is checked after each message of the link."""
        async with self._changed:
            await self._changed.wait_for(condition)

    async def follow(self) -> None:
        """Show messages of the link until it fails (BridgeUnreachableError) or this is cancelled."""
        async for item in self._link:
            await self._heard(item)
            async with self._changed:
                self._changed.notify_all()

    async def _link_changed(self, change: messages.LinkState) -> None:
        if change.offer is not None and (advice := f"{change.detail} {_OPEN_THE_PAGE}") != self._advised:
            self._advised = advice
            await self._screen.line(drawing.note(advice))
        if not self.link_text:
            self.link_since = time.monotonic()
        if change.state == "ready":
            if self.link_text.startswith("reconnecting"):
                await self._screen.line(drawing.note("connected again"))
            self.link_text = ""
            if self._banner is not None:
                await self._screen.show(self._banner())
                self._banner = None
        elif change.state == "unavailable":
            if change.offer is None and not self.link_text.startswith("reconnecting") and self.synced:
                await self._screen.line(drawing.note(f"{change.detail} Reconnecting…"))
            self.link_text = f"reconnecting… {change.detail}"
        elif not self.link_text.startswith("reconnecting"):
            self.link_text = change.detail or _STARTING

    async def _heard(self, message: RelayedMessage) -> None:
        asked, changed = self.asked, self._turns.hear(message.payload, message.reply_to)
        match message.payload:
            case messages.LinkState() as change:
                await self._link_changed(change)
            case messages.ConnectionUpdate():
                # The page shows connections.
                pass
            case messages.Ack() | messages.Error() as answer:
                await self._answered(answer, message.reply_to)
            case messages.Status() as status:
                self._refreshing.discard(message.reply_to or "")
                await self._count(status)
            case messages.StateSync() as sync:
                await self._sync(sync)
            case messages.Gap():
                await self._screen.line(drawing.note("some events since then are no longer available"))
            case event:
                await self._event(event)
        for turn in changed:
            await self._turn_changed(turn)
        self._lost_question |= asked is not None and asked not in self.questions
        if self.asked != asked:
            await self._ask_next()

    async def _event(self, event: messages.RelayedPayload) -> None:
        match event:
            case messages.CanvasUpdate() as update:
                await self._canvas(update)
            case messages.SessionUpdate(session=session):
                await self._count_session(session)
            case messages.MemoryUpdate(drift=drift) as update:
                # Changes of actions alone are reported by the command or turn that made them.
                if update.files or update.learnings:
                    self.remembered += 1
                    self._untold.append(update)
                    await self._tell_learned()
                await self._note_drift(drift)
                self._refresh()
            case messages.ScheduleUpdate(next_due=next_due):
                self.next_due = next_due
            case messages.RuleOffered() | messages.RuleApplied() as rule:
                if (drawn := drawing.rule_event(rule)) is not None:
                    await self._screen.show(drawn)
            case _:
                pass

    async def _answered(self, answer: messages.Ack | messages.Error, reply_to: str | None) -> None:
        if reply_to is not None and reply_to in self._refreshing:
            # Only an error answers with this id; the numbers stay as they were.
            self._refreshing.discard(reply_to)
        elif isinstance(answer, messages.Error):
            if reply_to not in self._turns.turns:
                await self._screen.show(drawing.problem(answer.message))
        elif answer.stopped:
            await self.tell_stopped(answer.stopped)
        elif answer.status == "queued" and reply_to is not None and reply_to in self._turns.turns:
            self._queued.add(reply_to)
            await self._screen.line(drawing.note(f"  queued, position {answer.position}"), below=True)

    async def _turn_changed(self, turn: Turn) -> None:
        if turn.attempt and turn.id in self._queued:
            # The turn of a queued message starts: show again which message is answered.
            self._queued.discard(turn.id)
            await self._screen.show(drawing.said(turn.text or ""))
        if await self._shown.show(turn):
            self._refresh()

    async def _ask_next(self) -> None:
        if self.asked is not None:
            request = self.questions[self.asked]
            await self._screen.show(drawing.question(request, self._asking_call(request)))

    def _asking_call(self, request: messages.PermissionRequest) -> ToolUse | None:
        """Return the call whose program asks for a host, or None if it may be another's."""
        turn = self._turns.turns.get(request.mission_id or "") if request.tool == NETWORK else None
        running = [call.use for call in turn.calls if not call.is_over] if turn is not None else []
        return running[0] if len(running) == 1 else None

    async def _canvas(self, update: messages.CanvasUpdate) -> None:
        if update.command == "close_card":
            self.cards.pop(update.card_id, None)
            await self._screen.line(drawing.note(f"card closed: {one_line(update.title)}"))
        else:
            self.cards[update.card_id] = update
            changed = "changed" if update.command == "update_card" else ""
            await self._screen.show(draw_card(update.title, update.blocks, subtitle=changed))

    async def _sync(self, sync: messages.StateSync) -> None:
        await self._count(sync)
        self.cards = {card.card_id: card for card in sync.cards if not card.archived}
        await self._note_drift(sync.memory.drift)
        if self.synced:
            return
        self.synced = True
        turns = self._turns.turns
        own = {turn.id for turn in turns.values() if turn.is_own}
        for turn in turns.values():
            self._shown.skip(turn)
        if (past := drawing.history([line for line in sync.chat if line.mission_id not in own])) is not None:
            await self._screen.show(past)
        if self.cards:
            words = f"{counted(len(self.cards), 'card')} on the canvas: /cards shows them"
            await self._screen.line(drawing.note(words))

    async def _note_drift(self, names: list[str]) -> None:
        if new := [name for name in names if name not in self.drift]:
            await self._screen.line(drawing.drifted(new))
        self.drift = names

    async def _count(self, state: messages.Status | messages.StateSync) -> None:
        self.waiting = state.memory.waiting
        self.next_due, self.tz = state.next_due, state.tz
        await self._tell_learned()
        await self._count_session(state.session)

    async def _tell_learned(self) -> None:
        """Show what was learned, in one line for all the turns of an import."""
        if self._untold and self.waiting < _MANY_WAITING:
            await self._screen.line(drawing.remembered(self._untold))
            self._untold = []

    async def _count_session(self, session: SessionState) -> None:
        before, self.paused = self.paused, session.paused
        self.turns, self.sources = session.turns, session.sources
        self.background = session.background
        self._titles |= {work.id: work.title for work in session.background}
        if self.paused is not None and self.paused != before:
            await self._screen.show(drawing.problem(self.paused.why, drawing.how_to_go_on(self.paused)))

    def _refresh(self) -> None:
        """Request the numbers of the state line if connected."""
        if self._link.is_ready:
            self._refreshing.add(self._link.post(messages.System(action="status")))
