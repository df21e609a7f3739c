"""One session of the editor: a view of the person's conversation with their agent.

Shows the missions sent from it. While none of them runs, it also shows other turns. Has no link: its data is passed in.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from acp.helpers import (
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
    update_user_message_text,
)

from bridge.acp import tool_calls
from bridge.acp.text_stream import TextStream, rest
from bridge.chat import drawing
from bridge.chat.untrusted import one_line
from sprite.protocol.events import (
    Compacted,
    Compacting,
    Complete,
    Ending,
    Failed,
    Interrupted,
    Started,
    TextDelta,
    ToolResult,
    ToolUse,
    WholeText,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acp.helpers import SessionUpdate
    from acp.schema import ToolCallStatus

    from bridge.acp.editor import Editor
    from sprite.protocol.events import AgentEvent
    from sprite.protocol.messages import ChatSaid, Error, PermissionRequest
    from sprite.protocol.shapes import ChatMessage, Origin, UsedTool

Mode = Literal["ask", "bypass"]

_GOING_ON = frozenset({"queued", "running"})


class Prompt:
    """A message sent from this session. `ended` is its end, or None if it is not awaited any more."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[Ending | Error | None] = asyncio.get_running_loop().create_future()
        #: Set once it was sent.
        self.mission_id: str | None = None
        self.is_taken = False
        self.is_cancelled = False

    def end(self, how: Ending | Error | None) -> None:
        """Set the end, once."""
        if not self.ended.done():
            self.ended.set_result(how)


@dataclass(slots=True)
class _ShownTurn:
    """The shown part of a turn: its whole texts, its calls, and the running ones with their details."""

    stream: TextStream
    attempt: int = 1
    texts: list[str] = field(default_factory=list)
    calls: set[str] = field(default_factory=set)
    running: dict[str, ToolUse] = field(default_factory=dict)


