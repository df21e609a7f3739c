"""Rebuild memory by replaying the log, or by asking the curator about every turn again.

Both build a new database beside the old one and swap it in at the end. A crash leaves a valid old or new memory.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from sprite.common.prices import Usage, price_of
from sprite.config import Settings
from sprite.curation.decide import Judge
from sprite.curation.extraction import Attempts, Extractor, check_budget, log_lost_call
from sprite.curation.model import CuratorModel, RefusedError, UnusableAnswerError
from sprite.curation.verifier import Verification
from sprite.log.curations import Curation
from sprite.log.transcript import Observation, TranscriptDB, side_by_side
from sprite.memory import decision as effects
from sprite.memory.database import MemoryDB, open_memory
from sprite.memory.files import DEPLOYED, MemoryFiles
from sprite.memory.projection import Projection
from sprite.protocol.shapes import RETIRED

log = logging.getLogger(__name__)

#: Tokens of an answer if the log has none to average: a few learnings and one rewritten file.
ANSWER_TOKENS = 800


# --- asking again ---


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a re-extraction; `usd` is None if the model has no known price."""

    turns: int
    calls: int
    tokens_read: int
    tokens_written: int
    model: str
    usd: float | None


class Reextraction:
    """Run the curator again over every curated turn, as a new generation in the log.

    Quarantined turns are not included: only a person can release them. A turn without an answer in this extraction is
    quarantined when memory takes over. The first refusal ends a run; the next run splits its batch.

    Each answer is logged on arrival, so an interrupted run can continue. Memory changes only when all answers exist.
    """

    def __init__(self, settings: Settings, transcript: TranscriptDB) -> None:
        self._settings = settings
        self._transcript = transcript

    async def estimate(self) -> Estimate:
        """Estimate the remaining work. The prompts lack the learnings that the run will add."""
        _, turns = await self._left()
        left, calls, tokens = len(turns), 0, 0
        async with self._aside() as (_, extractor):
            while turns:
                prompt, batch = await extractor.prompt(side_by_side(turns[: self._settings.batch_turns]))
                calls, tokens = calls + 1, tokens + prompt.tokens
                turns = turns[len(batch) :]
        _, said = await self._transcript.spending.tokens()
        asked, _, _ = await self._transcript.spending.curation_counts()
        written = calls * (round(said / asked) if asked and said else ANSWER_TOKENS)
        model = self._settings.curator_model
        price = price_of(model)
        usd = None if price is None else price.tokens_usd(Usage(input=tokens, output=written))
        return Estimate(left, calls, tokens, written, model, usd)

    async def run(self, on_turns: Callable[[int], object]) -> int:
        """Ask about the remaining turns, activate the generation and return its number. SpriteError if a call fails."""
        generation, turns = await self._left()
        size = self._settings.batch_turns
        async with self._aside() as (grown, extractor):
            attempts = Attempts(self._transcript, extractor, self._transcript.quarantine.leave_out, together=1)
            await grown.take_up(generation)
            while turns:
                await check_budget(self._settings, self._transcript)
                batch = side_by_side(turns[:size])
                await grown.come_to(batch)
                try:
                    curation = await attempts.extract(batch, generation, is_followed=len(batch) < len(turns))
                except UnusableAnswerError as error:
                    first = batch[0].id
                    failures = await self._transcript.lost_calls.failures([first], generation)
                    if isinstance(error, RefusedError) and failures[first].calls == 1:
                        # The cause may be the key or the chosen model, so the user must see it.
                        raise
                    log.warning("asking about fewer turns: %s", error)
                    continue
                # Without an answer, the first turn was quarantined.
                covered = batch[:1]
                if curation is not None:
                    covered = [turn for turn in batch if turn.id <= (curation.last_observation_id or 0)]
                    await grown.keep(curation, covered[-1])
                turns = turns[len(covered) :]
                on_turns(len(covered))
            await grown.take_over(generation)
        return generation

    async def _left(self) -> tuple[int, list[Observation]]:
        """Return (number of the current re-extraction, turns that it has not covered yet)."""
        _, active = await self._transcript.curations.activation()
        newest = await self._transcript.curations.newest_generation()
        generation = newest if newest > active else active + 1
        reached = await self._transcript.quarantine.left_out(generation)
        for first, last in await self._transcript.curations.batches(generation):
            reached.update(range(first, last + 1))
        return generation, [turn for turn in await self._transcript.curated() if turn.id not in reached]

    @asynccontextmanager
    async def _aside(self) -> AsyncIterator[tuple[Regrowth, Extractor]]:
        """Yield an empty memory in a temporary folder, in which the re-extraction builds the new one."""
        folder = self._settings.run / "re-extract"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model = CuratorModel(self._settings, partial(log_lost_call, self._transcript))
        try:
            files, live = MemoryFiles(folder), MemoryFiles(self._settings.memory)
            for name in DEPLOYED:
                files.write(name, live.read(name))
            async with open_memory(folder / self._settings.memory_db.name) as memory:
                projection = Projection(self._transcript, memory, files)
                judge = Judge(self._transcript, memory, verifies=self._settings.verify == "on")
                grown = Regrowth(self._transcript, projection, judge)
                yield grown, Extractor(self._transcript, memory, files, model, judge)
        finally:
            await model.close()
            shutil.rmtree(folder, ignore_errors=True)


