"""The conversation as turns: a fold over wire messages (pure), tested with tests/vectors as the page's fold is."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Literal

from sprite.protocol import events, messages
from sprite.protocol.shapes import ChatMessage, Origin, UsedTool

#: `sending`: sent from here, and not acknowledged yet.
Status = Literal["sending", "sent", "queued", "running", "complete", "interrupted", "error"]

_GOING_ON = frozenset({"queued", "running"})
#: Ended turns are kept for late tool results and for the next state, which has about this many.
_MAX_TURNS = 200


@dataclass(eq=False, slots=True)
class Text:
    """A text of the agent, which grows until `is_done`. `has_gap`: deltas were missed, and it ends at the gap."""

    text: str
    is_done: bool = False
    has_gap: bool = False

    def after(self, shown: str) -> str:
        """Return the text to append for a client that has shown `shown` so far."""
        if self.text.startswith(shown):
            return self.text[len(shown) :]
        if not self.is_done:
            return ""
        inner, done = self.text.strip(), shown.strip()
        if inner.startswith(done):
            # The whole may be trimmed, unlike the stream.
            return inner[len(done) :]
        # A secret that was split over deltas is redacted in the whole only. Without a gap, all was shown.
        return self.text[len(commonprefix([self.text, shown])) :] if self.has_gap else ""  # noqa: RUF071 - by letter


@dataclass(eq=False, slots=True)
class Call:
    """A tool call. If it `is_over` without a result, it was stopped with its turn, or continues in the background."""

    use: events.ToolUse
    result: events.ToolResult | None = None
    is_over: bool = False
    #: The last lines that it has printed so far.
    output: str = ""


#: `UsedTool` is a call that was missed.
Part = Text | Call | UsedTool | messages.PermissionRequest | events.ModelChanged


@dataclass(eq=False, slots=True, weakref_slot=True)
class Turn:
    """A turn of the agent: the message that it answers, if any, and what followed. `id` is the mission's."""

    id: str
    text: str | None = None
    origin: Origin = "person"
    asked_by: str | None = None
    status: Status = "sent"
    parts: list[Part] = field(default_factory=list)
    #: Whether the message was sent from here.
    is_own: bool = False
    #: 0 before the turn has begun.
    attempt: int = 0
    #: Start of the turn, in monotonic seconds.
    since: float = field(default_factory=time.monotonic)
    compacting: bool = False
    #: Since when the model thinks, in monotonic seconds, while it does.
    thinks_since: float | None = None
    ending: events.Ending | None = None

    @property
    def calls(self) -> list[Call]:
        """Return the turn's tool calls, oldest first."""
        return [part for part in self.parts if isinstance(part, Call)]

    @property
    def texts(self) -> list[str]:
        """Return the texts of the agent, oldest first."""
        return [part.text for part in self.parts if isinstance(part, Text)]

    @property
    def growing(self) -> Text | None:
        """Return the text to which the agent is adding, or None."""
        last = self.parts[-1] if self.parts else None
        return last if isinstance(last, Text) and not last.is_done else None

    def add(self, part: Part) -> None:
        """Add a part to the turn; the text before it is complete."""
        if (growing := self.growing) is not None:
            growing.is_done = True
        self.parts.append(part)

    def apply(self, event: events.AgentEvent, *, has_gap: bool = False) -> None:
        """Apply the next event before the ending; `has_gap` if deltas were missed since the last whole text."""
        self._begin()
        growing = self.growing
        self.thinks_since = (self.thinks_since or time.monotonic()) if isinstance(event, events.Thinking) else None
        match event:
            case events.Started(origin=origin, attempt=attempt):
                self.origin, self.since = origin, time.monotonic()
                if attempt > self.attempt:
                    # The earlier attempt had no effect.
                    self.attempt, self.parts = attempt, []
            case events.TextDelta(text=text) if growing is None and text:
                self.add(Text("" if has_gap else text, has_gap=has_gap))
            case events.TextDelta(text=text) if growing is not None and not growing.has_gap:
                growing.text += text
            case events.WholeText(text=text) if growing is not None:
                growing.text, growing.is_done = text, True
            case events.WholeText(text=text) if text:
                self.add(Text(text, is_done=True))
            case events.ToolUse() | events.ModelChanged():
                self.add(Call(event) if isinstance(event, events.ToolUse) else event)
            case events.ToolResult() | events.ToolOutput():
                self.answer(event)
            case events.Compacting() | events.Compacted():
                self.compacting = isinstance(event, events.Compacting)

    def _begin(self) -> None:
        self.status, self.attempt = "running", self.attempt or 1

    def answer(self, result: events.ToolResult | events.ToolOutput) -> bool:
        """Set a tool call's result, or its output so far. Return whether the call belongs to this turn."""
        for call in self.calls:
            if call.use.tool_use_id == result.tool_use_id:
                if isinstance(result, events.ToolOutput):
                    call.output = result.text
                else:
                    call.result, call.is_over = result, True
                return True
        return False

    def end(self, ending: events.Ending) -> None:
        """End the turn. Calls without a result are stopped, or go on in the background."""
        if isinstance(ending, events.Complete) and ending.text and not self.texts:
            self.add(Text(ending.text))
        for part in self.parts:
            if isinstance(part, Text):
                part.is_done = True
            elif isinstance(part, Call):
                part.is_over = True
        self.ending, self.compacting = ending, False
        self.status = "complete" if isinstance(ending, events.Complete) else "error"
        if isinstance(ending, events.Interrupted):
            self.status = "interrupted"

    def resume(self, running: messages.Running) -> None:
        """Add the events of a running turn that this client missed, and continue its growing text."""
        done = [part.text for part in self.parts if isinstance(part, Text) and part.is_done]
        known: list[events.AgentEvent | None] = [events.WholeText(self.id, text) for text in done]
        known += [event for call in self.calls for event in (call.use, call.result)]
        for event in running.events:
            if event not in known:
                self.apply(event)
        self._begin()
        growing = self.growing
        if growing is None and running.partial:
            self.add(Text(running.partial))
        elif growing is not None and running.partial.startswith(growing.text):
            growing.text, growing.has_gap = running.partial, False

    def finish(self, lines: list[ChatMessage]) -> None:
        """End the turn from its chat lines, oldest first, because its last events were missed."""
        last = lines[-1]
        words = "" if last.role == "user" else last.text
        self._begin()
        self.parts += last.tools[len(self.calls) :]
        if last.role == "error" or last.status == "error":
            self.end(events.Failed(self.id, "failed", words or "The turn failed.", retryable=True))
            return
        self._add_rest(words)
        is_stopped = last.status == "interrupted"
        self.end(events.Interrupted(self.id) if is_stopped else events.Complete(self.id, words, None, None, 0))

    def _add_rest(self, words: str) -> None:
        """Add the end of the turn's text that is missing here; `words` is its complete text from the chat."""
        texts = [part for part in self.parts if isinstance(part, Text)]
        missing = Text(words, is_done=True, has_gap=True).after("\n\n".join(part.text for part in texts).strip())
        if texts and not texts[-1].is_done:
            texts[-1].text += missing
        elif missing.strip():
            self.parts.append(Text(missing.strip(), is_done=True))


