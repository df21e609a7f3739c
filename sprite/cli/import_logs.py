"""`import`: import Claude Code's session logs, each turn once. Calls no model.

Turns are written in batches. One transaction holds a batch and the keys that mark its turns as imported, so that a
second run completes an interrupted first one.
"""

from __future__ import annotations

import argparse
import math
import time
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
from sprite.imports.claude_code import Session, find_sessions
from sprite.imports.finding import files_at
from sprite.imports.follow.delivery import send_all
from sprite.imports.tally import Surroundings, Tally
from sprite.log.transcript import ImportedTurn, TranscriptDB, read_transcript
from sprite.memory.folders import Projects
from sprite.owner import open_log, say_observed
from sprite.protocol.framing import one_line

EXIT_SOME_REFUSED = 1
EXIT_NOTHING_READ = 2


@dataclass(slots=True)
class Report:
    """The outcome of an import; `known` turns were in the log already."""

    tally: Tally
    turns: int = 0
    known: int = 0
    #: Turns that the running sprite refused.
    refused: int = 0
    sessions: set[str] = field(default_factory=set)

    @property
    def exit_code(self) -> int:
        """Exit code: 0, or the code for the extent of refusals."""
        if self.tally.refusals and not self.tally.files:
            return EXIT_NOTHING_READ
        return EXIT_SOME_REFUSED if self.tally.refusals else 0


def facts(report: Report, waiting: int) -> dict[str, Any]:
    """Return the outcome for programs; `waiting` turns are not curated yet."""
    tally = report.tally
    return {
        "files": tally.files,
        "sessions": len(report.sessions),
        "turns": report.turns,
        "already_imported": report.known,
        "still_open": tally.open,
        "own_sessions": sorted(tally.own),
        "refused_turns": report.refused,
        "damaged_lines": tally.damaged,
        "damaged": [{"file": str(path), "line": line, "problem": problem} for path, line, problem in tally.named],
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
    say(
        f"{'Would import' if dry_run else 'Imported'} {report.turns} turn(s) of {len(report.sessions)} session(s) "
        f"from {tally.files} file(s); {report.known} were in the log already."
    )
    if report.refused:
        warn(f"{report.refused} turn(s) were refused by the running sprite")
    if tally.own:
        say(f"{len(tally.own)} session(s) are this sprite's own conversations, which it recorded itself.")
    if tally.open:
        say(f"{tally.open} turn(s) are still under way and left for the next import.")
    if waiting and not dry_run:
        calls = math.ceil(waiting / settings.batch_turns)
        say(
            f"{waiting} turn(s) wait to be curated; the sprite does so when it runs, in about {calls} call(s) to "
            f"{settings.curator_model}."
        )


#: Turns per transaction: enough to be fast, few enough that little is repeated after a kill.
BATCH_TURNS = 500
#: Writes turns to the log; returns those that are new in it.
Write = Callable[[Sequence[ImportedTurn]], Awaitable[list[ImportedTurn]]]


async def import_logs(settings: Settings, paths: list[Path], *, dry_run: bool, as_json: bool) -> int:
    """Import all session logs among the paths; with `dry_run` only print what.

    An archive is a whole workspace, and must be imported alone.
    """
    if archives := [path for path in paths if is_archive(path)]:
        if len(paths) > 1:
            raise OperatorError("An archive is a whole workspace: import it alone, into an empty one.")
        return await restore_archive(settings, archives[0], dry_run=dry_run, as_json=as_json)
    refuse_cut_off(settings)
    tally = Tally()
    sessions = find_sessions([file for path in paths for file in files_at(path, tally)], tally)
    report = Report(tally)
    waiting = 0
    if sessions:
        async with _log(settings, dry_run=dry_run) as (transcript, write):
            size = sum(session.size for session in sessions)
            with tqdm(total=size, unit="B", unit_scale=True, desc="importing", disable=None) as progress:
                await _take_all(settings, sessions, report, transcript, write, progress)
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
    sessions: list[Session],
    report: Report,
    log: TranscriptDB | None,
    write: Write | None,
    progress: tqdm[Any],
) -> None:
    """Read every session that was found and import its turns."""
    around = Surroundings(
        now=time.time(),
        project_of=Projects(settings.workspace).of,
        on_bytes=progress.update,
        own_sessions=frozenset(await log.cli_sessions() if log else ()),
        own_folder=settings.cli_state.resolve(),
    )
    taking = _Taking(report, log, write)
    for session in sessions:
        for turn in session.turns(around):
            await taking.take(turn)
    await taking.flush()


class _Taking:
    """Write turns to the log in batches; a dry run only counts them."""

    def __init__(self, report: Report, log: TranscriptDB | None, write: Write | None) -> None:
        self._report = report
        self._log = log
        self._write = write
        self._batch: list[ImportedTurn] = []
        self._counted: set[str] = set()

    async def take(self, turn: ImportedTurn) -> None:
        """Add a turn; it is in the log after the next `flush` at the latest."""
        self._batch.append(turn)
        if len(self._batch) >= BATCH_TURNS:
            await self.flush()

    async def flush(self) -> None:
        """Write the turns added so far."""
        batch, self._batch = self._batch, []
        new = await self._new(batch)
        written = new if self._write is None or not new else await self._write(new)
        self._report.turns += len(written)
        self._report.known += len(batch) - len(new)
        self._report.refused += len(new) - len(written)
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