class Regrowth:
    """The memory of a re-extraction, in a separate memory.db that grows with each answer.

    Users' changes are applied between the answers; changes of actions and learnings get a new decision.
    """

    def __init__(self, transcript: TranscriptDB, projection: Projection, judge: Judge) -> None:
        self._transcript = transcript
        self._projection = projection
        self._judge = judge
        #: Changes still to apply, and the parts of those applied since the last answer.
        self._changes: list[Curation] = []
        self._applied: list[effects.Part] = []
        self._newest = 0

    async def take_up(self, generation: int) -> None:
        """Begin the re-extraction with this generation number, or continue an interrupted one."""
        answers = await self._transcript.curations.extraction(generation)
        changes = await self._transcript.curations.peoples_changes()
        done: set[int] = set()
        for row in effects.in_order(answers, changes):
            await self._apply(row)
            done.add(row.id)
        self._changes = [change for change in changes if change.id not in done]

    async def come_to(self, turns: Sequence[Observation]) -> None:
        """Apply users' changes up to the end of these turns.

        A change of an action or a learning follows the answer about the turn that taught it, even if that turn
        ended later.
        """
        waiting, self._changes = self._changes, []
        for change in waiting:
            is_taught = (change.first_observation_id or 0) < turns[0].id
            if is_taught and change.created_at <= turns[-1].timestamp:
                await self._change(change)
            else:
                self._changes.append(change)

    async def keep(self, answer: Curation, last: Observation) -> None:
        """Decide about an answer, log both and apply it; `last` is the last turn of its range."""
        decided = await self._judge.decided(replace(answer, created_at=last.timestamp))
        decision = msgspec.json.encode([*self._applied, *effects.read_decision(decided.decision_json or "")]).decode()
        row = replace(decided, decision_json=decision, created_at=time.time())
        logged = await self._transcript.curations.append_event(row)
        self._applied = []
        await self._apply(replace(logged, created_at=last.timestamp))

    async def take_over(self, generation: int) -> None:
        """Log that this extraction replaces the previous one."""
        for change in self._changes:
            await self._change(change)
        passed = await self._judge.decided(Curation("edit", ""))
        decision = msgspec.json.encode([*self._applied, *effects.read_decision(passed.decision_json or "")]).decode()
        await self._transcript.quarantine.activate(generation, decision, passed.created_at)

    async def _change(self, change: Curation) -> None:
        parts: list[effects.Part] = []
        if change.kind in effects.DECIDED:
            change = await self._judge.decided(change)
            parts = effects.read_decision(change.decision_json or "")
        self._applied.append(effects.Again(change.id, parts))
        await self._apply(change)

    async def _apply(self, event: Curation) -> None:
        # Events come in the order of their time. The cursor records which of them the curator has seen.
        self._newest = max(self._newest, event.id)
        await self._projection.apply(event, cursor=self._newest)
        await self._projection.write_files()


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that today's guards would not repeat: the removed and the added parts, in words."""

    curation_id: int
    created_at: float
    kind: str
    gone: list[str]
    new: list[str]


