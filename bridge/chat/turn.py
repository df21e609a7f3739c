"""The agent's turns as shown: growing text, tool calls and endings."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.chat import drawing
from bridge.chat.reply import StreamedReply
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

    from bridge.chat.screen import Screen
    from sprite.protocol.events import AgentEvent
    from sprite.protocol.messages import StateSync
    from sprite.protocol.shapes import Origin


@dataclass(slots=True)
class Turn:
    """A running turn; `doing` is the tool in use, `since` is in monotonic seconds."""

    mission_id: str | None
    since: float
    origin: Origin = "person"
    doing: str = ""
    has_text: bool = False


def under_way(sync: StateSync) -> dict[str, Origin]:
    """Return the turns of a synced state, the running one last.

    The session may name a mission that still waits for it.
    """
    turns: dict[str, Origin] = {}
    if (named := sync.session.running_mission_id) is not None:
        turns[named] = "person"
    if sync.running is not None:
        begun = [event.origin for event in sync.running.events if isinstance(event, Started)]
        turns.pop(sync.running.mission_id, None)
        turns[sync.running.mission_id] = begun[0] if begun else "person"
    return turns


class Turns:
    """Shows turns. A mission may wait for the end of a turn that the agent started by itself."""

    def __init__(self, screen: Screen) -> None:
        self._under_way: list[Turn] = []
        self._screen = screen
        self._reply = StreamedReply(by_line=screen.by_line)
        #: The turn that the streamed reply belongs to.
        self._streamed: str | None = None
        self._tools: dict[str, str] = {}
        self._newest_tool = ""
        #: The shown calls of the running turns.
        self._shown_calls: set[str] = set()

    @property
    def current(self) -> Turn | None:
        """Return the running turn."""
        return self._under_way[-1] if self._under_way else None

    def began_by_itself(self, turn_id: str | None) -> bool:
        """Return whether a running turn was not started by a person."""
        return any(turn.mission_id == turn_id and turn.origin != "person" for turn in self._under_way)

    def set_running(self, turns: dict[str, Origin]) -> None:
        """Replace the running turns by those of a snapshot: ids with their origins, the running one last."""
        known = {turn.mission_id: turn for turn in self._under_way}
        now = time.monotonic()
        self._under_way = [known.get(turn_id) or Turn(turn_id, now, origin) for turn_id, origin in turns.items()]

    async def lose(self) -> None:
        """Wait for the whole text, because the connection broke and deltas were missed."""
        self._reply.lose()
        await self._screen.reply([], "")

    async def catch_up(self, events: Iterable[AgentEvent]) -> None:
        """Show missed calls and results of the running turn. Its text follows at its end."""
        for event in events:
            is_new_call = isinstance(event, ToolUse) and event.tool_use_id not in self._shown_calls
            if is_new_call or (isinstance(event, ToolResult) and event.tool_use_id in self._tools):
                await self.show(event, is_ours=True)

    async def show_missed(self, turn_id: str | None, text: str) -> None:
        """Show the missing part of the reply of a turn whose end was missed."""
        reply = self._reply if turn_id == self._streamed else StreamedReply(by_line=self._screen.by_line)
        await self._screen.reply(reply.finish(text), "")

    async def show(self, event: AgentEvent, *, is_ours: bool) -> None:
        """Show one event; `is_ours` if this client started the turn."""
        if isinstance(event, Ending):
            await self._end(event)
            return
        if isinstance(event, Started) and event.attempt > 1:
            await self._begin_again(event)
        turn = self._turn(event)
        match event:
            case TextDelta() | WholeText():
                await self._text(turn, event)
            case ToolUse():
                await self._tool_started(turn, event)
            case ToolResult():
                await self._tool_ended(turn, event)
            case Started() if not is_ours:
                await self._screen.line(drawing.began(turn.origin))
            case Compacting():
                turn.doing = "making room"
                await self._screen.line(drawing.note("… the conversation is long: making room, keeping memory"))
            case Compacted():
                turn.doing = ""
                await self._screen.line(drawing.note("✓ made room: what matters is kept in memory"))

    def _turn(self, event: AgentEvent) -> Turn:
        for turn in self._under_way:
            if turn.mission_id == event.mission_id:
                return turn
        # Older sprites gave the agent's own turns no id.
        began: Origin = event.origin if isinstance(event, Started) and event.mission_id else "person"
        turn = Turn(event.mission_id, time.monotonic(), began if event.mission_id else "agent")
        self._under_way.append(turn)
        return turn

    async def _text(self, turn: Turn, event: TextDelta | WholeText) -> None:
        if not event.text:
            return
        turn.doing = ""
        self._streamed = turn.mission_id
        if isinstance(event, WholeText):
            turn.has_text = True
            await self._screen.reply(self._reply.finish(event.text), "")
        else:
            await self._screen.reply(self._reply.feed(event.text), self._reply.tail)

    async def _tool_started(self, turn: Turn, event: ToolUse) -> None:
        name = event.name or "a tool"
        turn.doing = drawing.tool_name(name)
        self._newest_tool = event.tool_use_id
        self._tools[event.tool_use_id] = name
        self._shown_calls.add(event.tool_use_id)
        await self._screen.line(drawing.tool_started(name, event.input))

    async def _tool_ended(self, turn: Turn, event: ToolResult) -> None:
        turn.doing = ""
        name = self._tools.pop(event.tool_use_id, "")
        if drawing.shows_itself(name) and not event.is_error:
            return
        # A result right below its call needs no name; one of several calls does.
        shown = "" if event.tool_use_id == self._newest_tool and not self._tools else name
        await self._screen.line(drawing.tool_ended(shown, event.summary, is_error=event.is_error))

    async def _begin_again(self, event: Started) -> None:
        """Finish the text of the previous, void attempt, and start a new one."""
        if event.mission_id == self._streamed:
            await self._screen.reply(self._reply.finish(), "")
        self._under_way = [turn for turn in self._under_way if turn.mission_id != event.mission_id]
        await self._screen.line(drawing.note(drawing.BEGUN_AGAIN))

    async def _end(self, event: Ending) -> None:
        has_text = any(turn.has_text for turn in self._under_way if turn.mission_id == event.mission_id)
        whole = event.text if isinstance(event, Complete) and event.text and not has_text else None
        await self._screen.reply(self._reply.finish(whole), "")
        if isinstance(event, Interrupted):
            await self._screen.line(drawing.interrupted())
        elif isinstance(event, Failed):
            advice = "Sending it again may work." if event.retryable else ""
            await self._screen.show(drawing.problem(event.message or "The turn failed.", advice))
        self._under_way = [turn for turn in self._under_way if turn.mission_id != event.mission_id]
        self._tools.clear()
        if not self._under_way:
            self._shown_calls.clear()
