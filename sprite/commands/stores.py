"""Read-only access to a workspace's stores, even while a sprite runs on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sprite.archive.moving_in import refuse_cut_off
from sprite.config import Settings
from sprite.database.memory import MemoryDB, read_memory
from sprite.database.transcript import TranscriptDB, read_transcript
from sprite.memory.files import MemoryFiles
from sprite.memory.opening import refuse_misfit
from sprite.memory.projection.hand_changes import held_back
from sprite.memory.recall.view import MemoryView


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a workspace, read-only."""

    transcript: TranscriptDB
    memory: MemoryDB
    files: MemoryFiles
    view: MemoryView


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[Stores]:
    """Open the stores read-only. Raises OperatorError if no sprite has run here, or memory is of another log."""
    refuse_cut_off(settings)
    async with AsyncExitStack() as stack:
        transcript = await stack.enter_async_context(read_transcript(settings.transcript_db))
        memory = await stack.enter_async_context(read_memory(settings.memory_db))
        await refuse_misfit(transcript, memory)
        files = MemoryFiles(settings.memory)
        files.hold(await held_back(memory, await transcript.curations.open_drift()))
        yield Stores(transcript, memory, files, MemoryView(transcript, memory, files, settings.own_project))
