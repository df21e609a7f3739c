"""The person's canvas changes that the agent has not been told: rows of workspace.db.

Each is written in the transaction of its change. Changes of one kind to one object are one row, the newest: a card
that was dragged forty times has moved once. The rows are deleted once the agent has been told.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import Literal

CanvasChangeKind = Literal["created", "renamed", "archived", "restored", "moved", "resized", "edited"]

#: A row replaces those of the same kind for the same object, and these replace each other.
_OPPOSITES: dict[CanvasChangeKind, CanvasChangeKind] = {"archived": "restored", "restored": "archived"}

SCHEMA = """
    CREATE TABLE canvas_changes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        kind TEXT NOT NULL
            CHECK (kind IN ('created', 'renamed', 'archived', 'restored', 'moved', 'resized', 'edited')),
        stack_id TEXT,
        card_id TEXT,
        block_id TEXT,
        was TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX canvas_changes_of ON canvas_changes (card_id, stack_id);
"""


@dataclass(frozen=True, slots=True)
class CanvasChange:
    """A change by the person to a stack (`stack_id`), a card (`card_id`), or a block of it (both ids).

    `was` is the former name of a renamed stack, as the agent last knew it. `at` is in Unix seconds; `id` grows.
    """

    id: int
    at: float
    kind: CanvasChangeKind
    stack_id: str | None
    card_id: str | None
    block_id: str | None
    was: str


def note_change(
    tx: sqlite3.Connection,
    kind: CanvasChangeKind,
    *,
    stack_id: str | None = None,
    card_id: str | None = None,
    block_id: str | None = None,
    was: str = "",
) -> None:
    """Record a change by the person, for the agent's next prompt; `tx` is the change's transaction.

    Pass only `stack_id` for a stack, only `card_id` for a card, `card_id` and `block_id` for a block. A new card is
    `created`, a block with other data `edited`. The current content is read when the agent is told.
    """
    earlier = tx.execute(
        "DELETE FROM canvas_changes WHERE kind IN (?, ?) AND stack_id IS ? AND card_id IS ? AND block_id IS ? "
        "RETURNING was",
        (kind, _OPPOSITES.get(kind, kind), stack_id, card_id, block_id),
    ).fetchall()
    tx.execute(
        "INSERT INTO canvas_changes (at, kind, stack_id, card_id, block_id, was) VALUES (?, ?, ?, ?, ?, ?)",
        (time.time(), kind, stack_id, card_id, block_id, earlier[0][0] if earlier else was),
    )


def changes_after(tx: sqlite3.Connection, number: int) -> list[CanvasChange]:
    """Return the person's changes after that row, oldest first."""
    rows = tx.execute("SELECT * FROM canvas_changes WHERE id > ? ORDER BY id", (number,))
    return [CanvasChange(**dict(row)) for row in rows]


def forget_changes(tx: sqlite3.Connection, up_to: int) -> None:
    """Delete the rows that the agent was told."""
    tx.execute("DELETE FROM canvas_changes WHERE id <= ?", (up_to,))
