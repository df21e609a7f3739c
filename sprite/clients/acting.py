"""A person's changes to the list of actions: each request, and the answer with the whole list afterwards."""

from __future__ import annotations

from sprite.memory.actions import Actions, StaleActionError
from sprite.memory.recall.view import MemoryView, action_row
from sprite.protocol.memory import (
    AddActionRequest,
    AddActionResult,
    AnyMemoryResult,
    ResolveActionRequest,
    ResolveActionResult,
    UpdateActionRequest,
    UpdateActionResult,
)
from sprite.protocol.messages import Error


async def act(
    actions: Actions, view: MemoryView, request: AddActionRequest | UpdateActionRequest | ResolveActionRequest
) -> AnyMemoryResult | Error:
    """Apply a person's change. If it is outdated, return an error with the current action.

    Raises PeerError for an invalid change: see `Actions`.
    """
    try:
        return await _act(actions, view, request)
    except StaleActionError as error:
        return Error(error.code, str(error), action=action_row(error.action))


async def _act(
    actions: Actions, view: MemoryView, request: AddActionRequest | UpdateActionRequest | ResolveActionRequest
) -> AnyMemoryResult:
    match request:
        case AddActionRequest(content, due, rrule, tz, priority):
            made = await actions.add(content, by="person", due=due, rrule=rrule, tz=tz, priority=priority)
            return AddActionResult(action_row(made), await view.actions())
        case UpdateActionRequest(action_id, content, due, rrule, tz, priority, seen):
            changed = await actions.update(
                action_id, by="person", content=content, due=due, rrule=rrule, tz=tz, priority=priority, seen=seen
            )
            return UpdateActionResult(action_row(changed), await view.actions())
        case ResolveActionRequest(action_id, status, seen):
            await actions.resolve(action_id, status, by="person", seen=seen)
            return ResolveActionResult(await view.actions())
