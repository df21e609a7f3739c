"""Undo of a change set, itself an open change set until it was carried out and logged. A start completes such ones."""

from __future__ import annotations

import asyncio
import base64
import difflib
import stat
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from sprite.common.files import clear
from sprite.config import Settings
from sprite.errors import PeerError
from sprite.log.curations import Curation
from sprite.log.transcript import TranscriptDB
from sprite.protocol.files import on_disk, on_wire, picture_kind
from sprite.protocol.memory import ChangesResult, UndoResult
from sprite.protocol.shapes import ChangedFile
from sprite.storage.connection import to_json
from sprite.undo.contents import Contents
from sprite.undo.restore import Now, Restorer, entry_of, state_of
from sprite.undo.scan import Entry
from sprite.undo.tracker import Tracker, change_of, counts_of, is_folder, unit_of
from sprite.workspace.database import WorkspaceDB
from sprite.workspace.file_changes import FileChange, SetRow
from sprite.workspace.user_files import UserFiles

#: Paths of one answer.
MOST_LISTED: Final = 1_000
#: Digits of a row's number.
MOST_DIGITS: Final = 18
#: Undone paths that the agent is told with its next prompt.
MOST_TOLD: Final = 50
#: Names the newest undo in place of a turn.
NEWEST_UNDO: Final = "undo"
#: Limits for a compared text, since comparing takes quadratic time at worst, and for a preview.
_TEXT_BYTES: Final = 128 * 1024
_TEXT_LINES: Final = 2_000
_IMAGE_BYTES: Final = 96 * 1024
#: Limit for all diffs and previews of one answer; a frame takes 1 MiB.
_MOST_CHARS: Final = 400_000


@dataclass(slots=True)
class _Plan:
    """The plan of an undo: the changes to make, and the paths to leave, by reason."""

    changes: list[FileChange] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    yours: list[str] = field(default_factory=list)
    unkept: list[str] = field(default_factory=list)


