"""Lines that begin with `/`: commands for this client, which are never sent to the agent."""

import asyncio
import difflib
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, get_args

from rich.console import Group, RenderableType
from rich.text import Text

from bridge.client.link import LOOK_SECONDS, MODEL_SECONDS, BridgeLink, NotConnectedError
from bridge.terminal import drawing, memory_views
from bridge.terminal.conversation import Conversation
from bridge.terminal.drawing import draw_card, one_line
from bridge.terminal.terminal import NobodyHereError, Screen
from sprite.protocol import memory, messages
from sprite.protocol.files import picture_kind
from sprite.protocol.memory import MemoryRequest
from sprite.protocol.messages import RuleWord
from sprite.protocol.shapes import ActionRow, Effort, counted, named_action

_RECENT_LEARNINGS = 8
_SEARCH_HITS = 10
_KEYS = [
    ("/quit", "leaves; so do /exit and Ctrl-D"),
    ("Ctrl-C", "stops the turn; clears the line"),
    ("Alt-Enter", "a new line in the message"),
    ("Ctrl-D", "leaves"),
]
#: The action status for each word.
_RESOLVED = {"done": "done", "dismiss": "dismissed", "reopen": "open"}
_CLOSE_ADVICE = "Name it by its words, such as /actions done call Bo. To add or change an action, ask the agent."
_RULES_USAGE = "/rules accept|dismiss|retire|override N, or /rules stop when ...; /rules lists them."
_SURE = "Forget it? It cannot be undone. Type yes to forget it; anything else cancels."
_UNDO_USAGE = "/undo [TURN] [FILE...] [--over FILE...]; TURN is a number as /search shows it, or `undo`: the last undo."

_Result = TypeVar("_Result", bound=memory.MemoryResult)
_Row = tuple[str, str, Callable[[str], Awaitable[None]]]


