"""A conversation without a terminal, for scripts: lines in, plain text out, one message at a time.

A line `y`, `n` or `a` answers an open question. Messages about waiting go to stderr.
"""

import asyncio
import codecs
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from bridge.terminal import drawing
from bridge.terminal.commands import Commands
from bridge.terminal.conversation import Conversation
from bridge.terminal.drawing import one_line
from bridge.terminal.terminal import NobodyHereError

_WIDTH = 100
_READ_BYTES = 1 << 16
_END: None = None
#: Longer waits are reported. Above the start time of a local agent.
_SILENT_SECONDS = 5.0


class Pipe:
    """Plain text output; `talk` reads lines from a file descriptor until its end."""

    by_line = True

    def __init__(self, out: TextIO | None = None, *, fd: int | None = None, err: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._fd = sys.stdin.fileno() if fd is None else fd
        self._console = Console(
            file=self._out, force_terminal=False, color_system=None, width=_WIDTH, highlight=False, markup=False
        )
        self._last = ""

    async def show(self, *things: RenderableType) -> None:
        """Print something after an empty line."""
        self._space("block")
        self._print(*things)

    async def line(self, text: Text, *, below: bool = False) -> None:
        """Print one line."""
        if below:
            self._last = "line"
        self._space("line")
        self._print(text)

    async def reply(self, pieces: list[str], tail: str) -> None:  # noqa: ARG002 - a pipe has no growing end
        """Print the reply's finished lines unchanged, for programs that read them."""
        if pieces:
            self._space("reply")
            self._out.write("".join(f"{piece}\n" for piece in pieces))
            self._out.flush()

    async def ask(self, question: str) -> str:
        """Raise NobodyHereError: a pipe has no person to ask."""
        raise NobodyHereError(question)

    def forget(self, text: str) -> None:
        """Do nothing: a pipe has no input history."""

    async def talk(self, conversation: Conversation, commands: Commands) -> None:
        """Send the lines one by one, each after the answer to the one before."""
        lines = _Lines(self._fd)
        await self._until(conversation, lambda: conversation.synced)
        while (line := await lines.take()) is not _END:
            if await conversation.takes(line, conversation.asked):
                continue
            if line.startswith("/"):
                await self._until(conversation, lambda: not conversation.link_text)
                if not await commands.run(line):
                    return
            elif text := line.strip():
                mission_id = await conversation.say(text)
                if mission_id is not None:
                    await self._answered(mission_id, conversation, lines)

    async def _until(self, conversation: Conversation, condition: Callable[[], bool]) -> None:
        """Wait for a condition. A longer wait is reported to stderr, again whenever its reason changes."""
        said = ""
        while not condition():
            with suppress(TimeoutError):
                async with asyncio.timeout(_SILENT_SECONDS):
                    await conversation.until(condition)
                    return
            words = one_line(conversation.link_text) or "its state is not known yet"
            if words != said:
                self._err.write(f"bridge: waiting for the agent: {words}\n")
                self._err.flush()
                said = words

    async def _answered(self, mission_id: str, conversation: Conversation, lines: "_Lines") -> None:
        while conversation.is_outstanding(mission_id):
            if conversation.questions:
                await self._answer(conversation, lines)
            await conversation.until(
                lambda: bool(conversation.questions) or not conversation.is_outstanding(mission_id)
            )

    async def _answer(self, conversation: Conversation, lines: "_Lines") -> None:
        """Take the next line as the answer if it is one; otherwise deny, because a pipe has no person to ask."""
        decision = conversation.decision_of((await lines.peek() or "").strip())
        if decision is None:
            await conversation.answer("deny")
            hint = "  nobody here to ask: answer with a next line y, n or a, or use --permissions bypass"
            await self.line(drawing.note(hint), below=True)
        else:
            await lines.take()
            await conversation.answer(decision)

    def _print(self, *things: RenderableType) -> None:
        with self._console.capture() as drawn:
            # Inside a Group each Text keeps its wrapping, which `print` would override.
            self._console.print(Group(*things))
        # Tables pad their cells with blanks, which only a screen needs.
        self._out.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))
        self._out.flush()

    def _space(self, kind: str) -> None:
        if self._last and (kind == "block" or kind != self._last):
            self._out.write("\n")
        self._last = kind


class _Lines:
    """The lines of a file descriptor, read by a thread, because files do not fit a selector.

    Not `sys.stdin`: Python cannot exit while a waiting thread holds a buffered reader's lock.
    """

    def __init__(self, fd: int) -> None:
        self._lines: deque[str | None] = deque()
        self._arrived = asyncio.Event()
        reading = threading.Thread(target=self._read, args=(fd, asyncio.get_running_loop()), name="stdin", daemon=True)
        reading.start()

    async def peek(self) -> str | None:
        """Wait for the next line, and leave it there. None is the end."""
        while not self._lines:
            self._arrived.clear()
            await self._arrived.wait()
        return self._lines[0]

    async def take(self) -> str | None:
        """Wait for the next line, and remove it. None is the end."""
        line = await self.peek()
        if line is not _END:
            self._lines.popleft()
        return line

    def _read(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        while True:
            try:
                data = os.read(fd, _READ_BYTES)
            except OSError:
                # A closed terminal ends the input as a closed pipe does.
                data = b""
            *lines, rest = (rest + decoder.decode(data, final=not data)).split("\n")
            ended = [rest] if rest and not data else []
            try:
                loop.call_soon_threadsafe(self._arrive, [*lines, *ended], not data)
            except RuntimeError:
                # The loop was closed, so no reader is left.
                return
            if not data:
                return

    def _arrive(self, lines: list[str], ended: bool) -> None:
        self._lines.extend(lines)
        if ended:
            self._lines.append(_END)
        self._arrived.set()
