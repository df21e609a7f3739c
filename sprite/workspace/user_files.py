"""The person's files: listing, deletion, and changes since memory was told, or by the person.

Memory knows the folders as of one scan. The agent gets the differences at its boot, and the curator in a turn of their
own in the log, which learnings can quote. A person's change is in the agent's next prompt, and the log of that turn.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import heapq
import logging
import os
import re
import stat
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sprite.common.sqlite import fitting
from sprite.errors import PeerError, StorageError
from sprite.log.file_table import Deed, Entry, FileDeed, KnownFiles, trace_of
from sprite.log.transcript import NewObservation, Observation, TranscriptDB
from sprite.privacy.cutting import MAX_STRING, Discreet, clean, cut
from sprite.privacy.redaction import discreet
from sprite.protocol.files import is_below_folders, on_disk, on_wire, picture_kind, shown, size_in_words
from sprite.protocol.messages import MAX_PICTURE_BYTES, MAX_PICTURES_BYTES, MOST_PICTURES
from sprite.protocol.shapes import FILE_FOLDERS, UserFile
from sprite.protocol.tools import DEEDS_CALL, LOOK_CALL

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


class UserFiles:
    """Access the files of one workspace; `discreet` redacts text before it is stored."""

    def __init__(self, workspace: Path, transcript: TranscriptDB, discreet: Discreet = discreet) -> None:
        self._workspace = workspace
        self._transcript = transcript
        self._log = transcript.user_files
        self._discreet = discreet
        self._one_look = asyncio.Lock()
        #: Called with each path that the person writes or deletes.
        self.on_deed: Callable[[str], None] = lambda _: None
        #: Called with each path that the person uploads.
        self.on_upload: Callable[[str], Awaitable[None]] | None = None

    # --- for people ---

    async def listed(self, folder: str | None = None) -> tuple[list[UserFile], int]:
        """Return the newest files of the folders or of one, newest first, and how many others there are.

        Raises PeerError for another folder.
        """
        if folder is not None and folder not in FILE_FOLDERS:
            raise PeerError(f"There is no such folder. These are listed: {', '.join(FILE_FOLDERS)}.", code="not_found")
        found = await self._scan(FILE_FOLDERS if folder is None else (folder,))
        rows = [UserFile(on_wire(entry.path), entry.size, entry.modified_ns / 1e9) for entry in found.entries]
        return rows, found.more

    async def delete(self, path: str) -> None:
        """Delete a file permanently. Raises PeerError `not_found` for a path that is no file in the folders."""
        if not is_below_folders(path):
            raise PeerError(f"Only files in {', '.join(FILE_FOLDERS)} can be deleted here.", code="not_found")
        for name in on_disk(path):
            try:
                size = await asyncio.to_thread(remove, self._workspace, name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except IsADirectoryError as error:
                raise PeerError("The path is a folder. Only files can be deleted here.", code="not_found") from error
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}:
                    continue
                raise StorageError(f"The file could not be deleted ({error.strerror}).") from error
            await self._note("deleted", name, size)
            return
        raise PeerError("There is no such file; it may be gone already.", code="not_found")

    async def uploaded(self, path: str) -> None:
        """Record that a person uploaded a file, so that their next turn tells the agent."""
        try:
            size = (await asyncio.to_thread(_seen, self._workspace, path)).st_size
        except OSError:
            # It was moved at this moment; a scan will find it.
            return
        if self.on_upload is not None:
            await self.on_upload(path)
        await self._note("uploaded", path, size)

    async def undone(self, paths: Sequence[str]) -> None:
        """Record that a person undid the agent's changes of files, so that their next turn tells the agent."""
        for path in paths:
            await self._note("undone", path, 0)

    async def held(self, path: str) -> None:
        """Record that an agent's file was renamed to `path`, because the person did not allow its own name."""
        await self._note("held", path, 0)

    async def _note(self, what: Deed, path: str, size: int) -> None:
        if what not in {"undone", "held"}:
            self.on_deed(path)
        try:
            await self._log.add_deed(what, path, size)
        except StorageError as error:
            # The file itself is in place; the next scan finds changes that are not told now.
            log.warning("the agent is not told that a file was %s: %s", what, error)

    # --- for the agent ---

    async def changes(self) -> list[str]:
        """Return what changed in the folders since the last recorded scan, one line each; empty if a scan fails."""
        try:
            _, gone, came = await self._difference(await self._log.known())
        except StorageError as error:
            log.warning("the person's folders could not be looked at: %s", error)
            return []
        return [self._discreet(clean(line)) for line in lines(gone, came)]

    async def tell_deeds(self, prompt: str, note: NoteCall) -> str | None:
        """Return what the person did to files since the last turn, as text for the agent, or None.

        Uploads that the prompt names are left out. `note` logs the text with the turn.
        """
        deeds = await self._log.deeds()
        if not deeds:
            return None
        told = [deed for deed in deeds if deed.what != "uploaded" or deed.path not in prompt]
        words = None
        if told:
            words = self._discreet(clean("\n".join(_words_of(told))))
            await note(DEEDS_CALL, {"since": "the last turn"}, words)
        await self._log.drop_deeds(deeds[-1].id)
        return words

    # --- for the curator ---

    async def look(self, waiting: Sequence[Observation], files_md: str) -> bool:
        """Scan the folders before the `waiting` turns are curated; if files changed, log a turn that says so.

        Return whether one was logged. New files that the turns mention are left out. `files_md` is memory's
        file about files. Raises StorageError if the disk does not answer or refuses.
        """
        if not waiting:
            return False
        async with self._one_look:
            known, at = await self._log.known(), time.time()
            found, gone, came = await self._difference(known)
            came = not_said_in(came, [_said(turn) for turn in waiting])
            told = within(lines(gone, came, files_md), MAX_STRING)
            if told:
                call = {
                    "tool_use_id": f"look_{uuid.uuid4().hex}",
                    "name": LOOK_CALL,
                    "input": {"folders": list(FILE_FOLDERS)},
                    "result": cut(told, discreet=self._discreet),
                    "is_error": False,
                }
                turn = NewObservation(waiting[-1].session_id, "", [call], "", "complete", trigger="task")
                await self._transcript.add_look(turn, found.entries, at, found.more)
            elif {entry.path: entry for entry in found.entries} != known.entries:
                await self._log.keep(found.entries, at, found.more)
            return bool(told)

    # --- inside ---

    async def _difference(self, known: KnownFiles) -> tuple[Scan, list[Entry], list[Entry]]:
        """Scan the folders; return the scan, and the files that went and came since the last one."""
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
            came = [entry for entry in came if entry.modified_ns > known.at * 1e9]
        # The person's own changes are in the next prompt.
        gone = [entry for entry in gone if entry.path not in expected]
        gone.sort(key=lambda entry: (entry.modified_ns, entry.path), reverse=True)
        return found, gone, [entry for entry in came if entry.path not in expected]

    async def _scan(self, folders: Sequence[str]) -> Scan:
        try:
            async with asyncio.timeout(LOOK_SECONDS + _GRACE_SECONDS):
                return await asyncio.to_thread(scan, self._workspace, folders, seconds=LOOK_SECONDS)
        except TimeoutError as error:
            raise StorageError("The disk does not answer. Try again in a moment.") from error


