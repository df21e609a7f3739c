"""Looks into memory, answered: each request that only reads, as the rows it asks for."""

from __future__ import annotations

from sprite.memory.recall.search import DEFAULT_LIMIT
from sprite.memory.recall.view import MemoryView, drifted
from sprite.protocol.memory import (
    ActionsRequest,
    ActionsResult,
    AnyMemoryResult,
    CurationsRequest,
    CurationsResult,
    FileRequest,
    FileResult,
    FilesRequest,
    FilesResult,
    HistoryRequest,
    HistoryResult,
    LearningsRequest,
    LearningsResult,
    LoggedTurnResult,
    ObservationsRequest,
    ObservationsResult,
    SearchRequest,
    SearchResult,
    TurnRequest,
)

#: Rows of a list where a client names no limit.
PAGE_ROWS = 100

Look = (
    FilesRequest
    | FileRequest
    | HistoryRequest
    | SearchRequest
    | LearningsRequest
    | TurnRequest
    | ActionsRequest
    | CurationsRequest
    | ObservationsRequest
)


async def look(view: MemoryView, request: Look) -> AnyMemoryResult:
    """What a request shows. PeerError where there is no such file, version or turn."""
    result: AnyMemoryResult
    match request:
        case FilesRequest():
            result = FilesResult(view.files())
        case FileRequest():
            result = await _file(view, request)
        case HistoryRequest(name):
            result = HistoryResult(name, await view.history(name))
        case SearchRequest(query, limit):
            found = await view.search(query, limit or DEFAULT_LIMIT)
            result = SearchResult(found.hits, found.indexed_through, found.waiting, list(found.notes))
        case LearningsRequest():
            result = await _learnings(view, request)
        case TurnRequest(turn_id):
            result = LoggedTurnResult(await view.turn(turn_id))
        case ActionsRequest():
            result = ActionsResult(await view.actions())
        case CurationsRequest(before, limit):
            result = CurationsResult(await view.curations(before, limit or PAGE_ROWS))
        case ObservationsRequest(before, limit):
            result = ObservationsResult(await view.observations(before, limit or PAGE_ROWS))
    return result


async def _file(view: MemoryView, request: FileRequest) -> FileResult:
    if request.version is None:
        content, version = await view.file(request.name)
        drift = (await view.drift()).get(request.name)
        if drift is None:
            return FileResult(request.name, content, version)
        return FileResult(request.name, content, version, drift.content, drifted(drift))
    found = await view.file_version(request.name, request.version)
    return FileResult(request.name, found.content, found.version)


async def _learnings(view: MemoryView, request: LearningsRequest) -> LearningsResult:
    limit = request.limit or PAGE_ROWS
    if request.newest or request.before is not None:
        return LearningsResult(await view.newest_learnings(request.before, limit))
    return LearningsResult(await view.learnings(request.after or 0, limit))
