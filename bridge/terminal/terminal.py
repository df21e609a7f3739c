"""A conversation in a terminal: one input line at the bottom, and output that scrolls above it.

A reply's growing end is part of the prompt, so that it can be redrawn as Markdown while it streams.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import ANSI, FormattedText, to_formatted_text
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style
from rich.console import Console, Group, RenderableType
from rich.text import Text

from bridge.terminal import drawing
from bridge.terminal.drawing import markdown, moment_words, one_line
from sprite.protocol.pasted import Marked, Spans, joined, limited
from sprite.protocol.shapes import BackgroundWork, counted

if TYPE_CHECKING:
    from bridge.terminal.commands import Commands
    from bridge.terminal.conversation import Conversation


class NobodyHereError(Exception):
    """The operation needs a person at a terminal."""


class Screen(Protocol):
    """Shows things in the given order. `by_line`: replies are cut into lines instead of blocks."""

    by_line: bool

    async def show(self, *things: RenderableType) -> None:
        """Show something with space around it."""

    async def line(self, text: Text, *, below: bool = False) -> None:
        """Show one line close to the lines before it; `below` puts it directly under the last output."""

    async def reply(self, pieces: list[str], tail: str) -> None:
        """Show finished pieces of a reply, and its unfinished tail while it grows."""

    async def ask(self, question: str) -> str:
        """Ask the person and return the next line that answers. Raises NobodyHereError in a pipe."""

    def forget(self, text: str) -> None:
        """Remove entered lines with this text from the screen's history."""


_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND = 10


def state_line(conversation: Conversation, now: float | None = None) -> str:
    """Return the state as text; `now` is in monotonic seconds."""
    beside = _in_background(conversation.background)
    now = time.monotonic() if now is None else now
    spinner = _SPINNER[int(now * _FRAMES_PER_SECOND) % len(_SPINNER)]
    if conversation.link_text:
        return f"{spinner} {conversation.link_text} {_clock(now - conversation.link_since)}"
    if conversation.asked is not None:
        keys = drawing.short_keys(conversation.questions[conversation.asked])
        return f"? the agent waits for your answer: {keys}, then Enter"
    if conversation.turn is not None:
        doing = f" {conversation.doing}" if conversation.doing else ""
        if (thinks_since := conversation.turn.thinks_since) is not None:
            doing = f" Thinking {_clock(now - thinks_since)} ·"
        working = f"{spinner} working…{doing} {_clock(now - conversation.turn.since)} · Ctrl-C stops"
        return " · ".join([working, *beside])
    if conversation.busy_with:
        return f"{spinner} {conversation.busy_with}…"
    if beside:
        return " · ".join([*beside, "Ctrl-C stops"])
    turns, waiting = conversation.turns, conversation.waiting
    parts = ["idle" if conversation.paused is None else "paused (/go-on)", counted(turns, "turn")]
    parts += [f"exposed by {drawing.source_words(source)}" for source in conversation.sources[:1]]
    if waiting:
        parts.append(f"{waiting} not learned from yet")
    if conversation.next_due is not None:
        parts.append(f"next: {moment_words(conversation.next_due.at)}")
    if drift := len(conversation.drift):
        parts.append(f"{counted(drift, 'file')} {'waits' if drift == 1 else 'wait'} for your decision (on your page)")
    return " · ".join(parts)


def _in_background(work: list[BackgroundWork]) -> list[str]:
    told = [f"{one_line(each.title)}, {_clock(time.time() - each.since)}" for each in work]
    return [f"in the background: {'; '.join(told)}"] if told else []


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes}:{rest:02}"


#: Longer lines are hard to read, however wide the window.
_WIDEST = 100
#: Rows for the prompt, the state line and earlier output under a growing reply.
_ROWS_KEPT = 6
_REDRAW_SECONDS = 0.04
_TICK_SECONDS = 0.1
_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
_STYLE = Style.from_dict(
    {
        "prompt": "ansicyan bold",
        "output": "ansibrightblack",
        "bottom-toolbar": "noreverse",
        "bottom-toolbar.text": "ansibrightblack",
    }
)


class _Entered(NamedTuple):
    """A line, and the questions shown when it was begun: the agent's and a command's."""

    text: str
    asked: str | None
    question: object | None
    pasted: Spans = ()


