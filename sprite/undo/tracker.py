"""The change sets of turns: one scan before a turn's first tool that may write, and one at its end.

A change is "maybe yours" if the person's side wrote the path during the turn, or if it was made while neither a tool of
the agent nor its background work ran.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from sprite.common.tasks import TaskSet, owned_task, to_its_end
from sprite.config import Settings
from sprite.errors import SpriteError, StorageError
from sprite.log.file_table import FileDeed, trace_of
from sprite.log.transcript import JournalEntry
from sprite.protocol.shapes import FileCounts
from sprite.protocol.tools import OWN_TOOLS
from sprite.sandbox.sandbox import protected_inside
from sprite.undo.contents import Contents
from sprite.undo.held import Held, hold, release
from sprite.undo.scan import Entry, Scanner, Seen
from sprite.workspace.database import WorkspaceDB
from sprite.workspace.file_changes import FileChange, SetRow

log = logging.getLogger(__name__)

#: The end of a turn waits this long for its changes; the rest is recorded before the next turn begins.
END_SECONDS: Final = 5.0
#: File times are coarser than the clock, and a command's last write may be seen late.
_SLACK_NS: Final = 50_000_000
#: Precision of the time at which a process with a running tool was killed.
_TICK_SECONDS: Final = 1.0
#: Tools that write one file, and tools that write none.
_WRITERS: Final = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_READERS: Final = frozenset({"Read", "Glob", "Grep", "WebFetch", "WebSearch", "TodoWrite", "BashOutput", "ToolSearch"})


@dataclass(slots=True)
class _Use:
    """A tool call: when it began and ended (ns), and the one path that it writes, None if it may write any."""

    began_ns: int
    path: str | None
    ended_ns: int | None = None

    def ran(self, path: str, at: int) -> bool:
        """Return whether this tool call may have written a path at a time (ns)."""
        is_then = self.began_ns - _SLACK_NS <= at <= (self.ended_ns or time.time_ns()) + _SLACK_NS
        return is_then and self.path in {None, path}


#: The new state of each changed path; None for one that is gone.
_States = dict[str, Entry | None]


class Tracker:
    """Record which files each turn of the agent changed, in one workspace."""

    def __init__(self, settings: Settings, workspace: WorkspaceDB) -> None:
        self._settings = settings
        self._table = workspace.file_changes
        self.contents = Contents(settings.undo, settings.workspace)
        self.index: dict[str, Entry] = {}
        self._scanner = Scanner(settings.workspace)
        self._is_ready = False
        #: Whether the agent may have written since the last turn's end.
        self._is_at_work = False
        #: Whether the first snapshot was taken while it was.
        self._is_partial = False
        #: The newest turn, if its background work went on after its end.
        self._live_turn: str | None = None
        self._uses: dict[str, _Use] = {}
        self._by_person: set[str] = set()
        #: Asks the person whether a renamed file may have its name; see `held.py`.
        self.ask_about: Callable[[Held], Awaitable[bool]] | None = None
        #: Called with a turn's changes and the states before them.
        self.on_changes: Callable[[Sequence[FileChange], Mapping[str, Entry]], Awaitable[None]] | None = None
        #: Paths that were renamed since the last turn's end, and their present names.
        self._renamed: set[str] = set()
        self._unasked: list[Held] = []
        #: Called with the present name of a file that stays renamed.
        self.on_left: Callable[[str], Awaitable[None]]
        #: When such files were looked for, and when those that the person allowed were changed last.
        self._looked_ns = time.time_ns()
        self._allowed: dict[str, int] = {}
        #: Held while states change: by a scan or an undo.
        self.lock = asyncio.Lock()
        self._tasks = TaskSet()
        self._working = settings.run / "working"
        self._ticking: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def load(self) -> None:
        """Load the states of the last scan, and complete a record that a crash interrupted."""
        await asyncio.to_thread(self.contents.aside.mkdir, parents=True, exist_ok=True, mode=0o700)
        states = {path: Entry(*state) for path, state in await self._table.states()}
        self.index = {os.fsdecode(path): entry for path, entry in states.items() if path >= b"\1"}
        if len(self.index) < len(states):
            found = await asyncio.to_thread(self._scanner.scan, {})
            traces = {seen.path: trace_of(seen.path) for seen in found.changed}
            self.index |= {path: states[trace] for path, trace in traces.items() if trace in states}
        self._is_ready = await self._table.since() is not None

    @asynccontextmanager
    async def running(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """While the block runs: take the first snapshot if there is none, then delete unused contents."""
        async with owned_task(self._prepare(), name="first snapshot", on_death=on_death, may_return=True), self._tasks:
            try:
                yield
            finally:
                # A thread cannot be cancelled.
                self._is_stopping = True

    async def _prepare(self) -> None:
        try:
            if not self._is_ready:
                await self.snapshot()
            async with self.lock:
                wanted = await self._table.wanted()
                await asyncio.to_thread(self.contents.sweep, wanted)
        except (SpriteError, OSError) as error:
            log.warning("file changes cannot be tracked now: %s", error)

    async def snapshot(self) -> None:
        """Record the states of all files of the workspace for the first time."""
        states, _ = await asyncio.to_thread(self._take, is_first=True)
        async with self.lock:
            await self._record(states)
            # Turns may have ended meanwhile.
            states, _ = await asyncio.to_thread(self._take, is_live=True)
            await self._record(states)
            self._is_ready, self._is_partial = True, self._is_at_work

    # --- turns ---

    async def turn_began(self) -> None:
        """Wait until the previous turn's changes are recorded."""
        async with self.lock:
            self._is_at_work = self._is_at_work and self._live_turn is None
        if self._live_turn is not None:
            await self._work_begins()

    async def tool_began(self, tool_use_id: str, name: str, given: Any) -> None:
        """Record that a tool of the agent is about to run; the first that may write scans the workspace."""
        if _may_write(name):
            await self._work_begins()
        self._began(tool_use_id, name, given, time.time_ns())
        if self._ticking is None or self._ticking.done():
            self._ticking = self._tasks.start(self._tick(), "time of the agent's work")

    def _began(self, tool_use_id: str, name: str, given: Any, at: int) -> None:
        if not _may_write(name):
            return
        path = given.get("file_path", given.get("notebook_path")) if isinstance(given, dict) else None
        is_writer = name in _WRITERS and isinstance(path, str)
        self._uses[tool_use_id] = _Use(at, self._relative(str(path)) if is_writer else None)

    async def _work_begins(self) -> None:
        # A thread cannot be cancelled.
        await to_its_end(self._take_over(), name="files before a turn's work")

    async def _take_over(self) -> None:
        """Record the changes since the last turn's end; with background work, they belong to the turn that began it."""
        async with self.lock:
            if self._is_at_work:
                return
            self._is_at_work = True
            try:
                if self._is_ready and self._live_turn is not None:
                    await self._compare(self._live_turn, is_live=False)
                elif self._is_ready:
                    states, _ = await asyncio.to_thread(self._take)
                    self._by_person -= states.keys()
                    await self._record(states)
            except (SpriteError, OSError) as error:
                log.warning("the files before a turn are not recorded: %s", error)

    async def _tick(self) -> None:
        """While a tool runs, record the time on disk again and again, for the next process if this one is killed."""
        while any(use.ended_ns is None for use in self._uses.values()):
            with suppress(OSError):
                self._working.touch()
            await asyncio.sleep(_TICK_SECONDS)

    def recall(self, journal: Sequence[JournalEntry], deeds: Sequence[FileDeed]) -> None:
        """Load the tool calls and the person's file changes of turns that a kill interrupted.

        Without a sandbox, any call may have waited for the person until its end, so none is the author of a change.
        """
        self._by_person |= {deed.path for deed in deeds if deed.what in {"uploaded", "deleted"}}
        self._is_at_work = bool(journal)
        if not journal or (self._settings.permissions == "ask" and protected_inside(self._settings) is None):
            return
        self._looked_ns = int(journal[0].at * 1e9)
        for entry in journal:
            call = entry.data.get("call", {})
            if entry.event == "start":
                self._began(call["tool_use_id"], call["name"], call["input"], int(entry.at * 1e9))
            elif entry.event == "tool" and (use := self._uses.get(call["tool_use_id"])) is not None:
                use.ended_ns = int(entry.at * 1e9)
        with suppress(FileNotFoundError):
            killed_ns = self._working.stat().st_mtime_ns + int(_TICK_SECONDS * 1e9)
            for use in self._uses.values():
                use.ended_ns = use.ended_ns or max(use.began_ns, killed_ns)

    def tool_ended(self, tool_use_id: str) -> None:
        """Record that a tool of the agent has run."""
        if (use := self._uses.get(tool_use_id)) is not None:
            use.ended_ns = time.time_ns()

    def tools_waited(self) -> None:
        """Treat the running tools as begun now: until now they may have waited for the person's answer."""
        for use in self._uses.values():
            if use.ended_ns is None:
                use.began_ns = time.time_ns()

    def by_person(self, path: str) -> None:
        """Record that the person wrote or deleted a path."""
        self._by_person.add(path)

    async def turn_ended(self, turn: str, *, is_live: bool) -> FileCounts | None:
        """Record a turn's changes; return their counts, None if there are none or recording takes long.

        `is_live`: background work may have written.
        """
        recording = self._tasks.start(self._end(turn, is_live=is_live), "file changes")
        try:
            async with asyncio.timeout(END_SECONDS):
                return await asyncio.shield(recording)
        except TimeoutError:
            log.info("the file changes of a turn take longer to record")
        return None

    async def _end(self, turn: str, *, is_live: bool) -> FileCounts | None:
        async with self.lock:
            try:
                await self.hold(is_live=is_live)
                counts = await self._compare(turn, is_live=is_live) if self._is_ready else None
            except (SpriteError, OSError) as error:
                # The turn must end in any case. The next scan finds the changes again.
                log.warning("the file changes of a turn are not recorded: %s", error)
                return None
            self._uses = {key: use for key, use in self._uses.items() if use.ended_ns is None and is_live}
            self._renamed.clear()
            self._is_at_work, self._live_turn = False, turn if is_live else None
            return counts

    async def hold(self, *, is_live: bool) -> None:
        """Rename new files of the agent that programs outside the sandbox would run; `ask` then asks about them."""
        self._unasked += await asyncio.to_thread(self._hold, is_live=is_live)

    def ask(self) -> None:
        """Ask the person about each file that `hold` renamed; call this once the end of the turn was published."""
        while self._unasked:
            self._tasks.start(self._ask(self._unasked.pop(0)), "question about a held file")

    async def _ask(self, held: Held) -> None:
        changed_ns = None
        if self.ask_about is not None and await self.ask_about(held):
            changed_ns = await asyncio.to_thread(release, self._settings.workspace, held)
        if changed_ns is None:
            await self.on_left(held.now)
        else:
            self._allowed[held.path] = changed_ns

    async def _compare(self, turn: str, *, is_live: bool) -> FileCounts | None:
        states, made = await asyncio.to_thread(self._take, is_live=is_live)
        self._by_person -= states.keys()
        if self._is_partial or not (self._is_at_work or is_live):
            # Its changes before the first snapshot are not known, or it had no tool that writes.
            self._is_partial, made = False, []
        if self.on_changes is not None and made:
            await self.on_changes(made, self.index)
        earlier = await self._table.changes(turn)
        changes = merged(earlier, made) if made else earlier
        if not states and not changes:
            return None
        new = SetRow(turn, time.time(), None, is_open=False) if made else None
        await self._record(states, changes, new)
        return counts_of(changes) if changes else None

    async def _record(self, states: _States, changes: Sequence[FileChange] = (), new: SetRow | None = None) -> None:
        await self._table.record(new, changes, states, counts_of(changes))
        self.apply(states)

    def apply(self, states: Mapping[str, Entry | None]) -> None:
        """Set the states of these paths in the index, and remove a path whose state is None."""
        for path, entry in states.items():
            if entry is None:
                self.index.pop(path, None)
            else:
                self.index[path] = entry

    # --- in a thread ---

    def _take(self, *, is_live: bool = False, is_first: bool = False) -> tuple[_States, list[FileChange]]:
        def is_yours(path: str, entry: Entry | None) -> bool:
            return path in self._by_person or not (is_live or self._explained(path, entry))

        found = self._scanner.scan(self.index)
        states: _States = {}
        changes: list[FileChange] = []
        pinned = {entry.sha256 for entry in self.index.values() if entry.sha256} if found.changed else set()
        # The newest first: what does not fit is not kept.
        ordered = sorted(found.changed, key=lambda seen: -seen.entry.changed_ns) if is_first else found.changed
        quiet = tuple(found.quiet)
        for seen in ordered:
            if self._is_stopping and is_first:
                raise StorageError("The sprite stops.")
            known = self.index.get(seen.path)
            try:
                entry = self.contents.take(seen.path, seen.entry, pinned) if seen.keeps else seen.entry
            except FileNotFoundError:
                found.gone += [seen.path] if known else []
                continue
            pinned |= {entry.sha256} if is_first and entry.sha256 else set()
            states[seen.path] = entry
            if not is_first and _is_change(known, entry, seen) and not seen.path.startswith(quiet):
                changes.append(change_of(seen.path, known, entry, is_yours=is_yours(seen.path, seen.entry)))
        for path in found.gone:
            states[path] = None
            if not path.startswith(quiet):
                changes.append(change_of(path, self.index[path], None, is_yours=is_yours(path, None)))
        for change in changes:
            self.contents.touch(change.before)
        # The files themselves are there: after a power cut, damaged contents are detected when they are read.
        self.contents.flush(is_synced=not is_first)
        return states, changes

    def _hold(self, *, is_live: bool) -> list[Held]:
        looked_ns, self._looked_ns = self._looked_ns, time.time_ns()
        if not is_live and all(use.path is not None for use in self._uses.values()):
            return []

        def is_agents(path: str, at: int) -> bool:
            if at < looked_ns - _SLACK_NS or at == self._allowed.get(path):
                return False
            explaining = [use for use in self._uses.values() if use.ran(path, at)]
            # The person was asked about a file tool that ended.
            is_asked = any(use.path == path and use.ended_ns is not None for use in explaining)
            return not is_asked and (is_live or bool(explaining))

        found = hold(self._settings, is_agents)
        self._renamed |= {path for held in found for path in (held.path, held.now)}
        return found

    def _explained(self, path: str, entry: Entry | None) -> bool:
        """Return whether the agent may have made a change: a tool of it ran then, or it renamed the path."""
        if any(f"{path}/".startswith(f"{each}/") or path == each.rpartition("/")[0] for each in self._renamed):
            return True
        at = self._deleted_at(path) if entry is None else entry.changed_ns
        if entry is not None and stat.S_ISDIR(entry.mode):
            at = self._deleted_at(f"{path}/.")
        return any(use.ran(path, at) for use in tuple(self._uses.values()))

    def _deleted_at(self, path: str) -> int:
        """Return when a path was deleted at the latest: the change time (ns) of the nearest existing folder above."""
        while path:
            path = path.rpartition("/")[0]
            try:
                return os.lstat(self._settings.workspace / path).st_ctime_ns
            except OSError:
                continue
        return 0

    def _relative(self, path: str) -> str:
        for root in (self._settings.workspace, self._settings.workspace.resolve()):
            if path.startswith(f"{root}/"):
                return path[len(str(root)) + 1 :]
        return path


