"""Claude Code's session logs: their layout on disk, and their reader for `import`."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sprite.imports import claude_code_entries as entries
from sprite.imports.claude_code_turns import SessionTurns, SubagentLogs
from sprite.log.transcript import ImportedTurn

#: Bytes read to recognise a session log, without which a file is none.
PROBE_BYTES = 4 * 1024 * 1024
_CHUNK = 1024 * 1024
#: Prefix of subagents' log names.
AGENT_PREFIX = "agent-"
SUBAGENTS = "subagents"


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log of a session or a subagent; times are in Unix seconds, 0 without entries."""

    path: Path
    size: int
    session_id: str
    agent_id: str | None
    first_at: float
    #: Time of the first line. In a forked session it is later than the copied entries.
    opened_at: float


def find_sessions(paths: Iterable[Path], tally: entries.Tally) -> list[Session]:
    """Return the sessions of the logs at these paths, earliest first; `tally` gets files that are no logs."""
    known: set[tuple[int, int]] = set()
    sessions: dict[str, Session] = {}
    waiting = list(paths)[::-1]
    while waiting:
        log = _probed(waiting.pop(), tally, known)
        if log is not None:
            tally.files += 1
            sessions.setdefault(log.session_id, Session(log.session_id, tally)).add(log)
            waiting += _companions(log)
    for session in sessions.values():
        session.main.sort(key=lambda log: (log.first_at, log.opened_at, log.path))
        session.agents.sort(key=lambda log: (log.first_at, log.path))
    return sorted(sessions.values(), key=lambda session: (session.began, session.session_id))


def followed_session(path: Path, tally: entries.Tally, done: int) -> Session | None:
    """Return the session of the log at `path`; its turns before the offset `done` were imported earlier.

    None for a subagent's log, and for a file that is no session log, which is counted in `tally`.
    """
    known: set[tuple[int, int]] = set()
    log = _probed(path, tally, known)
    if log is None or log.agent_id is not None:
        return None
    session = Session(log.session_id, tally, done)
    session.add(log)
    for companion in _companions(log):
        if (agent := _probed(companion, tally, known)) is not None:
            session.add(agent)
    return session


def _probed(path: Path, tally: entries.Tally, known: set[tuple[int, int]]) -> LogFile | None:
    """Return the log in a file, or None if it is in `known` (device, inode) or no session log, which `tally` counts."""
    try:
        about = path.stat()
        if (about.st_dev, about.st_ino) in known:
            return None
        known.add((about.st_dev, about.st_ino))
        if not stat.S_ISREG(about.st_mode):
            tally.refuse(path, "is not a file")
            return None
        with path.open("rb") as stream:
            log = probe(stream, path, about.st_size)
    except OSError as error:
        tally.refuse(path, error)
        return None
    if log is None:
        tally.refuse(path, "is not a session log of Claude Code")
    return log


def probe(stream: BinaryIO, path: Path, size: int) -> LogFile | None:
    """Return the log in a file by its first entry (an empty file has no turns), or None if it is no session log."""
    genuine = size == 0
    opened_at: float | None = None
    for line in _lines(stream):
        try:
            entry = entries.read_line(line)
        except entries.UnreadableError:
            entry = None
        if entry is not None:
            is_agent = path.name.startswith(AGENT_PREFIX) and entry.is_sidechain
            agent_id = (entry.agent_id or path.stem.removeprefix(AGENT_PREFIX)) if is_agent else None
            return LogFile(path, size, entry.session_id, agent_id, entry.at, opened_at or entry.at)
        head = entries.read_head(line)
        if head is not None:
            genuine = True
            opened_at = opened_at or head.at
        if stream.tell() > PROBE_BYTES:
            break
    return LogFile(path, size, path.stem, None, 0.0, 0.0) if genuine else None