class Terminal:
    """The terminal: `talk` runs until the person leaves, the other methods implement Screen."""

    by_line = False
    #: Set before the prompt is shown.
    _conversation: Conversation
    _commands: Commands

    def __init__(
        self, history: Path | None = None, *, source: Input | None = None, output: Output | None = None
    ) -> None:
        self._entered: asyncio.Queue[_Entered] = asyncio.Queue()
        #: The agent's question and the command's that were shown when the line was begun.
        self._asked: str | None = None
        self._begun_under: object | None = None
        #: Stands for the question of the current command.
        self._question: object | None = None
        self._tail = ""
        self._drawn_tail: tuple[str, int, FormattedText] = ("", 0, FormattedText())
        self._last = ""
        self._session: PromptSession[str] = PromptSession(
            self._above_input,
            multiline=True,
            style=_STYLE,
            history=_history(history),
            bottom_toolbar=self._state,
            key_bindings=self._keys(),
            completer=WordCompleter(lambda: self._commands.names, sentence=True),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            erase_when_done=True,
            input=source,
            output=output,
        )
        self._session.app.min_redraw_interval = _REDRAW_SECONDS
        self._begun = False
        self._pasted = PastedSpans()
        self._is_pasting = False
        self._session.default_buffer.on_text_changed += self._typed

    async def show(self, *things: RenderableType) -> None:
        """Print something after an empty line."""
        await self._print("block", self._ansi(*things))

    async def line(self, text: Text, *, below: bool = False) -> None:
        """Print one line close to other lines."""
        if below:
            self._last = "line"
        await self._print("line", self._ansi(text))

    async def reply(self, pieces: list[str], tail: str) -> None:
        """Print the finished pieces as Markdown, and keep the growing tail above the input line."""
        if pieces:
            drawn = [self._markdown(piece) for piece in pieces]
            await self._print("block", "\n".join(drawn), tail=tail)
        else:
            self._tail = tail
            self._session.app.invalidate()

    async def talk(self, conversation: Conversation, commands: Commands) -> None:
        """Read lines until the person leaves."""
        self._conversation, self._commands = conversation, commands
        with patch_stdout(raw=True):  # for other output of this process
            async with asyncio.TaskGroup() as group:
                working = group.create_task(self._work(conversation, commands), name="chat-lines")
                ticking = group.create_task(self._tick(conversation), name="chat-clock")
                try:
                    await self._session.prompt_async()
                except EOFError:
                    pass
                finally:
                    working.cancel()
                    ticking.cancel()

    async def ask(self, question: str) -> str:
        """Ask the person and return the next line that was begun while the question was shown; Ctrl-C answers ""."""
        early: list[_Entered] = []
        self._question = object()
        await self.line(Text(question, style="bold"))
        try:
            while True:
                entered = await self._entered.get()
                if entered.question is not self._question:
                    early.append(entered)
                elif not await self._conversation.takes(entered.text, entered.asked):
                    return entered.text.strip()
        finally:
            self._question = None
            for entered in early:
                self._entered.put_nowait(entered)

    def forget(self, text: str) -> None:
        """Remove the lines with this text from the input history."""
        history, buffer = self._session.history, self._session.default_buffer
        newest_first = [line for line in history.load_history_strings() if text.lower() not in line.lower()]
        if isinstance(history, FileHistory):
            # One atomic step, so that a crash loses nothing else.
            path = Path(os.fsdecode(history.filename))
            beside = path.with_name(f"{path.name}.new")
            beside.touch(mode=0o600)
            kept = FileHistory(str(beside))
            for line in reversed(newest_first):
                kept.store_string(line)
            beside.replace(path)
            history = FileHistory(str(path))
        else:
            history = InMemoryHistory(newest_first[::-1])
        self._session.history = buffer.history = history
        # Reload the lines that the buffer has read already.
        buffer.reset(buffer.document)

    async def _work(self, conversation: Conversation, commands: Commands) -> None:
        """Handle the entered answers, commands and messages in order, while the prompt stays open."""
        while True:
            text, asked, _, pasted = await self._entered.get()
            # Only a whole line answers, because its first letter may begin any message.
            if await conversation.takes(text, asked):
                continue
            if text.startswith("/"):
                if not await commands.run(text):
                    break
            else:
                message = Marked(text, pasted).stripped()
                await conversation.say(message.text, message.pasted)
        self._session.app.exit(exception=EOFError)

    async def _tick(self, conversation: Conversation) -> None:
        """Redraw when the state line has changed."""
        drawn = ""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            if (state := state_line(conversation)) != drawn:
                drawn = state
                self._session.app.invalidate()

    def _ansi(self, *things: RenderableType) -> str:
        out = io.StringIO()
        console = Console(
            file=out, force_terminal=True, width=self._width(), highlight=False, markup=False, emoji=False
        )
        # Inside a Group each Text keeps its wrapping, which `print` would override.
        console.print(Group(*things))
        return out.getvalue()

    def _markdown(self, text: str) -> str:
        """Draw Markdown without the empty lines around it, because the screen adds its own."""
        lines = self._ansi(markdown(text)).split("\n")
        filled = [number for number, line in enumerate(lines) if _SEQUENCE.sub("", line).strip()]
        return "\n".join([*lines[filled[0] : filled[-1] + 1], ""]) if filled else ""

    def _width(self) -> int:
        # One column less, because a full line would wrap in some terminals.
        return max(20, min(_WIDEST, self._session.output.get_size().columns - 1))

    async def _print(self, kind: str, text: str, *, tail: str | None = None) -> None:
        before = "\n" if self._last and (kind == "block" or kind != self._last) else ""
        self._last = kind
        output = self._session.output

        def write() -> None:
            # Replaces the tail together with its finished text, so that no text appears twice.
            if tail is not None:
                self._tail = tail
            output.enable_autowrap()
            output.write_raw(before + text)
            output.flush()

        await run_in_terminal(write)

    def _above_input(self) -> FormattedText:
        above = FormattedText([("", "\n")]) if self._last else FormattedText()
        if self._tail.strip():
            above += self._live_tail()
            above.append(("", "\n\n"))
        if output := self._conversation.output:
            lines = [f"  {one_line(line)}"[: self._width()] for line in output]
            above.append(("class:output", "\n".join([*lines, "", ""])))
        above.append(("class:prompt", drawing.MARK))
        return above

    def _live_tail(self) -> FormattedText:
        width = self._width()
        known, known_width, drawn = self._drawn_tail
        if (known, known_width) != (self._tail, width):
            rows = max(1, self._session.output.get_size().rows - _ROWS_KEPT)
            lines = self._markdown(self._tail).rstrip("\n").split("\n")
            drawn = to_formatted_text(ANSI("\n".join(lines[-rows:])))
            self._drawn_tail = (self._tail, width, drawn)
        return FormattedText(drawn)

    def _state(self) -> FormattedText:
        return FormattedText([("class:bottom-toolbar.text", state_line(self._conversation)[: self._width()])])

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("enter")(self._enter)
        keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        keys.add(Keys.BracketedPaste)(self._paste)
        keys.add("c-c")(self._ctrl_c)
        keys.add("<sigint>")(self._ctrl_c)
        return keys

    def _enter(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text
        if text.strip():
            entered = _Entered(text, self._asked, self._begun_under, limited(self._pasted.spans))
            if not text.startswith("/forget"):
                # Text to forget must not stay in the history.
                buffer.append_to_history()
            self._clear(buffer)
            self._entered.put_nowait(entered)

    def _paste(self, event: KeyPressEvent) -> None:
        self._is_pasting = True
        # Some terminals paste other line endings.
        event.current_buffer.insert_text(event.data.replace("\r\n", "\n").replace("\r", "\n"))
        self._is_pasting = False

    def _typed(self, buffer: Buffer) -> None:
        self._pasted.changed(buffer.text, buffer.cursor_position, is_paste=self._is_pasting)
        has_text = bool(buffer.text.strip())
        if has_text and not self._begun:
            self._asked, self._begun_under = self._conversation.asked, self._question
        self._begun = has_text

    def _clear(self, buffer: Buffer) -> None:
        buffer.reset()
        # A reset triggers no event.
        self._begun = False
        self._pasted.changed("", 0)

    def _ctrl_c(self, event: KeyPressEvent) -> None:
        if self._question is not None:
            self._clear(event.current_buffer)
            self._entered.put_nowait(_Entered("", None, self._question))
            return
        event.app.create_background_task(self._interrupt(had_text=bool(event.current_buffer.text)))
        if self._conversation.turn is None:
            self._clear(event.current_buffer)

    async def _interrupt(self, *, had_text: bool) -> None:
        if not (await self._conversation.interrupt(background=not had_text) or had_text):
            await self.line(drawing.note("Ctrl-D or /quit to leave"))


def _history(path: Path | None) -> History:
    """Return the input history: a private file, or memory if it is not writable."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        with path.open("ab"):
            return FileHistory(str(path))
    except OSError:
        return InMemoryHistory()


class PastedSpans:
    """The pasted spans of a line. Keys add one character at a time: any longer piece counts as pasted."""

    def __init__(self) -> None:
        self.spans: Spans = ()
        self._text = ""

    def changed(self, text: str, cursor: int, *, is_paste: bool = False) -> None:
        """Update the spans to the line's new text, with the cursor after the edit."""
        start, end = _edited(self._text, text, cursor)
        new_end = end + len(text) - len(self._text)
        moved = Marked(self._text, self.spans).replaced([(start, end, text[start:new_end])]).pasted
        is_pasted = is_paste or new_end - start > 1
        self.spans = joined((*moved, (start, new_end))) if is_pasted else moved
        self._text = text


def _edited(old: str, new: str, cursor: int) -> tuple[int, int]:
    """Return the part of the old text that the new one replaced."""
    grown = len(new) - len(old)
    if grown > 0 and old == new[: max(0, cursor - grown)] + new[cursor:]:
        return cursor - grown, cursor - grown
    # A deletion, or an edit elsewhere. Of repeated characters, the cursor tells which one went.
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    tail = next((at for at in range(shorter) if old[-1 - at] != new[-1 - at]), shorter)
    if head + tail > shorter:
        tail = max(shorter - head, min(tail, len(new) - cursor))
        head = min(head, shorter - tail)
    return head, len(old) - tail
