"""What becomes of an answer of the curator, or of a change of an action: decided once, before it is logged.

A decision uses the turns that the answer is about, what was said before them, and memory as it is at that moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from sprite.database.curations import Curation
from sprite.database.projected import Projected
from sprite.database.transcript import Observation
from sprite.memory.curation.answer import parse_response
from sprite.memory.files import CURATED
from sprite.memory.projection.action_fold import decide_action, pass_over
from sprite.memory.projection.batch_fold import BatchFold
from sprite.memory.projection.decision import Draft, Part
from sprite.memory.projection.disguises import told_apart
from sprite.memory.recall.query import near_each_other

#: Turns before a batch, in its conversations, whose pages and results the agent may still be talking about.
EARLIER_TURNS = 25
#: What such a search looks at: so many turns that match, and so many recent ones for what their log does not keep.
DISTANT_TURNS, RECENT_TURNS = 10, 200
#: So many new lines of one answer are looked for.
_MOST_TRACED = 60
_WORK = frozenset(CURATED) - {"user.md"}


def turns_to_read(curation: Curation) -> tuple[int, int, str]:
    """Return which turns the decision about a batch needs: a first and a last one, and what to look for before them.

    That is an FTS5 expression for the new lines about the work, empty where no line is about it: user.md needs the
    person's word anyway.
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

    `heard` are the turns that the decision about an answer needs. What is decided is written to memory.db: for a
    transaction that is taken back.
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