def _companions(log: LogFile) -> list[Path]:
    """Return the session's other logs (main log, subagents), where any version of the CLI puts them; no links."""
    folder = log.path.parent
    if log.agent_id is None:
        agents = folder / log.path.stem / SUBAGENTS
        found = list[Path]()
        if not agents.is_symlink() and not agents.parent.is_symlink():
            # Claude Code deletes old logs: a folder may go while it is read.
            paths = [Path(folder, name) for folder, _, names in os.walk(agents) for name in names]
            found = sorted(path for path in paths if path.match(f"{AGENT_PREFIX}*.jsonl"))
    elif SUBAGENTS in folder.parts:
        while folder.name != SUBAGENTS:
            folder = folder.parent
        found = [folder.parent.with_name(f"{folder.parent.name}.jsonl")]
    else:
        found = [folder / f"{log.session_id}.jsonl"]
    return [path for path in found if path.is_file() and not path.is_symlink()]


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a log; the excess of an overlong line is skipped without holding it in memory."""
    while line := stream.readline(entries.MAX_LINE_BYTES + 1):
        piece = line
        while len(line) > entries.MAX_LINE_BYTES and piece and not piece.endswith(b"\n"):
            piece = stream.readline(_CHUNK)
        yield line


class Session:
    """The logs of one session, oldest first, as a stream of turns.

    Turns before the offset `done` are known, and read only for their private words, which later turns must not have.
    """

    def __init__(self, session_id: str, tally: entries.Tally, done: int = 0) -> None:
        self.session_id = session_id
        self.main: list[LogFile] = []
        self.agents: list[LogFile] = []
        #: Once its turns were read, those that begin before this offset were returned.
        self.done = done
        #: Whether more is expected of it, once its turns were read.
        self.is_open = False
        self.tally = tally
        self._is_known = done > 0

    @property
    def began(self) -> tuple[float, float]:
        """Return (time of the first entry, time of opening the log): sorting by it puts a session before its forks."""
        return min((log.first_at, log.opened_at) for log in self.main or self.agents)

    def add(self, log: LogFile) -> None:
        """Add one of the session's logs."""
        (self.main if log.agent_id is None else self.agents).append(log)

    @property
    def size(self) -> int:
        """Return the total size of the session's logs in bytes."""
        return sum(log.size for log in (*self.main, *self.agents))

    def turns(self, around: entries.Surroundings) -> Iterator[ImportedTurn]:
        """Yield the session's turns in order."""
        if self.session_id in around.own_sessions:
            self.tally.own.add(self.session_id)
            around.on_bytes(self.size)
            return
        cutters = {self.session_id: self._cutter(around, self.session_id, self._subagents(around))}
        #: Offset of the open turn, by session.
        open_at: dict[str, int] = {}
        end = 0
        for log in self.main:
            for at, after, entry in self._entries(log, around, cutters.values()):
                if self._is_known and at >= self.done:
                    self._pass_done(cutters.values())
                end = after
                if entry is None:
                    continue
                # A session resumed under a new id can begin with entries of the old one.
                cutter = cutters.get(entry.session_id) or self._cutter(around, entry.session_id, SubagentLogs())
                cutters[entry.session_id] = cutter
                before = cutter.open_key
                turn = cutter.feed(entry)
                if cutter.open_key != before:
                    open_at[entry.session_id] = at
                if turn is not None:
                    yield turn
        self._pass_done(cutters.values())
        for cutter in cutters.values():
            yield from cutter.end(around.now, around.silence)
            self.tally.open += cutter.open
        running = [open_at[name] for name, cutter in cutters.items() if cutter.open_key is not None]
        self.done = max(self.done, min(running, default=end))
        self.is_open = bool(running)

    def _cutter(self, around: entries.Surroundings, session_id: str, agents: SubagentLogs) -> SessionTurns:
        cutter = SessionTurns(session_id, agents, around.project_of)
        cutter.is_known = self._is_known
        return cutter

    def _pass_done(self, cutters: Collection[SessionTurns]) -> None:
        """Stop skipping known turns: end a known turn that is still running, and return the following turns."""
        if self._is_known:
            self._is_known = False
            for cutter in cutters:
                cutter.cut()
                cutter.is_known = False

    def _subagents(self, around: entries.Surroundings) -> SubagentLogs:
        agents = SubagentLogs()
        for log in self.agents:
            agent_id = log.agent_id or log.path.stem
            for _, _, entry in self._entries(log, around):
                if entry is not None:
                    agents.feed(agent_id, entry)
        return agents

    def _entries(
        self, log: LogFile, around: entries.Surroundings, cutters: Collection[SessionTurns] = ()
    ) -> Iterator[tuple[int, int, entries.Entry | None]]:
        """Yield (offset of the line, offset after it, its entry or None) for each line, without an unfinished last one.

        Tell the `cutters` about a damaged line, because it may have begun a turn.
        """
        try:
            with log.path.open("rb") as stream:
                at = 0
                for number, line in enumerate(_lines(stream), start=1):
                    around.on_bytes(len(line))
                    after, entry = stream.tell(), None
                    try:
                        entry = entries.read_line(line) if line.strip() else None
                    except entries.UnreadableError as error:
                        if len(line) <= entries.MAX_LINE_BYTES and not line.endswith(b"\n"):
                            return
                        if not self._is_known or at >= self.done:
                            self.tally.damage(log.path, number, str(error))
                        for cutter in cutters:
                            cutter.skip()
                    yield at, after, entry
                    at = after
        except OSError as error:
            self.tally.refuse(log.path, error)
