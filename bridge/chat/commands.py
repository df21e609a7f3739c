"""What a person types that begins with `/`: it is for this client, and never reaches the agent."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rich.console import Group
from rich.text import Text

from bridge.chat import drawing, memory_views
from bridge.chat.bridge_link import NotConnectedError
from bridge.chat.cards import draw_card
from bridge.chat.counted import counted
from bridge.chat.untrusted import one_line
from sprite.protocol.memory import (
    ActionsRequest,
    ActionsResult,
    FileRequest,
    FileResult,
    FilesRequest,
    FilesResult,
    LearningsRequest,
    LearningsResult,
    MemoryResult,
    ResolveActionRequest,
    ResolveActionResult,
    RetryRequest,
    RetryResult,
    SearchRequest,
    SearchResult,
)
from sprite.protocol.messages import (
    Error,
    LinkState,
    ServerPayload,
    Status,
    System,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rich.console import RenderableType

    from bridge.chat.bridge_link import BridgeLink
    from bridge.chat.conversation import Conversation
    from bridge.chat.screen import Screen
    from sprite.protocol.memory import AnyMemoryRequest
    from sprite.protocol.messages import ClientPayload
    from sprite.protocol.rows import LearningRow

_Result = TypeVar("_Result", bound=MemoryResult)
_LOOK_SECONDS = 15.0
#: A session's end and a flush wait for a call to a model, or for several.
_MODEL_SECONDS = 180.0
_RECENT_LEARNINGS = 8
#: The status that each word gives to an action.
_RESOLVED = {"done": "completed", "dismiss": "dismissed"}
_PAGE_ROWS = 100
_SEARCH_HITS = 10
_KEYS = [
    ("Ctrl-C", "stops the turn; clears the line"),
    ("Alt-Enter", "a new line in the message"),
    ("Ctrl-D", "leaves"),
]


@dataclass(frozen=True, slots=True)
class _Command:
    usage: str
    does: str
    run: Callable[[str], Awaitable[bool]]


class Commands:
    """The commands over one conversation; `names` for completion."""

    def __init__(self, conversation: Conversation, screen: Screen, link: BridgeLink) -> None:
        self._conversation = conversation
        self._screen = screen
        self._link = link
        self._commands = {
            "/new": _Command("/new", "ends this session; what was said is remembered", self._new),
            "/stop": _Command("/stop", "stops the turn, or what goes on in the background", self._stop),
            "/memory": _Command("/memory [FILE]", "what is remembered, or one of its files", self._memory),
            "/search": _Command("/search QUERY", "searches everything ever said and learned", self._search),
            "/actions": _Command(
                "/actions [done N | dismiss N]", "what is to be done; closes one of it", self._actions
            ),
            "/cards": _Command("/cards", "the cards on the canvas", self._cards),
            "/status": _Command("/status", "the sprite in numbers", self._status),
            "/retry": _Command("/retry TURN", "tries again to learn from a turn that was set aside", self._retry),
            "/flush": _Command("/flush", "learns now from what was said so far", self._flush),
            "/help": _Command("/help", "this", self._help),
            "/quit": _Command("/quit", "leaves; so do /exit and Ctrl-D", self._quit),
        }
        self.names = list(self._commands)

    async def run(self, line: str) -> bool:
        """Do what the line says; False if the person leaves."""
        name, _, rest = line.strip().partition(" ")
        command = self._commands.get("/quit" if name == "/exit" else name)
        if command is not None:
            return await command.run(rest.strip())
        near = difflib.get_close_matches(name, self.names, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else "/help lists what there is."
        advice = f"{hint} To send it to the agent, put a space before it."
        await self._screen.show(drawing.problem(f"There is no command {one_line(name)}.", advice))
        return True

    async def _new(self, _rest: str) -> bool:
        ended = await self._ask(System(action="new_session"), "ending the session", _MODEL_SECONDS)
        if ended is not None:
            if isinstance(ended, Status) and ended.stopped:
                await self._conversation.tell_stopped(ended.stopped)
            text = "A new session begins with your next message. What was said is remembered."
            await self._screen.show(drawing.note(text))
        return True

    async def _stop(self, _rest: str) -> bool:
        if not await self._conversation.interrupt():
            await self._screen.line(drawing.note("nothing is running"))
        return True

    async def _flush(self, _rest: str) -> bool:
        done = await self._ask(System(action="flush"), "learning from what was said", _MODEL_SECONDS)
        if done is not None:
            left = done.memory.waiting if isinstance(done, Status) else 0
            await self._screen.line(
                drawing.note(f"still to be looked through: {counted(left, 'turn')}" if left else "up to date")
            )
        return True

    async def _status(self, _rest: str) -> bool:
        status = await self._ask(System(action="status"), "asking", _LOOK_SECONDS)
        if isinstance(status, Status):
            link = "ready" if self._link.is_ready else self._conversation.link_text
            await self._screen.show(memory_views.status(status, link=link))
        return True

    async def _actions(self, rest: str) -> bool:
        word, _, number = rest.partition(" ")
        found: ActionsResult | ResolveActionResult | None
        if not rest:
            found = await self._look(ActionsRequest(), ActionsResult)
        elif word in _RESOLVED and number.strip().isdecimal():
            found = await self._look(ResolveActionRequest(int(number), _RESOLVED[word]), ResolveActionResult)
        else:
            advice = "/actions lists them; /actions done N and /actions dismiss N close one."
            await self._screen.show(drawing.problem("Which one, and how?", advice))
            return True
        if found is not None:
            await self._screen.show(memory_views.actions(found.actions))
        return True

    async def _retry(self, turn: str) -> bool:
        if not turn.isdecimal():
            await self._screen.show(drawing.problem("Which turn?", "/retry TURN; /status names those set aside."))
        elif (done := await self._look(RetryRequest(int(turn)), RetryResult)) is not None:
            left = f", {counted(len(done.quarantined), 'turn')} still set aside" if done.quarantined else ""
            await self._screen.line(drawing.note(f"turn {turn} waits to be learned from again{left}"))
        return True

    async def _memory(self, name: str) -> bool:
        if name:
            found = await self._look(FileRequest(name), FileResult)
            if found is not None:
                await self._screen.show(memory_views.memory_file(name, found.content))
            return True
        files = await self._look(FilesRequest(), FilesResult)
        if files is None:
            return True
        recent = await self._newest_learnings()
        hint = Text("/memory user.md shows a file, /search finds anything", style="dim")
        drawn: list[RenderableType] = [memory_views.files(files.files), Text("")]
        if recent is not None:
            drawn += [memory_views.learnings(recent), Text("")]
        await self._screen.show(Group(*drawn, hint))
        return True

    async def _newest_learnings(self) -> list[LearningRow] | None:
        """The newest first. They come oldest first above an id, and no id is below its rank."""
        after = max(0, self._conversation.learnings - _RECENT_LEARNINGS)
        newest: list[LearningRow] = []
        while True:
            page = await self._look(LearningsRequest(after=after, limit=_PAGE_ROWS), LearningsResult)
            if page is None:
                return None
            rows = page.learnings
            newest = (newest + rows)[-_RECENT_LEARNINGS:]
            if len(rows) < _PAGE_ROWS:
                return newest[::-1]
            after = rows[-1].id

    async def _search(self, query: str) -> bool:
        if not query:
            await self._screen.show(drawing.problem("What for?", "/search QUERY, in your own words."))
            return True
        found = await self._look(SearchRequest(query, _SEARCH_HITS), SearchResult)
        if found is not None:
            await self._screen.show(memory_views.hits(found.hits, waiting=found.waiting))
        return True

    async def _cards(self, _rest: str) -> bool:
        cards = list(self._conversation.cards.values())
        if not cards:
            await self._screen.line(drawing.note("no cards yet: ask the agent for one"))
        for card in cards:
            await self._screen.show(draw_card(card.title, card.blocks))
        return True

    async def _help(self, _rest: str) -> bool:
        rows = [(command.usage, command.does) for command in self._commands.values()]
        await self._screen.show(drawing.help_table(rows + _KEYS))
        return True

    async def _quit(self, _rest: str) -> bool:
        return False

    async def _look(self, request: AnyMemoryRequest, expected: type[_Result]) -> _Result | None:
        result = await self._ask(request, "looking", _LOOK_SECONDS)
        return result if isinstance(result, expected) else None

    async def _ask(self, payload: ClientPayload, doing: str, seconds: float) -> ServerPayload | LinkState | None:
        """Asks the sprite; None if it said no or nothing, which the person has been told by then."""
        try:
            with self._conversation.busy(doing):
                answer = (await self._link.ask(payload, timeout_seconds=seconds)).payload
        except NotConnectedError:
            await self._screen.show(drawing.problem("Not connected right now.", "Try again in a moment."))
        except TimeoutError:
            text = f"No answer within {seconds:.0f} seconds."
            await self._screen.show(drawing.problem(text, "It may still be done; /status tells."))
        else:
            if not isinstance(answer, Error):
                return answer
            await self._screen.show(drawing.problem(answer.message))
        return None
