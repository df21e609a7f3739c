"""Follow Claude Code's session logs, and deliver each turn to the workspace as it ends: look, read, deliver, sleep.

A log that was not written to for a second is read from its beginning, as `import` does; a mark tells what is delivered.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import msgspec

from sprite.common.files import replace_file
from sprite.common.tasks import backoff
from sprite.config import Settings
from sprite.errors import PeerError, SpriteError, WorkspaceLockedError
from sprite.imports.claude_code import SUBAGENTS, Session, followed_session
from sprite.imports.claude_code_entries import Surroundings, Tally
from sprite.imports.claude_code_turns import OVER_AFTER_SECONDS, SETTLED_AFTER_SECONDS
from sprite.imports.observed_turns import import_key, session_name
from sprite.log.transcript import ImportedTurn, TranscriptDB
from sprite.memory.folders import Projects
from sprite.owner import ask, open_log
from sprite.privacy.cutting import clean
from sprite.protocol import observing
from sprite.protocol.framing import one_line

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Delivered:
    """Outcome of delivering turns: the numbers of new ones and of those already in the sprite's log."""

    stored: int = 0
    known: int = 0
    #: Key and reason of each refused turn.
    refused: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Delivered) -> None:
        """Add the outcome of another delivery."""
        self.stored += other.stored
        self.known += other.known
        self.refused += other.refused


def messages(turns: Sequence[ImportedTurn]) -> Iterator[observing.Observe]:
    """Yield the turns as `observe` messages, each of one source and project, in order; long turns are shortened."""
    for (source, project), some in groupby(turns, lambda turn: (turn.observation.source, turn.observation.project)):
        yield from observing.packed(source or "", project, map(observed, some))


def observed(turn: ImportedTurn) -> observing.ObservedTurn:
    """Convert a turn, which is redacted and cut already, to the wire format, with its program's ids."""
    kept, source = turn.observation, turn.observation.source or ""
    return observing.ObservedTurn(
        external_id=turn.key.removeprefix(import_key(source, "")),
        session=kept.session_id.removeprefix(session_name(source, "")),
        at=turn.ended_at,
        user=kept.user_message,
        tools=[_tool(call) for call in kept.tool_calls],
        reply=kept.agent_response,
        outcome=kept.outcome,
        notice=kept.notice,
        started_at=turn.started_at,
    )


def _tool(call: Mapping[str, Any]) -> observing.ObservedTool:
    tool = msgspec.convert(call, observing.ObservedTool)
    # A log's ids can be any text; half a surrogate pair cannot be sent.
    tool.tool_use_id = clean(tool.tool_use_id)
    tool.agent_id = None if tool.agent_id is None else clean(tool.agent_id)
    return tool


#: First and longest pause between attempts, in seconds. Failures are brief: a sprite starts or ends, or a command runs.
_PAUSES = (0.2, 5.0)
#: Error codes for a message that can never be accepted.
_WRONG_CODES = frozenset({"bad_request", "bad_payload", "bad_message", "too_large"})
#: Stores turns safely.
Write = Callable[[Sequence[ImportedTurn]], Awaitable[Delivered]]


async def deliver(settings: Settings, turns: Sequence[ImportedTurn]) -> Delivered:
    """Deliver turns, oldest first, to the workspace here; retry until they are stored safely."""
    failures = 0
    while True:
        try:
            async with writing(settings, briefly=True) as write:
                delivered = await write(turns)
        except (OSError, ValueError, SpriteError) as error:
            if not failures:
                log.warning("turns cannot be handed over yet, and stay in the session logs: %s", error)
            await asyncio.sleep(backoff(failures, *_PAUSES))
            failures += 1
        else:
            if failures:
                log.info("turns are handed over again")
            return delivered


@asynccontextmanager
async def writing(settings: Settings, *, briefly: bool = False) -> AsyncIterator[Write]:
    """Yield a function that writes turns to the workspace's log, or sends them to the running sprite.

    It raises WorkspaceLockedError if the running sprite does not answer. `briefly`: see `open_log`.
    """
    async with AsyncExitStack() as stack:
        try:
            transcript = await stack.enter_async_context(open_log(settings, briefly=briefly))
        except WorkspaceLockedError as locked:
            yield partial(_send, settings, locked)
        else:
            yield partial(_add, transcript)


async def _add(transcript: TranscriptDB, turns: Sequence[ImportedTurn]) -> Delivered:
    own = await transcript.cli_sessions()
    new = await transcript.add_imported([turn for turn in turns if turn.observation.session_id not in own])
    return Delivered(len(new), len(turns) - len(new))


