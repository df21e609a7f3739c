"""Lines that begin with `/`: commands for this client, which are never sent to the agent."""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rich.console import Group
from rich.text import Text

from bridge.terminal import drawing
from bridge.terminal import memory_commands as memory_views
from bridge.terminal.action_commands import ActionCommands, PermissionCommands
from bridge.terminal.cards import draw_card
from bridge.terminal.change_commands import ChangeCommands
from bridge.terminal.command import LOOK_SECONDS, MODEL_SECONDS, Command, CommandGroup
from bridge.terminal.drawing import counted, one_line
from bridge.terminal.memory_commands import MemoryCommands
from bridge.terminal.terminal import NobodyHereError
from sprite.protocol.files import picture_kind
from sprite.protocol.memory import (
    FileRequest,
    FileResult,
    FilesRequest,
    FilesResult,
    LearningsRequest,
    LearningsResult,
    RetryRequest,
    RetryResult,
    SearchRequest,
    SearchResult,
)
from sprite.protocol.messages import MAX_PICTURE_BYTES, Ack, Image, Status, System, upload_chunks
from sprite.protocol.shapes import Effort

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bridge.client.link import BridgeLink
    from bridge.terminal.conversation import Conversation
    from bridge.terminal.terminal import Screen
    from sprite.protocol.shapes import LearningRow


_RECENT_LEARNINGS = 8
_PAGE_ROWS = 100
_SEARCH_HITS = 10
_LEAVING = frozenset({"/quit", "/exit"})
_KEYS = [
    ("/quit", "leaves; so do /exit and Ctrl-D"),
    ("Ctrl-C", "stops the turn; clears the line"),
    ("Alt-Enter", "a new line in the message"),
    ("Ctrl-D", "leaves"),
]