class Undoing:
    """Show and undo the file changes of turns. Call `undo` only while no turn of the agent runs."""

    def __init__(
        self,
        settings: Settings,
        workspace: WorkspaceDB,
        transcript: TranscriptDB,
        tracker: Tracker,
        user_files: UserFiles,
    ) -> None:
        self._settings = settings
        self._table = workspace.file_changes
        self._transcript = transcript
        self._tracker = tracker
        self._user_files = user_files

    async def changes(self, turn: str | None) -> ChangesResult:
        """Return the files that a turn changed, with diffs; with None, of the newest turn that changed files."""
        found = await self._set(turn)
        rows = await self._table.changes(found.turn)
        undos = await self._table.undos(found.turn)
        undone = {row.path for undo in undos for row in await self._table.changes(undo)}
        files, more = await asyncio.to_thread(self._listed, rows, undone)
        observation = await self._transcript.turn_of(found.turn)
        return ChangesResult(
            found.turn,
            observation.id if observation else None,
            found.at,
            files,
            more=more,
            undoes=found.undoes,
            undone_by=undos[0] if undos else None,
        )

    async def undo(self, turn: str | None, paths: Collection[str] | None, over: Collection[str]) -> UndoResult:
        """Undo a turn's file changes: all that are surely the agent's, or only those of `paths`.

        Files in `over` are restored even if they have changed since.
        """
        found = await self._set(turn)
        rows = await self._table.changes(found.turn)
        async with self._tracker.lock:
            plan = await asyncio.to_thread(self._plan, rows, paths, over)
            undo = SetRow(f"undo-{uuid.uuid4()}", time.time(), found.turn, is_open=True)
            done: Sequence[FileChange] = ()
            if plan.changes:
                await self._table.record(undo, plan.changes, {}, counts_of(plan.changes))
                done, failed = await self._carry_out(undo, plan.changes)
                plan.conflicts += failed
        await self._user_files.undone(done_paths(done)[:MOST_TOLD])
        return UndoResult(
            found.turn,
            undo.turn if done else None,
            restored=_shown(done_paths(done)),
            conflicts=_shown(plan.conflicts),
            yours=_shown(plan.yours),
            unkept=_shown(plan.unkept),
        )

    def permitted(self) -> None:
        """Record that the person has answered a question: until now the tool waited, so changes are theirs."""
        self._tracker.tools_waited()

    async def finish_interrupted(self) -> None:
        """Complete the undos that a killed process left open."""
        for undo in await self._table.open_sets():
            await self._carry_out(undo, await self._table.changes(undo.turn))

    # --- inside ---

    async def _set(self, turn: str | None) -> SetRow:
        if turn is not None and turn.isdecimal() and len(turn) <= MOST_DIGITS:
            observation = await self._transcript.observation(int(turn))
            turn = (observation.mission_id if observation else None) or turn
        if turn is None or turn == NEWEST_UNDO:
            found = await self._table.newest(undo=turn is not None)
        else:
            found = await self._table.find(turn)
        if found is not None:
            return found
        since = await self._table.since()
        if since is None:
            words = "The first snapshot of your files is being taken. Undo works from the next turn on."
        else:
            first = await self._transcript.first_turn_after(since)
            start = f"turn {first}" if first is not None else "the next turn"
            none = "No turn has changed a file yet."
            if turn == NEWEST_UNDO:
                none = "Nothing was undone yet."
            elif turn is not None:
                none = f"There are no recorded file changes of turn {turn}."
            words = f"{none} Undo works from {start} on."
        raise PeerError(words, code="not_found")

    async def _carry_out(self, undo: SetRow, changes: Sequence[FileChange]) -> tuple[list[FileChange], list[str]]:
        workspace, contents = self._settings.workspace, self._tracker.contents
        restorer = Restorer(workspace, contents, undo.turn)
        failed = await asyncio.to_thread(restorer.run, changes)
        done = [each for each in changes if each.path not in failed]
        conflicts = [each.path for each in changes if each.path in failed and not is_folder(each)]
        if not done:
            await self._table.drop(undo.turn)
            return [], conflicts
        await self._log(undo, done)
        states: dict[str, Entry | None] = {
            each.path: None if each.mode is None else entry_of(workspace, each.path, each.after) for each in done
        }
        await self._table.record(replace(undo, is_open=False), done, states, counts_of(done))
        self._tracker.apply(states)
        await asyncio.to_thread(clear, contents.aside)
        return done, conflicts

    async def _log(self, undo: SetRow, done: Sequence[FileChange]) -> None:
        """Append to the log that files were undone, once for each undo; the log has no paths."""
        root, is_undone = undo.undoes or "", True
        while (above := await self._table.find(root)) is not None and above.undoes is not None:
            root, is_undone = above.undoes, not is_undone
        turn = await self._transcript.turn_of(root)
        if await self._transcript.curations.has_undo(undo.turn):
            return
        counts = counts_of(done)
        said = {
            "op": "undo",
            "undo": undo.turn,
            "of": undo.undoes,
            "undone": is_undone,
            "files": counts.added + counts.modified + counts.deleted,
        }
        number = turn.id if turn else None
        await self._transcript.curations.append_event(
            Curation("undo", to_json(said), first_observation_id=number, last_observation_id=number)
        )

    # --- in a thread ---

    def _plan(self, rows: Sequence[FileChange], paths: Collection[str] | None, over: Collection[str]) -> _Plan:
        plan = _Plan()
        overwritten = _Named(over)
        named = _Named([*(paths or ()), *over])
        pinned = {entry.sha256 for entry in self._tracker.index.values() if entry.sha256}
        pinned |= {sha256 for each in rows for sha256 in (each.before, each.after) if sha256}
        for row in rows:
            if not named.has(row.path) and (paths is not None or row.is_yours):
                if paths is None and not is_folder(row):
                    plan.yours.append(row.path)
                continue
            self._plan_row(plan, row, pinned, is_over=overwritten.has(row.path))
        # Half of a repository's files would damage it.
        torn = {unit for path in plan.conflicts if (unit := unit_of(path)) != path}
        plan.conflicts += [each.path for each in plan.changes if unit_of(each.path) in torn]
        plan.changes = [each for each in plan.changes if unit_of(each.path) not in torn]
        return plan

    def _plan_row(self, plan: _Plan, row: FileChange, pinned: Collection[str], *, is_over: bool) -> None:
        before, after = Now(row.mode_before, row.before), Now(row.mode, row.after)
        now = state_of(self._settings.workspace, row.path)
        if not self._is_held(before):
            plan.unkept.append(row.path)
            return
        if now == before:
            return
        present = entry_of(self._settings.workspace, row.path, now.sha256)
        if now != after or not self._is_held(after):
            if not is_over and row.mode is not None and row.after is None:
                # Its content after the turn was not kept, so it cannot be told from a later one.
                plan.unkept.append(row.path)
                return
            if not is_over and now != after:
                plan.conflicts.append(row.path)
                return
            # Keep what is overwritten: an undo can be undone.
            present = self._kept(row.path, present, now, pinned)
            if present is None and now.mode is not None:
                plan.unkept.append(row.path)
                return
        wanted = None if row.mode_before is None else Entry(row.size_before or 0, row.mode_before, 0, 0, row.before)
        plan.changes.append(change_of(row.path, None if now.mode is None else present, wanted))

    def _is_held(self, state: Now) -> bool:
        """Return whether the store can restore a state."""
        return state.mode is None or state.sha256 == "" or self._tracker.contents.holds(state.sha256)

    def _kept(self, path: str, present: Entry | None, now: Now, pinned: Collection[str]) -> Entry | None:
        if present is None or now.sha256 == "":
            return present
        try:
            taken = self._tracker.contents.take(path, present, pinned)
        except FileNotFoundError:
            return None
        self._tracker.contents.flush()
        return taken if taken.sha256 == now.sha256 and taken.sha256 is not None else None

    def _listed(self, rows: Sequence[FileChange], undone: Collection[str]) -> tuple[list[ChangedFile], int]:
        diffs = _Diffs(self._tracker.contents)
        files: dict[str, ChangedFile] = {}
        more = 0
        for row in rows:
            unit = unit_of(row.path)
            if unit in files or is_folder(row):
                continue
            if len(files) >= MOST_LISTED:
                more += 1
                continue
            files[unit] = diffs.file(row) if unit == row.path else ChangedFile(on_wire(unit), "modified", kept=True)
            files[unit].undone = row.path in undone
        return list(files.values()), more


