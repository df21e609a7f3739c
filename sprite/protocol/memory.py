"""The `memory` message and its answer: one type for each `op`, both ways (pure)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from sprite.protocol import shapes
from sprite.protocol.shapes import Payload

#: SQLite's largest row number.
LARGEST_ID = 2**63 - 1
RowId = Annotated[int, Meta(ge=0, le=LARGEST_ID)]

# --- requests ---------------------------------------------------------------------------------


class MemoryRequest(Payload, tag_field="op"):
    """A look into memory, or a person's change to it. Lists come `limit` rows at a time and end with an empty page."""


class FilesRequest(MemoryRequest, tag="files"):
    """The memory files, in numbers."""


class FileRequest(MemoryRequest, tag="file"):
    """One memory file, as it is, as it was in a version, or as it was at a moment (`as_of`, in Unix seconds).

    With a `project`, what a session of that project is shown of it.
    """

    name: str
    version: RowId | None = None
    as_of: float | None = None
    project: str | None = None


class HistoryRequest(MemoryRequest, tag="history"):
    """Every version of a file."""

    name: str


class SearchRequest(MemoryRequest, tag="search"):
    """Hits for a question, best first."""

    query: str
    limit: int | None = None
    project: str | None = None


class AroundRequest(MemoryRequest, tag="around"):
    """A turn with so many of its conversation before and after it. `not_found` if there is no such turn."""

    turn: RowId
    before: Annotated[int, Meta(ge=0, le=50)] = 5
    after: Annotated[int, Meta(ge=0, le=50)] = 5


class BootRequest(MemoryRequest, tag="boot"):
    """The first prompt for a session of a project elsewhere, or of the person's own, at most 8,000 tokens."""

    project: str | None = None


class LearningsRequest(MemoryRequest, tag="learnings"):
    """Learnings above `after`, oldest first; newest first (below `before`) where that or `newest` is set.

    With `line`, the learnings that this line of a memory file rests on, best first.
    """

    line: str | None = None
    after: RowId | None = None
    before: RowId | None = None
    limit: int | None = None
    newest: bool = False


class TurnRequest(MemoryRequest, tag="turn"):
    """One turn of the log, whole: by its number, or by its mission."""

    id: RowId = 0
    mission_id: str | None = None


class ActionsRequest(MemoryRequest, tag="actions"):
    """Every action, most urgent first."""


class EditRequest(MemoryRequest, tag="edit"):
    """A curated file's new content. `version` is the one that was edited: another one by now is a `conflict`."""

    name: str
    content: str
    version: int | None = None


class _DriftAnswer(MemoryRequest):
    name: str
    curation_id: RowId | None = None


class AcceptRequest(_DriftAnswer, tag="accept"):
    """A file's drift becomes the file, as the person's own edit.

    `curation_id` is the drift that was looked at: another one by now is a `conflict`.
    """


class RejectRequest(_DriftAnswer, tag="reject"):
    """A file's drift is put away: the file on disk becomes what memory has. `curation_id` as for `accept`."""


class AddActionRequest(MemoryRequest, tag="add_action"):
    """A new action. `due` is in Unix seconds, or a day or a moment in `tz` ("2026-12-01", "2026-12-01T09:00").

    A day alone means 09:00. `rrule` is a repeat (RFC 5545); `tz` an IANA zone, by default the person's.
    """

    content: str
    due: float | str | None = None
    rrule: str | None = None
    tz: str | None = None
    priority: int = 0


class UpdateActionRequest(MemoryRequest, tag="update_action"):
    """Changes an action: what is left out stays as it is, and an empty `due` or `rrule` takes it away.

    `version` as for `resolve_action`.
    """

    id: RowId
    content: str | None = None
    due: float | str | None = None
    rrule: str | None = None
    tz: str | None = None
    priority: int | None = None
    version: int | None = None


class ResolveActionRequest(MemoryRequest, tag="resolve_action"):
    """An action's new status: open, done, dismissed or failed.

    `version` is the one that was seen: where the action has another one by now, the answer is an error `conflict` with
    the `action` as it is.
    """

    id: RowId
    status: str
    version: int | None = None


class UserFilesRequest(MemoryRequest, tag="user_files"):
    """The files of the user's folders, or of one of them."""

    folder: str | None = None


class DeleteUserFileRequest(MemoryRequest, tag="delete_user_file"):
    """Deletes one of them for good; `path` as listed."""

    path: str


