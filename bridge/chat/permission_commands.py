"""The command that lists and revokes standing permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bridge.chat import drawing
from bridge.chat.command import LOOK_SECONDS, Command
from bridge.chat.exact import exact
from bridge.chat.memory_views import when
from bridge.chat.untrusted import one_line
from sprite.protocol.messages import Status, System

if TYPE_CHECKING:
    from bridge.chat.command import Asking
    from bridge.chat.screen import Screen
    from sprite.protocol.messages import StandingRule

_NONE = "nothing is allowed for good: the agent asks each time"


class PermissionCommands:
    """The commands of one conversation; `table` maps names to commands."""

    def __init__(self, screen: Screen, asking: Asking) -> None:
        self._screen = screen
        self._asking = asking
        #: The last listed rules; people revoke them by number.
        self._listed: list[StandingRule] = []
        self.table = {
            "/permissions": Command(
                "/permissions [revoke N | revoke all]",
                "what runs without asking in this session; takes it back",
                self._permissions,
            )
        }

    async def _permissions(self, rest: str) -> None:
        match rest.split():
            case []:
                await self._show(System(action="status"))
            case ["revoke", "all"]:
                await self._show(System(action="revoke"))
            case ["revoke", number] if number.isdecimal() and 1 <= int(number) <= len(self._listed):
                await self._show(System(action="revoke", rule_id=self._listed[int(number) - 1].rule_id))
            case _:
                advice = "/permissions lists them by number; then /permissions revoke N, or revoke all."
                await self._screen.show(drawing.problem("Which one?", advice))

    async def _show(self, system: System) -> None:
        status = await self._asking.ask(system, "asking", LOOK_SECONDS)
        if not isinstance(status, Status):
            return
        self._listed = status.rules
        if status.permissions == "bypass":
            await self._screen.line(drawing.note("the agent does as it sees fit and asks nobody"))
        elif status.rules:
            await self._screen.show(_rules(status.rules))
        else:
            await self._screen.line(drawing.note(_NONE))


def _rules(rules: list[StandingRule]) -> Table:
    """Draw standing permissions by number."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column()
    drawn.add_column(style="dim", no_wrap=True)
    for number, rule in enumerate(rules, 1):
        words = Text(one_line(rule.words))
        if rule.command:
            words = Text.assemble(words, "\n", exact(rule.command))
        drawn.add_row(Text(str(number)), words, Text(when(rule.at)))
    return drawn
