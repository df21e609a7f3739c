"""Rows of `pending_actions`: task, due time and history (times are Unix seconds).

Written only by the projection, on the database's own thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Actions without a learning have their log row's number above this value. So they keep their id after every rebuild
#: and re-extraction, and no learning ever has it.
MADE_IDS = 1_000_000
#: History entries kept per action: the first and the newest. The history of a repeat would otherwise grow without
#: limit.
HISTORY_KEPT = 40

ACTION_COLUMNS = (
    "id, created_at, content, priority, status, source_learning_id, due, rrule, tz, fired_at, origin, history_json, "
    "first_due, mission_id, version"
)


@dataclass(frozen=True, slots=True)
class Action:
    """A task; `status` is open, done, dismissed or failed.

    `due` is the next time, `first_due` the first and `fired_at` the last. `rrule` is the repeat (RFC 5545),
    computed in `tz`. `mission_id` is the agent's turn that created it. `history_json` is a list of {at, by, what},
    oldest first.
    """

    id: int
    created_at: float
    content: str
    priority: int
    status: str
    source_learning_id: int | None
    due: float | None = None
    rrule: str | None = None
    tz: str | None = None
    fired_at: float | None = None
    origin: str = "curator"
    history_json: str = "[]"
    first_due: float | None = None
    mission_id: str | None = None
    #: Grows with each change, so that changes based on an older version are refused.
    version: int = 1

    @property
    def is_made(self) -> bool:
        """Whether a person or the agent created it; otherwise the curator learned it."""
        return self.id > MADE_IDS


class ProjectedActions:
    """Write actions inside a curation's transaction."""

    def __init__(self, tx: sqlite3.Connection) -> None:
        self._tx = tx

    def get(self, action_id: int) -> Action | None:
        """Return an action, or None."""
        found = self._select("WHERE id = ?", (action_id,))
        return found[0] if found else None

    def learned(self) -> list[tuple[Action, str, int | None]]:
        """Return each learned action with the learning's text and the turn that is its source."""
        rows = self._tx.execute(
            f"SELECT {', '.join(f'a.{name}' for name in ACTION_COLUMNS.split(', '))}, "  # noqa: S608 - our columns
            "l.content AS learned, l.source_observation_id AS turn FROM pending_actions a "
            "JOIN learnings l ON l.id = a.source_learning_id WHERE a.id <= ? ORDER BY a.id",
            (MADE_IDS,),
        )
        found = [dict(row) for row in rows]
        return [
            (Action(**row), content, turn) for row in found for content, turn in [(row.pop("learned"), row.pop("turn"))]
        ]

    def taught_as(self, action: Action) -> str | None:
        """Return the text of the learning behind an action."""
        row = self._tx.execute("SELECT content FROM learnings WHERE id = ?", (action.source_learning_id,)).fetchone()
        return str(row[0]) if row else None

    def open(self) -> list[Action]:
        """Return the open actions."""
        return self._select("WHERE status = 'open' ORDER BY id")

    def standing_for(self, learning_id: int) -> list[Action]:
        """Return the open actions of a learning."""
        return self._select("WHERE source_learning_id = ? AND status = 'open' ORDER BY id", (learning_id,))

    def made_in(self, mission_id: str) -> list[Action]:
        """Return the actions that the agent created in a turn."""
        return self._select("WHERE mission_id = ? ORDER BY id", (mission_id,))

    def scheduled(self) -> int:
        """Return the number of open actions with a due time."""
        row = self._tx.execute(
            "SELECT count(*) FROM pending_actions WHERE status = 'open' AND due IS NOT NULL"
        ).fetchone()
        return int(row[0])

    def _select(self, where: str, parameters: Iterable[Any] = ()) -> list[Action]:
        rows = self._tx.execute(
            f"SELECT {ACTION_COLUMNS} FROM pending_actions {where}",  # noqa: S608 - our columns, our clause
            tuple(parameters),
        )
        return [Action(**dict(row)) for row in rows]

    def add(self, action: Action) -> None:
        """Store a new action."""
        values = [getattr(action, name) for name in ACTION_COLUMNS.split(", ")]
        places = ", ".join("?" * len(values))
        self._tx.execute(f"INSERT INTO pending_actions ({ACTION_COLUMNS}) VALUES ({places})", values)  # noqa: S608

    def change(self, action_id: int, **columns: Any) -> None:
        """Change columns of an action."""
        self._set(action_id, columns)

    def _set(self, action_id: int, columns: Mapping[str, Any]) -> None:
        sets = ", ".join(f"{name} = ?" for name in columns)
        self._tx.execute(
            f"UPDATE pending_actions SET {sets}, version = version + 1 WHERE id = ?",  # noqa: S608 - the fold's own names
            (*columns.values(), action_id),
        )

    def note(self, action_id: int, at: float, by: str, what: str) -> None:
        """Append an entry to an action's history."""
        row = self._tx.execute("SELECT history_json FROM pending_actions WHERE id = ?", (action_id,)).fetchone()
        history = [*json.loads(row[0]), {"at": at, "by": by, "what": what}]
        if len(history) > HISTORY_KEPT:
            history = [history[0], *history[-HISTORY_KEPT + 1 :]]
        self._set(action_id, {"history_json": json.dumps(history, ensure_ascii=False)})

    def zone(self) -> str | None:
        """Return the person's time zone at this point of the log; None until it is known."""
        value: str | None = self._tx.execute("SELECT tz FROM projection").fetchone()[0]
        return value

    def set_zone(self, tz: str) -> None:
        """Set the person's time zone from here on."""
        self._tx.execute("UPDATE projection SET tz = ?", (tz,))
