"""`rebuild`: memory.db and the curated files from the log alone. No model is called.

Built aside and swapped in at the end: killed at any moment, the old memory or the new one is there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tqdm import tqdm

from sprite.commands.output import say, say_json
from sprite.config import Settings
from sprite.database.lock import workspace_lock
from sprite.database.memory import MemoryDB, open_memory
from sprite.database.transcript import TranscriptDB, open_transcript
from sprite.errors import OperatorError
from sprite.memory.files import MemoryFiles
from sprite.memory.projection import Change, Projection


async def rebuild(settings: Settings, *, dry_run: bool, as_json: bool) -> int:
    """Replays every curation; with `dry_run` only says what there is to replay."""
    if not (settings.memory / "transcript.db").exists():
        raise OperatorError(f"There is no log in {settings.memory}: no sprite has run there yet.")
    with workspace_lock(settings.run / "lock"):
        async with open_transcript(settings.memory / "transcript.db") as transcript:
            total = await transcript.event_count()
            if not dry_run:
                await _replay_aside(settings, transcript, total)
                swap_in(aside_path(settings), settings.memory / "memory.db")
                async with open_memory(settings.memory / "memory.db") as memory:
                    files = MemoryFiles(settings.memory)
                    files.ensure()
                    await Projection(transcript, memory, files).settle()
    if as_json:
        say_json({"curations": total, "rebuilt": not dry_run})
    elif dry_run:
        say(f"{total} curation(s) would be replayed; no model would be called and nothing would be paid.")
    else:
        say(f"Memory was rebuilt from {total} curation(s); no model was called.")
    return 0


def aside_path(settings: Settings) -> Path:
    """Where the new projection grows."""
    return settings.memory / "memory.db.new"


async def _replay_aside(settings: Settings, transcript: TranscriptDB, total: int) -> None:
    async with _fresh(aside_path(settings)) as memory:
        with tqdm(total=total, unit="curation", desc="replaying", disable=None) as progress:

            def replayed(_change: Change) -> None:
                progress.update()

            await Projection(transcript, memory, MemoryFiles(settings.memory)).replay(replayed)


@asynccontextmanager
async def _fresh(path: Path) -> AsyncIterator[MemoryDB]:
    """A new projection; what an earlier, killed rebuild left is dropped. Closing it leaves one whole file."""
    _remove(path)
    async with open_memory(path) as memory:
        yield memory


def swap_in(new: Path, live: Path) -> None:
    """Puts the new file in the old one's place.

    The old file goes first and its journal after it: a journal left beside the new file would be applied to it, and a
    file without its journal may be torn. Killed in between, there is no memory.db, and the next start replays the log.
    """
    _remove(live)
    new.replace(live)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
