"""What the person did to the canvas and the agent was not told yet: rows of workspace.db.

Each is written in the transaction of its change. Many changes of one kind to one thing are one row, the newest: a card
that was dragged forty times has moved once. The rows go when the agent has been told.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import Literal

CanvasChangeKind = Literal["created", "renamed", "archived", "restored", "moved", "resized", "edited"]

#: What replaces a row: the same kind for the same thing, and these each other.
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
    """Something the person did: to a stack (`stack_id`), a card (`card_id`), or a block of it (both ids).

    `was` is the name that a renamed stack had when the agent last heard of it. `at` is in Unix seconds; `id` grows.
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
    """Notes what the person did, for the agent to be told with its next prompt; `tx` is the change's transaction.

    For a stack give `stack_id` alone, for a card `card_id` alone, for a block `card_id` and `block_id`: a new card is
    `created`, a block with other data `edited`. What it says now is read when the agent is told.
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
    """What the person did after that row, oldest first."""
    rows = tx.execute("SELECT * FROM canvas_changes WHERE id > ? ORDER BY id", (number,))
    return [CanvasChange(**dict(row)) for row in rows]


def forget_changes(tx: sqlite3.Connection, up_to: int) -> None:
    """Drops the rows that the agent was told."""
    tx.execute("DELETE FROM canvas_changes WHERE id <= ?", (up_to,))
