"""A person's changes to the list of actions: each request, and the answer with the whole list as it then is."""

from __future__ import annotations

from sprite.memory.actions import Actions
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


async def act(
    actions: Actions, view: MemoryView, request: AddActionRequest | UpdateActionRequest | ResolveActionRequest
) -> AnyMemoryResult:
    """Makes a person's change. PeerError where it makes no sense: see `Actions`."""
    match request:
        case AddActionRequest(content, due, rrule, tz, priority):
            made = await actions.add(content, by="person", due=due, rrule=rrule, tz=tz, priority=priority)
            return AddActionResult(action_row(made), await view.actions())
        case UpdateActionRequest(action_id, content, due, rrule, tz, priority):
            changed = await actions.update(
                action_id, by="person", content=content, due=due, rrule=rrule, tz=tz, priority=priority
            )
            return UpdateActionResult(action_row(changed), await view.actions())
        case ResolveActionRequest(action_id, status):
            await actions.resolve(action_id, status, by="person")
            return ResolveActionResult(await view.actions())
