"""What one curation does to memory.db: one synchronous function over one transaction, run on the database's thread.

Deterministic, and waits for nothing: what it needs of the log is handed in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sprite.database.curations import Curation
from sprite.database.projected import Projected
from sprite.database.transcript import Observation
from sprite.memory.curation.answer import parse_response
from sprite.memory.files import CURATED, sha256
from sprite.memory.projection.action_fold import fold_action, status_words
from sprite.memory.projection.action_rows import ACTION_STATUSES
from sprite.memory.projection.batch_fold import BatchFold
from sprite.memory.projection.decision import Change, redo
from sprite.memory.projection.disguises import told_apart
from sprite.memory.recall.query import near_each_other

#: Turns before a batch, in its conversations, whose pages and results the agent may still be talking about.
EARLIER_TURNS = 25
#: What such a search looks at: so many turns that match, and so many recent ones for what their log does not keep.
DISTANT_TURNS, RECENT_TURNS = 10, 200
#: So many new lines of one answer are looked for.
_MOST_TRACED = 60
_WORK = frozenset(CURATED) - {"user.md"}
#: What older logs call how an action stands.
_OLD_STATUSES = {"pending": "open", "completed": "done"}


@dataclass(frozen=True, slots=True)
class _Resolution:
    """A person's word on an action, as older logs have it."""

    action_id: int
    status: str


@dataclass(frozen=True, slots=True)
class _FileEdit:
    """A person's content for a curated file, as logged."""

    name: str
    content: str
    #: Why a curator would not have been allowed to write it; a person may.
    over: str | None


def turns_needed(curation: Curation) -> tuple[int, int] | None:
    """The inclusive range of turns that the fold of this curation asks for, or None if it asks for none."""
    if curation.kind != "batch" or curation.decision_json is not None:
        return None
    return (curation.first_observation_id or 0) - EARLIER_TURNS, curation.last_observation_id or 0


def phrases_to_trace(curation: Curation) -> str:
    """What to look for in the turns before those needed: an FTS5 expression for the new lines about the work.

    Empty where no line is about it: user.md needs the person's word anyway.
    """
    response = parse_response(curation.response)
    lines = [line for name, content in response.files.items() if name in _WORK for line in content.split("\n")]
    lines += [
        line for name, edits in response.edits.items() if name in _WORK for edit in edits for line in edit.content
    ]
    return near_each_other(told_apart(line) for line in lines[:_MOST_TRACED])


def fold(tx: Projected, curation: Curation, turns: Sequence[Observation]) -> Change:
    """Applies one curation; `turns` are those of `turns_needed`, and earlier ones with words of its lines."""
    change = Change(curation.id)
    if curation.decision_json is not None:
        redo(tx, curation, change)
    elif curation.kind == "batch":
        _fold_batch(tx, curation, turns, change)
    elif curation.kind == "edit":
        _fold_edit(tx, curation, change)
    elif curation.kind == "action":
        change.actions = fold_action(tx, curation)
        change.is_of_memory = False
    elif curation.kind not in {"forget", "quarantine", "drift"}:
        # From a newer Sprite, perhaps: said, and the rest is applied.
        tx.report(curation.id, "unknown_kind", f"a curation of kind {curation.kind[:40]!r}")
    return change


def _fold_batch(tx: Projected, curation: Curation, heard: Sequence[Observation], change: Change) -> None:
    first = curation.first_observation_id or 0
    turns = [turn for turn in heard if turn.id >= first]
    earlier = [turn for turn in heard if turn.id < first]
    batch = BatchFold(tx, curation, turns, earlier)
    batch.apply()
    change.learnings, change.files, change.actions = batch.learnings, batch.files, batch.actions


def _fold_edit(tx: Projected, curation: Curation, change: Change) -> None:
    try:
        edit = _read_edit(curation.response)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        # One damaged row must not stop memory: it is said, and the rest is applied.
        tx.report(curation.id, "damaged", f"an edit could not be read: {error}")
        return
    if isinstance(edit, int):
        return
    if isinstance(edit, _Resolution):
        if tx.actions.get(edit.action_id) is not None:
            tx.actions.change(edit.action_id, status=edit.status)
            tx.actions.note(edit.action_id, curation.created_at, "person", status_words(edit.status))
            change.actions.append(edit.action_id)
    else:
        tx.add_version(
            edit.name,
            edit.content,
            sha256(edit.content),
            curation_id=curation.id,
            at=curation.created_at,
            source="person",
        )
        if edit.over is not None:
            tx.report(curation.id, "over_limit", f"{edit.over}; a person wrote it so, and it stands")
        change.files.append(edit.name)


def _read_edit(response: str) -> _Resolution | _FileEdit | int:
    """What an edit in the log says: an int is the extraction that took over, which changes nothing by itself.

    ValueError, KeyError or TypeError if it says nothing that can be done.
    """
    edit = json.loads(response)
    if "generation" in edit:
        return int(edit["generation"])
    if "action_id" in edit:
        action_id, status = edit["action_id"], edit["status"]
        status = _OLD_STATUSES.get(status, status) if isinstance(status, str) else None
        if not isinstance(action_id, int) or not 0 <= action_id < 2**63 or status not in ACTION_STATUSES:
            raise ValueError(f"no action {action_id!r} can be {status!r}")
        return _Resolution(action_id, status)
    name, content = edit["name"], edit["content"]
    if name not in CURATED:
        raise ValueError(f"{name!r} is no curated file")
    if not isinstance(content, str):
        raise TypeError("the content is no text")
    content.encode()
    over = edit.get("over")
    return _FileEdit(name, content, over if isinstance(over, str) else None)
