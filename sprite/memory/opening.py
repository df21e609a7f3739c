"""Open memory.db together with its log, replay it, and quarantine one that is damaged or belongs to another log.

The owner of the workspace moves the database aside, under a name that gives the reason, and rebuilds memory from the
log. A reader gets an error and no content. Only people delete a quarantined database.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sprite.common import sqlite
from sprite.errors import DatabaseUnusableError, MigrationPendingError
from sprite.log.transcript import TranscriptDB
from sprite.memory.database import MemoryDB, open_memory
from sprite.memory.files import CURATED, MemoryFiles, Reason, name_aside
from sprite.memory.projection import Projection

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Misfit:
    """The reason why memory.db does not match its log: for a file name, and in words."""

    reason: Reason
    words: str


async def misfit(transcript: TranscriptDB, memory: MemoryDB) -> Misfit | None:
    """Return why memory.db cannot have been made from this log, or None if it can.

    Safe beside the owner: memory is read before the log, so it cannot be ahead of it.
    """
    seen, cursor = await memory.log_seen(), await memory.cursor()
    mark = await transcript.mark()
    if seen.log_id not in {None, mark.log_id}:
        return Misfit(
            "of-another-log",
            "memory.db was not made from the transcript.db beside it: that log was emptied, or comes from another "
            "workspace or from a backup of an earlier Sprite",
        )
    if cursor > mark.curation_id or not await transcript.reaches(seen):
        return Misfit(
            "of-a-newer-log",
            f"transcript.db has less than memory.db: memory has turns up to {seen.turn_id} and changes up to "
            f"{max(seen.curation_id, cursor)}, but the log ends with {mark.turn_id} and {mark.curation_id}; it was "
            "restored from a backup, or rows were deleted from it",
        )
    return None


async def refuse_misfit(transcript: TranscriptDB, memory: MemoryDB) -> None:
    """Raise MigrationPendingError with instructions if memory was not made from this log."""
    if (found := await misfit(transcript, memory)) is not None:
        raise MigrationPendingError(
            f"{found.words[0].upper()}{found.words[1:]}. Its content is not shown. Start the sprite, or run "
            "`python -m sprite rebuild`: memory.db is set aside and rebuilt from the log, without a model."
        )


@asynccontextmanager
async def open_own_memory(path: Path, transcript: TranscriptDB) -> AsyncIterator[MemoryDB]:
    """Open memory as its owner; quarantine an unusable database. `Projection.settle` replays the log."""
    async with AsyncExitStack() as stack:
        memory = await _opened(stack, path)
        if (found := await misfit(transcript, memory)) is not None:
            await _start_anew(path, transcript, memory, found)
        yield memory


async def _opened(stack: AsyncExitStack, path: Path) -> MemoryDB:
    try:
        return await stack.enter_async_context(open_memory(path))
    except (DatabaseUnusableError, sqlite3.DatabaseError) as error:
        aside = name_aside(path, "bad")
        path.replace(aside)
        # Move the journal, too: it can hold the last changes. SQLite rebuilds the index of the journal.
        journal = Path(f"{path}-wal")
        if journal.exists() and journal.stat().st_size:
            journal.replace(f"{aside}-wal")
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        log.warning("%s It is kept as %s, and memory is rebuilt from the log.", error, aside.name)
        return await stack.enter_async_context(open_memory(path))


async def _start_anew(path: Path, transcript: TranscriptDB, memory: MemoryDB, found: Misfit) -> None:
    """Start an empty memory.db. A crash at any moment leaves the old database or the new one."""
    words = f"{found.words[0].upper()}{found.words[1:]}."
    if await memory.cursor():
        # Copy it and keep the file: its record of what the runtime wrote to disk must survive. Without the record,
        # those files would pass for manual edits under this log.
        at = time.time()
        aside = name_aside(path, found.reason, at)
        await memory.copy_to(aside)
        files = MemoryFiles(path.parent)
        for name in CURATED:
            files.keep_copy(name, name_aside(path.with_name(name), found.reason, at))
        words += f" It was set aside as {aside.name}, with the files made from it, and memory is rebuilt from this log."
    else:
        words += " It was empty; memory is built from this log."
    await memory.start_over(await transcript.mark(until=0))
    log.warning("%s", words)


async def replay_aside(
    transcript: TranscriptDB, path: Path, on_step: Callable[[], object], *, until: int = sqlite.LARGEST_ROW_ID
) -> None:
    """Replay the log into a new database at `path`, up to event `until`; call `on_step` for each curation."""
    sqlite.delete(path)
    async with open_memory(path) as memory:
        await Projection(transcript, memory, MemoryFiles(path.parent)).replay(lambda _: on_step(), until=until)


def swap_in(new: Path, live: Path) -> None:
    """Replace the live memory.db with the new file.

    The old file is removed first, then its journal. A leftover journal would be applied to the new file, and a file
    without its journal may be torn. After a crash in between, memory.db is missing and the next start replays the log.
    """
    sqlite.delete(live)
    new.replace(live)