@asynccontextmanager
async def tracked(
    settings: Settings,
    workspace: WorkspaceDB,
    transcript: TranscriptDB,
    user_files: UserFiles,
    on_death: Callable[[], None],
) -> AsyncIterator[tuple[Tracker, Undoing]]:
    """Complete an interrupted undo; then track file changes while the block runs, and yield the undo of them."""
    tracker = Tracker(settings, workspace)
    undoing = Undoing(settings, workspace, transcript, tracker, user_files)
    user_files.on_deed, tracker.on_left = tracker.by_person, user_files.held
    await tracker.load()
    tracker.recall(await transcript.journal.entries(), await transcript.user_files.deeds())
    await undoing.finish_interrupted()
    async with tracker.running(on_death):
        yield tracker, undoing


class _Named:
    """Paths that a person named: files, and folders with everything below."""

    def __init__(self, paths: Collection[str]) -> None:
        self._exact = {name.rstrip("/") for path in paths for name in on_disk(path)}

    def has(self, path: str) -> bool:
        """Return whether a path or one of its folders is named."""
        return not self._exact.isdisjoint(_lineage(path))


def _lineage(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


def done_paths(changes: Sequence[FileChange]) -> list[str]:
    """Return the paths of changed files."""
    return [each.path for each in changes if not is_folder(each)]


def _shown(paths: Collection[str]) -> list[str]:
    return [on_wire(path) for path in sorted({unit_of(path) for path in paths})][:MOST_LISTED]


class _Diffs:
    """Convert file changes to rows of one answer; later rows have no diff once the answer is full."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._room = _MOST_CHARS

    def file(self, change: FileChange) -> ChangedFile:
        """Return a file change as a row for clients, with its diff or image previews."""
        has_before = change.mode_before is None or self._contents.holds(change.before)
        has_after = change.mode is None or self._contents.holds(change.after)
        row = ChangedFile(
            on_wire(change.path),
            change.kind,
            size_before=change.size_before,
            size=change.size,
            kept=has_before and has_after,
            yours=change.is_yours,
            mode_before=None if change.mode_before is None else stat.filemode(change.mode_before),
            mode=None if change.mode is None else stat.filemode(change.mode),
        )
        if row.kept and max(change.size_before or 0, change.size or 0) <= _TEXT_BYTES:
            self._show(row, self._content(change.before), self._content(change.after))
        return row

    def _show(self, row: ChangedFile, before: bytes, after: bytes) -> None:
        images = picture_kind(before), picture_kind(after)
        if any(images):
            for name, data, media_type in zip(("preview_before", "preview"), (before, after), images, strict=True):
                url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
                if media_type and len(data) <= _IMAGE_BYTES and len(url) <= self._room:
                    self._room -= len(url)
                    setattr(row, name, url)
            return
        try:
            old, new = _lines(before), _lines(after)
        except UnicodeDecodeError:
            return
        if b"\0" in before + after or len(old) + len(new) > 2 * _TEXT_LINES:
            return
        diff = "\n".join([*difflib.unified_diff(old, new, n=3, lineterm="")][2:])
        if len(diff) <= self._room:
            self._room -= len(diff)
            row.diff = diff

    def _content(self, sha256: str | None) -> bytes:
        if not sha256:
            return b""
        try:
            with self._contents.reading(sha256) as stream:
                return stream.read(_TEXT_BYTES + 1)
        except OSError:
            return b"\0"


def _lines(data: bytes) -> list[str]:
    """Return the lines of a text; a last line without an end is marked as `diff` does."""
    lines = data.decode().split("\n")
    if lines[-1]:
        return [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]
    return lines[:-1]
