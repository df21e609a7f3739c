"""Find Claude Code's session logs on disk and read them as streams; other files are ignored.

This module uses the CLI's file layout for sessions and their subagents, but not turns.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sprite.imports.claude_code_entries import MAX_LINE_BYTES, Entry, LogLineError, read_head, read_line

#: Bytes read to recognise a session log.
PROBE_BYTES = 4 * 1024 * 1024
#: Size limit of the CLI's note beside a subagent's log, which is a few lines.
MAX_NOTE_BYTES = 64 * 1024
#: Prefix of subagents' log names.
AGENT_PREFIX = "agent-"
SUBAGENTS = "subagents"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A path that is no readable session log, and the reason."""

    path: Path
    reason: str


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


@dataclass(slots=True)
class SessionFiles:
    """The logs of one session, oldest first."""

    session_id: str
    main: list[LogFile] = field(default_factory=list)
    agents: list[LogFile] = field(default_factory=list)

    @property
    def began(self) -> tuple[float, float]:
        """Return (time of the first entry, time of opening the log), which sorts a session before its forks."""
        return min((log.first_at, log.opened_at) for log in self.main or self.agents)


class LogFinder:
    """Collect logs below paths, with related files; each log once, even if several paths lead to it."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self.files = 0
        self._sessions: dict[str, SessionFiles] = {}
        self._known: set[tuple[int, int]] = set()

    def find(self, path: Path) -> None:
        """Add a file, or every `*.jsonl` below a folder."""
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            self._refuse(path, error)
            return
        if not is_folder:
            self._take(path)
            return
        found = sorted(self._below(path))
        if not found:
            self.refusals.append(Refusal(path, "there is no *.jsonl in this folder"))
        for file in found:
            self._take(file)

    def sessions(self) -> list[SessionFiles]:
        """Return the sessions in the order of their beginnings."""
        for session in self._sessions.values():
            session.main.sort(key=lambda log: (log.first_at, log.opened_at, log.path))
            session.agents.sort(key=lambda log: (log.first_at, log.path))
        return sorted(self._sessions.values(), key=lambda session: (session.began, session.session_id))

    def _below(self, folder: Path) -> Iterator[Path]:
        visited: set[tuple[int, int]] = set()
        for name, folders, files in os.walk(folder, followlinks=True, onerror=self._unreadable_folder):
            here = os.stat(name)  # noqa: PTH116 - os.walk gives names
            if (here.st_dev, here.st_ino) in visited:
                # A link to a parent folder, which was visited.
                folders.clear()
                continue
            visited.add((here.st_dev, here.st_ino))
            yield from (Path(name, file) for file in files if file.endswith(".jsonl"))

    def _unreadable_folder(self, error: OSError) -> None:
        self._refuse(Path(error.filename), error)

    def _refuse(self, path: Path, error: OSError) -> None:
        self.refusals.append(Refusal(path, f"cannot be read: {error.strerror or error}"))

    def _take(self, path: Path) -> None:
        try:
            about = path.stat()
            if (about.st_dev, about.st_ino) in self._known:
                return
            self._known.add((about.st_dev, about.st_ino))
            if not stat.S_ISREG(about.st_mode):
                self.refusals.append(Refusal(path, "is no file"))
                return
            with path.open("rb") as stream:
                log = probe(stream, path, about.st_size)
        except OSError as error:
            self._refuse(path, error)
            return
        if log is None:
            self.refusals.append(Refusal(path, "is no session log of Claude Code's"))
            return
        self.files += 1
        session = self._sessions.setdefault(log.session_id, SessionFiles(log.session_id))
        (session.main if log.agent_id is None else session.agents).append(log)
        for companion in _companions(log):
            if companion.is_file():
                self._take(companion)


def probe(stream: BinaryIO, path: Path, size: int) -> LogFile | None:
    """Return the log in a file by its first entry, or None if it is no session log.

    An empty file is a session without turns.
    """
    genuine = size == 0
    opened_at: float | None = None
    for line in _lines(stream):
        try:
            entry = read_line(line)
        except LogLineError:
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


def entries(
    log: LogFile, on_bytes: Callable[[int], object], on_damage: Callable[[int, str], object]
) -> Iterator[Entry | None]:
    """Yield the entries of a file in order, and None for each damaged line.

    `on_damage` receives the number of a damaged line and the reason, `on_bytes` the length of each line.
    """
    with log.path.open("rb") as stream:
        for number, line in enumerate(_lines(stream), start=1):
            on_bytes(len(line))
            if not line.strip():
                continue
            try:
                entry = read_line(line)
            except LogLineError as error:
                unfinished = "" if line.endswith(b"\n") else " (the file ends in the middle of it)"
                on_damage(number, f"{error}{unfinished}")
                yield None
            else:
                if entry is not None:
                    yield entry


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines; the excess of an overlong line is skipped without holding it in memory."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        yield line
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE_BYTES + 1)
