"""Apply one curation to memory.db: one synchronous function over one transaction, on the database's thread.

It applies the logged decision, or a person's edit. No guard runs here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sprite.database.curations import Curation
from sprite.database.projected import Projected
from sprite.memory.files import CURATED
from sprite.memory.projection.decision import Change, Fold, read_decision


@dataclass(frozen=True, slots=True)
class _FileEdit:
    """A person's content for a curated file, as logged."""

    name: str
    content: str
    #: The limit that the content exceeds: a person may exceed it, a curator may not.
    over: str | None


def fold(tx: Projected, curation: Curation) -> Change:
    """Apply one curation."""
    folding = Fold(tx, curation)
    try:
        if curation.decision_json is not None or curation.kind in {"batch", "action"}:
            for part in read_decision(curation.decision_json or ""):
                folding.put(part)
        elif curation.kind == "edit":
            _fold_edit(folding)
        elif curation.kind not in {"forget", "quarantine", "drift"}:
            # A newer Sprite may have written it. Report it and go on.
            tx.report(curation.id, "unknown_kind", f"a curation of kind {curation.kind[:40]!r}")
    except (ValueError, KeyError, TypeError, RecursionError):
        # One damaged row must not stop memory. Report it and go on.
        words = "an edit" if curation.kind == "edit" else f"a curation of kind {curation.kind!r}"
        tx.report(curation.id, "damaged", f"{words} could not be read")
    return folding.change


def _fold_edit(folding: Fold) -> None:
    curation, tx = folding.curation, folding.tx
    edit = _read_edit(curation.response)
    tx.add_version(edit.name, edit.content, curation_id=curation.id, at=curation.created_at, source="person")
    if edit.over is not None:
        tx.report(curation.id, "over_limit", f"{edit.over}; a person wrote it so, and it stands")
    folding.change.files.append(edit.name)


def _read_edit(response: str) -> _FileEdit:
    """Read an edit of the log. ValueError, KeyError or TypeError if it is damaged."""
    edit = json.loads(response)
    name, content = edit["name"], edit["content"]
    if name not in CURATED:
        raise ValueError(f"{name!r} is no curated file")
    if not isinstance(content, str):
        raise TypeError("the content is no text")
    content.encode()
    over = edit.get("over")
    return _FileEdit(name, content, over if isinstance(over, str) else None)