async def _send(settings: Settings, locked: WorkspaceLockedError, turns: Sequence[ImportedTurn]) -> Delivered:
    """Send turns to the running sprite in several messages; if it refuses one, go on with the next."""
    delivered = Delivered()
    for message in messages(turns):
        try:
            answer = await ask(settings, message, observing.Observed)
        except PeerError as error:
            if error.code not in _WRONG_CODES:
                raise
            refusals = [observing.RefusedTurn(turn.external_id, str(error)) for turn in message.turns]
            answer = observing.Observed(0, 0, refusals)
        except (OSError, ValueError) as error:
            raise locked from error
        refused = [(import_key(message.source, each.external_id), each.why) for each in answer.refused]
        delivered.add(Delivered(answer.stored, answer.known, refused))
    return delivered


LOOK_SECONDS = 0.5
#: Shares of a core that looking for logs and reading them may take.
LOOK_SHARE, READ_SHARE = 0.01, 0.1
BATCH_TURNS = 500
#: Refusals and damaged lines that are logged; the rest are counted.
MAX_NAMED = 50
#: Claude Code's folders are two levels deep; a deeper one is an unrelated tree.
MOST_DEPTH = 8
#: Larger than for any number of marks; a larger file is not ours.
_MAX_BYTES = 64 * 1024 * 1024

#: A file on disk: device, inode, size, and modification time in ns of Unix time.
State = tuple[int, int, int, int]
OnRefusal = Callable[[Path, str], object]


class Mark(msgspec.Struct, frozen=True):
    """The part of a session log that was delivered: up to the offset `done`, in the file's `state` at that time."""

    state: State
    done: int
    #: Whether the log's last turn was not delivered yet.
    is_open: bool


class Marks(dict[str, Mark]):
    """The `Mark` of each session log, by path; `save` writes them to disk atomically."""

    def __init__(self, path: Path) -> None:
        super().__init__(_read(path))
        self._path = path
        self._saved = dict(self)

    def save(self) -> None:
        """Write changed marks to disk. An error is only logged: the logs are then read again later."""
        if self == self._saved:
            return
        try:
            replace_file(self._path, msgspec.json.encode(dict(self)), is_synced=False)
        except OSError as error:
            log.warning(
                "the position in the logs cannot be stored (%s); a restart reads them from the beginning",
                error.strerror,
            )
        self._saved = dict(self)


def _read(path: Path) -> dict[str, Mark]:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return {}
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Mark])
    except (OSError, ValueError, RecursionError):
        return {}


@dataclass(slots=True)
class _Watched:
    """A session log, and the time since when it has not changed (on the monotonic clock)."""

    state: State
    since: float
    #: Whether it appeared while others were followed.
    is_new: bool

    @property
    def silence(self) -> float:
        """Return the seconds since the log last changed."""
        return time.monotonic() - self.since

    def is_due(self, mark: Mark | None) -> bool:
        """Return whether to read the log: it has new content, or its last turn is over after a long silence."""
        if mark is not None and mark.state == self.state:
            return mark.is_open and self.silence >= OVER_AFTER_SECONDS
        # Changing the clock changes the file's apparent age, which counts for such a short time only.
        return max(self.silence, _age(self.state)) >= SETTLED_AFTER_SECONDS


def _age(state: State) -> float:
    """Return the seconds since the log file was written, by the wall clock."""
    return max(0.0, time.time() - state[3] / 1e9)


