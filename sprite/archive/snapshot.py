"""A consistent snapshot of a workspace, even while a sprite works in it.

The three databases and the memory files refer to each other: a turn in the log has its line in the chat, and a
memory file follows from the log. They are read between two writes, in read transactions that last as long as the
snapshot.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sprite.config import Settings
from sprite.database import memory, transcript, workspace
from sprite.database.connection import Schema, empty_database, plain_reader
from sprite.database.memory import read_memory
from sprite.database.transcript import read_transcript
from sprite.errors import MendedAtStartError, OperatorError
from sprite.memory.files import LARGEST_FILE_BYTES, MemoryFiles
from sprite.memory.opening import refuse_misfit
from sprite.memory.projection.projection import Projection
from sprite.protocol.archive import MEMORY_FILES, DatabaseName

SCHEMAS: Final[dict[DatabaseName, Schema]] = {
    "transcript.db": transcript.SCHEMA,
    "workspace.db": workspace.SCHEMA,
    "memory.db": memory.SCHEMA,
}
#: Time limit for finding a moment without writes. A busy sprite writes some ten times a second.
_PATIENCE_SECONDS = 20.0
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file of the memory folder: its bytes and metadata."""

    content: bytes
    mode: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Open databases as of one moment, and the memory files at that moment by their names on disk."""

    databases: Mapping[DatabaseName, sqlite3.Connection]
    memory_files: Mapping[str, MemoryFile]

    def let_go(self) -> None:
        """End the read transactions. Until then forgotten data stays in the databases' journals."""
        for database in self.databases.values():
            database.execute("ROLLBACK")


@asynccontextmanager
async def snapshot(settings: Settings) -> AsyncIterator[Snapshot]:
    """Take a snapshot. Raises OperatorError if no sprite has run here, or writes never pause."""
    async with AsyncExitStack() as stack:
        transcript = await stack.enter_async_context(read_transcript(settings.transcript_db))
        projected = await stack.enter_async_context(read_memory(settings.memory_db))
        await refuse_misfit(transcript, projected)
        projection = Projection(transcript, projected, MemoryFiles(settings.memory))
        # One connection per database sees every commit of others, and one holds the snapshot.
        watching, looking = [{name: stack.enter_context(_opened(settings, name)) for name in SCHEMAS} for _ in range(2)]
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            before = _versions(watching)
            is_settled = await projection.is_settled()
            files = memory_files(settings)
            for database in looking.values():
                database.execute("BEGIN")
                # The transaction's snapshot starts with the first read.
                database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if is_settled and _versions(watching) == before and memory_files(settings) == files:
                break
            for database in looking.values():
                database.execute("ROLLBACK")
            if time.monotonic() > until:
                raise _restless(is_settled=is_settled)
            await asyncio.sleep(_PAUSE_SECONDS)
        yield Snapshot(looking, files)


def path_of(settings: Settings, name: DatabaseName) -> Path:
    """Return the path of a database."""
    return settings.workspace_db if name == "workspace.db" else settings.memory / name


def _opened(settings: Settings, name: DatabaseName) -> AbstractContextManager[sqlite3.Connection]:
    path = path_of(settings, name)
    if name == "workspace.db" and not path.exists():
        # Turns were imported, and no sprite has run here yet.
        return empty_database(SCHEMAS[name])
    return plain_reader(path, SCHEMAS[name])


def _versions(databases: Mapping[DatabaseName, sqlite3.Connection]) -> list[int]:
    return [database.execute("PRAGMA data_version").fetchone()[0] for database in databases.values()]


def _restless(*, is_settled: bool) -> OperatorError:
    if not is_settled:
        return MendedAtStartError(
            "memory.db does not have everything that the log has. Stop the sprite, and start it again: it is made anew "
            "from the log, without a model. Then try again."
        )
    return OperatorError(
        "The sprite wrote all the time, so that it could not be seen at one moment. Try again when it is at rest."
    )


def memory_files(settings: Settings) -> dict[str, MemoryFile]:
    """Return the files of the memory folder on disk by name, without missing and unsuitable ones."""
    found = {}
    for name in MEMORY_FILES:
        try:
            # Nonblocking, so that a pipe does not block.
            descriptor = os.open(settings.memory / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        with os.fdopen(descriptor, "rb") as stream:
            seen = os.fstat(descriptor)
            # Anything else is quarantined at the next start, and is no memory. The agent-at-work file contains two
            # files.
            largest = LARGEST_FILE_BYTES * (1 if name.endswith(".md") else 4)
            if stat.S_ISREG(seen.st_mode) and seen.st_size <= largest:
                found[name] = MemoryFile(stream.read(), seen.st_mode & 0o777, seen.st_mtime_ns)
    return found
