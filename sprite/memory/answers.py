"""Rows of kind `learning` in the log: a person's word on an unverified learning, its JSON and its effect."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from sprite.errors import PeerError
from sprite.memory.action_rows import ALIKE, ALIKE_IN_TURN, Known, alikeness
from sprite.memory.apply import Projected
from sprite.memory.decision import Acted, Confirmed, Draft, MadeOwn, Superseded
from sprite.memory.query import any_term, significant
from sprite.memory.words import FORGOTTEN, said
from sprite.protocol.shapes import RETIRED, LearningRow

Op = Literal["confirm", "retire"]
#: Learnings of another extraction that are compared with the answered one.
_NEAREST = 20


class Answer(Struct):
    """One answer as logged. `of` identifies the learning across extractions, where its number changes."""

    learning: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    op: Op
    of: Known


_DECODER: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def write_answer(answer: Answer) -> str:
    """Return a row's JSON."""
    return msgspec.json.encode(answer).decode()


def read_answer(response: str) -> Answer:
    """Parse a logged row. ValueError with a description if it is invalid."""
    try:
        return _DECODER.decode(response)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def answered(learning_id: int, known: LearningRow | None, op: Op) -> Answer:
    """Return the row for a person's word on a learning. PeerError unless it waits for one."""
    if known is None:
        raise PeerError(f"There is no learning {learning_id}.", code="not_found")
    if known.superseded_by is not None:
        raise PeerError(f"Learning {learning_id} no longer holds: there is nothing to answer.", code="conflict")
    if not known.is_unverified:
        raise PeerError(f"Learning {learning_id} is not unverified: there is nothing to answer.", code="conflict")
    return Answer(learning_id, op, Known(known.content, known.source_observation_id))


def decide_answer(draft: Draft) -> None:
    """Decide about one row. Refuse an unreadable row, or one without its learning."""
    try:
        answer = read_answer(draft.curation.response)
    except ValueError as error:
        draft.refuse("damaged", f"an answer about a learning could not be read: {str(error)[:300]}")
        return
    known = _find(draft.tx, answer)
    if known is None:
        if FORGOTTEN not in answer.of.content:
            draft.refuse("learning_missing", f"there is no such learning any more: {answer.of.content}")
    elif answer.op == "retire":
        draft.put(Superseded(known.id, RETIRED))
        for action in draft.tx.actions.standing_for(known.id):
            draft.put(Acted(action=action.id, status="dismissed", by="person", note="dismissed"))
    elif known.origin != "user":
        _confirm(draft, known)


def _confirm(draft: Draft, known: LearningRow) -> None:
    type_ = known.proposed or known.type
    draft.put(Confirmed(known.id, type_))
    if type_ == "PREFERENCE" and known.project is not None:
        # Preferences belong to the user, not to a project.
        draft.put(MadeOwn(known.id))


def _find(tx: Projected, answer: Answer) -> LearningRow | None:
    """Return the learning of a row: by number if it still matches, else by its words."""
    of = answer.of
    known = tx.known(answer.learning)
    if known is not None and known.content == of.content:
        return known
    best: tuple[float, LearningRow] | None = None
    for each in tx.nearest(any_term(significant(of.content)), _NEAREST):
        alike = 1.0 if said(each.content) == said(of.content) else alikeness(each.content, of.content)
        wanted = ALIKE_IN_TURN if of.turn is not None and each.source_observation_id == of.turn else ALIKE
        if alike >= wanted and (best is None or alike > best[0]):
            best = (alike, each)
    return best[1] if best else None
