"""Reader for Claude Code's session logs, for `import`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sprite.imports.claude_code_entries import LogLineError, read_head, read_line
from sprite.imports.claude_code_logs import LogFile, LogFinder, SessionFiles, entries, started_by
from sprite.imports.claude_code_turns import SOURCE, SessionTurns, SubagentLogs
from sprite.imports.reader import Surroundings, Tally
from sprite.log.transcript import ImportedTurn

#: A valid line is expected within this many lines.
_MOST_LINES = 2000


class ClaudeCodeReader:
    """Read session logs, with the logs of their subagents."""

    kind = SOURCE
    name = "Claude Code session log"

    def recognises(self, path: Path, opening: bytes) -> bool:
        """Return whether one of the first lines belongs to a session log. An empty log has no turns."""
        if path.suffix != ".jsonl":
            return False
        lines = [line for line in opening.split(b"\n") if line.strip()]
        return not opening or any(map(_is_line, lines[:_MOST_LINES]))

    def read(self, paths: list[Path], around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
        """Yield the turns of the sessions, in the order of their beginnings."""
        finder = LogFinder()
        for path in paths:
            finder.find(path)
        tally.refusals += finder.refusals
        tally.files += finder.files
        for session in finder.sessions():
            yield from _Session(session, around, tally).turns()


class _Session:
    """Read one session as a stream of turns."""

    def __init__(self, session: SessionFiles, around: Surroundings, tally: Tally) -> None:
        self._session = session
        self._around = around
        self._tally = tally

    def turns(self) -> Iterator[ImportedTurn]:
        session = self._session
        if session.session_id in self._around.own_sessions or self._is_own():
            self._tally.own.add(session.session_id)
            for log in (*session.main, *session.agents):
                self._around.on_bytes(log.size)
            return
        cutters = {session.session_id: self._cutter(session.session_id, self._agents())}
        for log in session.main:
            for entry in self._entries(log):
                if entry is None:
                    for cutter in cutters.values():
                        cutter.skip()
                    continue
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
        own, logs = self._around.own_folder, self._session.main or self._session.agents
        return own is not None and all(log.path.resolve().is_relative_to(own) for log in logs)

    def _agents(self) -> SubagentLogs:
        agents = SubagentLogs()
        for log in self._session.agents:
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
            yield from entries(
                log, self._around.on_bytes, lambda line, problem: self._tally.damage(log.path, line, problem)
            )
        except OSError as error:
            self._tally.refuse(log.path, f"cannot be read to its end: {error.strerror}")


def _is_line(line: bytes) -> bool:
    try:
        return read_line(line) is not None or read_head(line) is not None
    except LogLineError:
        return False
