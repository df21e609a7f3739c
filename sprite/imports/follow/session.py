"""One growing session log with the logs of its subagents, and its ended turns.

It can be read again from its beginning at any time: private words early in a session are removed from its later
turns, so each turn needs all earlier ones. `done` prevents turns from being returned twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sprite.imports.claude_code import AGENT_PREFIX, SUBAGENTS, LogFile, probe, started_by
from sprite.imports.claude_code_entries import MAX_LINE_BYTES, Entry, UnreadableError, read_line
from sprite.imports.claude_code_turns import OVER_AFTER_SECONDS, SessionTurns, SubagentLogs
from sprite.imports.follow.files import Mark, NotOursError, ReplacedError, Tail, is_same, open_log
from sprite.log.transcript import ImportedTurn

ProjectOf = Callable[[Any], str | None]
#: Receives a log, the offset of a line in it, and the problem with that line.
OnDamage = Callable[[Path, int, str], object]


class FollowedLog:
    """A session log. Call `read` for appended data, then `settled`; both yield turns, oldest first."""

    def __init__(self, path: Path, project_of: ProjectOf, on_damage: OnDamage, mark: Mark | None = None) -> None:
        self.path = path
        self._project_of = project_of
        self._on_damage = on_damage
        self._done = 0 if mark is None else mark.done
        self._mark = mark
        self._reading: _Reading | None = None
        #: Time of the last growth, on the monotonic clock.
        self.grown_at = time.monotonic()
        self._is_seen = False

    @property
    def is_open(self) -> bool:
        """Whether more is expected of it, as far as it was read."""
        if self._reading is None:
            return self._mark is None or self._mark.is_open
        return self._reading.is_open

    @property
    def is_settling(self) -> bool:
        """Whether its last turn reports its end, which counts a moment later."""
        return self._reading is not None and self._reading.is_settling

    @property
    def is_held(self) -> bool:
        """Whether it is held in memory."""
        return self._reading is not None

    @property
    def mark(self) -> Mark | None:
        """The position up to which it was read and returned."""
        return self._mark if self._reading is None else self._reading.mark()

    def identify(self) -> LogFile | None:
        """Return the kind of log, or None if it is none, or not yet.

        Raises OSError or NotOursError if it is unreadable.
        """
        stream, about = open_log(self.path)
        with stream:
            return probe(stream, self.path, about.st_size)

    def read(self) -> Iterator[ImportedTurn | None]:
        """Yield turns that the appended data ended, and None after each piece read.

        Raises OSError or NotOursError if it cannot be read.
        """
        if self._reading is None:
            if self._mark is not None and not is_same(self.path, self._mark):
                self._done = 0
            self._reading = self._begun()
        try:
            yield from self._reading.read()
        except ReplacedError:
            self._done = 0
            self._reading = self._begun()
            # A file that was replaced twice is read at the next check.
            with suppress(ReplacedError):
                yield from self._reading.read()
        if self._reading.has_grown:
            # Data that existed before the first check has been idle since it was written.
            rested = 0.0 if self._is_seen else self._reading.unchanged_for
            self.grown_at = time.monotonic() - rested
        self._is_seen = True

    def settled(self) -> Iterator[ImportedTurn | None]:
        """Yield turns that have ended, judging by the data and the time since it was written."""
        if self._reading is None:
            return
        if self._silence >= OVER_AFTER_SECONDS and self._reading.is_open:
            # Its agents may have continued without it.
            yield from self.read()
        # Changing the clock changes the file's apparent age, so a turn is over only if it did not grow for that long
        # here.
        yield from self._reading.settled(max(self._silence, self._reading.unchanged_for), self._silence)

    @property
    def _silence(self) -> float:
        return time.monotonic() - self.grown_at

    def let_go(self) -> None:
        """Drop everything but the read position."""
        if self._reading is not None:
            self._mark = self._reading.mark()
            self._done = self._mark.done
            self._reading = None
            self._is_seen = False

    def _begun(self) -> _Reading:
        return _Reading(self.path, self._project_of, self._on_damage, self._done)


class _Reading:
    """The state of one pass through a log, from its beginning to its current end."""

    def __init__(self, path: Path, project_of: ProjectOf, on_damage: OnDamage, done: int) -> None:
        self._path = path
        self._project_of = project_of
        self._on_damage = on_damage
        self._tail = Tail(path)
        self._cutters: dict[str, SessionTurns] = {}
        #: Offset of the open turn, by session.
        self._open_at: dict[str, int] = {}
        self._agents = SubagentLogs()
        self._agent_tails: dict[Path, Tail] = {}
        self._unlinked: set[Path] = set()
        #: Turns that begin before this offset were returned by an earlier pass, completely or in part.
        self._done = done
        self._is_past_done = done == 0
        self.has_grown = False

    @property
    def is_open(self) -> bool:
        return any(cutter.is_open for cutter in self._cutters.values())

    @property
    def is_settling(self) -> bool:
        return any(cutter.is_settling for cutter in self._cutters.values())

    @property
    def unchanged_for(self) -> float:
        """Seconds since the session or one of its agents wrote something, by the wall clock."""
        changed_ns = max(tail.changed_ns for tail in (self._tail, *self._agent_tails.values()))
        return max(0.0, time.time() - changed_ns / 1e9)

    def mark(self) -> Mark:
        done = self._done
        if self._is_past_done:
            open_at = [self._open_at[name] for name, cutter in self._cutters.items() if cutter.open_key is not None]
            done = max(done, min(open_at, default=self._tail.lines.at))
        return self._tail.mark(done, is_open=self.is_open)

    def read(self) -> Iterator[ImportedTurn | None]:
        self.has_grown = False
        # An agent's log contains its work before the session's log contains the line that refers to it.
        size = self._path.stat().st_size
        yield from self._read_agents()
        for found in self._tail.read(size):
            if found is None:
                self.has_grown = True
                yield None
                continue
            at, line = found
            if at >= self._done:
                self._pass_done()
            entry = self._entry(at, line)
            if entry is not None:
                yield from self._feed(at, entry)
        if self._tail.lines.at >= self._done:
            self._pass_done()

    def settled(self, quiet: float, silence: float) -> Iterator[ImportedTurn]:
        for cutter in self._cutters.values():
            yield from cutter.settled(quiet, silence)

    def _pass_done(self) -> None:
        """From here on, turns are new; end a turn that was already returned."""
        if not self._is_past_done:
            self._is_past_done = True
            for cutter in self._cutters.values():
                cutter.cut()

    def _entry(self, at: int, line: bytes | None) -> Entry | None:
        if line is None:
            self._skip(at, f"longer than {MAX_LINE_BYTES // 2**20} MiB")
            return None
        if not line.strip():
            return None
        try:
            return read_line(line)
        except UnreadableError as error:
            self._skip(at, str(error))
            return None

    def _skip(self, at: int, problem: str) -> None:
        if self._is_past_done:
            self._on_damage(self._path, at, problem)
        for cutter in self._cutters.values():
            cutter.skip()

    def _feed(self, at: int, entry: Entry) -> Iterator[ImportedTurn]:
        # The log of a session that was resumed under a new id can begin with entries of the old one.
        name = entry.session_id
        cutter = self._cutters.get(name)
        if cutter is None:
            agents = self._agents if not self._cutters or name == self._path.stem else SubagentLogs()
            cutter = self._cutters[name] = SessionTurns(name, agents, self._project_of)
        before = cutter.open_key
        turn = cutter.feed(entry)
        if cutter.open_key != before:
            self._open_at[name] = at
        if turn is not None and self._is_past_done:
            yield turn

    # --- subagents ---

    def _read_agents(self) -> Iterator[None]:
        for path in _agent_logs(self._path.with_suffix("") / SUBAGENTS):
            tail = self._agent_tails.get(path)
            if tail is None:
                tail = self._agent_tails[path] = Tail(path)
                self._unlinked.add(path)
            try:
                yield from self._read_agent(tail)
            except ReplacedError:
                # Entries that were already read are skipped.
                self._agent_tails[path] = Tail(path)
            except (OSError, NotOursError):
                # The session is usable without it.
                continue

    def _read_agent(self, tail: Tail) -> Iterator[None]:
        agent_id = tail.path.stem.removeprefix(AGENT_PREFIX)
        if tail.path in self._unlinked and (call := started_by(tail.path)) is not None:
            self._unlinked.discard(tail.path)
            self._agents.started(agent_id, call)
        for found in tail.read():
            if found is None:
                self.has_grown = True
                yield None
                continue
            with suppress(UnreadableError):
                entry = None if found[1] is None else read_line(found[1])
                if entry is not None:
                    self._agents.feed(entry.agent_id or agent_id, entry)


def _agent_logs(folder: Path) -> Iterator[Path]:
    """Yield the logs below a session's folder, without following links."""
    if folder.is_symlink() or folder.parent.is_symlink():
        return
    for name, folders, files in os.walk(folder):
        folders.sort()
        yield from (
            Path(name, file) for file in sorted(files) if file.startswith(AGENT_PREFIX) and file[-6:] == ".jsonl"
        )