class Commands(CommandGroup):
    """The commands of one conversation; `names` is for completion."""

    def __init__(self, conversation: Conversation, screen: Screen, link: BridgeLink) -> None:
        super().__init__(conversation, screen, link)
        groups: tuple[type[CommandGroup], ...] = (
            MemoryCommands,
            ActionCommands,
            ChangeCommands,
            PermissionCommands,
        )
        others: dict[str, Command] = {}
        for group in groups:
            others |= group(conversation, screen, link).table
        self._commands = {
            "/new": Command("/new", "ends this session; what was said is remembered", self._new),
            "/stop": Command("/stop", "stops the turn, or what goes on in the background", self._stop),
            "/go-on": Command("/go-on", "lets a paused agent go on; without money, raises today's limit", self._go_on),
            "/memory": Command("/memory [FILE]", "what is remembered, or one of its files", self._memory),
            "/search": Command("/search QUERY", "searches everything ever said and learned", self._search),
            **others,
            "/model": Command("/model [NAME]", "which model answers in this session; `default` is yours", self._model),
            "/effort": Command("/effort [LEVEL]", "how much it thinks: low to max, or `default`", self._effort),
            "/attach": Command("/attach FILE", "adds a picture to your next message", self._attach),
            "/cards": Command("/cards", "the cards on the canvas", self._cards),
            "/status": Command("/status", "the sprite in numbers", self._status),
            "/retry": Command("/retry TURN", "tries again to learn from a turn that was set aside", self._retry),
            "/flush": Command("/flush", "learns now from what was said so far", self._flush),
            "/help": Command("/help", "this", self._help),
        }
        self.names = [*self._commands, "/quit"]

    async def run(self, line: str) -> bool:
        """Run a command line. Return False if the person leaves."""
        name, _, rest = line.strip().partition(" ")
        if name in _LEAVING:
            return False
        command = self._commands.get(name)
        if command is None:
            near = difflib.get_close_matches(name, self.names, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else "/help lists what there is."
            advice = f"{hint} To send it to the agent, put a space before it."
            await self._screen.show(drawing.problem(f"There is no command {one_line(name)}.", advice))
            return True
        try:
            await command.run(rest.strip())
        except NobodyHereError:
            problem = f"{name} needs a person at a terminal: in a pipe it changes nothing."
            await self._screen.show(
                drawing.problem(problem, "`python -m sprite memory --help` has what scripts can use.")
            )
        return True

    async def _new(self, _rest: str) -> None:
        ended = await self.ask(System(action="new_session"), "ending the session", MODEL_SECONDS)
        if ended is not None:
            if isinstance(ended, Status) and ended.stopped:
                await self._conversation.tell_stopped(ended.stopped)
            text = "A new session begins with your next message. What was said is remembered."
            await self._screen.show(drawing.note(text))

    async def _stop(self, _rest: str) -> None:
        if not await self._conversation.interrupt():
            await self._screen.line(drawing.note("nothing is running"))

    async def _go_on(self, _rest: str) -> None:
        paused = self._conversation.paused
        if paused is None:
            await self._screen.line(drawing.note("nothing is paused"))
        else:
            system = System(action="go_on", raise_limit=paused.by == "budget")
            await self.ask(system, "going on", LOOK_SECONDS)

    async def _flush(self, _rest: str) -> None:
        done = await self.ask(System(action="flush"), "learning from what was said", MODEL_SECONDS)
        if done is not None:
            left = done.memory.waiting if isinstance(done, Status) else 0
            await self._screen.line(
                drawing.note(f"still to be looked through: {counted(left, 'turn')}" if left else "up to date")
            )

    async def _status(self, _rest: str) -> None:
        status = await self.ask(System(action="status"), "asking", LOOK_SECONDS)
        if isinstance(status, Status):
            link = "ready" if self._link.is_ready else self._conversation.link_text
            await self._screen.show(memory_views.status(status, link=link))

    async def _model(self, name: str) -> None:
        chosen = System(action="model", model=None if name == "default" else name)
        status = await self.ask(chosen if name else System(action="status"), "asking", LOOK_SECONDS)
        if isinstance(status, Status):
            known = "" if name else f"; known are {', '.join(status.models)}"
            await self._screen.show(drawing.note(f"model: {status.session.model or 'default'}{known}"))

    async def _effort(self, name: str) -> None:
        level = next((each for each in get_args(Effort) if each == name), None)
        if name and level is None and name != "default":
            await self._screen.show(drawing.problem("How much?", f"/effort {'|'.join(get_args(Effort))}|default"))
            return
        chosen = System(action="model", effort=level) if name else System(action="status")
        status = await self.ask(chosen, "asking", LOOK_SECONDS)
        if isinstance(status, Status):
            await self._screen.show(drawing.note(f"effort: {status.session.effort or 'default'}"))

    async def _attach(self, name: str) -> None:
        # Terminals quote the path of a file that is dropped on them.
        path = Path(name.strip("'\"")).expanduser()
        try:
            data = await asyncio.to_thread(_picture, path)
        except OSError as error:
            problem = f"{one_line(name)} cannot be read: {error.strerror}."
            await self._screen.show(drawing.problem(problem, "/attach FILE, a picture on this machine."))
            return
        if data is None:
            problem = f"{one_line(name)} is no picture that the model sees."
            most = f"It takes PNG, JPEG, GIF and WebP up to {MAX_PICTURE_BYTES / 2**20:.1f} MiB."
            await self._screen.show(drawing.problem(problem, most))
            return
        answer = None
        for part in upload_chunks(path.name, data):
            answer = await self.ask(part, "uploading", LOOK_SECONDS)
            if answer is None:
                return
        if isinstance(answer, Ack) and answer.path:
            self._conversation.attached.append(Image(path=answer.path))
            await self._screen.line(drawing.note(f"attached: {answer.path}; it goes with your next message"))

    async def _cards(self, _rest: str) -> None:
        for card in self._conversation.cards.values():
            await self._screen.show(draw_card(card.title, card.blocks))
        if not self._conversation.cards:
            await self._screen.line(drawing.note("no cards yet: ask the agent for one"))

    async def _retry(self, turn: str) -> None:
        if not turn.isdecimal():
            await self._screen.show(drawing.problem("Which turn?", "/retry TURN; /status names those set aside."))
        elif (done := await self.look(RetryRequest(int(turn)), RetryResult)) is not None:
            left = f", {counted(len(done.quarantined), 'turn')} still set aside" if done.quarantined else ""
            await self._screen.line(drawing.note(f"turn {turn} waits to be learned from again{left}"))

    async def _memory(self, name: str) -> None:
        if name:
            found = await self.look(FileRequest(name), FileResult)
            if found is not None:
                await self._screen.show(memory_views.memory_file(name, found.content))
            return
        files = await self.look(FilesRequest(), FilesResult)
        if files is None:
            return
        recent = await self._newest_learnings()
        hint = Text("/memory user.md shows a file, /search finds anything", style="dim")
        drawn: list[RenderableType] = [memory_views.files(files.files), Text("")]
        if recent is not None:
            drawn += [memory_views.learnings(recent), Text("")]
        await self._screen.show(Group(*drawn, hint))

    async def _newest_learnings(self) -> list[LearningRow] | None:
        """Return the newest learnings, newest first.

        Pages are oldest first above an id. An id is never below the learning's rank, so the count gives a safe start.
        """
        after = max(0, self._conversation.learnings - _RECENT_LEARNINGS)
        newest: list[LearningRow] = []
        while True:
            page = await self.look(LearningsRequest(after=after, limit=_PAGE_ROWS), LearningsResult)
            if page is None:
                return None
            rows = page.learnings
            newest = (newest + rows)[-_RECENT_LEARNINGS:]
            if len(rows) < _PAGE_ROWS:
                return newest[::-1]
            after = rows[-1].id

    async def _search(self, query: str) -> None:
        if not query:
            await self._screen.show(drawing.problem("What for?", "/search QUERY, in your own words."))
            return
        found = await self.look(SearchRequest(query, _SEARCH_HITS), SearchResult)
        if found is not None:
            await self._screen.show(memory_views.hits(found.hits, waiting=found.waiting, notes=found.notes))

    async def _help(self, _rest: str) -> None:
        rows = [(command.usage, command.does) for command in self._commands.values()]
        await self._screen.show(drawing.help_table(rows + _KEYS))


def _picture(path: Path) -> bytes | None:
    """Return the content of a picture, or None for a file that is not one or too large."""
    if not path.is_file() and path.exists():
        return None
    with path.open("rb") as file:
        data = file.read(MAX_PICTURE_BYTES + 1)
    return data if len(data) <= MAX_PICTURE_BYTES and picture_kind(data) else None