def _may_write(name: str) -> bool:
    return name not in _READERS and not name.startswith(OWN_TOOLS)


def change_of(path: str, before: Entry | None, after: Entry | None, *, is_yours: bool = False) -> FileChange:
    """Return a change between two states."""
    return FileChange(
        path,
        before.sha256 if before else None,
        after.sha256 if after else None,
        before.size if before else None,
        after.size if after else None,
        before.mode if before else None,
        after.mode if after else None,
        is_yours,
    )


def merged(earlier: Sequence[FileChange], later: Sequence[FileChange]) -> list[FileChange]:
    """Return two sets of changes as one: from the states before the earlier to those after the later."""
    found = {each.path: each for each in earlier}
    for each in later:
        first = found.pop(each.path, None)
        if first is None:
            found[each.path] = each
            continue
        whole = replace(
            each,
            before=first.before,
            size_before=first.size_before,
            mode_before=first.mode_before,
            is_yours=first.is_yours or each.is_yours,
        )
        if whole.mode_before is not None or whole.mode is not None:
            found[each.path] = whole
    return [found[path] for path in sorted(found)]


def unit_of(path: str) -> str:
    """Return the repository that contains a path, as `.../.git/`, which is undone as a whole; else the path itself."""
    before, mark, _ = f"/{path}".partition("/.git/")
    return f"{before[1:]}/.git/".removeprefix("/") if mark else path


def counts_of(changes: Sequence[FileChange]) -> FileCounts:
    """Return the numbers of changed files, without folders; a repository counts as one."""
    kinds: dict[str, str] = {}
    for each in changes:
        unit = unit_of(each.path)
        if unit != each.path:
            kinds[unit] = "modified"
        elif not is_folder(each):
            kinds[unit] = each.kind
    numbers = list(kinds.values())
    return FileCounts(numbers.count("added"), numbers.count("modified"), numbers.count("deleted"))


def is_folder(change: FileChange) -> bool:
    """Return whether a change is only about a folder whose files are listed by themselves."""
    sides = ((change.mode_before, change.before), (change.mode, change.after))
    return all(mode is None or (stat.S_ISDIR(mode) and sha256 == "") for mode, sha256 in sides)


def _is_change(before: Entry | None, after: Entry, seen: Seen) -> bool:
    if before is None:
        return True
    if before.mode == after.mode and stat.S_ISDIR(after.mode) and "" in {before.sha256, after.sha256}:
        return False
    if before == after or (before.mode == after.mode and before.sha256 == after.sha256 and after.sha256 is not None):
        return False
    return before[:4] != seen.entry[:4]