class Session:
    """One session: `show` events. Holders of `busy` show the past, and new events wait for it."""

    def __init__(self, session_id: str, editor: Editor) -> None:
        self.id = session_id
        self.mode: Mode = "ask"
        self.busy = asyncio.Lock()
        #: Messages sent here that have not ended.
        self.prompts: list[Prompt] = []
        #: All missions ever sent here.
        self.missions: set[str] = set()
        self._editor = editor
        self._turns: dict[str | None, _ShownTurn] = {}
        #: Turns from elsewhere that are not shown: they ran while this session's own did, or were shown before.
        self._hidden: set[str | None] = set()
        #: Whether the agent's text was shown last, to which an editor would append the next one.
        self._after_text = False

    # --- what was sent here ---

    @property
    def waits(self) -> bool:
        """Return whether a message sent here has not ended."""
        return any(not prompt.ended.done() for prompt in self.prompts)

    def spoken(self) -> None:
        """Note that the editor shows the person's message."""
        self._after_text = False

    def begin(self, prompt: Prompt) -> None:
        """Start a message. Other turns are hidden until it has ended."""
        self.prompts.append(prompt)
        self._hidden |= {turn for turn in self._turns if turn not in self.missions}
        self._turns = {turn: shown for turn, shown in self._turns.items() if turn in self.missions}

    def sent(self, prompt: Prompt, mission_id: str) -> None:
        """Set the id of a sent message."""
        prompt.mission_id = mission_id
        self.missions.add(mission_id)

    def prompt_of(self, mission_id: str | None) -> Prompt | None:
        """Return the running message with this id, or None."""
        return next((prompt for prompt in self.prompts if mission_id and prompt.mission_id == mission_id), None)

    # --- what is shown ---

    async def say(self, text: str) -> None:
        """Show the program's own text in the agent's place, such as a command's result."""
        await self._text(text, begins=True)

    async def note(self, text: str) -> None:
        """Show a remark beside the conversation."""
        self._after_text = False
        await self._update(update_agent_thought_text(text))

    async def missed(self, message: ChatMessage) -> None:
        """Show the missing part of a turn that ended during a gap."""
        turn = message.mission_id
        is_ours = turn in self.missions
        if turn in self._hidden or (self.waits and not is_ours):
            return
        shown = self._turns.get(turn)
        if message.role == "user" or shown is None:
            # The editor shows messages sent here itself, and the end of the prompt reports errors.
            if shown is None and (not is_ours or message.role == "assistant"):
                await self._past(message)
            return
        del self._turns[turn]
        for call in shown.running:
            await self._update(update_tool_call(call, status="completed"))
        if message.role == "assistant":
            await self._tools(message, message.tools[len(shown.calls) :])
            begins = not shown.stream.is_open
            before = "\n\n".join([*shown.texts, shown.stream.shown]).strip()
            await self._text(rest(message.text, before), begins=begins)
        elif not is_ours:
            await self._past(message)

    async def replay(self, chat: Iterable[ChatMessage]) -> None:
        """Show the conversation so far in an empty session."""
        self._turns.clear()
        self._hidden.clear()
        self._after_text = False
        for message in chat:
            await self._past(message)
            if message.status not in _GOING_ON:
                self._hidden.add(message.mission_id)

    async def catch_up(self, turn: str, events: Iterable[AgentEvent], partial: str | None) -> None:
        """Show the missing part of a running turn, and its growing text if it is known."""
        if turn in self._hidden:
            return
        for event in events:
            if not self._is_known(self._shown(turn), event):
                await self.show(event, said=None)
        shown = self._shown(turn)
        if partial is None:
            shown.stream.lose()
        else:
            begins = not shown.stream.is_open
            await self._text(shown.stream.resync(partial), begins=begins)

    async def show(self, event: AgentEvent, said: ChatSaid | None) -> None:
        """Show one event; `said` is the message that its turn answers if it was sent elsewhere."""
        turn = event.mission_id
        is_ours = turn in self.missions
        if turn not in self._turns and not is_ours and self.waits:
            self._hidden.add(turn)
        if turn in self._hidden:
            if isinstance(event, Ending):
                self._hidden.discard(turn)
            return
        match event:
            case Started(attempt=attempt) if attempt > 1 and turn in self._turns:
                await self.note(drawing.BEGUN_AGAIN)
                self._turns[turn] = _ShownTurn(TextStream(), attempt)
            case Started(origin=origin) if not is_ours:
                await self._began(origin, said)
                self._turns[turn] = _ShownTurn(TextStream())
            case Started():
                self._turns[turn] = _ShownTurn(TextStream())
            case Ending():
                await self._end(event, self._shown(turn))
            case _:
                await self._show(event, self._shown(turn))

    def lose(self) -> None:
        """Note that text deltas were missed because the connection broke."""
        for shown in self._turns.values():
            shown.stream.lose()

    def call_of(self, request: PermissionRequest) -> str | None:
        """Return the id of the shown call that a permission request is about, or None."""
        shown = self._turns.get(request.mission_id)
        calls = reversed(shown.running.values()) if shown is not None else ()
        fitting = (call for call in calls if call.name == request.tool and call.input == request.input)
        return next((call.tool_use_id for call in fitting), None)

    # --- details ---

    def _shown(self, turn: str | None) -> _ShownTurn:
        # The turn started before this session was opened.
        return self._turns.setdefault(turn, _ShownTurn(TextStream(has_hole=True)))

    async def _began(self, origin: Origin, said: ChatSaid | None) -> None:
        if said is not None:
            await self._user(said)
        elif origin == "agent":
            await self.note("Sprite, by itself:")

    async def _show(self, event: AgentEvent, shown: _ShownTurn) -> None:
        match event:
            case TextDelta(text=text):
                begins = not shown.stream.is_open
                await self._text(shown.stream.feed(text), begins=begins)
            case WholeText(text=text):
                shown.texts.append(text)
                begins = not shown.stream.is_open
                await self._text(shown.stream.finish(text), begins=begins)
            case ToolUse():
                await self._call(event, shown)
            case ToolResult() if (call := shown.running.pop(event.tool_use_id, None)) is not None:
                self._after_text = False
                await self._update(tool_calls.ended(event, call.name))
            case Compacting():
                await self.note("The conversation is long: making room, keeping memory.")
            case Compacted():
                await self.note("Made room: what matters is kept in memory.")

    async def _call(self, event: ToolUse, shown: _ShownTurn) -> None:
        shown.calls.add(event.tool_use_id)
        self._after_text = False
        if (plan := tool_calls.plan(event)) is not None:
            await self._update(plan)
            return
        shown.running[event.tool_use_id] = event
        await self._update(tool_calls.started(event))

    async def _end(self, event: Ending, shown: _ShownTurn) -> None:
        del self._turns[event.mission_id]
        if isinstance(event, Complete) and event.text and not shown.texts:
            begins = not shown.stream.is_open
            await self._text(shown.stream.finish(event.text), begins=begins)
        for call in shown.running:
            await self._update(tool_calls.stopped(call))
        prompt = self.prompt_of(event.mission_id)
        if isinstance(event, Interrupted) and (prompt is None or not prompt.is_cancelled):
            await self.note("Stopped, not from here.")
        if prompt is not None:
            prompt.end(event)
        elif isinstance(event, Failed):
            await self.say(f"✗ {event.message}")

    async def _past(self, message: ChatMessage) -> None:
        if message.role == "user":
            await self._user(message)
            return
        await self._tools(message, message.tools)
        mark = "✗ " if message.role == "error" else ""
        await self._text(f"{mark}{message.text}" if message.text else "", begins=True)

    async def _tools(self, message: ChatMessage, tools: list[UsedTool]) -> None:
        for number, tool in enumerate(tools, len(message.tools) - len(tools)):
            self._after_text = False
            title = f"{drawing.tool_name(tool.name)}: {one_line(tool.title)}".rstrip(": ")
            status: ToolCallStatus = "failed" if tool.is_error else "completed"
            call_id = f"past-{message.id}-{number}"
            await self._update(start_tool_call(call_id, title, kind=tool_calls.kind_of(tool.name), status=status))

    async def _user(self, said: ChatMessage | ChatSaid) -> None:
        self._after_text = False
        who = "By schedule: " if said.origin == "schedule" else ""
        if said.asked_by is not None:
            who = f"{one_line(said.asked_by)} asks: "
        await self._update(update_user_message_text(who + said.text))

    async def _text(self, text: str, *, begins: bool) -> None:
        if not text:
            return
        between = "\n\n" if begins and self._after_text else ""
        self._after_text = True
        await self._update(update_agent_message_text(between + text))

    @staticmethod
    def _is_known(shown: _ShownTurn, event: AgentEvent) -> bool:
        match event:
            case Started(attempt=attempt):
                return attempt <= shown.attempt
            case WholeText(text=text):
                return text in shown.texts
            case ToolUse(tool_use_id=call):
                return call in shown.calls
            case ToolResult(tool_use_id=call):
                return call not in shown.running
            case _:
                return True

    async def _update(self, update: SessionUpdate) -> None:
        await self._editor.update(self.id, update)
