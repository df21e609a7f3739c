"""Rows of kind `learning` in the log: a person's word on a learning, its JSON and its effect on memory."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from sprite.errors import PeerError
from sprite.memory import decision as effects
from sprite.memory.action_rows import Known, decide_action, find_learning, pass_over
from sprite.memory.files import CURATED, over_limit
from sprite.memory.sections import PIN, UNPIN
from sprite.memory.words import FORGOTTEN, content_words, said, share
from sprite.protocol.shapes import RETIRED, LearningRow

Op = Literal["confirm", "retire", "edit"]
#: A line of a memory file that has this part of a retired learning's words leaves with it.
LIVES_ON = 0.6
#: Learnings to compare a line with.
NEAREST = 3


class Answer(Struct, omit_defaults=True):
    """A person's answer to a learning; `of` identifies it across extractions. `content` is the new text of an edit."""

    learning: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    op: Op
    of: Known
    content: str = ""


def answered(learning_id: int, known: LearningRow | None, op: Op, content: str = "") -> Answer:
    """Check a person's answer to a learning and return it as a row. PeerError if the learning cannot be answered so."""
    if known is None:
        raise PeerError(f"There is no learning {learning_id}.", code="not_found")
    if known.superseded_by is not None:
        raise PeerError(f"Learning {learning_id} is no longer true, so it cannot be changed.", code="conflict")
    if op == "confirm" and not known.is_unverified:
        raise PeerError(f"Learning {learning_id} is already verified, so it needs no answer.", code="conflict")
    content = " ".join(content.split())
    if op == "edit" and not content:
        raise PeerError("The new text is empty.")
    return Answer(learning_id, op, Known(known.content, known.source_observation_id), content)


def decide_change(draft: effects.Fold) -> list[effects.Part]:
    """Return the decision about a change of an action or learning, or an activation. The caller rolls it back."""
    if draft.curation.kind == "action":
        decide_action(draft)
    elif draft.curation.kind == "learning":
        decide_answer(draft)
    else:
        pass_over(draft)
    return draft.parts


def decide_answer(draft: effects.Fold) -> None:
    """Apply a person's logged answer. Record a refusal if the row is unreadable or the learning does not exist."""
    try:
        answer = msgspec.json.decode(draft.curation.response, type=Answer)
    except (ValueError, RecursionError) as error:
        draft.refuse("damaged", f"an answer about a learning could not be read: {str(error)[:300]}")
        return
    known = find_learning(draft, answer.learning, answer.of)
    if known is None:
        if FORGOTTEN not in answer.of.content:
            draft.refuse("learning_missing", f"there is no such learning any more: {answer.of.content}")
    elif answer.op == "edit" and FORGOTTEN not in answer.content:
        _edit(draft, known, answer.content)
    elif answer.op != "confirm":
        draft.put(effects.Superseded(known.id, RETIRED))
        _rewrite_lines(draft, known.content, "")
        for action in draft.actions.standing_for(known.id):
            draft.put(effects.Acted(action=action.id, status="dismissed", by="person", note="dismissed"))
    elif known.origin != "user":
        type_ = known.proposed or known.type
        draft.put(effects.Confirmed(known.id, type_))
        if type_ == "PREFERENCE" and known.project is not None:
            # Preferences belong to the user, not to a project.
            draft.put(effects.MadeOwn(known.id))


def _edit(draft: effects.Fold, known: LearningRow, content: str) -> None:
    """Replace a learning by the person's own words, in memory.db and in the memory files."""
    number = draft.state().numbered + 1
    draft.put(effects.Numbered(1))
    new = effects.NewLearning(
        number=number,
        created_at=draft.curation.created_at,
        type=known.proposed or known.type,
        content=content,
        said=said(content),
        origin="user",
        confidence=effects.VERIFIED,
        project=known.project,
    )
    draft.put(new)
    draft.put(effects.Superseded(known.id, number))
    _rewrite_lines(draft, known.content, content)
    for action in draft.actions.standing_for(known.id):
        draft.put(
            effects.Acted(action=action.id, content=content, source_learning_id=number, by="person", note="changed")
        )


def _rewrite_lines(draft: effects.Fold, old: str, new: str) -> None:
    """Replace the lines that rest on a learning, or remove them if `new` is empty.

    Pinned lines stay, and lines that say more of what another valid learning says.
    """
    words = content_words(old)
    files = draft.state().files
    for name in CURATED:
        content = files.get(name, "")
        lines: list[str] = []
        is_pinned = is_replaced = False
        for line in content.split("\n"):
            is_pinned = line.strip() != UNPIN and (is_pinned or line.strip() == PIN)
            has = content_words(line)
            part = share(has, words) if has and not is_pinned and line.startswith(("- ", "* ")) else 0.0
            if part < LIVES_ON or _is_of_another(draft, line, part):
                lines.append(line)
            elif new and not is_replaced:
                is_replaced = True
                lines.append(f"{line[:2]}{new}")
        changed = "\n".join(lines)
        if changed != content and not over_limit(name, changed):
            draft.put(effects.Written(name, changed, by="person"))


def _is_of_another(draft: effects.Fold, line: str, part: float) -> bool:
    """Return whether a valid learning has a larger part of a line's words."""
    near = draft.nearest(line, NEAREST)
    return any(share(content_words(line), content_words(known.content)) > part for known in near)
