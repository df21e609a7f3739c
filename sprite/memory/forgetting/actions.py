"""Remove forgotten text from the log's rows about actions (pure).

The row of a forgotten action stays, so that all others keep their numbers. Rows about it lose their text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import UNSET

from sprite.database.projected import MADE_IDS
from sprite.memory.forgetting.scrub import Scrubber
from sprite.memory.projection.action_rows import (
    Added,
    Changed,
    Known,
    Noted,
    Resolved,
    Updated,
    read_record,
    write_record,
)
from sprite.memory.words import FORGOTTEN


class ActionScrubber:
    """Scrub rows in order, oldest first, and track which actions are gone.

    `missions` are the missions of whole forgotten turns. `learnings` maps forgotten learnings' numbers to their
    contents.
    """

    def __init__(self, scrubber: Scrubber, missions: Collection[str], learnings: Mapping[int, str]) -> None:
        self._scrubber = scrubber
        self._missions = missions
        self._learnings = learnings
        self._gone: set[int] = set()

    def row(self, curation_id: int, response: str) -> str:
        """Return a row's new text, unchanged if it keeps everything."""
        try:
            record = read_record(response)
        except ValueError:
            return self._scrubber.text(response)
        if isinstance(record, Added):
            if record.content == FORGOTTEN or not self._takes(record.content, record):
                return response
            self._gone.add(MADE_IDS + curation_id)
            return write_record(Added(by=record.by, content=FORGOTTEN))
        if not isinstance(record, Changed):
            return response
        return response if not self._empty(record) else write_record(record)

    def _empty(self, record: Changed) -> bool:
        """Scrub a row in place. Return whether anything was removed."""
        is_gone = record.action in self._gone or self._is_of_gone_learning(record)
        if is_gone:
            record.of = Known(FORGOTTEN)
        changed = is_gone
        text = text_of(record)
        if text and text != FORGOTTEN and (is_gone or self._takes(text, record)):
            match record:
                case Updated():
                    record.content = UNSET
                case Resolved():
                    record.note = FORGOTTEN
                case Noted():
                    record.what = FORGOTTEN
            changed = True
        return changed

    def _is_of_gone_learning(self, record: Changed) -> bool:
        of = record.of
        if of is None or of.content == FORGOTTEN:
            return False
        known = self._learnings.get(record.action) == of.content
        return known or self._scrubber.takes_learning(of.content, of.turn)

    def _takes(self, text: str, record: Added | Changed) -> bool:
        if record.mission in self._missions:
            return True
        # A person's text goes only if it has the exact words, not similar ones.
        return self._scrubber.finds(text) if record.by == "person" else self._scrubber.takes_line(text)


def text_of(record: Changed) -> str:
    """Return the text that a change of an action contains."""
    match record:
        case Updated(content=str(content)):
            return content
        case Resolved(note=note):
            return note
        case Noted(what=what):
            return what
        case _:
            return ""