def is_look(turn: Observation) -> bool:
    """Return whether a turn is the sprite's own report of a scan, which is curated with the batch before it."""
    return turn.trigger == "task" and [call["name"] for call in turn.tool_calls] == [LOOK_CALL]


def told_by(turn: Observation) -> list[str]:
    """Return the lines about changed files in a turn that reports a scan; empty for another turn."""
    return str(turn.tool_calls[0]["result"]).split("\n") if is_look(turn) else []


def _said(turn: Observation) -> str:
    calls = [f"{call.get('input')}\n{call.get('result')}" for call in turn.tool_calls]
    return "\n".join([turn.user_message, turn.agent_response, *calls])


_DEEDS: dict[Deed, str] = {
    "uploaded": "The person uploaded",
    "deleted": "The person deleted",
    "undone": "The person undid your change of",
    "held": "Programs outside would run a file that a command of yours made, and nobody allowed it. It is now",
}


def _words_of(deeds: Sequence[FileDeed]) -> list[str]:
    told = []
    for deed in deeds[-MOST_DEEDS_TOLD:]:
        size = f", {size_in_words(deed.size)}" if deed.what == "uploaded" else ""
        told.append(f"{_DEEDS[deed.what]} {shown(deed.path)}{size}.")
    left = len(deeds) - len(told)
    return [*told, *([f"And {left:,} files more, before these."] if left else [])]


#: Newest entries to keep; the others are only counted.
MOST_ENTRIES = 2_000
#: Limit for counting; a result at the limit is reported as "at least".
MOST_VISITED = 100_000
MOST_DEEP = 32
#: Filled by programs with thousands of files that no person asks for by name, like hidden folders.
_PROGRAMS = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})


@dataclass(frozen=True, slots=True)
class Scan:
    """The newest entries, newest first, and the number of others: a lower bound unless `complete`."""

    entries: Sequence[Entry]
    more: int
    complete: bool


def scan(workspace: Path, folders: Sequence[str] = FILE_FOLDERS, *, seconds: float) -> Scan:
    """Scan the folders; after `seconds`, return what was seen so far. Blocks, so run it in a thread."""
    newest: list[tuple[int, str, Entry]] = []
    count = 0
    complete = True
    until = time.monotonic() + seconds
    for entry in _walk(workspace, folders):
        if entry is not None:
            count += 1
            item = (entry.modified_ns, entry.path, entry)
            if len(newest) < MOST_ENTRIES:
                heapq.heappush(newest, item)
            else:
                heapq.heappushpop(newest, item)
        if count >= MOST_VISITED or time.monotonic() > until:
            complete = False
            break
    newest.sort(reverse=True)
    return Scan([entry for _, _, entry in newest], count - len(newest), complete)