class Turns:
    """The newest turns by id, oldest first, and the open questions. Pass each message to `hear`."""

    def __init__(self) -> None:
        self.turns: dict[str, Turn] = {}
        self.questions: dict[str, messages.PermissionRequest] = {}
        #: Whether deltas were missed since the last whole text.
        self._has_gap = False

    @property
    def running(self) -> Turn | None:
        """Return the running turn: the newest one, because a mission may have to wait for an earlier turn."""
        return next((turn for turn in reversed(self.turns.values()) if turn.status == "running"), None)

    def is_outstanding(self, turn_id: str) -> bool:
        """Return whether a turn is known and has not ended."""
        return turn_id in self.turns and self.turns[turn_id].ending is None

    def send(self, mission_id: str, text: str) -> Turn:
        """Add the turn of a mission that this client sends."""
        turn = self.turns[mission_id] = Turn(mission_id, text, status="sending", is_own=True)
        return turn

    def hear(self, payload: messages.RelayedPayload, reply_to: str | None = None) -> list[Turn]:
        """Apply the next message of the sprite to its turn; return the turns that changed."""
        match payload:
            case events.AgentEvent(mission_id=str(turn_id)):
                return self._event(turn_id, payload)
            case messages.Ack() | messages.Error() if (turn := self.turns.get(reply_to or "")) is not None:
                return self._answered(turn, payload)
            case messages.ChatSaid():
                turn = self._said(payload.mission_id, payload)
                if turn.status == "sent" and self.running is not None:
                    turn.status = "queued"
                return [turn]
            case messages.PermissionRequest():
                return self._asked(payload)
            case messages.PermissionResolved():
                self.questions.pop(payload.request_id, None)
            case messages.SessionUpdate(session=session) if not session.background:
                self._close(lambda request: request.background)
            case messages.StateSync():
                return self._sync(payload)
            case messages.LinkState(state="unavailable"):
                self.lose()
        return []

    def lose(self) -> None:
        """Record that text deltas may be missing from now on, because the connection broke."""
        self._has_gap = True
        for growing in filter(None, (turn.growing for turn in self.turns.values())):
            growing.has_gap = True

    def read(self, chat: Iterable[ChatMessage], going_on: Collection[str] = ()) -> list[Turn]:
        """Add lines of the chat; return the turns that they add or end. Turns with ids in `going_on` have not ended."""
        lines: defaultdict[str, list[ChatMessage]] = defaultdict(list)
        for line in chat:
            if line.mission_id is not None:
                lines[line.mission_id].append(line)
        changed = []
        for turn_id, told in lines.items():
            turn = self._said(turn_id, told[0])
            if turn.ending is not None:
                continue
            if turn_id not in going_on and told[-1].status not in _GOING_ON:
                turn.finish(told)
            changed.append(turn)
        return changed

    def _said(self, turn_id: str, said: messages.ChatSaid | ChatMessage) -> Turn:
        turn = self.turns.setdefault(turn_id, Turn(turn_id, origin=said.origin))
        if turn.text is None and said.role == "user":
            turn.text, turn.asked_by = said.text, said.asked_by
        return turn

    def _asked(self, request: messages.PermissionRequest) -> list[Turn]:
        # A redacted one is the stored copy of a closed question.
        if request.redacted or request.request_id in self.questions:
            return []
        self.questions[request.request_id] = request
        turn = self.turns.get(request.mission_id or "")
        if turn is not None and request not in turn.parts:
            turn.add(request)
        return [] if turn is None else [turn]

    def _answered(self, turn: Turn, answer: messages.Ack | messages.Error) -> list[Turn]:
        if isinstance(answer, messages.Error):
            turn.end(events.Failed(turn.id, answer.code, answer.message, retryable=False))
            self._ended(turn)
        elif turn.status == "sending":
            turn.status = "queued" if answer.status == "queued" else "sent"
        return [turn]

    def _event(self, turn_id: str, event: events.AgentEvent) -> list[Turn]:
        if isinstance(event, events.ToolResult):
            # A result may come after the end of its turn, then in a later one.
            return [turn for turn in self.turns.values() if turn.answer(event)]
        if turn_id not in self.turns and isinstance(event, events.Ending):
            return []
        turn = self.turns.setdefault(turn_id, Turn(turn_id))
        if isinstance(event, events.Ending):
            turn.end(event)
            self._ended(turn)
            return [turn]
        turn.apply(event, has_gap=self._has_gap)
        self._has_gap &= not isinstance(event, events.WholeText)
        if isinstance(event, events.Started):
            self.turns[turn_id] = self.turns.pop(turn_id)
        return [turn]

    def _ended(self, turn: Turn) -> None:
        """Close the questions of an ended turn, except those of background work. Forget the oldest ended turns."""
        has_crashed = isinstance(turn.ending, events.Failed) and turn.ending.code == "crashed"
        self._close(lambda asked: has_crashed if asked.background else asked.mission_id == turn.id)
        ended = [each.id for each in self.turns.values() if each.ending is not None]
        for turn_id in ended[:-_MAX_TURNS]:
            del self.turns[turn_id]

    def _close(self, is_closed: Callable[[messages.PermissionRequest], bool]) -> None:
        self.questions = {key: request for key, request in self.questions.items() if not is_closed(request)}

    def _sync(self, sync: messages.StateSync) -> list[Turn]:
        running = sync.running
        under_way = {sync.session.running_mission_id, running.mission_id if running is not None else None}
        going_on = {turn_id for turn_id in (*sync.queued, *under_way) if turn_id is not None}
        changed = self.read(sync.chat, going_on)
        told = {line.mission_id for line in sync.chat}
        for turn_id in going_on:
            turn = self.turns.setdefault(turn_id, Turn(turn_id))
            turn.status = "running" if turn_id in under_way else "queued"
        for turn in self.turns.values():
            if turn.ending is None and turn.id not in told | going_on and turn.status != "sending":
                lost = "The result of this message is no longer known."
                turn.end(events.Failed(turn.id, "not_found", lost, retryable=False))
                changed.append(turn)
        self.turns = {turn.id: turn for turn in self.turns.values() if turn.ending is None or turn.id in told}
        if running is not None:
            turn = self.turns.pop(running.mission_id)
            turn.resume(running)
            self.turns[turn.id] = turn
            changed.append(turn)
        self.questions.clear()
        for request in sync.permissions:
            self._asked(request)
        self._has_gap = False
        return changed


