"""A batch's turns by project (pure): a turn of one project is no evidence about another.

The user's own turns may speak about every project. For a project, turns of other projects count as strangers.
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
    """The evidence for one part of the files: `heard` counts, `others` are strangers there.

    `project` is None for the user's own part, for which all turns count.
    """

    project: str | None
    heard: Provenance
    others: list[Text] = field(default_factory=list)

    def is_of(self, project: str | None) -> bool:
        """Return whether items of a project count here."""
        return self.project is None or project in {None, self.project}

    @cached_property
    def _sources(self) -> Sources:
        texts = [voice.words for turn in self.heard.turns for voice in self.heard.voices(turn)]
        return Sources(texts, self.others)

    def is_anothers(self, content: str) -> bool:
        """Return whether a sentence has too many words that only strangers said."""
        return bool(self.others) and self._sources.own(content_words(content))


class ProjectTurns:
    """The projects of a batch, in the order of turns, and the evidence for each."""

    def __init__(self, turns: Sequence[Observation], earlier: Sequence[Observation], provenance: Provenance) -> None:
        self._turns = turns
        self._earlier = earlier
        #: The evidence from all turns.
        self.all = provenance
        self.keys = projects_of(turns)
        self._parts: dict[str | None, Part] = {}

    def part(self, project: str | None) -> Part:
        """Return the evidence for a project's part; all turns count for the user's own part."""
        if project is None:
            return Part(None, self.all)
        return self._saying(project)

    def is_anothers(self, learning: ParsedLearning, evidence: Evidence) -> bool:
        """Return whether a learning cites a turn of one project for statements in turns of others."""
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
        """Return a file with the missing project headings that edits add lines under."""
        if name not in SECTIONED:
            return content
        added = {edit.path[0].casefold() for edit in edits if edit.verb == "add"}
        parts = split(content)
        missing = [key for key in self.keys if key not in parts.sections]
        asked = [heading(key) for key in missing if heading_name(heading(key)).casefold() in added]
        return joined([content, *asked]) if asked else content

    def without_strays(self, name: str, old: str, content: str) -> tuple[str, list[str]]:
        """Return a file without new sections of projects outside this batch, and those projects."""
        parts = split(content)
        allowed = {*split(old).sections, *(self.keys if name in SECTIONED else [])}
        strays = [key for key in parts.sections if key not in allowed]
        if not strays:
            return content, []
        return joined([parts.own, *(text for key, text in parts.sections.items() if key in allowed)]), strays


def projects_of(turns: Sequence[Observation]) -> list[str]:
    """Return the projects of turns, in order."""
    return list(dict.fromkeys(turn.project for turn in turns if turn.project is not None))
