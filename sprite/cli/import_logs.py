"""`import`: import other programs' conversation logs, each turn once. Calls no model.

Turns are written in batches. One transaction holds a batch and the keys that mark its turns as imported, so that a
second run completes an interrupted first one. Notes become proposed changes of memory files that a person decides
on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sprite.backup.archive_reader import is_archive
from sprite.backup.restore import refuse_cut_off
from sprite.cli.archives import restore_archive
from sprite.cli.output import say, say_json, warn
from sprite.config import Settings
from sprite.errors import OperatorError, WorkspaceLockedError
from sprite.imports.finding import Finder
from sprite.imports.follow.delivery import send_all
from sprite.imports.notes import Proposed, digest, propose
from sprite.imports.reader import Note, Surroundings, Tally
from sprite.log.transcript import ImportedTurn, TranscriptDB, read_transcript
from sprite.memory.files import CURATED, MemoryFiles
from sprite.memory.folders import Projects
from sprite.memory.opening import open_own_memory
from sprite.memory.projection import Projection
from sprite.owner import open_log, say_observed
from sprite.protocol.framing import one_line

EXIT_SOME_REFUSED = 1
EXIT_NOTHING_READ = 2


@dataclass(slots=True)
class Report:
    """The outcome of an import; `turns` and `known` are by kind of file."""

    tally: Tally
    turns: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    sessions: set[str] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    #: Number of notes that an earlier import proposed.
    notes_known: int = 0
    proposed: Proposed = field(default_factory=Proposed)

    @property
    def exit_code(self) -> int:
        """Exit code: 0, or the code for the extent of refusals."""
        if self.tally.refusals and not self.tally.files and not self.tally.not_understood:
            return EXIT_NOTHING_READ
        return EXIT_SOME_REFUSED if self.tally.refusals else 0


def facts(report: Report, waiting: int) -> dict[str, Any]:
    """Return the outcome for programs; `waiting` turns are not curated yet."""
    tally, proposed = report.tally, report.proposed
    return {
        "files": tally.files,
        "sessions": len(report.sessions),
        "turns": report.turns.total(),
        "already_imported": report.known.total(),
        "still_open": tally.open,
        "kinds": {
            kind: {"turns": report.turns[kind], "already_imported": report.known[kind]}
            for kind in report.turns
            if report.turns[kind] + report.known[kind]
        },
        "own_sessions": sorted(tally.own),
        "damaged_lines": tally.damaged,
        "damaged": [{"file": str(path), "line": line, "problem": problem} for path, line, problem in tally.named],
        "not_understood": dict(tally.not_understood.most_common()),
        "proposed": [{"from": origin, "file": name, "lines": lines} for origin, name, lines in proposed.added],
        "no_room": [
            {"from": origin, "file": name, "lines": lines, "reason": why} for origin, name, lines, why in proposed.left
        ],
        "notes_known": report.notes_known + proposed.known,
        "refused": [{"path": str(refusal.path), "reason": refusal.reason} for refusal in tally.refusals],
        "waiting": waiting,
    }


def print_report(report: Report, settings: Settings, waiting: int, *, dry_run: bool) -> None:
    """Print the outcome for people: problems on stderr, results on stdout."""
    tally = report.tally
    for refusal in tally.refusals:
        warn(f"refused: {one_line(refusal.path)}: {refusal.reason}")
    for path, line, problem in tally.named:
        warn(f"skipped: {one_line(path)}:{line}: {one_line(problem)}")
    if tally.damaged > len(tally.named):
        warn(f"skipped: and {tally.damaged - len(tally.named)} more damaged line(s)")
    for what, number in tally.not_understood.most_common():
        warn(f"not taken: {number} x {one_line(what)}")
    done = "Would import" if dry_run else "Imported"
    has_notes = report.proposed.added or report.proposed.left or report.notes_known or report.proposed.known
    if report.turns.total() or report.known.total() or not has_notes:
        say(
            f"{done} {report.turns.total()} turn(s) of {len(report.sessions)} session(s) from {tally.files} file(s); "
            f"{report.known.total()} were in the log already."
        )
    kinds = {kind: number for kind, number in report.turns.items() if number}
    if len(kinds) > 1:
        say("  " + ", ".join(f"{kind}: {number}" for kind, number in kinds.items()))
    if tally.own:
        say(f"{len(tally.own)} session(s) are this sprite's own conversations, which it recorded itself.")
    if tally.open:
        say(f"{tally.open} turn(s) are still under way and left for the next import.")
    _print_notes(report, dry_run=dry_run)
    if waiting and not dry_run:
        calls = math.ceil(waiting / settings.batch_turns)
        say(
            f"{waiting} turn(s) wait to be curated; the sprite does so when it runs, in about {calls} call(s) to "
            f"{settings.curator_model}."
        )


def _print_notes(report: Report, *, dry_run: bool) -> None:
    proposed = report.proposed
    for origin, name, lines in proposed.added:
        say(f"{'Would propose' if dry_run else 'Proposed'} {lines} line(s) for {name} from {one_line(origin)}.")
    for origin, name, lines, why in proposed.left:
        warn(f"no room: {lines} line(s) of {one_line(origin)}: {why}. Shorten {name}, then import it again.")
    if known := report.notes_known + proposed.known:
        say(f"{known} note(s) say nothing that memory does not have, or were proposed before.")
    for name in proposed.contents if not dry_run else ():
        say(f"Nothing of it is memory yet: see `memory drift`, then `memory accept {name}` or `memory reject {name}`.")


#: Turns per transaction: enough to be fast, few enough that little is repeated after a kill.
BATCH_TURNS = 500
#: Limit for proposed notes, because a person reads them; a folder with more is a collection.
MOST_NOTES = 100
#: Writes turns to the log; returns those that are new in it.
Write = Callable[[Sequence[ImportedTurn]], Awaitable[list[ImportedTurn]]]


async def import_logs(settings: Settings, paths: list[Path], *, dry_run: bool, as_json: bool) -> int:
    """Import all known files among the paths; with `dry_run` only print what.

    An archive is a whole workspace, and must be imported alone.
    """
    if archives := [path for path in paths if is_archive(path)]:
        if len(paths) > 1:
            raise OperatorError("An archive is a whole workspace: import it alone, into an empty one.")
        return await restore_archive(settings, archives[0], dry_run=dry_run, as_json=as_json)
    refuse_cut_off(settings)
    tally = Tally()
    finder = Finder(tally, left=[settings.memory])
    for path in paths:
        finder.find(path)
    report = Report(tally)
    waiting = 0
    if finder.found():
        async with _log(settings, dry_run=dry_run) as (transcript, write):
            with tqdm(total=finder.size(), unit="B", unit_scale=True, desc="importing", disable=None) as progress:
                await _take_all(settings, finder, report, transcript, write, progress)
            if report.notes:
                await _propose(settings, report, transcript, write)
            waiting = await transcript.waiting_count() if transcript else 0
    if as_json:
        say_json(facts(report, waiting))
    else:
        print_report(report, settings, waiting, dry_run=dry_run)
    return report.exit_code


async def import_command(settings: Settings, arguments: argparse.Namespace) -> int:
    """Import the paths of the arguments."""
    return await import_logs(settings, arguments.paths, dry_run=arguments.dry_run, as_json=arguments.json)


@asynccontextmanager
async def _log(settings: Settings, *, dry_run: bool) -> AsyncIterator[tuple[TranscriptDB | None, Write | None]]:
    """Open the log (None: none) and its writer (None: dry run). A sprite that owns the log writes for us."""
    path = settings.transcript_db
    async with AsyncExitStack() as stack:
        if dry_run:
            yield await stack.enter_async_context(read_transcript(path)) if path.exists() else None, None
            return
        try:
            owned = await stack.enter_async_context(open_log(settings))
        except WorkspaceLockedError as locked:
            yield await stack.enter_async_context(read_transcript(path)), _Sending(settings, locked)
        else:
            yield owned, owned.add_imported


class _Sending:
    """Deliver turns to the sprite that owns the workspace, which curates them like its own."""

    def __init__(self, settings: Settings, locked: WorkspaceLockedError) -> None:
        self._settings = settings
        self._locked = locked

    async def __call__(self, turns: Sequence[ImportedTurn]) -> list[ImportedTurn]:
        """Return the turns that are in the log now. Raises WorkspaceLockedError if the sprite does not accept them."""
        try:
            delivered = await send_all(turns, partial(say_observed, self._settings))
        except (OSError, ValueError) as error:
            raise self._locked from error
        refused = {key for key, _ in delivered.refused}
        return [turn for turn in turns if turn.key not in refused]


async def _take_all(
    settings: Settings,
    finder: Finder,
    report: Report,
    log: TranscriptDB | None,
    write: Write | None,
    progress: tqdm[Any],
) -> None:
    """Read every file that was found and import its turns and notes."""
    own = await log.cli_sessions() if log else set[str]()
    sessions = await log.session_ids() if log else set[str]()
    around = Surroundings(
        now=time.time(),
        project_of=Projects(settings.workspace).of,
        on_bytes=progress.update,
        own_sessions=frozenset(own),
        own_folder=settings.cli_state.resolve(),
        has_session=lambda session: session in sessions,
    )
    taking = _Taking(report, log, write)
    for reader, paths in finder.found():
        for found in reader.read(paths, around, report.tally):
            if isinstance(found, Note):
                report.notes.append(found)
            else:
                sessions.add(found.observation.session_id)
                await taking.take(reader.kind, found)
        await taking.flush(reader.kind)


class _Taking:
    """Write turns to the log in batches; a dry run only counts them."""

    def __init__(self, report: Report, log: TranscriptDB | None, write: Write | None) -> None:
        self._report = report
        self._log = log
        self._write = write
        self._batch: list[ImportedTurn] = []
        self._counted: set[str] = set()

    async def take(self, kind: str, turn: ImportedTurn) -> None:
        """Add a turn; it is in the log after the next `flush` at the latest."""
        self._batch.append(turn)
        if len(self._batch) >= BATCH_TURNS:
            await self.flush(kind)

    async def flush(self, kind: str) -> None:
        """Write the turns added so far, all of one kind."""
        batch, self._batch = self._batch, []
        new = await self._new(batch)
        written = new if self._write is None or not new else await self._write(new)
        self._report.turns[kind] += len(written)
        self._report.known[kind] += len(batch) - len(new)
        if len(written) < len(new):
            self._report.tally.passed_over("turns that the running sprite refused", len(new) - len(written))
        self._report.sessions.update(turn.observation.session_id for turn in written)

    async def _new(self, batch: list[ImportedTurn]) -> list[ImportedTurn]:
        if self._log is not None:
            self._counted |= await self._log.imported_among([turn.key for turn in batch])
        new = []
        for turn in batch:
            if turn.key not in self._counted:
                self._counted.add(turn.key)
                new.append(turn)
        return new


async def _propose(settings: Settings, report: Report, log: TranscriptDB | None, write: Write | None) -> None:
    """Propose the notes to the person as changes of the memory files; a dry run only computes them."""
    if isinstance(write, _Sending):
        for note in report.notes:
            report.tally.refuse(Path(note.origin), "a sprite runs here, and holds its memory files; stop it first")
        return
    before = await log.curations.proposed() if log else set[str]()
    new = [note for note in report.notes if digest(note) not in before]
    report.notes_known = len(report.notes) - len(new)
    for note in new[MOST_NOTES:]:
        report.tally.refuse(Path(note.origin), f"{MOST_NOTES} notes are enough for once; name it by itself")
    new = new[:MOST_NOTES]

    def change(files: dict[str, str]) -> tuple[dict[str, str], dict[str, list[str]]]:
        report.proposed = propose(new, files)
        return report.proposed.contents, report.proposed.digests

    if write is None or log is None:
        files = MemoryFiles(settings.memory)
        drift = await log.curations.open_drift() if log else {}
        change({name: drift[name].content if name in drift else files.read(name) for name in CURATED})
        return
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(open_own_memory(settings.memory_db, log))
        await Projection(log, memory, MemoryFiles(settings.memory)).propose(change)
