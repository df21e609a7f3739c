"""Compare the logged decisions with those of today's guards, without changing anything."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sprite.database.curations import Curation
from sprite.database.memory import MemoryDB, open_memory
from sprite.database.projected import NewLearning
from sprite.database.transcript import TranscriptDB
from sprite.memory.files import MemoryFiles
from sprite.memory.projection.deciding import Judge
from sprite.memory.projection.decision import (
    Acted,
    Change,
    Heard,
    MadeOwn,
    Part,
    Refusal,
    Repeated,
    Superseded,
    Written,
    Zone,
    read_decision,
)
from sprite.memory.projection.projection import Projection


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that today's guards would not repeat: the removed and the added parts, in words."""

    curation_id: int
    created_at: float
    kind: str
    gone: list[str]
    new: list[str]


async def reapply(transcript: TranscriptDB, scratch: Path, on_step: Callable[[], None]) -> tuple[int, list[Difference]]:
    """Return the number of decisions in memory and those that would differ today.

    The guards see memory as the earlier decisions made it. `scratch` is a folder for a temporary memory.db.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix="reapply-") as name:
        folder = Path(name)
        async with open_memory(folder / "memory.db") as memory:
            projection = _Reapplied(transcript, memory, MemoryFiles(folder))
            await projection.replay(lambda _: on_step())
    return projection.decisions, projection.differences


class _Reapplied(Projection):
    """Ask today's guards about each curation before applying the logged decision."""

    def __init__(self, transcript: TranscriptDB, memory: MemoryDB, files: MemoryFiles) -> None:
        super().__init__(transcript, memory, files)
        self._judge = Judge(transcript, memory)
        self.decisions = 0
        self.differences: list[Difference] = []

    async def apply(self, curation: Curation, *, cursor: int) -> Change:
        if curation.decision_json is not None:
            self.decisions += 1
            was = _words(read_decision(curation.decision_json))
            now = _words(await self._judge.decide(curation))
            if was != now:
                gone, new = list((was - now).elements()), list((now - was).elements())
                self.differences.append(Difference(curation.id, curation.created_at, curation.kind, gone, new))
        return await super().apply(curation, cursor=cursor)


def _words(parts: Sequence[Part]) -> Counter[str]:
    return Counter(words for part in parts for words in _words_of(part))


def _words_of(part: Part) -> Iterator[str]:
    match part:
        case NewLearning():
            yield f"{part.type} [t{part.turn}, {part.origin}] {part.content}"
        case Repeated(of, new):
            yield f"L{of} was taught again: {new.content}"
        case Heard(learning):
            yield f"L{learning} was taught again"
        case Superseded(learning, by):
            yield f"L{learning} is replaced by L{by}"
        case MadeOwn(learning):
            yield f"L{learning} is the person's own"
        case Written(name, content):
            yield from (f"{name}: {line}" for line in content.split("\n") if line.strip())
        case Refusal(kind, detail):
            yield f"refused ({kind}): {detail}"
        case Acted():
            yield f"action {part.action or part.content!r}: {part.note or 'its columns change'}"
        case Zone(tz):
            yield f"the time zone is {tz}"
