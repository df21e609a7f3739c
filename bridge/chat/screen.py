"""The interface of a conversation's output: a terminal, or plain text in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType
    from rich.text import Text


class NobodyHereError(Exception):
    """The operation needs a person at a terminal."""


class Screen(Protocol):
    """Shows things in the given order.

    `by_line`: replies are cut into lines instead of blocks. `shows_one_stack`: only one stack's cards are shown instead
    of all until the person chooses.
    """

    by_line: bool
    shows_one_stack: bool

    async def show(self, *things: RenderableType) -> None:
        """Show something with space around it."""

    async def line(self, text: Text, *, below: bool = False) -> None:
        """Show one line close to the lines before it; `below` puts it directly under the last output."""

    async def reply(self, pieces: list[str], tail: str) -> None:
        """Show finished pieces of a reply, and its unfinished tail while it grows."""

    def ring(self) -> None:
        """Ring for a person who looks elsewhere; does nothing in a pipe."""

    async def ask(self, question: str) -> str:
        """Ask the person and return the next line that answers. Raises NobodyHereError in a pipe."""

    async def edit(self, path: Path) -> int:
        """Open a file in the person's editor and return its exit status.

        Raises NobodyHereError in a pipe, OSError or ValueError if the editor cannot be started.
        """

    def forget(self, text: str) -> None:
        """Remove entered lines with this text from the screen's history."""
