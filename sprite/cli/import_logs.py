"""`import`: import Claude Code's session logs, each turn once. Calls no model.

Turns are written in batches. One transaction holds a batch and the keys that mark its turns as imported, so that a
second run completes an interrupted first one.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sprite.backup.archive_reader import is_archive
from sprite.backup.restore import refuse_cut_off
from sprite.cli.archives import restore_archive
from sprite.cli.output import say, say_json, warn
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.imports.claude_code import Session, find_sessions
from sprite.imports.claude_code_entries import Surroundings, Tally
from sprite.imports.follower import Delivered, writing
from sprite.log.transcript import ImportedTurn, read_transcript
from sprite.memory.folders import Projects
from sprite.protocol.framing import one_line
from sprite.protocol.shapes import counted

EXIT_SOME_REFUSED = 1
EXIT_NOTHING_READ = 2


@dataclass(slots=True)
class Report:
    """The outcome of an import of session logs; `known` counts turns that were in the sprite's log before."""

    tally: Tally
    turns: int = 0
    known: int = 0
    #: Turns that the running sprite refused.
    refused: int = 0
    sessions: set[str] = field(default_factory=set)

    def add(self, batch: Sequence[ImportedTurn], delivered: Delivered) -> None:
        """Add the counts of a batch of turns that was delivered to the sprite's log."""
        self.turns += delivered.stored
        self.known += delivered.known
        self.refused += len(delivered.refused)
        self.sessions.update(turn.observation.session_id for turn in batch)

    @property
    def exit_code(self) -> int:
        """Exit code: 0, or another one if some or all of the paths could not be read."""
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


def print_report(report: Report, settings: Settings, waiting: int) -> None:
    """Print the outcome for people: problems on stderr, results on stdout."""
    tally = report.tally
    for refusal in tally.refusals:
        warn(f"refused: {one_line(refusal.path)}: {refusal.reason}")
    for path, line, problem in tally.named:
        warn(f"skipped: {one_line(path)}:{line}: {one_line(problem)}")
    if tally.damaged > len(tally.named):
        warn(f"skipped: and {counted(tally.damaged - len(tally.named), 'more damaged line')}")
    say(
        f"Imported {counted(report.turns, 'turn')} of {counted(len(report.sessions), 'session')} "
        f"from {counted(tally.files, 'file')}; {report.known} were in the log already."
    )
    if report.refused:
        warn(f"The running sprite refused {counted(report.refused, 'turn')}.")
    if tally.own:
        say(f"Left out: {counted(len(tally.own), 'session')} of this sprite, which it recorded itself.")
    if tally.open:
        say(f"Left for the next import: {counted(tally.open, 'turn')} still under way.")
    if waiting:
        calls = math.ceil(waiting / settings.batch_turns)
        say(
            f"Not learned from yet: {counted(waiting, 'turn')}. The sprite does so when it runs, in about "
            f"{counted(calls, 'call')} to {settings.curator_model}."
        )


_PASSED_FOLDERS = frozenset({".git", "node_modules", ".venv", "venv", "site-packages", "__pycache__", "vendor"})
#: Turns per transaction: enough to be fast, few enough that little is repeated after a kill.
BATCH_TURNS = 500


async def import_logs(settings: Settings, paths: list[Path], *, as_json: bool, dry_run: bool = False) -> int:
    """Import all session logs among the paths. An archive is a whole workspace, and must be imported alone.

    With `dry_run`, only check an archive.
    """
    if archives := [path for path in paths if is_archive(path) or (path.suffix == ".zip" and path.is_file())]:
        if len(paths) > 1:
            raise OperatorError("An archive is a whole workspace: import it alone, into an empty one.")
        return await restore_archive(settings, archives[0], dry_run=dry_run, as_json=as_json)
    if dry_run:
        raise OperatorError("--dry-run works only for an archive: it checks the archive and imports nothing.")
    refuse_cut_off(settings)
    tally = Tally()
    sessions = find_sessions([file for path in paths for file in _files_at(path, tally)], tally)
    report = Report(tally)
    waiting = 0
    if sessions:
        await _take_all(settings, sessions, report)
        async with read_transcript(settings.transcript_db) as transcript:
            waiting = await transcript.waiting_count()
    if as_json:
        say_json(facts(report, waiting))
    else:
        print_report(report, settings, waiting)
    return report.exit_code


def _files_at(path: Path, tally: Tally) -> list[Path]:
    """Return the file itself, or all `*.jsonl` below a folder except in third-party code and linked folders."""
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.rglob("*.jsonl")) if _PASSED_FOLDERS.isdisjoint(file.parts)]
    if not files:
        tally.refuse(path, "this folder contains nothing that can be imported")
    return files


async def import_command(settings: Settings, arguments: argparse.Namespace) -> int:
    """Import the paths of the arguments."""
    return await import_logs(settings, arguments.paths, as_json=arguments.json, dry_run=arguments.dry_run)


async def _take_all(settings: Settings, sessions: list[Session], report: Report) -> None:
    """Read every session that was found and import its turns."""
    size = sum(session.size for session in sessions)
    async with writing(settings) as write, read_transcript(settings.transcript_db) as transcript:
        with tqdm(total=size, unit="B", unit_scale=True, desc="importing", disable=None) as progress:
            around = Surroundings(
                now=time.time(),
                project_of=Projects(settings.workspace).of,
                on_bytes=progress.update,
                own_sessions=frozenset(await transcript.cli_sessions()),
            )
            turns = chain.from_iterable(session.turns(around) for session in sessions)
            while batch := list(islice(turns, BATCH_TURNS)):
                report.add(batch, await write(batch))
