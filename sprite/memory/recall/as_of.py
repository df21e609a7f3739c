"""A curated file at an earlier event of the log, even if a later re-extraction replaced that history."""

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
    """Return (content, version) of a file after event `until`; `scratch` is a temporary folder."""
    curations = transcript.curations
    if await curations.activation(until) == await curations.activation():
        found = await memory.version_after(name, until)
    else:
        # memory.db no longer has that history, but the log does.
        with tempfile.TemporaryDirectory(dir=scratch, prefix="as-of-") as folder:
            path = Path(folder) / "memory.db"
            await replay_aside(transcript, path, lambda: None, until=until)
            async with open_memory(path) as then:
                found = await then.latest_version(name)
    return (found.content, found.version) if found else (template(name), 0)
