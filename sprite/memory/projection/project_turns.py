"""A batch's turns by the projects that they are of (pure): what a turn of one says is nothing about another.

The person's own turns may speak about every project. What another project's turns say is, for a project, what a
stranger says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sprite.database.transcript import Observation
from sprite.memory.curation.answer import ParsedLearning
from sprite.memory.curation.answer_edits import Edit, heading_name
from sprite.memory.files import SECTIONED
from sprite.memory.projection.evidence import Evidence, Provenance
from sprite.memory.projection.guards import Sources
from sprite.memory.sections import heading, joined, split
from sprite.memory.words import Text, content_words


@dataclass(frozen=True)
class Part:
    """What a part of the files may rest on: what was `heard` there, and what `others` said, who are strangers here.

    `project` is None for the person's own part, which all turns speak to.
    """

    project: str | None
    heard: Provenance
    others: list[Text] = field(default_factory=list)

    def is_of(self, project: str | None) -> bool:
        """Whether what is of a project may speak here."""
        return self.project is None or project in {None, self.project}

    @cached_property
    def _sources(self) -> Sources:
        texts = [voice.words for turn in self.heard.turns for voice in self.heard.voices(turn)]
        return Sources(texts, self.others)

    def is_anothers(self, content: str) -> bool:
        """Whether a sentence has too many words that only others said."""
        return bool(self.others) and self._sources.own(content_words(content))


class ProjectTurns:
    """The projects of a batch, the first turn's first, and what may be said of each."""

    def __init__(self, turns: Sequence[Observation], earlier: Sequence[Observation], provenance: Provenance) -> None:
        self._turns = turns
        self._earlier = earlier
        #: What was heard in all of them.
        self.all = provenance
        self.keys = projects_of(turns)
        self._parts: dict[str | None, Part] = {}

    def part(self, project: str | None) -> Part:
        """What the part of a project may rest on; the person's own may rest on every turn."""
        if project is None:
            return Part(None, self.all)
        return self._saying(project)

    def is_anothers(self, learning: ParsedLearning, evidence: Evidence) -> bool:
        """Whether a learning cites a turn of one project for what turns of others said."""
        turn = evidence.turn
        if turn is None or self.keys in ([], [turn.project]):
            return False
        return self._saying(turn.project).is_anothers(learning.content)

    def _saying(self, project: str | None) -> Part:
        part = self._parts.get(project)
        if part is None:
            own = [turn for turn in self._turns if turn.project in {None, project}]
            before = [turn for turn in self._earlier if turn.project in {None, project}]
            others = [turn for turn in self._turns if turn.project not in {None, project}]
            said = [voice.words for turn in others for voice in self.all.voices(turn)]
            part = self._parts[project] = Part(project, Provenance(own, before), said)
        return part

    def with_headings(self, name: str, content: str, edits: Sequence[Edit]) -> str:
        """A file with the headings of this batch's projects that something is to be added under, where they miss."""
        if name not in SECTIONED:
            return content
        added = {edit.path[0].casefold() for edit in edits if edit.verb == "add"}
        parts = split(content)
        missing = [key for key in self.keys if key not in parts.sections]
        asked = [heading(key) for key in missing if heading_name(heading(key)).casefold() in added]
        return joined([content, *asked]) if asked else content

    def without_strays(self, name: str, old: str, content: str) -> tuple[str, list[str]]:
        """A file without new sections of projects that no turn here is of, and those projects."""
        parts = split(content)
        allowed = {*split(old).sections, *(self.keys if name in SECTIONED else [])}
        strays = [key for key in parts.sections if key not in allowed]
        if not strays:
            return content, []
        return joined([parts.own, *(text for key, text in parts.sections.items() if key in allowed)]), strays


def projects_of(turns: Sequence[Observation]) -> list[str]:
    """The projects that turns are of, in their order."""
    return list(dict.fromkeys(turn.project for turn in turns if turn.project is not None))
