"""`import`: takes what other programs kept of conversations into the log, each turn once. Calls no model.

Turns are written in batches. One transaction holds a batch and the keys that mark its turns as imported, so that a
second run completes a first that was killed at any moment. Notes become changes of memory files that wait for a
person's word.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sprite.commands.output import one_line, say, say_json, warn
from sprite.commands.owner import open_log
from sprite.config import Settings
from sprite.database.transcript import ImportedTurn, TranscriptDB, read_transcript
from sprite.memory.files import CURATED, MemoryFiles
from sprite.memory.importing.finding import Finder
from sprite.memory.importing.proposals import Proposed, digest, propose
from sprite.memory.importing.reader import Note, Surroundings, Tally
from sprite.memory.opening import open_own_memory
from sprite.memory.projection.projection import Projection
from sprite.memory.projects import Projects

#: Turns per transaction: enough to be fast, few enough that little is read twice after a kill.
BATCH_TURNS = 500
#: So many notes are read by a person; a folder with more is somebody's collection.
MOST_NOTES = 100
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
    #: Notes that were put before the person by an earlier import.
    notes_known: int = 0
    proposed: Proposed = field(default_factory=Proposed)

    @property
    def exit_code(self) -> int:
        """Returns 0, or the code that says how much was refused."""
        if self.tally.refusals and not self.tally.files and not self.tally.not_understood:
            return EXIT_NOTHING_READ
        return EXIT_SOME_REFUSED if self.tally.refusals else 0


async def import_logs(
    settings: Settings, paths: list[Path], *, dry_run: bool, as_json: bool, kind: str | None = None
) -> int:
    """Imports whatever is known among the paths (`kind`: as that kind of file); with `dry_run` only says what."""
    tally = Tally()
    finder = Finder(tally, kind, left=[settings.memory])
    for path in paths:
        finder.find(path)
    report = Report(tally)
    waiting = 0
    if finder.found():
        async with _log(settings, dry_run=dry_run) as transcript:
            with tqdm(total=finder.size(), unit="B", unit_scale=True, desc="importing", disable=None) as progress:
                await _take_all(settings, finder, report, transcript, progress, dry_run=dry_run)
            if report.notes:
                await _propose(settings, report, transcript, dry_run=dry_run)
            waiting = await transcript.waiting_count() if transcript else 0
    if as_json:
        say_json(_facts(report, waiting))
    else:
        _print(report, settings, waiting, dry_run=dry_run)
    return report.exit_code


@asynccontextmanager
async def _log(settings: Settings, *, dry_run: bool) -> AsyncIterator[TranscriptDB | None]:
    """Opens the log as its owner; for a dry run read-only, or None if there is none yet."""
    path = settings.transcript_db
    if dry_run and not path.exists():
        yield None
    elif dry_run:
        async with read_transcript(path) as transcript:
            yield transcript
    else:
        async with open_log(settings) as transcript:
            yield transcript


async def _take_all(
    settings: Settings, finder: Finder, report: Report, log: TranscriptDB | None, progress: tqdm[Any], *, dry_run: bool
) -> None:
    """Reads every file that was found and takes what it has."""
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
    taking = _Taking(report, log, dry_run=dry_run)
    for reader, paths in finder.found():
        for found in reader.read(paths, around, report.tally):
            if isinstance(found, Note):
                report.notes.append(found)
            else:
                sessions.add(found.observation.session_id)
                await taking.take(reader.kind, found)
        await taking.flush(reader.kind)


class _Taking:
    """Writes turns to the log in batches; without a log it only counts them."""

    def __init__(self, report: Report, log: TranscriptDB | None, *, dry_run: bool) -> None:
        self._report = report
        self._log = log
        self._dry_run = dry_run
        self._batch: list[ImportedTurn] = []
        self._counted: set[str] = set()

    async def take(self, kind: str, turn: ImportedTurn) -> None:
        """Takes a turn, which is in the log after the next `flush` at the latest."""
        self._batch.append(turn)
        if len(self._batch) >= BATCH_TURNS:
            await self.flush(kind)

    async def flush(self, kind: str) -> None:
        """Writes the turns taken so far, all of one kind."""
        batch, self._batch = self._batch, []
        new = await (self._count(batch) if self._dry_run or self._log is None else self._log.add_imported(batch))
        self._report.turns[kind] += len(new)
        self._report.known[kind] += len(batch) - len(new)
        self._report.sessions.update(turn.observation.session_id for turn in new)

    async def _count(self, batch: list[ImportedTurn]) -> list[ImportedTurn]:
        if self._log is not None:
            self._counted |= await self._log.imported_among([turn.key for turn in batch])
        new = []
        for turn in batch:
            if turn.key not in self._counted:
                self._counted.add(turn.key)
                new.append(turn)
        return new


async def _propose(settings: Settings, report: Report, log: TranscriptDB | None, *, dry_run: bool) -> None:
    """Puts the notes before the person as changes of the memory files; for a dry run only says which."""
    before = await log.curations.proposed() if log else set[str]()
    new = [note for note in report.notes if digest(note) not in before]
    report.notes_known = len(report.notes) - len(new)
    for note in new[MOST_NOTES:]:
        report.tally.refuse(Path(note.origin), f"{MOST_NOTES} notes are enough for once; name it by itself")
    new = new[:MOST_NOTES]

    def change(files: dict[str, str]) -> tuple[dict[str, str], dict[str, list[str]]]:
        report.proposed = propose(new, files)
        return report.proposed.contents, report.proposed.digests

    if dry_run or log is None:
        files = MemoryFiles(settings.memory)
        drift = await log.curations.open_drift() if log else {}
        change({name: drift[name].content if name in drift else files.read(name) for name in CURATED})
        return
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(open_own_memory(settings.memory_db, log))
        await Projection(log, memory, MemoryFiles(settings.memory)).propose(change)


# --- output ---


def _facts(report: Report, waiting: int) -> dict[str, Any]:
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


def _print(report: Report, settings: Settings, waiting: int, *, dry_run: bool) -> None:
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
        when = "when it runs" if waiting >= settings.least_turns else f"once {settings.least_turns} wait"
        say(
            f"{waiting} turn(s) wait to be curated; the sprite does so {when}, in about {calls} call(s) to "
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
