"""Claude Code's session logs: their layout on disk, and their reader for `import`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sprite.imports.claude_code_entries import MAX_LINE_BYTES, Entry, UnreadableError, read_head, read_line
from sprite.imports.claude_code_turns import SessionTurns, SubagentLogs
from sprite.imports.tally import Surroundings, Tally
from sprite.log.transcript import ImportedTurn

#: Bytes read to recognise a session log.
PROBE_BYTES = 4 * 1024 * 1024
#: Size limit of the CLI's note beside a subagent's log, which is a few lines.
MAX_NOTE_BYTES = 64 * 1024
_CHUNK = 1024 * 1024
#: Prefix of subagents' log names.
AGENT_PREFIX = "agent-"
SUBAGENTS = "subagents"


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log of a session or a subagent; times are in Unix seconds, 0 without entries.

    `opened_at` is the time of the first line. In a forked session it is later than the copied entries.
    """

    path: Path
    size: int
    session_id: str
    agent_id: str | None
    first_at: float
    opened_at: float


def _sessions(paths: list[Path], around: Surroundings, tally: Tally) -> list[_Session]:
    """Return the logs with their companions by session, in the order of the sessions' beginnings."""
    known: set[tuple[int, int]] = set()
    sessions: dict[str, _Session] = {}
    waiting = paths[::-1]
    while waiting:
        path = waiting.pop()
        try:
            about = path.stat()
            if (about.st_dev, about.st_ino) in known:
                continue
            known.add((about.st_dev, about.st_ino))
            with path.open("rb") as stream:
                log = probe(stream, path, about.st_size)
        except OSError as error:
            tally.refuse(path, error)
            continue
        if log is None:
            tally.refuse(path, "is no session log of Claude Code's")
            continue
        tally.files += 1
        session = sessions.setdefault(log.session_id, _Session(log.session_id, around, tally))
        (session.main if log.agent_id is None else session.agents).append(log)
        waiting += (companion for companion in _companions(log) if companion.is_file())
    for session in sessions.values():
        session.main.sort(key=lambda log: (log.first_at, log.opened_at, log.path))
        session.agents.sort(key=lambda log: (log.first_at, log.path))
    return sorted(sessions.values(), key=lambda session: (session.began, session.session_id))


def probe(stream: BinaryIO, path: Path, size: int) -> LogFile | None:
    """Return the log in a file by its first entry, or None if it is no session log.

    An empty file is a session without turns.
    """
    genuine = size == 0
    opened_at: float | None = None
    for line in _lines(stream):
        try:
            entry = read_line(line)
        except UnreadableError:
            entry = None
        if entry is not None:
            is_agent = path.name.startswith(AGENT_PREFIX) and entry.is_sidechain
            agent_id = (entry.agent_id or path.stem.removeprefix(AGENT_PREFIX)) if is_agent else None
            return LogFile(path, size, entry.session_id, agent_id, entry.at, opened_at or entry.at)
        head = read_head(line)
        if head is not None:
            genuine = True
            opened_at = opened_at or head.at
        if stream.tell() > PROBE_BYTES:
            break
    return LogFile(path, size, path.stem, None, 0.0, 0.0) if genuine else None


def _companions(log: LogFile) -> Iterable[Path]:
    """Yield the other files of the session, at the locations used by all versions of the CLI."""
    folder = log.path.parent
    if log.agent_id is None:
        yield from sorted((folder / log.path.stem / SUBAGENTS).rglob(f"{AGENT_PREFIX}*.jsonl"))
    elif SUBAGENTS in folder.parts:
        while folder.name != SUBAGENTS:
            folder = folder.parent
        yield folder.parent.with_name(f"{folder.parent.name}.jsonl")
    else:
        yield folder / f"{log.session_id}.jsonl"


