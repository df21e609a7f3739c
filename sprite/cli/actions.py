"""`actions list|add|done|dismiss`: a person's actions in a terminal, through the running sprite if there is one."""

from __future__ import annotations

import argparse

import msgspec

from sprite.cli.output import show
from sprite.common.due_times import due_words, moment_words
from sprite.common.recurrence import DEFAULT_ZONE, rule_of
from sprite.config import Settings
from sprite.errors import OperatorError, WorkspaceLockedError
from sprite.memory.actions import Actions
from sprite.owner import ask_running, open_stores, owned
from sprite.protocol.framing import one_line
from sprite.protocol.memory import AddActionRequest, AddActionResult, ResolveActionRequest, ResolveActionResult
from sprite.protocol.shapes import ActionRow, named_action
from sprite.search.view import action_row


async def list_actions(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print the actions, next due first; only the open ones unless `--all` is given."""
    async with open_stores(settings) as stores:
        actions = await stores.view.actions()
    shown = [action for action in actions if arguments.all or action.status == "open"]
    shown.sort(key=lambda action: (action.due is None, action.due or 0.0))
    none = "There are no open actions. Add one: python -m sprite actions add 'Water the ficus' --due 'tomorrow 09:00'"
    return show(arguments, shown, [_line(action) for action in shown] or [none])


async def add(settings: Settings, arguments: argparse.Namespace) -> int:
    """Add an action, and print the result."""
    request = AddActionRequest(
        content=" ".join(arguments.text),
        due=arguments.due,
        rrule=None if arguments.every is None else rule_of(arguments.every),
        tz=arguments.tz,
        priority=arguments.priority,
    )
    try:
        async with owned(settings) as own:
            actions = Actions(own.projection, own.memory)
            made = action_row(await actions.add(**msgspec.structs.asdict(request), by="person"))
    except WorkspaceLockedError:
        made = (await ask_running(settings, request, AddActionResult)).action
    return show(arguments, made, [_line(made)])


async def close(settings: Settings, arguments: argparse.Namespace) -> int:
    """Mark an action as done, or dismiss it; this also ends a repeating one."""
    status, number = arguments.status, await _number(settings, " ".join(arguments.action))
    try:
        async with owned(settings) as own:
            actions = Actions(own.projection, own.memory)
            closed = action_row(await actions.resolve(number, status, by="person"))
    except WorkspaceLockedError:
        listed = (await ask_running(settings, ResolveActionRequest(number, status), ResolveActionResult)).actions
        closed = next(action for action in listed if action.id == number)
    return show(arguments, closed, [_line(closed)])


async def _number(settings: Settings, given: str) -> int:
    """Return the number of the open or failed action that `given` names, by its number or words."""
    async with open_stores(settings) as stores:
        found = named_action([row for row in await stores.view.actions() if row.status in {"open", "failed"}], given)
    if isinstance(found, str):
        raise OperatorError(f"{found} `actions list` shows them all.")
    return found.id


def _line(action: ActionRow) -> str:
    when = due_words(action.due, action.rrule, action.tz)
    if not when and action.fired_at is not None:
        when = f"last {moment_words(action.fired_at, action.tz or DEFAULT_ZONE)}"
    marks = [when, f"priority {action.priority}" if action.priority else "", f"by {action.origin}"]
    if action.status != "open":
        marks.append(action.status)
    return f"{one_line(action.content)}  ({'; '.join(mark for mark in marks if mark)})"
