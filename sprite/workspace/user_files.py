"""The person's files: listing, deletion, changes since memory was told, and the person's own changes.

Memory knows the folders as of one scan, which is in transcript.db. The agent gets the differences at its boot, and
the curator with the next batch. The latter is a separate turn in the log, so that learnings from it have evidence
to quote, also after a rebuild. A person's change to a file is added to the agent's next prompt and logged with that
turn.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sprite.errors import PeerError, StorageError
from sprite.log.file_table import Entry, FileDeed, KnownFiles, trace_of
from sprite.log.transcript import NewObservation, Observation, TranscriptDB
from sprite.privacy.cutting import MAX_STRING, Discreet, clean, cut
from sprite.privacy.redaction import discreet
from sprite.protocol.files import is_below_folders, on_disk, on_wire, shown
from sprite.protocol.rows import UserFile
from sprite.protocol.shapes import FILE_FOLDERS
from sprite.protocol.tools import DEEDS_CALL, LOOK_CALL
from sprite.workspace.scan import (
    Changes,
    Scan,
    changes_between,
    is_there,
    lines,
    not_said_in,
    scan,
    size_in_words,
    within,
)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def folder_of(workspace: Path, path: str) -> Iterator[tuple[int, str]]:
    """Yield the open folder (a descriptor, for the block) of `path` and the file's name; `path` is relative.

    Each folder on the way is opened by its name alone, so that none can be a link. Raises OSError for a link.
    """
    *folders, name = path.split("/")
    with ExitStack() as stack:
        at = os.open(workspace, _FOLDER)
        stack.callback(os.close, at)
        for folder in folders:
            at = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            stack.callback(os.close, at)
        yield at, name


def remove(workspace: Path, path: str) -> int:
    """Delete the file; return its size in bytes. Raises IsADirectoryError for a folder, another OSError if missing."""
    with folder_of(workspace, path) as (at, name):
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(path)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(path)
        os.unlink(name, dir_fd=at)
        return found.st_size


log = logging.getLogger(__name__)

#: Limit for a scan; nothing is reported about files that it did not reach.
LOOK_SECONDS = 3.0
#: Additional time for a disk that does not answer at all.
_GRACE_SECONDS = 2.0
#: Limit for the deeds in one prompt, newest last; the number of the others is included.
MOST_DEEDS_TOLD = 20

#: Adds a call to the current turn's log: its name, its input and its result.
NoteCall = Callable[[str, dict[str, str], str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Difference:
    """The differences between a scan and the one before it."""

    scan: Scan
    gone: list[Entry]
    came: list[Entry]


class UserFiles:
    """Access the files of one workspace; `discreet` redacts text before it is stored."""

    def __init__(self, workspace: Path, transcript: TranscriptDB, discreet: Discreet = discreet) -> None:
        self._workspace = workspace
        self._transcript = transcript
        self._log = transcript.user_files
        self._discreet = discreet
        self._one_look = asyncio.Lock()

    # --- for people ---

    async def listed(self, folder: str | None = None) -> tuple[list[UserFile], int]:
        """Return the newest files, newest first, and the number of others. Raises PeerError for another folder."""
        if folder is not None and folder not in FILE_FOLDERS:
            raise PeerError(f"There is no such folder. These are listed: {', '.join(FILE_FOLDERS)}.", code="not_found")
        found = await self._scan(FILE_FOLDERS if folder is None else (folder,))
        rows = [UserFile(on_wire(entry.path), entry.size, entry.modified_ns / 1e9) for entry in found.entries]
        return rows, found.more

    async def delete(self, path: str) -> None:
        """Delete a file permanently. Raises PeerError `not_found` for a path that is no file in the folders."""
        if not is_below_folders(path):
            raise PeerError(f"Only files of {', '.join(FILE_FOLDERS)} can be deleted here.", code="not_found")
        for name in on_disk(path):
            try:
                size = await asyncio.to_thread(remove, self._workspace, name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except IsADirectoryError as error:
                raise PeerError("That is a folder, and only files can be deleted here.", code="not_found") from error
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}:
                    continue
                raise StorageError(f"The file could not be deleted ({error.strerror}).") from error
            await self._note("deleted", name, size)
            return
        raise PeerError("There is no such file; it may be gone already.", code="not_found")

    async def uploaded(self, path: str) -> None:
        """Record that a person uploaded a file, for their next turn."""
        try:
            size = (await asyncio.to_thread((self._workspace / path).lstat)).st_size
        except OSError:
            # It was moved at this moment; a scan will find it.
            return
        await self._note("uploaded", path, size)

    async def _note(self, what: str, path: str, size: int) -> None:
        try:
            await self._log.add_deed("uploaded" if what == "uploaded" else "deleted", path, size)
        except StorageError as error:
            # The file itself is in place; the next scan finds changes that are not told now.
            log.warning("the agent is not told that a file was %s: %s", what, error)

    # --- for the agent ---

    async def changes(self) -> list[str]:
        """Return the changes in the folders that memory does not know yet, one line each; empty if a scan fails."""
        try:
            difference = await self._difference(await self._log.known())
        except StorageError as error:
            log.warning("the person's folders could not be looked at: %s", error)
            return []
        told = lines(changes_between(difference.gone, difference.came))
        return [self._discreet(clean(line)) for line in told]

    async def tell_deeds(self, prompt: str, note: NoteCall) -> str | None:
        """Return the person's file changes since the last turn, as text for the agent; None if there are none.

        `note` logs them. Files that the prompt names are not repeated.
        """
        deeds = await self._log.deeds()
        if not deeds:
            return None
        told = [deed for deed in deeds if deed.what == "deleted" or deed.path not in prompt]
        words = None
        if told:
            words = self._discreet(clean("\n".join(_words_of(told))))
            await note(DEEDS_CALL, {"since": "the last turn"}, words)
        await self._log.drop_deeds(deeds[-1].id)
        return words

    # --- for the curator ---

    async def look(self, waiting: Sequence[Observation], files_md: str) -> bool:
        """Scan the folders before these turns are curated; return True if a turn with changes was written.

        New files that the turns mention are not repeated. `files_md` is memory's file about files. Raises
        StorageError if the disk does not answer or refuses.
        """
        if not waiting:
            return False
        async with self._one_look:
            known = await self._log.known()
            at = time.time()
            difference = await self._difference(known)
            found = difference.scan
            came = changes_between(difference.gone, difference.came)
            news = Changes(came.deleted, came.moved, not_said_in(came.added, [_said(turn) for turn in waiting]))
            told = within(lines(news, files_md), MAX_STRING)
            if told:
                turn = self._turn(waiting[-1].session_id, told)
                await self._transcript.add_look(turn, found.entries, at, found.more)
            elif {entry.path: entry for entry in found.entries} != known.entries:
                await self._log.keep(found.entries, at, found.more)
            return bool(told)

    def _turn(self, session_id: str, told: str) -> NewObservation:
        call = {
            "tool_use_id": f"look_{uuid.uuid4().hex}",
            "name": LOOK_CALL,
            "input": {"folders": list(FILE_FOLDERS)},
            "result": cut(told, discreet=self._discreet),
            "is_error": False,
        }
        return NewObservation(session_id, "", [call], "", "complete", trigger="task")

    # --- inside ---

    async def _difference(self, known: KnownFiles) -> _Difference:
        expected = {deed.path for deed in await self._log.deeds()}
        found = await self._scan(FILE_FOLDERS)
        now = {entry.path: entry for entry in found.entries}
        gone = [entry for path, entry in known.entries.items() if path not in now]
        if found.more or not found.complete:
            # It may still exist, and only had no room in the list.
            gone = await asyncio.to_thread(lambda: [each for each in gone if not is_there(self._workspace, each.path)])
        came = [
            entry for path, entry in now.items() if path not in known.entries and trace_of(path) not in known.nameless
        ]
        if known.more:
            came = [entry for entry in came if entry.changed_ns > known.at * 1e9]
        # The person's own changes are in the next prompt.
        gone = [entry for entry in gone if entry.path not in expected]
        return _Difference(found, _newest_first(gone), [entry for entry in came if entry.path not in expected])

    async def _scan(self, folders: Sequence[str]) -> Scan:
        try:
            async with asyncio.timeout(LOOK_SECONDS + _GRACE_SECONDS):
                return await asyncio.to_thread(scan, self._workspace, folders, seconds=LOOK_SECONDS)
        except TimeoutError as error:
            raise StorageError("The disk does not answer. Try again in a moment.") from error


def is_look(turn: Observation) -> bool:
    """Return whether this is the sprite's own turn about the person's files, which joins the batch before it."""
    return turn.trigger == "task" and [call["name"] for call in turn.tool_calls] == [LOOK_CALL]


def told_by(turn: Observation) -> list[str]:
    """Return the lines of a turn that reports a scan."""
    return str(turn.tool_calls[0]["result"]).split("\n") if is_look(turn) else []


def _newest_first(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.modified_ns, entry.path), reverse=True)


def _said(turn: Observation) -> str:
    calls = [f"{call.get('input')}\n{call.get('result')}" for call in turn.tool_calls]
    return "\n".join([turn.user_message, turn.agent_response, *calls])


def _words_of(deeds: Sequence[FileDeed]) -> list[str]:
    told = []
    for deed in deeds[-MOST_DEEDS_TOLD:]:
        size = f", {size_in_words(deed.size)}" if deed.what == "uploaded" else ""
        told.append(f"The person {deed.what} {shown(deed.path)}{size}.")
    left = len(deeds) - len(told)
    return [*told, *([f"And {left:,} files more, before these."] if left else [])]
