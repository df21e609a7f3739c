"""`import` and `follow`: import Claude Code's session logs, each turn once. They call no model.

One transaction holds a batch of turns and their keys, so that a second run completes an interrupted first one.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sprite.backup.archive_reader import is_archive
from sprite.backup.restore import refuse_cut_off
from sprite.cli.archives import restore_archive
from sprite.cli.output import say, say_json, warn
from sprite.common.locks import LockHeldError, held
from sprite.common.settings import claude_code_logs
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.imports.claude_code import Session, find_sessions
from sprite.imports.claude_code_entries import Surroundings, Tally
from sprite.imports.follower import Delivered, Follower, Marks, writing
from sprite.log.transcript import read_transcript
from sprite.memory.folders import Projects, make_folders
from sprite.protocol.framing import one_line
from sprite.protocol.shapes import counted

EXIT_SOME_REFUSED = 1
EXIT_NOTHING_READ = 2
_PASSED_FOLDERS = frozenset({".git", "node_modules", ".venv", "venv", "site-packages", "__pycache__", "vendor"})
#: Turns per transaction: enough to be fast, few enough that little is repeated after a kill.
BATCH_TURNS = 500


@dataclass(slots=True)
class Report:
    """The outcome of an import of session logs; `waiting` turns are not curated yet."""

    tally: Tally
    delivered: Delivered = field(default_factory=Delivered)
    sessions: set[str] = field(default_factory=set)
    waiting: int = 0


async def import_logs(settings: Settings, arguments: argparse.Namespace) -> int:
    """Import all session logs among the paths, or the only path, an archive, which `--dry-run` only checks."""
    paths: list[Path] = arguments.paths
    if archives := [path for path in paths if is_archive(path) or (path.suffix == ".zip" and path.is_file())]:
        if len(paths) > 1:
            raise OperatorError("An archive is a whole workspace: import it alone, into an empty one.")
        return await restore_archive(settings, archives[0], arguments)
    if arguments.dry_run:
        raise OperatorError("--dry-run works only for an archive: it checks the archive and imports nothing.")
    refuse_cut_off(settings)
    tally = Tally()
    report = Report(tally)
    if sessions := find_sessions([file for path in paths for file in _files_at(path, tally)], tally):
        await _take_all(settings, sessions, report)
    if arguments.json:
        say_json(_facts(report))
    else:
        _print(report, settings)
    if not tally.refusals:
        return 0
    return EXIT_SOME_REFUSED if tally.files else EXIT_NOTHING_READ


def _files_at(path: Path, tally: Tally) -> list[Path]:
    """Return the file itself, or all `*.jsonl` below a folder except in third-party code and linked folders."""
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.rglob("*.jsonl")) if _PASSED_FOLDERS.isdisjoint(file.parts)]
    if not files:
        tally.refuse(path, "this folder contains nothing that can be imported")
    return files


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
                report.delivered.add(await write(batch))
                report.sessions.update(turn.observation.session_id for turn in batch)
        report.waiting = await transcript.waiting_count()


def _facts(report: Report) -> dict[str, Any]:
    tally, delivered = report.tally, report.delivered
    return {
        "files": tally.files,
        "sessions": len(report.sessions),
        "turns": delivered.stored,
        "already_imported": delivered.known,
        "still_open": tally.open,
        "own_sessions": sorted(tally.own),
        "refused_turns": len(delivered.refused),
        "damaged_lines": tally.damaged,
        "damaged": [{"file": str(path), "line": line, "problem": problem} for path, line, problem in tally.named],
        "refused": [{"path": str(path), "reason": reason} for path, reason in tally.refusals],
        "waiting": report.waiting,
    }


def _print(report: Report, settings: Settings) -> None:
    """Print the outcome for people: problems on stderr, results on stdout."""
    tally, delivered, waiting = report.tally, report.delivered, report.waiting
    for path, reason in tally.refusals:
        warn(f"refused: {one_line(path)}: {reason}")
    for path, line, problem in tally.named:
        warn(f"skipped: {one_line(path)}:{line}: {one_line(problem)}")
    if tally.damaged > len(tally.named):
        warn(f"skipped: and {counted(tally.damaged - len(tally.named), 'more damaged line')}")
    say(
        f"Imported {counted(delivered.stored, 'turn')} of {counted(len(report.sessions), 'session')} "
        f"from {counted(tally.files, 'file')}; {delivered.known} were in the log already."
    )
    if delivered.refused:
        warn(f"The running sprite refused {counted(len(delivered.refused), 'turn')}.")
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


async def follow(settings: Settings, arguments: argparse.Namespace) -> int:
    """Import turns from growing session logs until a signal ends it. Turns not delivered then stay in the logs."""
    # Made absolute without resolving links, so that a path is shown by the given name.
    roots = [Path(os.path.abspath(path)) for path in arguments.paths] or [claude_code_logs()]  # noqa: PTH100
    for root in arguments.paths:
        if not root.exists():
            raise OperatorError(f"{one_line(root)} does not exist: name a folder of session logs, or one log.")
    make_folders(settings)
    settings.follow.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(settings.follow / "lock", settings.follow))
        except LockHeldError as error:
            raise OperatorError(
                f"Another follower (process {error.owner}) already imports Claude Code's turns for {settings.follow}. "
                "One is enough: it sees every session. Stop it first to run this one."
            ) from error
        follower = Follower(settings, roots, Marks(settings.follow / "marks.json"), _told)
        _end_on_signals()
        try:
            sessions = await follower.look()
            _told(f"following {counted(sessions, 'session')} below {', '.join(map(one_line, roots))}")
            await follower.run()
        except asyncio.CancelledError:
            return 0
    return 0


def _told(line: str) -> None:
    say(line)
    sys.stdout.flush()


def _end_on_signals() -> None:
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
