"""`/actions` lists and closes actions; `/permissions` lists what is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bridge.terminal import drawing
from bridge.terminal import memory_commands as memory_views
from bridge.terminal.command import LOOK_SECONDS, Command, CommandGroup
from bridge.terminal.drawing import exact, one_line
from bridge.terminal.memory_commands import when
from sprite.protocol.memory import (
    ActionsRequest,
    ActionsResult,
    ResolveActionRequest,
    ResolveActionResult,
)
from sprite.protocol.messages import Status, System

if TYPE_CHECKING:
    from sprite.protocol.messages import StandingRule


#: The action status for each word.
_RESOLVED = {"done": "done", "dismiss": "dismissed", "reopen": "open"}
_USAGE = "/actions [done N | dismiss N | reopen N]"
_ADVICE = "such as /actions done 4. Ask the agent to note something new, or to change it."


class ActionCommands(CommandGroup):
    """The commands of one conversation."""

    @property
    def table(self) -> dict[str, Command]:
        """Return the commands by name."""
        return {
            "/actions": Command(_USAGE, "what is to be done, by number; closes one", self._actions),
        }

    async def _actions(self, rest: str) -> None:
        word, _, number = rest.partition(" ")
        if not rest:
            await self._list(await self.look(ActionsRequest(), ActionsResult))
        elif word in _RESOLVED and number.strip().isdecimal():
            request = ResolveActionRequest(int(number), _RESOLVED[word], self._seen.get(int(number)))
            await self._list(await self.look(request, ResolveActionResult))
        else:
            await self._screen.show(drawing.problem("Which one, and how?", _ADVICE))

    async def _list(self, found: ActionsResult | ResolveActionResult | None) -> None:
        if found is not None:
            self._seen |= {action.id: action.version for action in found.actions}
            await self._screen.show(memory_views.actions(found.actions))


_NONE = "nothing is allowed for good: the agent asks each time"


class PermissionCommands(CommandGroup):
    """The commands of one conversation."""

    @property
    def table(self) -> dict[str, Command]:
        """Return the commands by name."""
        return {
            "/permissions": Command(
                "/permissions [revoke N | revoke all]",
                "what runs without asking in this session; takes it back",
                self._permissions,
            ),
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
        status = await self.ask(system, "asking", LOOK_SECONDS)
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
