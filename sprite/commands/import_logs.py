"""`import`: takes Claude Code's session logs into the log, each once, to be curated later. Calls no model.

Turns are written in batches. One transaction holds a batch and the keys that mark its turns as imported, so that a
second run completes a first that was killed at any moment.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sprite.commands.output import one_line, say, say_json, warn
from sprite.commands.owner import open_log
from sprite.config import Settings
from sprite.database.transcript import ImportedTurn, TranscriptDB, read_transcript
from sprite.memory.claude_code.log_files import (
    LogFile,
    LogFinder,
    Refusal,
    SessionFiles,
    entries,
    started_by,
)
from sprite.memory.claude_code.subagents import SubagentLogs
from sprite.memory.claude_code.turns import SessionTurns
from sprite.memory.projects import Projects

#: Turns per transaction: enough to be fast, few enough that little is read twice after a kill.
BATCH_TURNS = 500
#: The most damaged lines that are listed; the rest are counted.
MAX_NAMED = 50
EXIT_SOME_REFUSED = 1
EXIT_NOTHING_READ = 2


@dataclass(slots=True)
class Report:
    """The outcome of an import."""

    files: int
    refusals: list[Refusal]
    turns: int = 0
    known: int = 0
    open: int = 0
    #: Sessions of this sprite's own agent, which its log already holds.
    own: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    damaged: int = 0
    named: list[tuple[Path, int, str]] = field(default_factory=list)

    def damage(self, path: Path, line: int, problem: str) -> None:
        """Counts a line that was skipped."""
        self.damaged += 1
        if len(self.named) < MAX_NAMED:
            self.named.append((path, line, problem))

    @property
    def exit_code(self) -> int:
        """Returns 0, or the code that says how much was refused."""
        if self.refusals and not self.files:
            return EXIT_NOTHING_READ
        return EXIT_SOME_REFUSED if self.refusals else 0


async def import_logs(settings: Settings, paths: list[Path], *, dry_run: bool, as_json: bool) -> int:
    """Imports every session log among the paths; with `dry_run` only prints what it would import."""
    finder = LogFinder()
    for path in paths:
        finder.find(path)
    sessions = finder.sessions()
    report = Report(finder.files, finder.refusals)
    waiting = 0
    if report.files:
        async with _log(settings, dry_run=dry_run) as transcript:
            own = await transcript.cli_sessions() if transcript else set()
            with _progress(sessions) as progress:
                reading = _Reading(settings, own, report, progress.update)
                taking = _Taking(report, transcript, dry_run=dry_run)
                for session in sessions:
                    for turn in reading.turns(session):
                        await taking.take(turn)
                await taking.flush()
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


def _progress(sessions: list[SessionFiles]) -> tqdm[Any]:
    total = sum(log.size for session in sessions for log in (*session.main, *session.agents))
    return tqdm(total=total, unit="B", unit_scale=True, desc="importing", disable=None)


class _Taking:
    """Writes turns to the log in batches; without a log it only counts them."""

    def __init__(self, report: Report, log: TranscriptDB | None, *, dry_run: bool) -> None:
        self._report = report
        self._log = log
        self._dry_run = dry_run
        self._batch: list[ImportedTurn] = []
        self._counted: set[str] = set()

    async def take(self, turn: ImportedTurn) -> None:
        """Takes a turn, which is in the log after the next `flush` at the latest."""
        self._batch.append(turn)
        if len(self._batch) >= BATCH_TURNS:
            await self.flush()

    async def flush(self) -> None:
        """Writes the turns taken so far."""
        batch, self._batch = self._batch, []
        new = await (self._count(batch) if self._dry_run or self._log is None else self._log.add_imported(batch))
        self._report.turns += len(new)
        self._report.known += len(batch) - len(new)
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


class _Reading:
    """Reads sessions as streams of turns and reports what is wrong with them."""

    def __init__(self, settings: Settings, own: set[str], report: Report, on_bytes: Callable[[int], object]) -> None:
        self._own_folder = settings.cli_state.resolve()
        self._own = own
        self._report = report
        self._on_bytes = on_bytes
        self._now = time.time()
        self._projects = Projects(settings.workspace)

    def turns(self, session: SessionFiles) -> Iterator[ImportedTurn]:
        """Yields the turns of a session that have ended, oldest first."""
        if session.session_id in self._own or self._is_own(session):
            self._report.own.add(session.session_id)
            for log in (*session.main, *session.agents):
                self._on_bytes(log.size)
            return
        agents = self._agents(session)
        cutters = {session.session_id: self._cutter(session.session_id, agents)}
        for log in session.main:
            for entry in self._entries(log):
                if entry is None:
                    for cutter in cutters.values():
                        cutter.skip()
                    continue
                # The log of a session that was resumed under a new id can begin with entries of the old one.
                cutter = cutters.get(entry.session_id) or self._cutter(entry.session_id, SubagentLogs())
                cutters[entry.session_id] = cutter
                turn = cutter.feed(entry)
                if turn is not None:
                    yield turn
        for cutter in cutters.values():
            yield from cutter.end(self._now)
            self._report.open += cutter.open

    def _cutter(self, session_id: str, agents: SubagentLogs) -> SessionTurns:
        return SessionTurns(session_id, agents, self._projects.of)

    def _is_own(self, session: SessionFiles) -> bool:
        logs = session.main or session.agents
        return all(log.path.resolve().is_relative_to(self._own_folder) for log in logs)

    def _agents(self, session: SessionFiles) -> SubagentLogs:
        agents = SubagentLogs()
        for log in session.agents:
            agent_id = log.agent_id or log.path.stem
            call = started_by(log.path)
            if call is not None:
                agents.started(agent_id, call)
            for entry in self._entries(log):
                if entry is not None:
                    agents.feed(agent_id, entry)
        return agents

    def _entries(self, log: LogFile) -> Iterator[Any]:
        try:
            yield from entries(log, self._on_bytes, lambda line, problem: self._report.damage(log.path, line, problem))
        except OSError as error:
            self._report.refusals.append(Refusal(log.path, f"cannot be read to its end: {error.strerror}"))


# --- output ---


def _facts(report: Report, waiting: int) -> dict[str, Any]:
    return {
        "files": report.files,
        "sessions": len(report.sessions),
        "turns": report.turns,
        "already_imported": report.known,
        "still_open": report.open,
        "own_sessions": sorted(report.own),
        "damaged_lines": report.damaged,
        "damaged": [{"file": str(path), "line": line, "problem": problem} for path, line, problem in report.named],
        "refused": [{"path": str(refusal.path), "reason": refusal.reason} for refusal in report.refusals],
        "waiting": waiting,
    }


def _print(report: Report, settings: Settings, waiting: int, *, dry_run: bool) -> None:
    for refusal in report.refusals:
        warn(f"refused: {one_line(refusal.path)}: {refusal.reason}")
    for path, line, problem in report.named:
        warn(f"skipped: {one_line(path)}:{line}: {problem}")
    if report.damaged > len(report.named):
        warn(f"skipped: and {report.damaged - len(report.named)} more damaged line(s)")
    done = "Would import" if dry_run else "Imported"
    say(
        f"{done} {report.turns} turn(s) of {len(report.sessions)} session(s) from {report.files} file(s); "
        f"{report.known} were in the log already."
    )
    if report.own:
        say(f"{len(report.own)} session(s) are this sprite's own conversations, which it recorded itself.")
    if report.open:
        say(f"{report.open} turn(s) are still under way and left for the next import.")
    if waiting and not dry_run:
        calls = math.ceil(waiting / settings.batch_turns)
        when = "when it runs" if waiting >= settings.least_turns else f"once {settings.least_turns} wait"
        say(
            f"{waiting} turn(s) wait to be curated; the sprite does so {when}, in about {calls} call(s) to "
            f"{settings.curator_model}."
        )
