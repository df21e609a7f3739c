"""Read-only memory requests: answer each with the rows it asks for."""

from __future__ import annotations

from pathlib import Path

from sprite.memory.files import shown_to
from sprite.memory.recall.search import DEFAULT_LIMIT
from sprite.memory.recall.view import MemoryView, drifted
from sprite.protocol.frames import encode
from sprite.protocol.memory import (
    ActionsRequest,
    ActionsResult,
    AnyMemoryResult,
    AroundRequest,
    AroundResult,
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
    ProjectsRequest,
    ProjectsResult,
    SearchRequest,
    SearchResult,
    TurnRequest,
)
from sprite.protocol.messages import MAX_FRAME_BYTES

#: Rows of a list if the client sends no limit.
PAGE_ROWS = 100

Lists = SearchRequest | ProjectsRequest | LearningsRequest | ActionsRequest | CurationsRequest | ObservationsRequest
Look = FilesRequest | FileRequest | HistoryRequest | TurnRequest | AroundRequest | Lists


async def look(view: MemoryView, request: Look, scratch: Path) -> AnyMemoryResult:
    """Return the result of a request. Raises PeerError if there is no such file, version or turn.

    `scratch` is a folder for temporary files.
    """
    result: AnyMemoryResult
    match request:
        case FilesRequest():
            result = FilesResult(view.files())
        case FileRequest():
            result = await _file(view, request, scratch)
        case HistoryRequest(name):
            result = HistoryResult(name, await view.history(name))
        case TurnRequest(turn_id):
            result = LoggedTurnResult(await view.turn(turn_id))
        case AroundRequest():
            result = await _around(view, request)
        case _:
            result = await _list(view, request)
    return result


async def _list(view: MemoryView, request: Lists) -> AnyMemoryResult:
    result: AnyMemoryResult
    match request:
        case SearchRequest(query, limit, project):
            found = await view.search(query, limit or DEFAULT_LIMIT, project)
            result = SearchResult(found.hits, found.indexed_through, found.waiting, list(found.notes))
        case ProjectsRequest():
            result = ProjectsResult(await view.projects())
        case LearningsRequest():
            result = await _learnings(view, request)
        case ActionsRequest():
            result = ActionsResult(await view.actions())
        case CurationsRequest(before, limit):
            result = CurationsResult(await view.curations(before, limit or PAGE_ROWS))
        case ObservationsRequest(before, limit):
            result = ObservationsResult(await view.observations(before, limit or PAGE_ROWS))
    return result


async def _file(view: MemoryView, request: FileRequest, scratch: Path) -> FileResult:
    project = view.project(request.project)
    result = await _whole_file(view, request, scratch)
    if request.project is not None:
        result.content = shown_to(request.name, result.content, [project] if project else [])
    return result


async def _whole_file(view: MemoryView, request: FileRequest, scratch: Path) -> FileResult:
    if request.version is not None:
        found = await view.file_version(request.name, request.version)
        return FileResult(request.name, found.content, found.version)
    if request.as_of is not None:
        return FileResult(request.name, *await view.file_at(request.name, request.as_of, scratch))
    content, version = await view.file(request.name)
    drift = (await view.drift()).get(request.name)
    if drift is None:
        return FileResult(request.name, content, version)
    return FileResult(request.name, content, version, drift.content, drifted(drift))


async def _around(view: MemoryView, request: AroundRequest) -> AroundResult:
    result = AroundResult(await view.around(request.turn, request.before, request.after))
    while len(result.turns) > 1 and len(encode(result)) > MAX_FRAME_BYTES:
        # The client requests the turns farthest away separately.
        first, last = result.turns[0], result.turns[-1]
        del result.turns[0 if request.turn - first.id >= last.id - request.turn else -1]
    return result


async def _learnings(view: MemoryView, request: LearningsRequest) -> LearningsResult:
    limit = request.limit or PAGE_ROWS
    if request.newest or request.before is not None:
        return LearningsResult(await view.newest_learnings(request.before, limit))
    return LearningsResult(await view.learnings(request.after or 0, limit))