def is_there(workspace: Path, path: str) -> bool:
    """Return whether a file from an earlier scan still exists, even if the new scan had no room for it."""
    with suppress(OSError, ValueError):
        _seen(workspace, path.rstrip("/"))
        return True
    return False


def _seen(workspace: Path, path: str) -> os.stat_result:
    with folder_of(workspace, path) as (at, name):
        return os.stat(name, dir_fd=at, follow_symlinks=False)


def _walk(workspace: Path, folders: Sequence[str]) -> Iterator[Entry | None]:
    """Yield each file, and None for each skipped item, so that the caller can check the time."""
    waiting = [(folder, 1) for folder in reversed(folders)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            with folder_of(workspace, f"{folder}/") as (at, _), os.scandir(at) as found:
                for item in found:
                    path = f"{folder}/{item.name}"
                    try:
                        seen = item.stat(follow_symlinks=False)
                        if stat.S_ISREG(seen.st_mode):
                            yield Entry(path, seen.st_size, fitting(seen.st_mtime_ns))
                        elif not stat.S_ISDIR(seen.st_mode):
                            yield None
                        elif depth >= MOST_DEEP or item.name.startswith(".") or item.name in _PROGRAMS:
                            yield Entry(f"{path}/", 0, fitting(seen.st_mtime_ns))
                        else:
                            waiting.append((path, depth + 1))
                            yield None
                    except OSError:
                        # It was deleted at this moment, or its size is not readable.
                        yield None
        except OSError:
            # The folder is gone, not readable, or a link.
            yield None


def lines(deleted: Sequence[Entry], added: Sequence[Entry], named: str = "") -> list[str]:
    """Return a line for each deleted and added file; first those for deleted files that files.md (`named`) mentions."""
    missed = [entry for entry in deleted if _is_named(entry, named)]
    told = [f"deleted: {shown(entry.path)} (files.md names it)" for entry in missed]
    told += [f"deleted: {shown(entry.path)}" for entry in deleted if entry not in missed]
    for entry in added:
        day = datetime.fromtimestamp(entry.modified_ns / 1e9, UTC).strftime("%Y-%m-%d")
        what = "a folder of a program's" if entry.path.endswith("/") else f"{size_in_words(entry.size)}, {day}"
        told.append(f"added: {shown(entry.path)} ({what})")
    return told


def _is_named(entry: Entry, named: str) -> bool:
    """Return whether a text contains this file's name, and not only a longer name that begins with it."""
    return entry.path in named and re.search(rf"{re.escape(entry.path)}(?![\w.-]*\w)", named) is not None


def within(told: Sequence[str], chars: int) -> str:
    """Join the lines that fit into `chars` characters; a last line counts the others."""
    kept: list[str] = []
    left = chars - len("And 10,000 more changes.")
    for line in told:
        left -= len(line) + 1
        if left < 0:
            kept.append(f"And {len(told) - len(kept):,} more changes.")
            break
        kept.append(line)
    return "\n".join(kept)


def not_said_in(entries: Iterable[Entry], texts: Collection[str]) -> list[Entry]:
    """Return the entries whose names are in none of the texts."""
    return [entry for entry in entries if not any(entry.path.rstrip("/").rpartition("/")[2] in text for text in texts)]


def picture_blocks(workspace: Path, paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return the image blocks of files. Raises PeerError for one that is missing, too large or no picture."""
    if len(paths) > MOST_PICTURES:
        raise PeerError(f"A message may have at most {MOST_PICTURES} pictures.", code="too_many")
    blocks, left = [], MAX_PICTURES_BYTES
    for path in paths:
        if not is_below_folders(path):
            raise PeerError(f"There is no file {path}.", code="not_found")
        data = read_file(workspace, path, MAX_PICTURE_BYTES + 1)
        kind = picture_kind(data)
        if kind is None:
            raise PeerError(f"{path} is not a PNG, JPEG, GIF or WebP picture.", code="bad_picture")
        left -= len(data)
        if len(data) > MAX_PICTURE_BYTES or left < 0:
            raise PeerError(
                f"A picture may have up to {MAX_PICTURE_BYTES / 2**20:.1f} MiB, and all pictures of a message "
                f"up to {MAX_PICTURES_BYTES // 2**20} MiB. Send it as a file instead.",
                code="too_large",
            )
        source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
        blocks.append({"type": "image", "source": source})
    return blocks


def read_file(workspace: Path, path: str, most: int) -> bytes:
    """Return the beginning of a regular file; `path` is relative, and leads over no link. Raises PeerError."""
    with suppress(OSError, ValueError), folder_of(workspace, path) as (folder, name):
        # A pipe would block.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(file, "rb") as stream:
            if stat.S_ISREG(os.fstat(file).st_mode):
                return stream.read(most)
    raise PeerError(f"There is no file {path}.", code="not_found")
