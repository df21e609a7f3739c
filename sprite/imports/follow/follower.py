"""Watch logs and deliver each ended turn, in one loop: look, read, deliver, sleep.

The folders are scanned as often as takes a small share of a core, at most twice a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sprite.config import Settings
from sprite.imports.claude_code import PROBE_BYTES, LogFile
from sprite.imports.claude_code_turns import SETTLED_AFTER_SECONDS
from sprite.imports.follow.delivery import Delivered, deliver
from sprite.imports.follow.files import CHUNK_BYTES, Found, Mark, Marks, NotOursError, scan
from sprite.imports.follow.session import FollowedLog
from sprite.log.transcript import ImportedTurn
from sprite.memory.folders import Projects
from sprite.protocol.framing import one_line

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
#: Share of a core that scanning folders may take.
SCAN_SHARE = 0.01
#: An idle log is dropped from memory after this time, unless a turn of it is open. At most this many are held.
HELD_SECONDS = 600.0
MOST_HELD = 64
BATCH_TURNS = 500
#: Limit for the data read for one batch; less of it is kept.
BATCH_CHUNKS = 16 * 1024 * 1024 // CHUNK_BYTES
#: Reading runs in a thread, for this long at a time.
STEP_SECONDS = 0.2
#: Refusals and damaged lines that are logged; the rest are counted.
MAX_NAMED = 50


@dataclass(slots=True)
class Tally:
    """Statistics of a follower."""

    delivered: Delivered = field(default_factory=Delivered)
    sessions: set[str] = field(default_factory=set)
    damaged: int = 0
    refused: dict[Path, str] = field(default_factory=dict)


class _Known:
    """A log: its state on disk, and its state when it was read."""

    def __init__(self, found: Found, followed: FollowedLog, mark: Mark | None) -> None:
        self.found = found
        self.log = followed
        #: Whether it is a session log, or None until it was checked.
        self.is_log: bool | None = None if mark is None else True
        #: Whether it appeared while others were followed.
        self.is_new = False
        #: Start of its session.
        self.began = (0.0, 0.0)
        self.read: Found | None = None
        if mark is not None and not mark.is_open:
            self.read = Found(found.path, mark.device, mark.inode, mark.size, mark.changed_ns)

    @property
    def is_due(self) -> bool:
        """Whether it has changed, or a turn that was read may have ended."""
        return self.is_log is not False and (self.found != self.read or (self.log.is_held and self.log.is_open))


class Follower:
    """Follow logs: `catch_up` delivers what there is, `run` repeats that for ever. `tell` gets lines for people."""

    def __init__(self, settings: Settings, roots: list[Path], marks: Marks, tell: Callable[[str], object]) -> None:
        self._settings = settings
        self._roots = roots
        self._own = settings.cli_state.resolve()
        self._projects = Projects(settings.workspace)
        self._marks = marks
        self._tell = tell
        self._known: dict[Path, _Known] = {}
        self._scan_seconds = 0.0
        self._is_started = False
        self._batch: list[ImportedTurn] = []
        self._batch_marks: dict[str, Mark] = {}
        self._chunks = 0
        self.tally = Tally()
        #: Called with the size in bytes of each log that was read.
        self.on_bytes: Callable[[int], object] = lambda _count: None

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.catch_up()
            await asyncio.sleep(max(LOOK_SECONDS, self._scan_seconds / SCAN_SHARE))

    async def look(self) -> tuple[int, int]:
        """Look for logs; return their number and the number of bytes to read."""
        await asyncio.to_thread(self._scan)
        self._is_started = True
        return len(self._known), sum(known.found.size for known in self._known.values() if known.is_due)

    async def catch_up(self) -> None:
        """Deliver every turn that has ended, in the order in which their sessions began."""
        try:
            for known in await asyncio.to_thread(self._due):
                await self._follow(known)
            await self._hand_over()
        finally:
            self._marks.save()

    async def catch_up_whole(self) -> None:
        """Do the same, and wait for turns that have ended just now."""
        await self.catch_up()
        if any(known.log.is_settling for known in self._known.values()):
            await asyncio.sleep(SETTLED_AFTER_SECONDS)
            await self.catch_up()

    @property
    def open_turns(self) -> int:
        """The number of logs with an open turn."""
        return sum(known.is_log is True and known.log.is_open for known in self._known.values())

    # --- looking ---

    def _due(self) -> list[_Known]:
        began = time.thread_time()
        self._scan()
        self._scan_seconds = time.thread_time() - began
        due = [known for known in self._known.values() if known.is_due and self._is_log(known)]
        return sorted(due, key=lambda known: (known.began, known.found.path))

    def _scan(self) -> None:
        gone = set(self._known)
        for found in scan(self._roots, self._own, self._refuse):
            gone.discard(found.path)
            known = self._known.get(found.path)
            if known is None:
                mark = self._marks.get(str(found.path))
                followed = FollowedLog(found.path, self._projects.of, self._damage, mark)
                known = self._known[found.path] = _Known(found, followed, mark)
                known.is_new = self._is_started
            known.found = found
        for path in gone:
            del self._known[path]
            self._marks.pop(str(path), None)

    def _is_log(self, known: _Known) -> bool:
        """Check a new log; if it is too short to decide, wait for more."""
        if known.is_log is None:
            found = known.found
            try:
                about = known.log.identify()
            except (OSError, NotOursError) as error:
                self._refuse(found.path, _words(error))
                known.read = found
                return False
            if about is not None:
                self._take(known, about)
            elif found.size > PROBE_BYTES:
                known.is_log = False
                self._refuse(found.path, "is no session log of Claude Code's")
            else:
                known.read = found
        return known.is_log is True

    def _take(self, known: _Known, about: LogFile) -> None:
        path = known.found.path
        known.is_log = about.agent_id is None
        if not known.is_log:
            # Versions of 2025 put subagents' logs beside their sessions'.
            return
        known.began = (about.first_at, about.opened_at)
        if known.is_new:
            self._tell(f"new session {path.stem} in {path.parent}")

    # --- reading ---

    async def _follow(self, known: _Known) -> None:
        turns = self._turns(known)
        is_done = False
        while not is_done:
            is_done = await asyncio.to_thread(self._step, turns)
            if (mark := known.log.mark) is not None:
                self._batch_marks[str(known.found.path)] = mark
            if len(self._batch) >= BATCH_TURNS or self._chunks >= BATCH_CHUNKS:
                await self._hand_over()
        self._let_go()

    def _step(self, turns: Iterator[ImportedTurn | None]) -> bool:
        """Read for a moment; return whether there is no more."""
        until = time.monotonic() + STEP_SECONDS
        for turn in turns:
            if turn is None:
                self._chunks += 1
            else:
                self._batch.append(turn)
            if len(self._batch) >= BATCH_TURNS or self._chunks >= BATCH_CHUNKS or time.monotonic() > until:
                return False
        return True

    def _turns(self, known: _Known) -> Iterator[ImportedTurn | None]:
        found = known.found
        try:
            if found != known.read:
                # Data appended from now on is read at the next check.
                known.read = found
                yield from known.log.read()
                self.on_bytes(found.size)
            yield from known.log.settled()
        except (OSError, NotOursError) as error:
            self._refuse(found.path, _words(error))

    async def _hand_over(self) -> None:
        batch, marks = self._batch, self._batch_marks
        self._batch, self._batch_marks, self._chunks = [], {}, 0
        if batch:
            delivered = await deliver(self._settings, batch)
            self.tally.delivered.add(delivered)
            self.tally.sessions.update(turn.observation.session_id for turn in batch)
            for key, why in delivered.refused:
                log.warning("the turn %s was refused: %s", key, why)
        self._marks.update(marks)

    def _let_go(self) -> None:
        """Drop the contents of idle logs, and of the longest idle ones if there are too many."""
        held = [known.log for known in self._known.values() if known.log.is_held]
        held.sort(key=lambda followed: followed.grown_at)
        now = time.monotonic()
        for number, followed in enumerate(held):
            is_resting = now - followed.grown_at > HELD_SECONDS and not followed.is_open
            if is_resting or number < len(held) - MOST_HELD:
                followed.let_go()

    # --- what is wrong ---

    def _refuse(self, path: Path, reason: str) -> None:
        if self.tally.refused.get(path) != reason:
            self.tally.refused[path] = reason
            if len(self.tally.refused) <= MAX_NAMED:
                log.warning("passed over: %s: %s", one_line(path), reason)

    def _damage(self, path: Path, at: int, problem: str) -> None:
        self.tally.damaged += 1
        if self.tally.damaged <= MAX_NAMED:
            log.warning("skipped: %s, byte %d: %s", one_line(path), at, problem)


def _words(error: OSError | NotOursError) -> str:
    return f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error)
