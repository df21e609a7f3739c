"""Data for measuring retrieval in one form, and what a ranking is worth on it.

A set is a JSON file `{name, measure: "turn"|"session", workspaces: [{observations: [[session, at, user, reply], ...],
questions: [{q, c (class), e (evidence: places of observations, or sessions), t? (places), before? (only so many
observations exist when it is asked), not? (the session it is asked in)}], learnings?: [[place, text], ...]}]}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

DEPTHS = (5, 10, 20)
#: A question's recall at each depth, in %.
Recall = tuple[float, ...]


class Said(NamedTuple):
    """One turn of a workspace."""

    session: str
    at: float
    user: str
    reply: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question when the first `before` turns exist; evidence are places of turns or names of sessions."""

    text: str
    kind: str
    evidence: frozenset[int | str]
    before: int
    asked_in: str | None

    def recall(self, places: Sequence[int], turns: Sequence[Said], measure: str) -> Recall:
        """The share of its evidence among the first hits; a place below 0 is a hit that tells nothing new."""
        fitting = [place for place in places if place < 0 or turns[place].session != self.asked_in]
        found: list[int | str] = [*fitting]
        if measure == "session":
            found = list(dict.fromkeys(turns[place].session for place in fitting if place >= 0))
        return tuple(100 * len(self.evidence & set(found[:depth])) / len(self.evidence) for depth in DEPTHS)


@dataclass(frozen=True, slots=True)
class Workspace:
    """One memory: its turns, the learnings as (place of the turn, text), and questions, the earliest first."""

    turns: list[Said]
    questions: list[Question]
    learnings: list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class DataSet:
    """Workspaces that are measured alike."""

    name: str
    measure: str
    workspaces: list[Workspace]

    @property
    def has_learnings(self) -> bool:
        """Whether someone distilled it."""
        return any(workspace.learnings for workspace in self.workspaces)

    @property
    def kinds(self) -> list[str]:
        """The class of each question, in their order."""
        return [question.kind for workspace in self.workspaces for question in workspace.questions]

    def together(self) -> DataSet:
        """The same in one workspace, as one person's many projects are."""
        merged = Workspace([], [], [])
        for number, workspace in enumerate(self.workspaces):
            first = len(merged.turns)
            merged.turns.extend(turn._replace(session=f"{number}/{turn.session}") for turn in workspace.turns)
            merged.learnings.extend((first + place, text) for place, text in workspace.learnings)
        for question, evidence in _moved(self.workspaces):
            asked = Question(question.text, question.kind, evidence, len(merged.turns), None)
            merged.questions.append(asked)
        return DataSet(f"{self.name} in one", self.measure, [merged])


def _moved(workspaces: Sequence[Workspace]) -> Iterator[tuple[Question, frozenset[int | str]]]:
    """Questions with their evidence as it is called where all workspaces are one."""
    first = 0
    for number, workspace in enumerate(workspaces):
        for question in workspace.questions:
            yield (
                question,
                frozenset(first + name if isinstance(name, int) else f"{number}/{name}" for name in question.evidence),
            )
        first += len(workspace.turns)


def load(folder: Path) -> list[DataSet]:
    """Every set of a folder; one that is measured by session and knows the turns, too, is also measured by turn."""
    sets = []
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        sets.append(_data_set(data, "e", data["measure"]))
        if any(question.get("t") for workspace in data["workspaces"] for question in workspace["questions"]):
            sets.append(_data_set(data, "t", "turn"))
    return sets


def _data_set(data: dict[str, Any], evidence: str, measure: str) -> DataSet:
    name = data["name"] if measure == data["measure"] else f"{data['name']} by {measure}"
    return DataSet(name, measure, [_workspace(workspace, evidence) for workspace in data["workspaces"]])


def _workspace(data: dict[str, Any], evidence: str) -> Workspace:
    turns = [Said(*row) for row in data["observations"]]
    questions = [
        Question(asked["q"], asked["c"], frozenset(asked[evidence]), asked.get("before", len(turns)), asked.get("not"))
        for asked in data["questions"]
        if asked.get(evidence)
    ]
    learnings = [(place, text) for place, text in data.get("learnings", ())]
    return Workspace(turns, sorted(questions, key=lambda question: question.before), sorted(learnings))