class Follower:
    """Import turns from growing session logs below `roots`; `tell` prints a line for people."""

    def __init__(self, settings: Settings, roots: list[Path], marks: Marks, tell: Callable[[str], object]) -> None:
        self._settings = settings
        self._roots = roots
        self._own = settings.cli_state.resolve()
        self._project_of = Projects(settings.workspace).of
        self._marks = marks
        self._tell = tell
        self._watched: dict[Path, _Watched] = {}
        self._is_started = False
        #: The deliveries, the number of damaged lines, and the reasons of refused paths.
        self.delivered = Delivered()
        self.damaged = 0
        self.refused: dict[Path, str] = {}

    async def run(self) -> None:
        """Look for logs and deliver their turns, again and again, until cancelled."""
        while True:
            began = time.process_time()
            await self.look()
            looked = time.process_time()
            await self.catch_up()
            reading = time.process_time() - looked
            await asyncio.sleep(max(LOOK_SECONDS, (looked - began) / LOOK_SHARE, reading / READ_SHARE))

    async def look(self) -> int:
        """Find the session logs and their current sizes; return the number of logs."""
        await asyncio.to_thread(self._scan)
        self._is_started = True
        return len(self._watched)

    async def catch_up(self) -> None:
        """Read all logs that are due, and deliver every turn that has ended, the oldest session's turns first."""
        try:
            for path, session in await asyncio.to_thread(self._due):
                await self._follow(path, session)
        finally:
            self._marks.save()

    def _scan(self) -> None:
        gone = set(self._watched)
        for path, state in scan(self._roots, self._own, self._refuse):
            gone.discard(path)
            watched = self._watched.get(path)
            if watched is None:
                # Data that existed before the first look has been idle since it was written.
                self._watched[path] = _Watched(state, time.monotonic() - _age(state), self._is_started)
            elif watched.state != state:
                watched.state, watched.since = state, time.monotonic()
        for path in gone:
            del self._watched[path]
            self._marks.pop(str(path), None)

    def _due(self) -> list[tuple[Path, Session]]:
        due = []
        for path, watched in self._watched.items():
            mark = self._marks.get(str(path))
            if watched.is_due(mark):
                skipped = Tally()
                session = followed_session(path, skipped, _done(watched.state, mark))
                self._note(skipped)
                if session is None:
                    self._marks[str(path)] = Mark(watched.state, 0, is_open=False)
                else:
                    due.append((path, session))
        return sorted(due, key=lambda found: (found[1].began, found[0]))

    async def _follow(self, path: Path, session: Session) -> None:
        watched = self._watched[path]
        if watched.is_new:
            watched.is_new = False
            self._tell(f"new session {path.stem} in {path.parent}")
        state, silence = watched.state, max(watched.silence, SETTLED_AFTER_SECONDS)
        turns = session.turns(Surroundings(time.time(), self._project_of, silence=silence))
        while batch := await asyncio.to_thread(lambda: list(islice(turns, BATCH_TURNS))):
            delivered = await deliver(self._settings, batch)
            self.delivered.add(delivered)
            for key, why in delivered.refused:
                log.warning("the turn %s was refused: %s", key, why)
        self._note(session.tally)
        self._marks[str(path)] = Mark(state, session.done, session.is_open)

    # --- what is wrong ---

    def _note(self, skipped: Tally) -> None:
        for path, reason in skipped.refusals:
            self._refuse(path, reason)
        for path, line, problem in skipped.named:
            if self.damaged < MAX_NAMED:
                log.warning("skipped: %s, line %d: %s", one_line(path), line, problem)
            self.damaged += 1
        self.damaged += skipped.damaged - len(skipped.named)
        skipped.refusals, skipped.named, skipped.damaged = [], [], 0

    def _refuse(self, path: Path, reason: str) -> None:
        if self.refused.get(path) != reason:
            self.refused[path] = reason
            if len(self.refused) <= MAX_NAMED:
                log.warning("passed over: %s: %s", one_line(path), reason)


def _done(state: State, mark: Mark | None) -> int:
    """Return the offset up to which a log was delivered: 0 if it was replaced or rewritten since the mark."""
    if mark is None or mark.state[:2] != state[:2]:
        return 0
    return mark.done if mark.state == state or state[2] > mark.state[2] else 0


def scan(roots: list[Path], own: Path, refuse: OnRefusal) -> Iterator[tuple[Path, State]]:
    """Yield every `*.jsonl` of this user below the roots.

    Skips logs of subagents, which their session finds, and those below `own`, which the sprite records itself.
    """
    for root in roots:
        try:
            about = root.stat()
        except FileNotFoundError:
            # Keep waiting for it: Claude Code creates its folder at first use.
            continue
        except OSError as error:
            refuse(root, f"cannot be read: {error.strerror}")
            continue
        if stat.S_ISDIR(about.st_mode):
            yield from _below(root, own, refuse)
        else:
            yield from ((path.resolve(), state) for path, state in _readable(root, about, refuse))


def _below(root: Path, own: Path, refuse: OnRefusal) -> Iterator[tuple[Path, State]]:
    waiting = [(root.resolve(), 0)]
    while waiting:
        folder, depth = waiting.pop()
        if folder == own:
            continue
        try:
            if folder.stat().st_uid != os.geteuid():
                refuse(folder, "belongs to somebody else")
                continue
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MOST_DEPTH and entry.name != SUBAGENTS:
                            waiting.append((folder / entry.name, depth + 1))
                    elif entry.name.endswith(".jsonl"):
                        yield from _taken(entry, refuse)
        except FileNotFoundError:
            continue
        except OSError as error:
            refuse(folder, f"cannot be read: {error.strerror}")


def _taken(entry: os.DirEntry[str], refuse: OnRefusal) -> Iterator[tuple[Path, State]]:
    path = Path(entry.path)
    if entry.is_symlink():
        refuse(path, "is a link, which is not followed")
        return
    with suppress(FileNotFoundError):
        yield from _readable(path, entry.stat(follow_symlinks=False), refuse)


def _readable(path: Path, about: os.stat_result, refuse: OnRefusal) -> Iterator[tuple[Path, State]]:
    """Yield the file with its state, or refuse it: no regular file, or another user's."""
    if not stat.S_ISREG(about.st_mode):
        refuse(path, "is not a file")
    elif about.st_uid != os.geteuid():
        refuse(path, "belongs to somebody else")
    else:
        yield path, (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
