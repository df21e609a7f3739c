"""Decide once about an answer of the curator, or a change of an action, before it is logged.

A decision uses the turns of the answer, the turns before them, and memory at that moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from sprite.database.curations import Curation, NewCuration
from sprite.database.memory import MemoryDB
from sprite.database.projected import Projected
from sprite.database.transcript import Observation, TranscriptDB
from sprite.errors import SpriteError
from sprite.memory.curation.answer import parse_response
from sprite.memory.files import CURATED
from sprite.memory.projection.action_fold import decide_action, pass_over
from sprite.memory.projection.batch_fold import BatchFold
from sprite.memory.projection.decision import REPORT_CHARS, Draft, Part, Refusal, write_decision
from sprite.memory.projection.disguises import told_apart
from sprite.memory.recall.query import near_each_other

#: Turns before a batch, in its conversations, whose pages and results the agent may still refer to.
EARLIER_TURNS = 25
#: The search reads this many earlier turns that match, and this many recent ones for words missing from the log.
DISTANT_TURNS, RECENT_TURNS = 10, 200
#: The search uses at most this many new lines of one answer.
_MOST_TRACED = 60
_WORK = frozenset(CURATED) - {"user.md"}

log = logging.getLogger(__name__)


class Judge:
    """Decide about curator answers and changes of actions with the current memory; write nothing."""

    def __init__(self, transcript: TranscriptDB, memory: MemoryDB) -> None:
        self._transcript = transcript
        self._memory = memory

    async def decided(self, answer: NewCuration) -> NewCuration:
        """Return an answer with a decision made now, ready for the log."""
        now = time.time()
        return replace(answer, decision=write_decision(await self.decide(answer.at(now))), created_at=now)

    async def decide(self, curation: Curation) -> list[Part]:
        """Return the decision about a curation.

        If a guard fails, the decision refuses everything: a second call would cost again and fail again.
        """
        try:
            turns: list[Observation] = []
            if curation.kind == "batch":
                first, last, match = turns_to_read(curation)
                turns = await self._transcript.heard(first, last, match, limit=DISTANT_TURNS, recent=RECENT_TURNS)
            return await self._memory.rehearse(lambda tx: decide(tx, curation, turns))
        except SpriteError:
            raise
        except Exception as error:
            log.exception("a curation could not be decided about")
            words = f"nothing was taken over, since deciding about it failed: {type(error).__name__}: {error}"
            return [Refusal("undecided", words[:REPORT_CHARS])]


def turns_to_read(curation: Curation) -> tuple[int, int, str]:
    """Return the first and the last turn that the decision about a batch needs, and a search for earlier ones.

    The search is an FTS5 expression for the new lines about the work. It is empty without such lines: user.md needs
    the person's word anyway.
    """
    response = parse_response(curation.response)
    lines = [line for name, content in response.files.items() if name in _WORK for line in content.split("\n")]
    lines += [
        line for name, edits in response.edits.items() if name in _WORK for edit in edits for line in edit.content
    ]
    first = (curation.first_observation_id or 0) - EARLIER_TURNS
    match = near_each_other(told_apart(line) for line in lines[:_MOST_TRACED])
    return first, curation.last_observation_id or 0, match


def decide(tx: Projected, curation: Curation, heard: Sequence[Observation]) -> list[Part]:
    """Decide about an answer, a change of an action, or the extraction that takes over.

    `heard` are the turns that the decision about an answer needs. The decision is also written to memory.db, so the
    caller rolls the transaction back.
    """
    draft = Draft(tx, curation)
    if curation.kind == "batch":
        first = curation.first_observation_id or 0
        turns = [turn for turn in heard if turn.id >= first]
        BatchFold(draft, turns, [turn for turn in heard if turn.id < first]).apply()
    elif curation.kind == "action":
        decide_action(draft)
    else:
        pass_over(draft)
    return draft.parts
