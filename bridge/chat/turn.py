"""The agent's turn as it is watched: text that grows, tools that start and end, and how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

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
    from bridge.chat.screen import Screen
    from sprite.protocol.events import AgentEvent


@dataclass(slots=True)
class Turn:
    """The turn under way; `doing` is the tool in use, `since` in seconds of the monotonic clock."""

    mission_id: str | None
    since: float
    doing: str = ""
    has_text: bool = False


class Turns:
    """Shows one turn after another; `current` is the one that runs.

    A mission may wait while a turn that the agent began by itself runs: both are under way, and one of them is current.
    """

    def __init__(self, screen: Screen) -> None:
        self.current: Turn | None = None
        self._under_way: dict[str | None, Turn] = {}
        self._screen = screen
        self._reply = StreamedReply(by_line=screen.by_line)
        self._tools: dict[str, str] = {}
        self._newest_tool = ""

    def set_running(self, mission_id: str | None) -> None:
        """Believe a snapshot about what runs."""
        known = self._under_way.get(mission_id)
        self._under_way.clear()
        self.current = None
        if mission_id is not None:
            self.current = self._under_way[mission_id] = known or Turn(mission_id, time.monotonic())

    async def lose(self) -> None:
        """The connection broke: what streams on will have a hole, so the whole text is waited for."""
        self._reply.lose()
        await self._screen.reply([], "")

    async def show_missed(self, text: str) -> None:
        """Shows a reply whose events did not come."""
        await self._screen.reply(self._reply.finish(text), "")

    async def show(self, event: AgentEvent, *, is_ours: bool) -> None:
        """Shows one event; `is_ours` says that this client asked for the turn."""
        if isinstance(event, Ending):
            await self._end(event)
            return
        if event.mission_id not in self._under_way:
            self._under_way[event.mission_id] = Turn(event.mission_id, time.monotonic())
        self.current = self._under_way[event.mission_id]
        match event:
            case TextDelta() | WholeText():
                await self._text(self.current, event)
            case ToolUse():
                await self._tool_started(self.current, event)
            case ToolResult():
                await self._tool_ended(self.current, event)
            case Started() if not is_ours:
                text = "a message from elsewhere" if event.origin == "person" else "the agent goes on by itself"
                await self._screen.line(drawing.note(f"▸ {text}"))
            case Compacting():
                self.current.doing = "making room"
                await self._screen.line(drawing.note("… the conversation is long: making room, keeping memory"))
            case Compacted():
                self.current.doing = ""
                await self._screen.line(drawing.note("✓ made room: what matters is kept in memory"))

    async def _text(self, turn: Turn, event: TextDelta | WholeText) -> None:
        if not event.text:
            return
        turn.doing = ""
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
        await self._screen.line(drawing.tool_started(name, event.input))

    async def _tool_ended(self, turn: Turn, event: ToolResult) -> None:
        turn.doing = ""
        name = self._tools.pop(event.tool_use_id, "")
        if drawing.shows_itself(name) and not event.is_error:
            return
        # A result right below its call needs no name; one of several at once does.
        shown = "" if event.tool_use_id == self._newest_tool and not self._tools else name
        await self._screen.line(drawing.tool_ended(shown, event.summary, is_error=event.is_error))

    async def _end(self, event: Ending) -> None:
        turn = self._under_way.pop(event.mission_id, None)
        has_text = turn is not None and turn.has_text
        whole = event.text if isinstance(event, Complete) and event.text and not has_text else None
        await self._screen.reply(self._reply.finish(whole), "")
        if isinstance(event, Interrupted):
            await self._screen.line(Text("■ stopped", style="yellow"))
        elif isinstance(event, Failed):
            advice = "Sending it again may work." if event.retryable else ""
            await self._screen.show(drawing.problem(event.message or "The turn failed.", advice))
        self.current = next(iter(self._under_way.values()), None)
        if self.current is None:
            self._tools.clear()
