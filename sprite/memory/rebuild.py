"""Memory made anew: by replaying the log, or by asking the curator again about every turn.

Both grow aside and are swapped in at the end: killed at any moment, the old memory or the new one is there.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sprite.config import Settings
from sprite.database.connection import LARGEST_ROW_ID
from sprite.database.curations import Curation
from sprite.database.memory import open_memory
from sprite.database.transcript import (
    Observation,
    TranscriptDB,
)
from sprite.memory.curation.budget import check_budget
from sprite.memory.curation.extraction import (
    Extractor,
    log_lost_call,
)
from sprite.memory.curation.model import (
    CuratorModel,
    CutOffError,
)
from sprite.memory.files import DEPLOYED, MemoryFiles
from sprite.memory.projection.projection import Projection
from sprite.prices import (
    Price,
    Usage,
    price_of,
)

#: What an answer takes where no earlier one tells: a few learnings and one rewritten file.
ANSWER_TOKENS = 800
_AFTER_ALL = 2**62


async def replay_aside(
    transcript: TranscriptDB, path: Path, on_step: Callable[[], None], *, until: int = LARGEST_ROW_ID
) -> None:
    """Makes a new projection at `path` from the log up to an event; `on_step` is told of every curation applied."""
    remove_database(path)
    async with open_memory(path) as memory:
        await Projection(transcript, memory, MemoryFiles(path.parent)).replay(lambda _: on_step(), until=until)


def swap_in(new: Path, live: Path) -> None:
    """Puts the new file in the old one's place.

    The old file goes first and its journal after it: a journal left beside the new file would be applied to it, and a
    file without its journal may be torn. Killed in between, there is no memory.db, and the next start replays the log.
    """
    remove_database(live)
    new.replace(live)


def remove_database(path: Path) -> None:
    """Removes a database with its journal."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


# --- asking again ---


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a re-extraction would take; `usd` is None where the model's price is not known."""

    turns: int
    calls: int
    tokens_read: int
    tokens_written: int
    model: str
    usd: float | None


class Reextraction:
    """Runs the curator again over every curated turn, as a new generation in the log.

    Each answer is logged as it comes, so it can be cut off and taken up again. Memory follows only when all are there.
    """

    def __init__(self, settings: Settings, transcript: TranscriptDB) -> None:
        self._settings = settings
        self._transcript = transcript

    async def estimate(self) -> Estimate:
        """What is left to do, judged by prompts without what will have been learned by then."""
        _, turns = await self._left()
        left, calls, tokens = len(turns), 0, 0
        async with self._aside() as aside:
            while turns:
                prompt, batch = await aside.extractor.prompt(turns[: self._settings.batch_turns])
                calls, tokens = calls + 1, tokens + prompt.tokens
                turns = turns[len(batch) :]
        written = calls * await self._answer_tokens()
        model = self._settings.curator_model
        return Estimate(left, calls, tokens, written, model, _dollars(price_of(model), tokens, written))

    async def run(self, on_turns: Callable[[int], None]) -> int:
        """Does what is left, then has memory follow; returns the new generation. SpriteError where a call fails."""
        generation, turns = await self._left()
        size = self._settings.batch_turns
        async with self._aside() as aside:
            # What an earlier, cut off run has logged is where this one goes on; people's edits stand in between.
            before = deque(await self._transcript.curations.extraction(generation, _AFTER_ALL))
            while turns:
                await check_budget(self._settings, self._transcript)
                while before and before[0].created_at <= turns[:size][-1].timestamp:
                    await aside.apply(before.popleft())
                try:
                    curation = await aside.extractor.extract(turns[:size])
                except CutOffError:
                    if size == 1:
                        raise
                    size //= 2
                    continue
                last = curation.last_observation_id or 0
                covered = [turn for turn in turns if turn.id <= last]
                logged = await self._transcript.curations.append_extraction(
                    dataclasses.replace(curation, generation=generation)
                )
                await aside.apply(dataclasses.replace(logged, created_at=covered[-1].timestamp))
                turns, size = turns[len(covered) :], self._settings.batch_turns
                on_turns(len(covered))
        await self._transcript.curations.append_edit({"generation": generation})
        return generation

    async def _left(self) -> tuple[int, list[Observation]]:
        """(generation under way, curated turns that it has not reached)."""
        _, active = await self._transcript.curations.activation()
        newest = await self._transcript.curations.newest_generation()
        generation = newest if newest > active else active + 1
        done = await self._transcript.curations.extracted_through(generation)
        _, _, last = await self._transcript.counts()
        return generation, await self._transcript.observations_between(done + 1, last)

    async def _answer_tokens(self) -> int:
        _, written = await self._transcript.spending.tokens()
        calls, _, _ = await self._transcript.spending.curation_counts()
        return round(written / calls) if calls and written else ANSWER_TOKENS

    @asynccontextmanager
    async def _aside(self) -> AsyncIterator[_Aside]:
        """An empty memory in a folder of its own, dropped at the end: everything it learns is in the log."""
        folder = self._settings.run / "re-extract"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model = CuratorModel(self._settings, partial(log_lost_call, self._transcript))
        try:
            files, live = MemoryFiles(folder), MemoryFiles(self._settings.memory)
            for name in DEPLOYED:
                files.write(name, live.read(name))
            async with open_memory(folder / self._settings.memory_db.name) as memory:
                yield _Aside(Projection(self._transcript, memory, files), Extractor(memory, files, model))
        finally:
            await model.close()
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class _Aside:
    """Memory as it would have been, growing with each answer."""

    projection: Projection
    extractor: Extractor
    _newest: int = 0

    async def apply(self, curation: Curation) -> None:
        # Events come in the order in which things happened; the cursor says which of them the curator has been shown.
        self._newest = max(self._newest, curation.id)
        await self.projection.apply(curation, cursor=self._newest)
        await self.projection.write_files()


def _dollars(price: Price | None, read: int, written: int) -> float | None:
    return None if price is None else price.tokens_usd(Usage(input=read, output=written))