async def reapply(transcript: TranscriptDB, scratch: Path, step: Callable[[], object]) -> tuple[int, list[Difference]]:
    """Check every logged decision with today's guards. Return their number, and those that would differ today.

    The guards see memory as the earlier decisions made it. `scratch` is a folder for a temporary memory.db.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix="reapply-") as name:
        folder = Path(name)
        async with open_memory(folder / "memory.db") as memory:
            projection = _Reapplied(transcript, memory, MemoryFiles(folder))
            await projection.replay(lambda _: step())
    return projection.decisions, projection.differences


class _Reapplied(Projection):
    """Apply today's checks to each curation before applying the logged decision."""

    def __init__(self, transcript: TranscriptDB, memory: MemoryDB, files: MemoryFiles) -> None:
        super().__init__(transcript, memory, files)
        self._judge = Judge(transcript, memory)
        self.decisions = 0
        self.differences: list[Difference] = []

    async def apply(self, curation: Curation, *, cursor: int) -> effects.Change:
        """Compare the logged decision with today's, then apply the logged one."""
        if curation.decision_json is not None:
            self.decisions += 1
            was = _words(effects.read_decision(curation.decision_json))
            request = await self._judge.request(curation)
            verified = msgspec.json.decode(curation.verification_json or "null", type=Verification | None)
            if request is not None and (verified is None or request.sha256 != verified.request_sha256):
                lines = [f"would need verification: {line}" for line in request.lines]
                self.differences.append(Difference(curation.id, curation.created_at, curation.kind, [], lines))
            else:
                decided = await self._judge.decided(curation)
                now = _words(effects.read_decision(decided.decision_json or ""))
                if was != now:
                    gone, new = list((was - now).elements()), list((now - was).elements())
                    self.differences.append(Difference(curation.id, curation.created_at, curation.kind, gone, new))
        return await super().apply(curation, cursor=cursor)


def _words(parts: Sequence[effects.Part]) -> Counter[str]:
    return Counter(words for part in parts for words in _words_of(part))


def _changed(part: effects.Superseded | effects.Confirmed | effects.MadeOwn) -> str:
    match part:
        case effects.Superseded(learning, by):
            return f"L{learning} is replaced by L{by}" if by != RETIRED else f"L{learning} is retired"
        case effects.Confirmed(learning, type_):
            return f"L{learning} is confirmed as {type_}"
        case effects.MadeOwn(learning):
            return f"L{learning} is the person's own"


def _words_of(part: effects.Part) -> Iterator[str]:
    match part:
        case effects.NewLearning():
            yield f"{part.type} [t{part.turn}, {part.origin}] {part.content}"
        case effects.Repeated(of, new):
            yield f"L{of} was taught again: {new.content}"
        case effects.Heard(learning):
            yield f"L{learning} was taught again"
        case effects.Superseded() | effects.Confirmed() | effects.MadeOwn():
            yield _changed(part)
        case effects.Written(name, content):
            yield from (f"{name}: {line}" for line in content.split("\n") if line.strip())
        case effects.Refusal(kind, detail):
            yield f"refused ({kind}): {detail}"
        case effects.Acted():
            yield f"action {part.action or part.content!r}: {part.note or 'its columns change'}"
        case effects.Zone(tz):
            yield f"the time zone is {tz}"
