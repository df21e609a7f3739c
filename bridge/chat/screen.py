"""What a conversation needs of the place where it is seen: a terminal, or plain text in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType
    from rich.text import Text


class NobodyHereError(Exception):
    """What was asked for takes a person at a terminal."""


class Screen(Protocol):
    """Shows things in the order they are given.

    `by_line` says how finely replies are cut, `shows_one_stack` whether cards are those of one stack of the canvas (or
    of all of them, as long as nobody chose one).
    """

    by_line: bool
    shows_one_stack: bool

    async def show(self, *things: RenderableType) -> None:
        """Shows something with room around it."""

    async def line(self, text: Text, *, below: bool = False) -> None:
        """Shows one line, close to the lines before it; `below` puts it under whatever came last."""

    async def reply(self, pieces: list[str], tail: str) -> None:
        """Shows finished pieces of a reply, and its unfinished tail for as long as it grows."""

    def ring(self) -> None:
        """Calls a person who looks elsewhere; nothing in a pipe."""

    async def ask(self, question: str) -> str:
        """Asks the person, and returns the next line that is an answer to it. NobodyHereError in a pipe."""

    async def edit(self, path: Path) -> int:
        """Opens a file in the person's editor; its exit status.

        NobodyHereError in a pipe, OSError or ValueError where the editor cannot be started.
        """

    def forget(self, text: str) -> None:
        """Forgets what was typed with this text in it, wherever the screen keeps it."""
