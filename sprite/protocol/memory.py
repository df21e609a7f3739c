"""The `memory` message and its answer: one type for each `op`, both ways (pure)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from sprite.protocol import shapes
from sprite.protocol.shapes import ClientPayload, RowId, ServerPayload

# --- requests ---------------------------------------------------------------------------------


class MemoryRequest(ClientPayload, tag_field="op"):
    """Reads memory, or changes it for a person. Lists come in pages of `limit` rows and end with an empty page."""


class FilesRequest(MemoryRequest, tag="files"):
    """Asks for the sizes of the memory files."""


class FileRequest(MemoryRequest, tag="file"):
    """Asks for a memory file: the current version, version `version`, or the one at the time `as_of` (Unix seconds).

    With a `project`, the answer is the part of the file that a session of that project gets.
    """

    name: str
    version: RowId | None = None
    as_of: float | None = None
    project: str | None = None


class HistoryRequest(MemoryRequest, tag="history"):
    """Asks for every version of a memory file."""

    name: str


class SearchRequest(MemoryRequest, tag="search"):
    """Asks for the learnings and turns that match a question, best first."""

    query: str
    limit: int | None = None
    project: str | None = None


class AroundRequest(MemoryRequest, tag="around"):
    """Asks for a turn with `before` turns before and `after` turns after it in its session; `not_found` without it."""

    turn: RowId
    before: Annotated[int, Meta(ge=0, le=50)] = 5
    after: Annotated[int, Meta(ge=0, le=50)] = 5


class BootRequest(MemoryRequest, tag="boot"):
    """Asks for the boot prompt of a session (at most 8,000 tokens), of a `project` or of the person's own."""

    project: str | None = None


class LearningsRequest(MemoryRequest, tag="learnings"):
    """Asks for learnings above the id `after`, oldest first; with `newest` or `before`, newest first.

    With `line`, asks for the learnings that support this line of a memory file, best first.
    """

    line: str | None = None
    after: RowId | None = None
    before: RowId | None = None
    limit: int | None = None
    newest: bool = False


class TurnRequest(MemoryRequest, tag="turn"):
    """Asks for a whole turn of the log, by its number or by its mission."""

    id: RowId = 0
    mission_id: str | None = None


class ActionsRequest(MemoryRequest, tag="actions"):
    """Asks for every action, most urgent first."""


class EditRequest(MemoryRequest, tag="edit"):
    """Replaces a memory file's content by the person's.

    `version` is the version that the person edited; the answer is an error `conflict` if the file has a newer one.
    """

    name: str
    content: str
    version: int | None = None


class _DriftAnswer(MemoryRequest):
    name: str
    curation_id: RowId | None = None


class AcceptRequest(_DriftAnswer, tag="accept"):
    """Accepts a memory file's drift, a change on disk while the agent worked, as the person's edit.

    `curation_id` names the drift that the person saw; the answer is an error `conflict` if there is another one
    now.
    """


class RejectRequest(_DriftAnswer, tag="reject"):
    """Discards a file's drift and writes the file again from memory. `curation_id` as for `accept`."""


class AddActionRequest(MemoryRequest, tag="add_action"):
    """Adds an action. `due` is in Unix seconds, or a day or time in `tz` ("2026-12-01", "2026-12-01T09:00").

    A day alone means 09:00. `rrule` is the recurrence (RFC 5545); `tz` is an IANA zone, by default the person's.
    """

    content: str
    due: float | str | None = None
    rrule: str | None = None
    tz: str | None = None
    priority: int = 0


class UpdateActionRequest(MemoryRequest, tag="update_action"):
    """Changes an action. Missing fields stay; an empty `due` or `rrule` removes it.

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
    """Sets an action's status: open, done, dismissed or failed.

    `version` is the version that the person saw. If the action has a newer one, the answer is an error `conflict`
    with the current `action`.
    """

    id: RowId
    status: str
    version: int | None = None


class UserFilesRequest(MemoryRequest, tag="user_files"):
    """Asks for the files in the user's folders, or in one of them."""

    folder: str | None = None


class DeleteUserFileRequest(MemoryRequest, tag="delete_user_file"):
    """Deletes a file of the user's folders for good; `path` as listed."""

    path: str


class ChangesRequest(MemoryRequest, tag="changes"):
    """Asks for the files that a turn changed, with diffs.

    `turn` is the mission's id, the turn's number in the log, or the id of an undo; by default the newest turn that
    changed files. `not_found` for an unknown turn.
    """

    turn: str | None = None


class UndoRequest(MemoryRequest, tag="undo"):
    """Undoes the file changes of a turn or of an earlier undo, named as in `changes`.

    Without `paths`, undoes all changes except those that may be the person's own. `paths` and `over` name files or
    whole folders; `over` restores files that have changed since. `busy` while a turn runs.
    """

    turn: str | None = None
    paths: list[str] | None = None
    over: list[str] = field(default_factory=list)


class RetryRequest(MemoryRequest, tag="retry"):
    """Makes a quarantined turn wait for curation again. `not_found` if it is not quarantined."""

    turn_id: RowId


class LearningRequest(MemoryRequest, tag="learning"):
    """Confirms a learning as the person's own, retires it, or replaces its text by `content` (`edit`).

    `retire` and `edit` also change the lines of memory files that rest on it. `not_found` if there is no such
    learning; `conflict` if it is no longer true or needs no confirmation.
    """

    id: RowId
    action: Literal["confirm", "retire", "edit"]
    content: str = ""


class ForgetRequest(MemoryRequest, tag="forget"):
    """Forgets exactly one of these: a text everywhere, a turn, a session, or a learning.

    `preview` only lists what would be removed. `yes` is the number of turns that the person agreed to remove.
    """

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
    """Asks for the changes of memory (curations), newest first; with an id, only for those with a smaller id."""