class ChangesRequest(MemoryRequest, tag="changes"):
    """The files that a turn changed, with diffs.

    `turn` is the id of its mission, its number in the log, or the id of an undo; without it, the newest turn that
    changed files. `not_found` if nothing is known of it.
    """

    turn: str | None = None


class UndoRequest(MemoryRequest, tag="undo"):
    """Takes back the file changes of a turn, or of an undo, named as in `changes`.

    Without `paths` all but those that may be the person's own. `paths` and `over` name files, or folders with all
    below; those of `over` are restored even if they have changed since. `busy` while a turn runs.
    """

    turn: str | None = None
    paths: list[str] | None = None
    over: list[str] = field(default_factory=list)


class RetryRequest(MemoryRequest, tag="retry"):
    """A quarantined turn waits again to be curated. `not_found` if it is not quarantined."""

    turn_id: RowId


class LearningRequest(MemoryRequest, tag="learning"):
    """A person's word on a learning: `confirm` makes it their own, `retire` ends it, `edit` replaces it by `content`.

    `retire` and `edit` also change the lines of memory files that rest on it. `not_found` if there is no such learning,
    `conflict` if it no longer holds, or if `confirm` has nothing to confirm.
    """

    id: RowId
    action: Literal["confirm", "retire", "edit"]
    content: str = ""


class ForgetRequest(MemoryRequest, tag="forget"):
    """Exactly one of text, turn, session and learning; `preview` only says what would go, `yes` that many turns may."""

    text: str | None = None
    turn: RowId | None = None
    session: str | None = None
    learning: RowId | None = None
    preview: bool = False
    yes: bool = False


class _Page(MemoryRequest):
    before: RowId | None = None
    limit: int | None = None


class CurationsRequest(_Page, tag="curations"):
    """Changes of memory, newest first, below an id where one is given."""


class ObservationsRequest(_Page, tag="observations"):
    """Turns, newest first, below an id where one is given."""


class ChatRequest(_Page, tag="chat"):
    """Lines of the conversation, the newest (below an id where one is given)."""


class SessionsRequest(_Page, tag="sessions"):
    """Sessions, the last used first, below a `position` where one is given."""


class RenameSessionRequest(MemoryRequest, tag="rename_session"):
    """Gives a session another title; an empty one restores its own."""

    session_id: str
    title: str


class HealthRequest(MemoryRequest, tag="health"):
    """Memory and what it costs, in numbers."""


AnyMemoryRequest = (
    FilesRequest
    | FileRequest
    | HistoryRequest
    | SearchRequest
    | AroundRequest
    | BootRequest
    | LearningsRequest
    | TurnRequest
    | ActionsRequest
    | EditRequest
    | AcceptRequest
    | RejectRequest
    | AddActionRequest
    | UpdateActionRequest
    | ResolveActionRequest
    | UserFilesRequest
    | DeleteUserFileRequest
    | ChangesRequest
    | UndoRequest
    | RetryRequest
    | LearningRequest
    | ForgetRequest
    | CurationsRequest
    | ObservationsRequest
    | ChatRequest
    | SessionsRequest
    | RenameSessionRequest
    | HealthRequest
)

# --- results ----------------------------------------------------------------------------------


class MemoryResult(Payload, tag_field="op"):
    """The answer to a `memory` message; `op` is the request's."""


class FilesResult(MemoryResult, tag="files"):
    """The memory files, in the order of the boot prompt."""

    files: list[shapes.FileState]


class FileResult(MemoryResult, tag="file"):
    """A file's content as memory has it; `version` is 0 while it is as shipped.

    `drift` is what stands on disk instead, where that changed while the agent worked: it waits for the person's word.
    `drifted` says when that was found, and by which curation.
    """

    name: str
    content: str
    version: int
    drift: str | None = None
    drifted: shapes.Drifted | None = None


class HistoryResult(MemoryResult, tag="history"):
    """A file's versions, oldest first."""

    name: str
    history: list[shapes.VersionRow]


class SearchResult(MemoryResult, tag="search"):
    """Hits in rank order; learnings exist up to turn `indexed_through`, `waiting` turns are not curated yet.

    `notes` say which filter left nothing, and how far the search by meaning reaches.
    """

    hits: list[shapes.SearchHit]
    indexed_through: int
    waiting: int
    notes: list[str] = field(default_factory=list)


class AroundResult(MemoryResult, tag="around"):
    """Turns of one conversation, oldest first."""

    turns: list[shapes.LoggedTurn]


class BootResult(MemoryResult, tag="boot"):
    """The text, as data for a model; empty where there is no memory yet."""

    text: str