def started_by(log: Path) -> str | None:
    """Return the id of the tool call that started a subagent, from the CLI's note beside the log."""
    note = log.with_suffix(".meta.json")
    try:
        # Do not block on a pipe or read an endless device.
        if not note.is_file() or note.stat().st_size > MAX_NOTE_BYTES:
            return None
        about = json.loads(note.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    tool_use_id = about.get("toolUseId") if isinstance(about, dict) else None
    return tool_use_id if isinstance(tool_use_id, str) else None


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines; the excess of an overlong line is skipped without holding it in memory."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        yield line
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = stream.readline(_CHUNK)


#: A valid line is expected within this many lines.
_MOST_LINES = 2000


def is_session_log(opening: bytes) -> bool:
    """Return whether one of a file's first lines belongs to a session log. An empty log has no turns."""
    first = [line for line in opening.split(b"\n") if line.strip()][:_MOST_LINES]
    return not opening or any(map(_is_line, first))


def read_sessions(paths: list[Path], around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
    """Yield the turns of the sessions with these logs, in the order of the sessions' beginnings."""
    for session in _sessions(paths, around, tally):
        yield from session.turns()


class _Session:
    """The logs of one session, oldest first, as a stream of turns."""

    def __init__(self, session_id: str, around: Surroundings, tally: Tally) -> None:
        self.session_id = session_id
        self.main: list[LogFile] = []
        self.agents: list[LogFile] = []
        self._around = around
        self._tally = tally

    @property
    def began(self) -> tuple[float, float]:
        """Return (time of the first entry, time of opening the log), which sorts a session before its forks."""
        return min((log.first_at, log.opened_at) for log in self.main or self.agents)

    def turns(self) -> Iterator[ImportedTurn]:
        if self.session_id in self._around.own_sessions or self._is_own():
            self._tally.own.add(self.session_id)
            for log in (*self.main, *self.agents):
                self._around.on_bytes(log.size)
            return
        cutters = {self.session_id: self._cutter(self.session_id, self._subagents())}
        for log in self.main:
            for entry in self._entries(log, cutters.values()):
                # A session resumed under a new id can begin with entries of the old one.
                cutter = cutters.get(entry.session_id) or self._cutter(entry.session_id, SubagentLogs())
                cutters[entry.session_id] = cutter
                turn = cutter.feed(entry)
                if turn is not None:
                    yield turn
        for cutter in cutters.values():
            yield from cutter.end(self._around.now)
            self._tally.open += cutter.open

    def _cutter(self, session_id: str, agents: SubagentLogs) -> SessionTurns:
        return SessionTurns(session_id, agents, self._around.project_of)

    def _is_own(self) -> bool:
        own, logs = self._around.own_folder, self.main or self.agents
        return own is not None and all(log.path.resolve().is_relative_to(own) for log in logs)

    def _subagents(self) -> SubagentLogs:
        agents = SubagentLogs()
        for log in self.agents:
            agent_id = log.agent_id or log.path.stem
            call = started_by(log.path)
            if call is not None:
                agents.started(agent_id, call)
            for entry in self._entries(log):
                agents.feed(agent_id, entry)
        return agents

    def _entries(self, log: LogFile, cutters: Collection[SessionTurns] = ()) -> Iterator[Entry]:
        """Yield the entries of a file in order. A damaged line may have begun a turn of these cutters."""
        try:
            with log.path.open("rb") as stream:
                for number, line in enumerate(_lines(stream), start=1):
                    self._around.on_bytes(len(line))
                    if not line.strip():
                        continue
                    try:
                        entry = read_line(line)
                    except UnreadableError as error:
                        cut_off = "" if line.endswith(b"\n") else " (the file ends in the middle of it)"
                        self._tally.damage(log.path, number, f"{error}{cut_off}")
                        for cutter in cutters:
                            cutter.skip()
                        continue
                    if entry is not None:
                        yield entry
        except OSError as error:
            self._tally.refuse(log.path, error)


def _is_line(line: bytes) -> bool:
    try:
        return read_line(line) is not None or read_head(line) is not None
    except UnreadableError:
        return False
