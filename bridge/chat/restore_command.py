"""`/restore`: restores a lost agent from its replica, or chooses between two states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.chat import drawing
from bridge.chat.command import Command
from bridge.chat.offers import WAYS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.chat.conversation import Conversation
    from bridge.chat.screen import Screen

    #: Asks the bridge to restore the person's agent in one of the ways of `POST /restore`, and returns its message.
    #: Raises NotRestoredError.
    Restore = Callable[[str], Awaitable[str]]


class NotRestoredError(Exception):
    """The agent was not restored; the message is for people."""


class RestoreCommand:
    """The command of one conversation; `table` maps its name to it."""

    def __init__(self, conversation: Conversation, screen: Screen, restore: Restore) -> None:
        self._conversation = conversation
        self._screen = screen
        self._restore = restore
        self.table = {
            "/restore": Command(
                "/restore [new | kept | as-it-is]",
                "makes your agent anew of what is kept, where it is gone; or as it is offered",
                self._run,
            )
        }

    async def _run(self, rest: str) -> None:
        if (way := WAYS.get(rest.strip())) is None:
            usage = "/restore, /restore new, /restore kept or /restore as-it-is."
            await self._screen.show(drawing.problem("That is no way to restore.", usage))
            return
        try:
            with self._conversation.busy("restoring your agent"):
                words = await self._restore(way)
        except NotRestoredError as error:
            await self._screen.show(drawing.problem(str(error)))
        else:
            await self._screen.line(drawing.note(f"✓ {words}"))
