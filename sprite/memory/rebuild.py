"""Memory made anew: by replaying the log, or by asking the curator again about every turn.

Both grow aside and are swapped in at the end: killed at any moment, the old memory or the new one is there.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sprite.config import Settings
from sprite.database.connection import LARGEST_ROW_ID
from sprite.database.curations import Curation, NewCuration
from sprite.database.memory import open_memory
from sprite.database.transcript import (
    Observation,
    TranscriptDB,
    side_by_side,
)
from sprite.memory.curation.attempts import Attempts
from sprite.memory.curation.budget import check_budget
from sprite.memory.curation.extraction import (
    Extractor,
    log_lost_call,
)
from sprite.memory.curation.model import (
    CuratorModel,
    RefusedError,
    VainError,
)
from sprite.memory.files import DEPLOYED, MemoryFiles
from sprite.memory.projection.decision import Again, Part, in_order, write_decision
from sprite.memory.projection.projection import Projection
from sprite.prices import (
    Price,
    Usage,
    price_of,
)

log = logging.getLogger(__name__)

#: What an answer takes where no earlier one tells: a few learnings and one rewritten file.
ANSWER_TOKENS = 800


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

    A quarantined turn is not asked about again: that is for a person to say. A turn that this extraction has no answer
    for is quarantined when memory follows. The first refusal ends a run; the next run finds its way around it.

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
                prompt, batch = await aside.extractor.prompt(side_by_side(turns[: self._settings.batch_turns]))
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
            leave_out = self._transcript.quarantine.leave_out
            attempts = Attempts(self._transcript, aside.extractor, leave_out, together=1)
            await aside.grown.take_up(generation)
            while turns:
                await check_budget(self._settings, self._transcript)
                batch = side_by_side(turns[:size])
                await aside.grown.come_to(batch)
                try:
                    curation = await attempts.extract(batch, generation, is_followed=len(batch) < len(turns))
                except VainError as error:
                    if isinstance(error, RefusedError) and await self._is_first_refusal(batch[0].id, generation):
                        # It may be the key or the model that was chosen: for whoever is watching to see.
                        raise
                    log.warning("asking about fewer turns: %s", error)
                    continue
                covered = await self._keep(aside, curation, batch)
                turns = turns[covered:]
                on_turns(covered)
            await aside.grown.take_over(generation)
        return generation

    async def _is_first_refusal(self, turn_id: int, generation: int) -> bool:
        return (await self._transcript.lost_calls.failures([turn_id], generation))[turn_id].calls == 1

    async def _keep(self, aside: _Aside, curation: NewCuration | None, batch: Sequence[Observation]) -> int:
        """Logs and applies an answer; returns how many turns it settled. None settles the first one: it is left out."""
        if curation is None:
            return 1
        covered = [turn for turn in batch if turn.id <= (curation.last_observation_id or 0)]
        await aside.grown.keep(curation, covered[-1])
        return len(covered)

    async def _left(self) -> tuple[int, list[Observation]]:
        """(generation under way, curated turns that it has not reached)."""
        _, active = await self._transcript.curations.activation()
        newest = await self._transcript.curations.newest_generation()
        generation = newest if newest > active else active + 1
        reached = await self._transcript.quarantine.left_out(generation)
        for first, last in await self._transcript.curations.batches(generation):
            reached.update(range(first, last + 1))
        return generation, [turn for turn in await self._transcript.curated() if turn.id not in reached]

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
                grown = Regrowth(self._transcript, Projection(self._transcript, memory, files))
                yield _Aside(grown, Extractor(memory, files, model))
        finally:
            await model.close()
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class _Aside:
    """The new memory, and the extractor that adds to it."""

    grown: Regrowth
    extractor: Extractor


class Regrowth:
    """The memory of a re-extraction, in its own memory.db. It grows with each answer.

    People's changes stand between the answers; changes of actions get a new decision.
    """

    def __init__(self, transcript: TranscriptDB, projection: Projection) -> None:
        self._transcript = transcript
        self._projection = projection
        #: The changes still to be applied, and the parts of those applied since the last answer.
        self._changes: list[Curation] = []
        self._applied: list[Part] = []
        self._newest = 0

    async def take_up(self, generation: int) -> None:
        """Begin, or continue an earlier run that was cut off."""
        answers = await self._transcript.curations.extraction(generation)
        changes = await self._transcript.curations.peoples_changes()
        done: set[int] = set()
        for row in in_order(answers, changes):
            await self._apply(row)
            done.add(row.id)
        self._changes = [change for change in changes if change.id not in done]

    async def come_to(self, turns: Sequence[Observation]) -> None:
        """Apply what people changed before the last of these turns.

        A change of an action that a turn taught comes after the answer about this turn, however late that one ends.
        """
        waiting, self._changes = self._changes, []
        for change in waiting:
            is_taught = change.kind != "action" or (change.first_observation_id or 0) < turns[0].id
            if is_taught and change.created_at <= turns[-1].timestamp:
                await self._change(change)
            else:
                self._changes.append(change)

    async def keep(self, answer: NewCuration, last: Observation) -> None:
        """Decide about an answer, log both, and apply it; `last` is the last turn of the answer's range."""
        parts = await self._projection.decide(answer.at(last.timestamp))
        decision = write_decision([*self._applied, *parts])
        logged = await self._transcript.curations.append_extraction(replace(answer, decision=decision))
        self._applied = []
        await self._apply(replace(logged, created_at=last.timestamp))

    async def take_over(self, generation: int) -> None:
        """Log that this extraction replaces the one before."""
        for change in self._changes:
            await self._change(change)
        now = time.time()
        passed = await self._projection.decide(NewCuration("edit", "").at(now))
        await self._transcript.quarantine.activate(generation, write_decision([*self._applied, *passed]), now)

    async def _change(self, change: Curation) -> None:
        parts: list[Part] = []
        if change.kind == "action":
            parts = await self._projection.decide(change)
            change = replace(change, decision_json=write_decision(parts))
        self._applied.append(Again(change.id, parts))
        await self._apply(change)

    async def _apply(self, event: Curation) -> None:
        # Events come in the order in which things happened; the cursor says which of them the curator has been shown.
        self._newest = max(self._newest, event.id)
        await self._projection.apply(event, cursor=self._newest)
        await self._projection.write_files()


def _dollars(price: Price | None, read: int, written: int) -> float | None:
    return None if price is None else price.tokens_usd(Usage(input=read, output=written))