class Commands:
    """The commands of one conversation; `names` is for completion."""

    def __init__(self, conversation: Conversation, screen: Screen, link: BridgeLink) -> None:
        self._conversation = conversation
        self._screen = screen
        self._link = link
        #: The standing rules as last listed.
        self._listed: list[messages.StandingRule] = []
        rows: tuple[_Row, ...] = (
            ("/new", "starts a new session", self._new),
            ("/stop", "stops the turn, or the background work", self._stop),
            ("/go-on", "resumes a paused agent; raises a used-up limit", self._go_on),
            ("/memory [FILE]", "what is remembered, or one of its files", self._memory),
            ("/search QUERY", "searches everything ever said and learned", self._search),
            ("/forget TEXT", "removes text everywhere, for good; asks first", self._forget),
            ("/actions [done ACTION]", "lists to-dos; closes one (also dismiss, reopen)", self._actions),
            ("/changes [TURN]", "which files the last or another turn changed", self._changes),
            ("/undo [TURN] [FILE...]", "takes the file changes of a turn back", self._undo),
            ("/permissions [revoke N]", "what runs without asking; `revoke all` ends it", self._permissions),
            ("/rules [accept N]", "lists rules on tool calls; decides on one", self._rules),
            ("/model [NAME]", "shows or sets this session's model, or `default`", self._model),
            ("/effort [LEVEL]", "how much it thinks: low to max, or `default`", self._effort),
            ("/attach FILE", "adds a picture to your next message", self._attach),
            ("/cards", "the cards on the canvas", self._cards),
            ("/status", "the state and costs of the agent", self._status),
            ("/retry TURN", "learns again from a turn in quarantine", self._retry),
            ("/flush", "learns now from what was said so far", self._flush),
            ("/help", "lists the commands", self._help),
        )
        self._help_rows = [(usage, does) for usage, does, _ in rows]
        self._commands = {usage.partition(" ")[0]: run for usage, _, run in rows}
        self.names = [*self._commands, "/quit"]

    async def run(self, line: str) -> bool:
        """Run a command line. Return False if the person leaves."""
        name, _, rest = line.strip().partition(" ")
        if name in {"/quit", "/exit"}:
            return False
        command = self._commands.get(name)
        if command is None:
            near = difflib.get_close_matches(name, self.names, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else "/help lists what there is."
            advice = f"{hint} To send it to the agent, put a space before it."
            await self._problem(f"There is no command {one_line(name)}.", advice)
            return True
        try:
            await command(rest.strip())
        except NobodyHereError:
            advice = "`python -m sprite memory --help` has what scripts can use."
            await self._problem(f"{name} needs a person at a terminal: in a pipe it changes nothing.", advice)
        return True

    async def _problem(self, problem: str, advice: str = "") -> None:
        await self._screen.show(drawing.problem(problem, advice))

    async def _note(self, text: str) -> None:
        await self._screen.line(drawing.note(text))

    async def _new(self, _rest: str) -> None:
        ended = await self.ask(messages.System(action="new_session"), "ending the session", MODEL_SECONDS)
        if isinstance(ended, messages.Status):
            await self._conversation.tell_stopped(ended.stopped or [])
            text = "A new session begins with your next message. What was said is remembered."
            await self._screen.show(drawing.note(text))

    async def _stop(self, _rest: str) -> None:
        if not await self._conversation.interrupt():
            await self._note("nothing is running")

    async def _go_on(self, _rest: str) -> None:
        paused = self._conversation.paused
        if paused is None:
            await self._note("nothing is paused")
        else:
            system = messages.System(action="go_on", raise_limit=paused.by == "budget")
            await self.ask(system, "going on", LOOK_SECONDS)

    async def _flush(self, _rest: str) -> None:
        before = self._conversation.remembered
        done = await self.ask(messages.System(action="flush"), "learning from the conversation", MODEL_SECONDS)
        left = done.memory.waiting if isinstance(done, messages.Status) else 0
        if left:
            await self._note(f"not learned from yet: {counted(left, 'turn')}")
        elif done is not None and self._conversation.remembered == before:
            await self._note("up to date")

    async def _status(self, _rest: str) -> None:
        status = await self.ask(messages.System(action="status"), "asking", LOOK_SECONDS)
        if isinstance(status, messages.Status):
            link = "ready" if self._link.is_ready else self._conversation.link_text
            await self._screen.show(memory_views.status(status, link=link))

    async def _model(self, name: str) -> None:
        chosen = messages.System(action="model", model=None if name == "default" else name)
        status = await self.ask(chosen if name else messages.System(action="status"), "asking", LOOK_SECONDS)
        if isinstance(status, messages.Status):
            words = f"model: {status.session.model or 'default'}"
            if name not in {"default", *status.models}:
                words += f"; {one_line(name)} is not listed and may fail" if name else ""
                words += f"; known are {', '.join(status.models)}"
            await self._screen.show(drawing.note(words))

    async def _effort(self, name: str) -> None:
        level = next((each for each in get_args(Effort) if each == name), None)
        if name and level is None and name != "default":
            await self._problem("How much?", f"/effort {'|'.join(get_args(Effort))}|default")
            return
        chosen = messages.System(action="model", effort=level) if name else messages.System(action="status")
        status = await self.ask(chosen, "asking", LOOK_SECONDS)
        if isinstance(status, messages.Status):
            await self._screen.show(drawing.note(f"effort: {status.session.effort or 'default'}"))

    async def _attach(self, name: str) -> None:
        # Terminals quote the path of a file that is dropped on them.
        path = Path(name.strip("'\"")).expanduser()
        try:
            data = await asyncio.to_thread(_picture, path)
        except OSError as error:
            usage = "/attach FILE, a picture on this machine."
            await self._problem(f"{one_line(name)} cannot be read: {error.strerror}.", usage)
            return
        if data is None:
            most = f"Attach a PNG, JPEG, GIF or WebP of up to {messages.MAX_PICTURE_BYTES / 2**20:.1f} MiB."
            await self._problem(f"{one_line(name)} is not a picture that the model can read.", most)
            return
        answer = None
        for part in messages.upload_chunks(path.name, data):
            answer = await self.ask(part, "uploading", LOOK_SECONDS)
            if answer is None:
                return
        if isinstance(answer, messages.Ack) and answer.path:
            self._conversation.attached.append(messages.Image(path=answer.path))
            await self._note(f"attached: {answer.path}; it goes with your next message")

    async def _cards(self, _rest: str) -> None:
        for card in self._conversation.cards.values():
            await self._screen.show(draw_card(card.title, card.blocks))
        if not self._conversation.cards:
            await self._note("no cards yet: ask the agent for one")

    async def _retry(self, turn: str) -> None:
        if not turn.isdecimal():
            await self._problem("Which turn?", "/retry TURN; /status names those set aside.")
        elif (done := await self.look(memory.RetryRequest(int(turn)), memory.RetryResult)) is not None:
            left = f", {counted(len(done.quarantined), 'turn')} still set aside" if done.quarantined else ""
            await self._note(f"turn {turn} waits to be learned from again{left}")

    async def _memory(self, name: str) -> None:
        if name:
            found = await self.look(memory.FileRequest(name), memory.FileResult)
            if found is not None:
                await self._screen.show(memory_views.memory_file(name, found.content))
            return
        files = await self.look(memory.FilesRequest(), memory.FilesResult)
        if files is None:
            return
        newest = memory.LearningsRequest(newest=True, limit=_RECENT_LEARNINGS)
        recent = await self.look(newest, memory.LearningsResult)
        hint = Text("/memory user.md shows a file, /search finds anything", style="dim")
        drawn: list[RenderableType] = [memory_views.files(files.files), Text("")]
        if recent is not None:
            drawn += [memory_views.learnings(recent.learnings), Text("")]
        await self._screen.show(Group(*drawn, hint))

    async def _search(self, query: str) -> None:
        if not query:
            await self._problem("What for?", "/search QUERY, in your own words.")
            return
        found = await self.look(memory.SearchRequest(query, _SEARCH_HITS), memory.SearchResult)
        if found is not None:
            await self._screen.show(memory_views.hits(found.hits, waiting=found.waiting, notes=found.notes))

    async def _forget(self, text: str) -> None:
        if not text:
            await self._problem("Forget what?", "/forget TEXT, word by word as it was said.")
            return
        preview = await self.look(
            memory.ForgetRequest(text=text, preview=True), memory.ForgetResult, "searching all turns", MODEL_SECONDS
        )
        if preview is None:
            return
        await self._screen.show(memory_views.forgetting(preview.forgotten))
        with self._conversation.busy("yes or no"):
            said = await self._screen.ask(_SURE)
        if said.lower() != "yes":
            await self._note("Nothing was forgotten.")
            return
        # A running turn is finished first.
        sure = memory.ForgetRequest(text=text, yes=True)
        done = await self.look(sure, memory.ForgetResult, "forgetting", MODEL_SECONDS)
        if done is not None:
            self._screen.forget(text)
            await self._screen.show(memory_views.forgotten(done.forgotten))

    async def _actions(self, rest: str) -> None:
        word, _, given = rest.partition(" ")
        given = given.strip().strip("'\"")
        if rest and (word not in _RESOLVED or not given):
            await self._problem("That command needs an action and what to do with it.", _CLOSE_ADVICE)
            return
        listed = await self.look(memory.ActionsRequest(), memory.ActionsResult)
        if listed is not None and rest:
            await self._resolve(listed.actions, _RESOLVED[word], given)
        elif listed is not None:
            await self._screen.show(memory_views.actions(listed.actions))

    async def _resolve(self, listed: list[ActionRow], status: str, given: str) -> None:
        closed = {"open"} if status == "open" else {"done", "dismissed"}
        found = named_action((row for row in listed if row.status not in closed), given)
        if isinstance(found, str):
            await self._problem(found, _CLOSE_ADVICE)
            return
        request = memory.ResolveActionRequest(found.id, status, found.version)
        done = await self.look(request, memory.ResolveActionResult)
        if done is not None:
            await self._screen.show(memory_views.actions(done.actions))

    async def _changes(self, rest: str) -> None:
        found = await self.look(memory.ChangesRequest(rest.strip() or None), memory.ChangesResult)
        if found is not None:
            await self._screen.show(memory_views.changed(found))

    async def _undo(self, rest: str) -> None:
        try:
            words = shlex.split(rest)
        except ValueError:
            await self._problem("A quotation mark is missing.", _UNDO_USAGE)
            return
        turn = words.pop(0) if words and (words[0].isdigit() or words[0] == "undo") else None
        at = words.index("--over") if "--over" in words else len(words)
        request = memory.UndoRequest(turn, words[:at] or None, words[at + 1 :])
        done = await self.look(request, memory.UndoResult, "undoing", MODEL_SECONDS)
        if done is not None:
            await self._screen.show(memory_views.undone(done))

    async def _permissions(self, rest: str) -> None:
        match rest.split():
            case []:
                await self._show_permissions(messages.System(action="status"))
            case ["revoke", "all"]:
                await self._show_permissions(messages.System(action="revoke"))
            case ["revoke", number] if number.isdecimal() and 1 <= int(number) <= len(self._listed):
                rule_id = self._listed[int(number) - 1].rule_id
                await self._show_permissions(messages.System(action="revoke", rule_id=rule_id))
            case _:
                advice = "/permissions lists them by number; then /permissions revoke N, or revoke all."
                await self._problem("Which one?", advice)

    async def _show_permissions(self, system: messages.System) -> None:
        status = await self.ask(system, "asking", LOOK_SECONDS)
        if not isinstance(status, messages.Status):
            return
        self._listed = status.rules
        if status.permissions == "bypass":
            await self._note("the agent acts without asking anybody")
        elif status.rules:
            await self._screen.show(memory_views.rules(status.rules))
        else:
            await self._note("nothing is always allowed: the agent asks each time")

    async def _rules(self, rest: str) -> None:
        word, _, number = rest.partition(" ")
        change = next((each for each in get_args(RuleWord) if each == word), None)
        if word in {"stop", "ask"}:
            rule: messages.Rule | None = messages.Rule("propose", text=rest)
        else:
            rule = messages.Rule(change, int(number)) if change and number.isdecimal() else None
        if rest and rule is None:
            await self._problem("Name what to do and the rule's number.", _RULES_USAGE)
        elif rule is not None and await self.ask(rule, "asking", MODEL_SECONDS) is None:
            return
        elif change == "override":
            await self._note("The same call may run once. Ask Sprite to try it again.")
        else:
            found = await self.look(memory.RulesRequest(), memory.RulesResult)
            if found is not None:
                await self._screen.show(memory_views.call_rules(found.rules))

    async def _help(self, _rest: str) -> None:
        await self._screen.show(drawing.help_table(self._help_rows + _KEYS))

    async def ask(self, payload: messages.ClientPayload, doing: str, seconds: float) -> messages.RelayedPayload | None:
        """Send a request and return its answer, or show the error and return None; the state line shows `doing`."""
        try:
            with self._conversation.busy(doing):
                answer = (await self._link.ask(payload, timeout_seconds=seconds)).payload
        except NotConnectedError:
            await self._problem("Not connected right now.", "Try again in a moment.")
        except TimeoutError:
            text = f"No answer within {seconds:.0f} seconds."
            await self._problem(text, "The request may still be carried out; see /status.")
        else:
            if not isinstance(answer, messages.Error):
                return answer
            await self._problem(answer.message)
        return None

    async def look(
        self, request: MemoryRequest, expected: type[_Result], doing: str = "looking", seconds: float = LOOK_SECONDS
    ) -> _Result | None:
        """Send a memory request and return its result of the `expected` type. If that fails, return None."""
        result = await self.ask(request, doing, seconds)
        return result if isinstance(result, expected) else None


def _picture(path: Path) -> bytes | None:
    """Return the content of a picture, or None for a file that is not one or too large."""
    if not path.is_file() and path.exists():
        return None
    with path.open("rb") as file:
        data = file.read(messages.MAX_PICTURE_BYTES + 1)
    return data if len(data) <= messages.MAX_PICTURE_BYTES and picture_kind(data) else None
