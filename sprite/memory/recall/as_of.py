"""A curated file as it was at an event of the log, also where a later re-extraction replaced what was in force then."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sprite.database.memory import MemoryDB, open_memory
from sprite.database.transcript import TranscriptDB
from sprite.memory.files import template
from sprite.memory.rebuild import replay_aside


async def file_as_of(
    transcript: TranscriptDB, memory: MemoryDB, scratch: Path, name: str, until: int
) -> tuple[str, int]:
    """(content, version) of a file right after an event, by the event's number; `scratch` is a folder to work in."""
    curations = transcript.curations
    if await curations.activation(until) == await curations.activation():
        found = await memory.version_after(name, until)
    else:
        # memory.db no longer has what was in force then; the log does.
        with tempfile.TemporaryDirectory(dir=scratch, prefix="as-of-") as folder:
            path = Path(folder) / "memory.db"
            await replay_aside(transcript, path, lambda: None, until=until)
            async with open_memory(path) as then:
                found = await then.latest_version(name)
    return (found.content, found.version) if found else (template(name), 0)