class ObservationsRequest(_Page, tag="observations"):
    """Asks for turns of the log, newest first; with an id, only for those with a smaller id."""


class ChatRequest(_Page, tag="chat"):
    """Asks for the newest chat messages; with an id, only for those with a smaller id."""


class SessionsRequest(_Page, tag="sessions"):
    """Asks for sessions, the last used first, below a `position` if one is given."""


class RenameSessionRequest(MemoryRequest, tag="rename_session"):
    """Sets a session's title; an empty title brings back the first message as the title."""

    session_id: str
    title: str


class RulesRequest(MemoryRequest, tag="rules"):
    """Asks for the rules about tool calls: offered, active, dismissed and retired."""


class HealthRequest(MemoryRequest, tag="health"):
    """Asks for the size, state and cost of memory."""


# --- results ----------------------------------------------------------------------------------


class MemoryResult(ServerPayload, tag_field="op"):
    """The answer to a `memory` message; `op` is the request's."""


class FilesResult(MemoryResult, tag="files"):
    """The sizes of the memory files, in the order of the boot prompt."""

    files: list[shapes.FileState]


class FileResult(MemoryResult, tag="file"):
    """The content of a memory file; `version` is 0 until its first change.

    `drift` is the content on disk if it changed while the agent worked; the person must accept or reject it.
    `drifted` has the time and the curation that found it.
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
    """Search hits in rank order. Learnings exist up to turn `indexed_through`; `waiting` turns are not curated yet.

    `notes` are sentences: which filter excluded everything, and how much of memory the search by meaning covers.
    """

    hits: list[shapes.SearchHit]
    indexed_through: int
    waiting: int
    notes: list[str] = field(default_factory=list)


class AroundResult(MemoryResult, tag="around"):
    """Turns of one session, oldest first."""

    turns: list[shapes.LoggedTurn]


class BootResult(MemoryResult, tag="boot"):
    """The boot prompt, framed as data for a model; empty while there is no memory."""

    text: str


class LearningsResult(MemoryResult, tag="learnings"):
    """Learnings, in the requested order."""

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
    """The file after the edit."""


class AcceptResult(_FileNow, tag="accept"):
    """The file after its drift was accepted."""


class RejectResult(_FileNow, tag="reject"):
    """The file after its drift was discarded."""


class AddActionResult(MemoryResult, tag="add_action"):
    """The new action, and the list of all actions."""

    action: shapes.ActionRow
    actions: list[shapes.ActionRow]


class UpdateActionResult(MemoryResult, tag="update_action"):
    """The changed action, and the list of all actions after the change."""

    action: shapes.ActionRow
    actions: list[shapes.ActionRow]


class ResolveActionResult(MemoryResult, tag="resolve_action"):
    """The list of all actions after the change."""

    actions: list[shapes.ActionRow]


class UserFilesResult(MemoryResult, tag="user_files"):
    """The files, newest first; `more` is the number of files not listed."""

    files: list[shapes.UserFile]
    more: int = 0


class DeleteUserFileResult(MemoryResult, tag="delete_user_file"):
    """The path of the file that was deleted."""

    path: str


class ChangesResult(MemoryResult, tag="changes"):
    """The files that a turn or an undo changed (a change set).

    `turn` is the change set's id, `turn_id` the turn's number in the log, `at` its time in Unix seconds, `more` the
    number of files not listed. `undoes` is the change set that this undo reverted; `undone_by` is the undo that
    reverted this one.
    """

    turn: str
    turn_id: int | None
    at: float
    files: list[shapes.ChangedFile]
    more: int = 0
    undoes: str | None = None
    undone_by: str | None = None


class UndoResult(MemoryResult, tag="undo"):
    """The paths that an undo restored, and those that it left, by reason.

    The reasons are: changed since, maybe the person's change, or no content kept. `undo` is the undo's id, by which
    it can be undone; null if nothing was restored.
    """

    turn: str
    undo: str | None
    restored: list[str]
    conflicts: list[str]
    yours: list[str]
    unkept: list[str]


class RetryResult(MemoryResult, tag="retry"):
    """The turns that are still quarantined."""

    quarantined: list[shapes.QuarantinedTurn]


class LearningResult(MemoryResult, tag="learning"):
    """The learning after the change; after an `edit`, the learning that replaced it."""

    learning: shapes.LearningRow


class ForgetResult(MemoryResult, tag="forget"):
    """The text that would be removed, or that was removed.

    `done`: the text is removed, also from the bridge's replica if there is one. It is false if the replica did not
    confirm in time; `forgotten.still` then says so, and the sprite repeats the order until it is confirmed.
    """

    forgotten: shapes.Forgotten
    done: bool


class CurationsResult(MemoryResult, tag="curations"):
    """Curations, newest first."""

    curations: list[shapes.CurationRow]


class ObservationsResult(MemoryResult, tag="observations"):
    """The asked-for page of the log's turns (observations), newest first."""

    observations: list[shapes.TurnRow]


class ChatResult(MemoryResult, tag="chat"):
    """The newest chat messages that fit one frame, oldest first."""

    chat: list[shapes.ChatMessage]


class SessionsResult(MemoryResult, tag="sessions"):
    """Sessions."""

    sessions: list[shapes.SessionRow]


class RenameSessionResult(MemoryResult, tag="rename_session"):
    """The renamed session."""

    session_id: str


class RulesResult(MemoryResult, tag="rules"):
    """The rules, oldest first."""

    rules: list[shapes.RuleRow]


class HealthResult(MemoryResult, tag="health"):
    """The size, state and cost of memory."""

    health: shapes.Health
