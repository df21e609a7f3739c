"""`/actions` lists, adds, changes and closes actions; `/bell` switches the bell."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bridge.terminal import drawing
from bridge.terminal import memory_commands as memory_views
from bridge.terminal.command import LOOK_SECONDS, Command, CommandGroup
from bridge.terminal.drawing import due_words, exact, one_line, repeat_words
from bridge.terminal.memory_commands import when
from sprite.protocol.memory import (
    ActionsRequest,
    ActionsResult,
    AddActionRequest,
    AddActionResult,
    ResolveActionRequest,
    ResolveActionResult,
    UpdateActionRequest,
    UpdateActionResult,
)
from sprite.protocol.messages import Status, System

if TYPE_CHECKING:
    from sprite.protocol.messages import StandingRule
    from sprite.protocol.shapes import ActionRow


#: The action status for each word.
_RESOLVED = {"done": "done", "dismiss": "dismissed", "reopen": "open"}
#: Named repeats; any other text is an iCalendar rule.
_REPEATS = {
    "day": "FREQ=DAILY",
    "weekday": "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR",
    "week": "FREQ=WEEKLY",
    "month": "FREQ=MONTHLY",
    "year": "FREQ=YEARLY",
}
_OPTIONS = ("--due", "--every")
_USAGE = "/actions [add TEXT | done N | dismiss N | reopen N | change N]"
_ADVICE = (
    'such as /actions add Water the ficus --due "tomorrow 09:00" --every week, or /actions done 4. '
    "--every takes day, weekday, week, month, year, or a rule like FREQ=MONTHLY;BYDAY=1MO."
)


class ActionCommands(CommandGroup):
    """The commands of one conversation."""

    @property
    def table(self) -> dict[str, Command]:
        """Return the commands by name."""
        return {
            "/actions": Command(_USAGE, "what is to be done; --due and --every with add and change", self._actions),
            "/bell": Command("/bell [on | off]", "whether this terminal rings when the agent needs you", self._bell),
        }

    async def _actions(self, rest: str) -> None:
        word, _, more = rest.partition(" ")
        more = more.strip()
        if not rest:
            await self._list(await self.look(ActionsRequest(), ActionsResult))
        elif word in _RESOLVED and more.isdecimal():
            request = ResolveActionRequest(int(more), _RESOLVED[word], self._seen.get(int(more)))
            await self._list(await self.look(request, ResolveActionResult))
        elif word in {"add", "change"} and (said := _said(more)) is not None:
            await (self._add(*said) if word == "add" else self._change(*said))
        else:
            await self._refuse()

    async def _add(self, text: str, due: str | None, every: str | None) -> None:
        if not text:
            await self._refuse()
            return
        request = AddActionRequest(text, due, _rule(every), self._conversation.zone)
        if (done := await self.look(request, AddActionResult)) is not None:
            await self._understood(done.action)

    async def _change(self, text: str, due: str | None, every: str | None) -> None:
        number, _, words = text.partition(" ")
        if not number.isdecimal() or not (words or due is not None or every is not None):
            await self._refuse()
            return
        tz = self._conversation.zone if due else None
        version = self._seen.get(int(number))
        request = UpdateActionRequest(int(number), words.strip() or None, due, _rule(every), tz, version=version)
        if (done := await self.look(request, UpdateActionResult)) is not None:
            await self._understood(done.action)

    async def _understood(self, action: ActionRow) -> None:
        self._seen[action.id] = action.version
        when = [due_words(action.due, action.tz)] if action.due is not None else ["without a date"]
        if action.rrule:
            when.append(repeat_words(action.rrule, action.due, action.tz))
        await self._screen.line(drawing.note(f"{action.id}: {one_line(action.content)} · {' · '.join(when)}"))

    async def _list(self, found: ActionsResult | ResolveActionResult | None) -> None:
        if found is not None:
            self._seen |= {action.id: action.version for action in found.actions}
            await self._screen.show(memory_views.actions(found.actions))

    async def _refuse(self) -> None:
        await self._screen.show(drawing.problem("Which one, and how?", _ADVICE))

    async def _bell(self, rest: str) -> None:
        if rest in {"on", "off"}:
            self._conversation.rings = rest == "on"
        elif rest:
            await self._screen.show(drawing.problem("On or off?", "/bell on, or /bell off."))
            return
        state = "rings" if self._conversation.rings else "is quiet"
        words = f"this terminal {state} when the agent asks something, or has done something by itself"
        await self._screen.line(drawing.note(words))


def _said(text: str) -> tuple[str, str | None, str | None] | None:
    """Split a line into text, due time and repeat. Return None if an option has no value.

    `""` removes a time or a repeat. Only option values are parsed like a shell's, because the text may contain quotes.
    """
    places = [place for option in _OPTIONS if (place := f" {text} ".find(f" {option} ")) >= 0]
    begins = min(places, default=len(text))
    options: dict[str, list[str]] = {}
    try:
        words = shlex.split(text[begins:])
    except ValueError:
        return None
    for word in words:
        if word in _OPTIONS:
            values = options[word] = []
        else:
            values.append(word)
    if not all(options.values()):
        return None
    due, every = (" ".join(options[name]) if name in options else None for name in _OPTIONS)
    return text[:begins].strip(), due, every


def _rule(every: str | None) -> str | None:
    return None if every is None else _REPEATS.get(every.lower(), every)


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
