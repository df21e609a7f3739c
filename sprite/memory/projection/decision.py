"""What a batch did to memory.db, as it was done: recorded while it is folded, and done again without asking a guard.

A forget takes words out of turns and answers. Folded anew, an answer would lose with them what rests on turns that
say less now. So a forget notes beside each answer what it did (`curations.decision_json`), without what is forgotten;
from then on the fold does that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sprite.database.actions import Action, ProjectedActions
from sprite.database.connection import to_json
from sprite.database.curations import Curation
from sprite.database.projected import NewLearning, Projected


@dataclass(slots=True)
class Change:
    """What one curation changed: the files rewritten, the ids of the learnings added, and of the actions changed.

    `is_of_memory` is False where it was about the list of actions alone: nothing was looked through or learned.
    """

    curation_id: int
    files: list[str] = field(default_factory=list)
    learnings: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    is_of_memory: bool = True


@dataclass(frozen=True, slots=True)
class Deed:
    """One write to memory.db: `name` is one of those of `redo`, `facts` are JSON."""

    name: str
    facts: dict[str, Any]


def write_deeds(deeds: Sequence[Deed]) -> str:
    """Deeds as JSON."""
    return to_json([[deed.name, deed.facts] for deed in deeds])


def read_deeds(decision: str) -> list[Deed]:
    """Deeds as they were written."""
    return [Deed(name, facts) for name, facts in json.loads(decision)]


class Recorded(Projected):
    """A transaction's writes that are noted in `deeds` as they are done."""

    def __init__(self, projected: Projected) -> None:
        super().__init__(projected.tx)
        self.deeds: list[Deed] = []
        self.actions = _RecordedActions(projected, self.deeds)

    def next_number(self) -> int:
        """See Projected."""
        self.deeds.append(Deed("number", {}))
        return super().next_number()

    def add_learning(self, learning: NewLearning) -> None:
        """See Projected."""
        self.deeds.append(Deed("learn", asdict(learning)))
        super().add_learning(learning)

    def repeated(self, learning_id: int, new: NewLearning) -> None:
        """See Projected."""
        self.deeds.append(Deed("repeat", {"id": learning_id, "new": asdict(new)}))

    def count_again(self, learning_id: int, at: float) -> None:
        """See Projected."""
        self.deeds.append(Deed("count", {"id": learning_id, "at": at}))
        super().count_again(learning_id, at)

    def corroborate(self, learning_id: int, **evidence: Any) -> None:
        """See Projected."""
        self.deeds.append(Deed("corroborate", {"id": learning_id, **evidence}))
        super().corroborate(learning_id, **evidence)

    def make_own(self, learning_id: int) -> None:
        """See Projected."""
        self.deeds.append(Deed("own", {"id": learning_id}))
        super().make_own(learning_id)

    def supersede(self, learning_id: int, by: int) -> bool:
        """See Projected."""
        self.deeds.append(Deed("supersede", {"id": learning_id, "by": by}))
        return super().supersede(learning_id, by)

    def add_version(self, name: str, content: str, sha256: str, **more: Any) -> None:
        """See Projected."""
        self.deeds.append(Deed("version", {"name": name, "content": content, "sha256": sha256, **more}))
        super().add_version(name, content, sha256, **more)

    def report(self, curation_id: int, kind: str, detail: str) -> None:
        """See Projected."""
        self.deeds.append(Deed("report", {"curation_id": curation_id, "kind": kind, "detail": detail}))
        super().report(curation_id, kind, detail)


class _RecordedActions(ProjectedActions):
    def __init__(self, projected: Projected, deeds: list[Deed]) -> None:
        super().__init__(projected.tx)
        self._deeds = deeds

    def add(self, action: Action) -> None:
        self._deeds.append(Deed("act", asdict(action)))
        super().add(action)

    def change(self, action_id: int, **columns: Any) -> None:
        self._deeds.append(Deed("change", {"id": action_id, "columns": columns}))
        super().change(action_id, **columns)

    def note(self, action_id: int, at: float, by: str, what: str) -> None:
        self._deeds.append(Deed("note", {"id": action_id, "at": at, "by": by, "what": what}))
        super().note(action_id, at, by, what)


def redo(tx: Projected, curation: Curation, change: Change) -> None:
    """Does again what a curation did, and says in `change` what that was."""
    for deed in read_deeds(curation.decision_json or "[]"):
        _redo(tx, deed, change)


def _redo(tx: Projected, deed: Deed, change: Change) -> None:
    facts = deed.facts
    match deed.name:
        case "number":
            tx.next_number()
        case "version":
            tx.add_version(**facts)
            if facts["name"] not in change.files:
                change.files.append(facts["name"])
        case "report":
            tx.report(**facts)
        case "act" | "change" | "note":
            _redo_action(tx.actions, deed, change)
        case _:
            _redo_learning(tx, deed, change)


def _redo_learning(tx: Projected, deed: Deed, change: Change) -> None:
    facts = deed.facts
    match deed.name:
        case "learn":
            tx.add_learning(NewLearning(**facts))
            change.learnings.append(facts["id"])
        case "repeat":
            tx.repeated(facts["id"], NewLearning(**facts["new"]))
        case "count":
            tx.count_again(facts["id"], facts["at"])
        case "corroborate":
            tx.corroborate(facts["id"], **{name: value for name, value in facts.items() if name != "id"})
        case "own":
            tx.make_own(facts["id"])
        case "supersede":
            tx.supersede(facts["id"], facts["by"])
        case name:
            raise ValueError(f"a decision of memory says {name[:40]!r}, which nothing does")


def _redo_action(actions: ProjectedActions, deed: Deed, change: Change) -> None:
    facts = deed.facts
    match deed.name:
        case "act":
            actions.add(Action(**facts))
            change.actions.append(facts["id"])
        case "change":
            actions.change(facts["id"], **facts["columns"])
            if "status" in facts["columns"]:
                change.actions.append(facts["id"])
        case "note":
            actions.note(facts["id"], facts["at"], facts["by"], facts["what"])