@dataclass(frozen=True, slots=True)
class Began:
    """The turn has begun. If it `is_again`, remove its parts that were shown so far."""

    is_again: bool


@dataclass(frozen=True, slots=True)
class Grew:
    """Text to append, or the end of a text (`text.is_done`). `begins`: nothing of this text was shown before."""

    text: Text
    piece: str
    begins: bool


@dataclass(frozen=True, slots=True)
class Over:
    """A tool call that was shown has ended."""

    call: Call


#: A part is never a text here.
News = Began | Grew | Over | Part | events.Compacting | events.Compacted | events.Ending


class Reader:
    """The parts of one turn that one client has already shown."""

    def __init__(self) -> None:
        #: The last attempt that was shown, 0 before the turn's begin.
        self._attempt = 0
        #: The index of the next part, and the shown piece of it if it is a text.
        self._part = 0
        self._shown = ""
        #: Shown calls that were not over.
        self._calls: list[Call] = []
        self._is_compacting = self._has_ended = False

    def news(self, turn: Turn) -> list[News]:
        """Return the changes of a turn that this client has not seen, once."""
        news: list[News] = []
        if turn.attempt > self._attempt:
            news.append(Began(is_again=self._attempt > 0))
            self._attempt, self._part, self._shown = turn.attempt, 0, ""
        for part in turn.parts[self._part :]:
            if isinstance(part, Text):
                piece = part.after(self._shown)
                if piece or part.is_done:
                    news.append(Grew(part, piece, begins=not self._shown))
                self._shown = "" if part.is_done else self._shown + piece
                if not part.is_done:
                    break
            else:
                news.append(part)
                if isinstance(part, Call):
                    self._calls.append(part)
            news += self._over()
            self._part += 1
        news += self._over()
        if turn.compacting != self._is_compacting and turn.ending is None:
            self._is_compacting = turn.compacting
            news.append(events.Compacting(turn.id) if turn.compacting else events.Compacted(turn.id))
        if turn.ending is not None and not self._has_ended:
            self._has_ended = True
            news.append(turn.ending)
        return news

    def skip(self, turn: Turn) -> None:
        """Treat the turn's content as shown, except a text that still grows."""
        self.news(turn)
        self._shown = ""

    def _over(self) -> list[News]:
        over = [call for call in self._calls if call.is_over]
        self._calls = [call for call in self._calls if not call.is_over]
        return [Over(call) for call in over]
