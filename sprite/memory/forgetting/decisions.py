"""What every batch did to memory, without what is forgotten: worked out before the log is changed.

The log is folded once more, aside, by the guards that decided then and over the turns as they still are. What that
writes to memory.db is noted, scrubbed, and kept beside each answer: everything else stays as it stood.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sprite.database.curations import Curation
from sprite.database.memory import MemoryDB, open_memory
from sprite.database.projected import Projected
from sprite.database.transcript import Observation, TranscriptDB
from sprite.memory.files import MemoryFiles, sha256
from sprite.memory.forgetting.plan import Plan
from sprite.memory.projection.decision import Change, Deed, Recorded, write_deeds
from sprite.memory.projection.fold import fold
from sprite.memory.projection.projection import Projection


async def decide(made: Plan, transcript: TranscriptDB, aside: Path) -> dict[int, str]:
    """What each batch's decision will be, by curation; `aside` is a folder of our own to work in."""
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        async with open_memory(aside / "memory.db") as memory:
            recorder = _Recorder(transcript, memory, MemoryFiles(aside))
            await recorder.replay(lambda _: None)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    scrubber = DecisionScrubber(made)
    return {number: write_deeds(scrubber.row(deeds)) for number, deeds in recorder.deeds.items()}


class _Recorder(Projection):
    """A projection that notes what each batch does, in the order of the fold."""

    def __init__(self, transcript: TranscriptDB, memory: MemoryDB, files: MemoryFiles) -> None:
        super().__init__(transcript, memory, files)
        self.deeds: dict[int, list[Deed]] = {}

    def fold(self, tx: Projected, curation: Curation, turns: Sequence[Observation]) -> Change:
        if curation.kind != "batch":
            return super().fold(tx, curation, turns)
        recorded = Recorded(tx)
        change = fold(recorded, curation, turns)
        self.deeds[curation.id] = recorded.deeds
        return change


class DecisionScrubber:
    """Scrubs decision after decision, in the order of the fold: it knows which learnings and actions are gone."""

    def __init__(self, made: Plan) -> None:
        self._scrubber = made.scrubber
        self._typed = made.typed
        self._learnings: set[int] = set()
        #: What another turn taught as well goes on under the number that it had there.
        self._moved: dict[int, int] = {}
        #: What has just moved: that it was heard again is how it began.
        self._begun: int | None = None
        self._actions: set[int] = set()
        self._learned_actions: dict[int, dict[str, Any]] = {}

    def row(self, deeds: Sequence[Deed]) -> list[Deed]:
        """One decision without what is forgotten."""
        return [left for deed in deeds for left in self._left(deed)]

    def _left(self, deed: Deed) -> list[Deed]:
        if deed.name == "repeat":
            return self._repeat(deed)
        left = self._learn(deed) if deed.name == "learn" else self._other(deed)
        return [] if left is None else [left]

    def _other(self, deed: Deed) -> Deed | None:
        if self._is_dropped(deed):
            return None
        facts = deed.facts
        match deed.name:
            case "number":
                self._begun = None
                return deed
            case "version":
                content = self._scrubber.lines(facts["content"], keep=self._typed)
                return replace(deed, facts={**facts, "content": content, "sha256": sha256(content)})
            case "report":
                return deed
            case "act" | "change" | "note":
                return self._action(deed)
            case "corroborate":
                facts = {**facts, "evidence": self._quote(facts["evidence"])}
        return self._of_learning(deed.name, facts)

    def _is_dropped(self, deed: Deed) -> bool:
        match deed.name:
            case "count":
                return bool(deed.facts["id"] == self._begun)
            case "report":
                detail = deed.facts["detail"]
                return self._scrubber.finds(detail) or self._scrubber.takes_line(detail)
            case "corroborate":
                return deed.facts["source_observation_id"] in self._scrubber.turns
        return False

    def _of_learning(self, name: str, facts: dict[str, Any]) -> Deed | None:
        number = facts["id"]
        if number in self._learnings and number not in self._moved:
            return None
        facts = {**facts, "id": self._moved.get(number, number)}
        if "by" in facts:
            # What it replaced does not stand again.
            facts["by"] = self._moved.get(facts["by"], facts["by"])
        return Deed(name, facts)

    def _learn(self, deed: Deed) -> Deed | None:
        if self._takes(deed.facts):
            self._learnings.add(deed.facts["id"])
            return None
        return Deed("learn", {**deed.facts, "evidence": self._quote(deed.facts["evidence"])})

    def _repeat(self, deed: Deed) -> list[Deed]:
        number, new = deed.facts["id"], deed.facts["new"]
        if self._takes(new):
            return []
        new = {**new, "evidence": self._quote(new["evidence"])}
        if number in self._learnings and number not in self._moved:
            self._moved[number] = new["id"]
            self._begun = number
            action = self._learned_actions.pop(number, None)
            acts = [] if action is None else [Deed("act", {**action, "id": new["id"], "source_learning_id": new["id"]})]
            return [Deed("learn", new), *acts]
        return [Deed("repeat", {"id": self._moved.get(number, number), "new": new})]

    def _takes(self, learning: dict[str, Any]) -> bool:
        return self._scrubber.takes_learning(learning["content"], learning["source_observation_id"])

    def _quote(self, quote: str | None) -> str | None:
        return None if quote is None else self._scrubber.sentences(quote)

    def _action(self, deed: Deed) -> Deed | None:
        facts = deed.facts
        source = facts.get("source_learning_id", facts.get("columns", {}).get("source_learning_id"))
        is_gone = source in self._learnings and source not in self._moved
        if deed.name == "act":
            if is_gone or self._scrubber.finds(facts["content"]):
                self._actions.add(facts["id"])
                if is_gone:
                    self._learned_actions[source] = facts
                return None
            return replace(deed, facts={**facts, "source_learning_id": self._moved.get(source, source)})
        if facts["id"] in self._actions or (deed.name == "change" and is_gone):
            return None
        return deed