class LearningsResult(MemoryResult, tag="learnings"):
    """Learnings, in the order that was asked for."""

    learnings: list[shapes.LearningRow]


class LoggedTurnResult(MemoryResult, tag="turn"):
    """One turn of the log."""

    turn: shapes.LoggedTurn


class ActionsResult(MemoryResult, tag="actions"):
    """Every action."""

    actions: list[shapes.ActionRow]


class _FileNow(MemoryResult):
    name: str
    content: str
    version: int


class EditResult(_FileNow, tag="edit"):
    """The file as it now is."""


class AcceptResult(_FileNow, tag="accept"):
    """The file as it now is."""


class RejectResult(_FileNow, tag="reject"):
    """The file as it now is, in memory and on disk."""


class AddActionResult(MemoryResult, tag="add_action"):
    """The action that was made, and every action as it now is."""

    action: shapes.ActionRow
    actions: list[shapes.ActionRow]


class UpdateActionResult(MemoryResult, tag="update_action"):
    """The action, and every action as it now is."""

    action: shapes.ActionRow
    actions: list[shapes.ActionRow]


class ResolveActionResult(MemoryResult, tag="resolve_action"):
    """Every action as it now is."""

    actions: list[shapes.ActionRow]


class UserFilesResult(MemoryResult, tag="user_files"):
    """The files, newest first; `more` is how many are not listed."""

    files: list[shapes.UserFile]
    more: int = 0


class DeleteUserFileResult(MemoryResult, tag="delete_user_file"):
    """The file that is gone."""

    path: str


class ChangesResult(MemoryResult, tag="changes"):
    """A change set: `turn` is its id, `turn_id` the number in the log, `at` in Unix seconds, `more` files not listed.

    `undoes` is the set that it took back, if it is an undo; `undone_by` the undo that took it back.
    """

    turn: str
    turn_id: int | None
    at: float
    files: list[shapes.ChangedFile]
    more: int = 0
    undoes: str | None = None
    undone_by: str | None = None


class UndoResult(MemoryResult, tag="undo"):
    """Which paths were restored, and which were not: changed since, maybe the person's, or with no content kept.

    `undo` is the id of the undo, which can be undone; null if nothing was restored.
    """

    turn: str
    undo: str | None
    restored: list[str]
    conflicts: list[str]
    yours: list[str]
    unkept: list[str]


class RetryResult(MemoryResult, tag="retry"):
    """The turns that are quarantined now."""

    quarantined: list[shapes.QuarantinedTurn]


class LearningResult(MemoryResult, tag="learning"):
    """The learning as it now is, or the one that replaced it by an `edit`."""

    learning: shapes.LearningRow


class ForgetResult(MemoryResult, tag="forget"):
    """The text that would go, or that went.

    `done`: it is gone, and the bridge's copy, if there is one, has confirmed that. False is also the answer to a forget
    that the copy did not confirm in time: `forgotten.still` says so, and the copy is told until it does.
    """

    forgotten: shapes.Forgotten
    done: bool


class CurationsResult(MemoryResult, tag="curations"):
    """Curations, newest first."""

    curations: list[shapes.CurationRow]


class ObservationsResult(MemoryResult, tag="observations"):
    """Turns, newest first."""

    observations: list[shapes.TurnRow]


class ChatResult(MemoryResult, tag="chat"):
    """Lines of the conversation, oldest first; as many of the newest as fit one frame."""

    chat: list[shapes.ChatMessage]


class SessionsResult(MemoryResult, tag="sessions"):
    """Sessions."""

    sessions: list[shapes.SessionRow]


class RenameSessionResult(MemoryResult, tag="rename_session"):
    """The session that was renamed."""

    session_id: str


class HealthResult(MemoryResult, tag="health"):
    """Memory in numbers."""

    health: shapes.Health


AnyMemoryResult = (
    FilesResult
    | FileResult
    | HistoryResult
    | SearchResult
    | AroundResult
    | BootResult
    | LearningsResult
    | LoggedTurnResult
    | ActionsResult
    | EditResult
    | AcceptResult
    | RejectResult
    | AddActionResult
    | UpdateActionResult
    | ResolveActionResult
    | UserFilesResult
    | DeleteUserFileResult
    | ChangesResult
    | UndoResult
    | RetryResult
    | LearningResult
    | ForgetResult
    | CurationsResult
    | ObservationsResult
    | ChatResult
    | SessionsResult
    | RenameSessionResult
    | HealthResult
)
