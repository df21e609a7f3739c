"""Requests about memory, the state, actions and hosts: answer each with the rows it asks for."""

from __future__ import annotations

from pathlib import Path

from sprite.config import Settings
from sprite.memory.actions import Actions, StaleActionError
from sprite.memory.files import shown_to
from sprite.protocol import memory as wire
from sprite.protocol import messages
from sprite.protocol.frames import encode
from sprite.protocol.pasted import clipped
from sprite.protocol.shapes import ChatMessage
from sprite.sandbox.egress import EgressProxy
from sprite.sandbox.hosts import REGISTRIES, HostTables
from sprite.sandbox.sandbox import Boundary
from sprite.search.search import DEFAULT_LIMIT
from sprite.search.view import MemoryView, action_row, drifted

#: Rows of a list if the client sends no limit.
PAGE_ROWS = 100


async def look(view: MemoryView, request: wire.MemoryRequest, scratch: Path) -> wire.MemoryResult:
    """Answer a request that only reads memory. Raise PeerError for an unknown file, version or turn."""
    result: wire.MemoryResult
    match request:
        case wire.FilesRequest():
            result = wire.FilesResult(view.files())
        case wire.FileRequest():
            result = await _file(view, request, scratch)
        case wire.HistoryRequest(name):
            result = wire.HistoryResult(name, await view.history(name))
        case wire.TurnRequest(turn_id, mission_id):
            result = wire.LoggedTurnResult(await view.turn(turn_id if mission_id is None else mission_id))
        case wire.AroundRequest():
            result = await _around(view, request)
        case _:
            result = await _list(view, request)
    return result


async def _list(view: MemoryView, request: wire.MemoryRequest) -> wire.MemoryResult:
    result: wire.MemoryResult
    match request:
        case wire.SearchRequest(query, limit, project):
            found = await view.search(query, limit or DEFAULT_LIMIT, project)
            result = wire.SearchResult(found.hits, found.indexed_through, found.waiting, list(found.notes))
        case wire.LearningsRequest():
            result = await _learnings(view, request)
        case wire.ActionsRequest():
            result = wire.ActionsResult(await view.actions())
        case wire.RulesRequest():
            result = wire.RulesResult(await view.rules())
        case wire.CurationsRequest(before, limit):
            result = wire.CurationsResult(await view.curations(before, limit or PAGE_ROWS))
        case wire.ObservationsRequest(before, limit):
            result = wire.ObservationsResult(await view.observations(before, limit or PAGE_ROWS))
    return result


async def _file(view: MemoryView, request: wire.FileRequest, scratch: Path) -> wire.FileResult:
    project = view.project(request.project)
    if request.version is not None:
        found = await view.file_version(request.name, request.version)
        result = wire.FileResult(request.name, found.content, found.version)
    elif request.as_of is not None:
        result = wire.FileResult(request.name, *await view.file_at(request.name, request.as_of, scratch))
    else:
        result = wire.FileResult(request.name, *await view.file(request.name))
        if (drift := (await view.drift()).get(request.name)) is not None:
            result.drift, result.drifted = drift.content, drifted(drift)
    if request.project is not None:
        result.content = shown_to(request.name, result.content, [project] if project else [])
    return result


async def _around(view: MemoryView, request: wire.AroundRequest) -> wire.AroundResult:
    result = wire.AroundResult(await view.around(request.turn, request.before, request.after))
    while len(result.turns) > 1 and len(encode(result)) > messages.MAX_FRAME_BYTES:
        # The client requests the turns farthest away separately.
        first, last = result.turns[0], result.turns[-1]
        del result.turns[0 if request.turn - first.id >= last.id - request.turn else -1]
    return result


async def _learnings(view: MemoryView, request: wire.LearningsRequest) -> wire.LearningsResult:
    limit = request.limit or PAGE_ROWS
    if request.line is not None:
        return wire.LearningsResult(await view.behind(request.line))
    if request.newest or request.before is not None:
        return wire.LearningsResult(await view.newest_learnings(request.before, limit))
    return wire.LearningsResult(await view.learnings(request.after or 0, limit))


def cut_to_fit(sync: messages.StateSync) -> messages.StateSync:
    """Shorten a `state_sync` until it fits one frame."""
    while len(encode(sync)) > messages.MAX_FRAME_BYTES:
        if len(sync.chat) > 1:
            sync.chat = sync.chat[(len(sync.chat) + 1) // 2 :]
        elif sync.running is not None and sync.running.events:
            sync.running.events = sync.running.events[(len(sync.running.events) + 1) // 2 :]
        elif any(card.archived for card in sync.cards):
            sync.cards = [card for card in sync.cards if not card.archived]
        elif sync.cards:
            sync.cards = sync.cards[(len(sync.cards) + 1) // 2 :]
        else:
            break
    return sync


async def reach(
    settings: Settings, tables: HostTables, network: EgressProxy, boundary: Boundary | None
) -> messages.ReachResult:
    """Return what the agent may reach: rules of the session first, then those for good, and the logged hosts."""
    holds = None if boundary is None else boundary.holds
    allowed = [messages.AllowedHost(host, until) for host, until in sorted(network.gate.answers().items())]
    hosts = await tables.uses()
    for host in hosts:
        host.open, sent, received = network.open_to(host.host, host.port, host.decision)
        host.sent += sent
        host.received += received
    return messages.ReachResult(
        mode=network.gate.mode,
        holds=holds,
        sandbox="it is tried when the agent starts" if boundary is None else boundary.words,
        writable=[str(settings.workspace)] if holds else [],
        allowed=[*allowed, *await tables.rules()],
        hosts=hosts,
        registries=sorted(REGISTRIES),
    )


def shown(chat: list[ChatMessage]) -> list[ChatMessage]:
    """Cut very long chat lines to the length that a message may have."""
    for message in chat:
        if len(message.text) > messages.CHAT_TEXT_CHARS:
            message.text = f"{message.text[: messages.CHAT_TEXT_CHARS]} […]"
            message.pasted = clipped(message.pasted, messages.CHAT_TEXT_CHARS)
    return chat


async def act(
    actions: Actions,
    view: MemoryView,
    request: wire.AddActionRequest | wire.UpdateActionRequest | wire.ResolveActionRequest,
) -> wire.MemoryResult | messages.Error:
    """Make a person's change of an action; an outdated one gets an error with the current action.

    Raises PeerError for an invalid change: see `Actions`.
    """
    try:
        match request:
            case wire.AddActionRequest(content, due, rrule, tz, priority):
                made = await actions.add(content, by="person", due=due, rrule=rrule, tz=tz, priority=priority)
                return wire.AddActionResult(action_row(made), await view.actions())
            case wire.UpdateActionRequest(action_id, content, due, rrule, tz, priority, seen):
                changed = await actions.update(
                    action_id, by="person", content=content, due=due, rrule=rrule, tz=tz, priority=priority, seen=seen
                )
                return wire.UpdateActionResult(action_row(changed), await view.actions())
            case wire.ResolveActionRequest(action_id, status, seen):
                await actions.resolve(action_id, status, by="person", seen=seen)
                return wire.ResolveActionResult(await view.actions())
    except StaleActionError as error:
        return messages.Error(error.code, str(error), action=action_row(error.action))
