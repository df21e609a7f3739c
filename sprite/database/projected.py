"""The writes of one curation to memory.db, in one transaction that ends with the cursor.

Synchronous: everything runs on the database's own thread (`MemoryDB.apply`).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from sprite.database.actions import ProjectedActions


class NewLearning(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="did", tag="learn"):
    """A new learning of an answer, with its number, as stored in the log.

    `turn` and `quote` are its evidence, `origin` is the author of those words. `said` is the content without
    fillers, used to detect repeats.
    """

    number: int
    created_at: float
    type: str
    content: str
    said: str
    origin: str
    confidence: float
    turn: int | None = None
    session: str | None = None
    quote: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """A learning's fields needed by the fold."""

    id: int
    type: str
    content: str
    origin: str
    confidence: float
    source_observation_id: int | None
    evidence: str | None
    project: str | None = None


def _of(table: str) -> str:
    return ", ".join(f"{table}{field.name}" for field in fields(Known))


class Projected:
    """Write one curation's changes in one transaction that ends with the cursor."""

    def __init__(self, tx: sqlite3.Connection) -> None:
        self.tx = tx
        self.actions = ProjectedActions(tx)

    def same_learning(self, type_: str, said: str, project: str | None) -> Known | None:
        """Return a valid learning of this type and text, of the project or else of the person's own, or None."""
        return self._known(
            "said = ? AND type = ? AND superseded_by IS NULL AND (project IS NULL OR project = ?) "
            "ORDER BY project IS NULL, id LIMIT 1",
            (said, type_, project),
        )

    def known(self, learning_id: int) -> Known | None:
        """Return a valid learning, or None."""
        return self._known("id = ? AND superseded_by IS NULL", (learning_id,))

    def nearest(self, match: str, limit: int) -> list[Known]:
        """Return the valid learnings that are most similar to a text; `match` is an FTS5 expression.

        Digests are excluded: they repeat other learnings and prove nothing.
        """
        return self._nearest(match, "l.superseded_by IS NULL AND l.type <> 'DIGEST'", limit)

    def _nearest(self, match: str, where: str, limit: int) -> list[Known]:
        if not match:
            return []
        rows = self.tx.execute(
            f"SELECT {_of('l.')} FROM learnings_fts f "  # noqa: S608 - our clause
            f"JOIN learnings l ON l.id = f.rowid WHERE learnings_fts MATCH ? AND {where} "
            "ORDER BY f.rank, l.id LIMIT ?",
            (f"{{content}} : ({match})", limit),
        )
        return [Known(**dict(row)) for row in rows]

    def nearest_replaced(self, match: str, limit: int) -> list[Known]:
        """Return the superseded learnings that are most similar to a text."""
        return self._nearest(match, "l.superseded_by IS NOT NULL", limit)

    def _known(self, where: str, parameters: Sequence[Any]) -> Known | None:
        row = self.tx.execute(
            f"SELECT {_of('')} FROM learnings WHERE {where}",  # noqa: S608 - our clause
            parameters,
        ).fetchone()
        return Known(**dict(row)) if row else None

    def digests_of(self, session_id: str) -> list[int]:
        """Return the ids of a session's valid digests."""
        rows = self.tx.execute(
            "SELECT id FROM learnings WHERE type = 'DIGEST' AND superseded_by IS NULL AND session_id = ? ORDER BY id",
            (session_id,),
        )
        return [int(row[0]) for row in rows]

    def numbered(self) -> int:
        """Return the number of learnings that have a number."""
        return int(self.tx.execute("SELECT numbered FROM projection").fetchone()[0])

    def number(self, count: int) -> None:
        """Number this many more learnings."""
        self.tx.execute("UPDATE projection SET numbered = numbered + ?", (count,))

    def add_learning(self, learning: NewLearning, curation_id: int) -> None:
        """Store a learning."""
        self.tx.execute(
            "INSERT INTO learnings (id, created_at, session_id, type, content, source_observation_id, "
            "confidence, curation_id, origin, evidence, last_seen, said, project) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                learning.number,
                learning.created_at,
                learning.session,
                learning.type,
                learning.content,
                learning.turn,
                learning.confidence,
                curation_id,
                learning.origin,
                learning.quote,
                learning.created_at,
                learning.said,
                learning.project,
            ),
        )

    def count_again(self, learning_id: int, at: float) -> None:
        """Record that a learning was stated again."""
        self.tx.execute("UPDATE learnings SET seen = seen + 1, last_seen = ? WHERE id = ?", (at, learning_id))

    def corroborate(self, learning_id: int, new: NewLearning) -> None:
        """Replace a learning's evidence by the better evidence of `new`, which says the same."""
        self.tx.execute(
            "UPDATE learnings SET origin = ?, confidence = ?, evidence = ?, source_observation_id = ?, "
            "session_id = ? WHERE id = ?",
            (new.origin, new.confidence, new.quote, new.turn, new.session, learning_id),
        )

    def make_own(self, learning_id: int) -> None:
        """Make a learning the person's own instead of a project's."""
        self.tx.execute("UPDATE learnings SET project = NULL WHERE id = ?", (learning_id,))

    def supersede(self, learning_id: int, by: int) -> None:
        """Mark a valid learning as replaced."""
        self.tx.execute(
            "UPDATE learnings SET superseded_by = ?1 WHERE id = ?2 AND id <> ?1 AND superseded_by IS NULL",
            (by, learning_id),
        )

    def add_version(self, name: str, content: str, *, curation_id: int, at: float, source: str) -> None:
        """Store the next version of a curated file."""
        digest = hashlib.sha256(content.encode()).hexdigest()
        self.tx.execute(
            "INSERT INTO file_versions (name, version, curation_id, created_at, source, content, sha256) "
            "VALUES (?1, (SELECT coalesce(max(version), 0) + 1 FROM file_versions WHERE name = ?1), "
            "?2, ?3, ?4, ?5, ?6)",
            (name, curation_id, at, source, content, digest),
        )

    def latest_content(self, name: str) -> str | None:
        """Return a curated file's current content; None while it is as shipped."""
        row = self.tx.execute(
            "SELECT content FROM file_versions WHERE name = ? ORDER BY version DESC LIMIT 1", (name,)
        ).fetchone()
        return str(row[0]) if row else None

    def changed_by_a_person(self, name: str, since: int) -> bool:
        """Return whether a person changed a curated file in a later curation than this one."""
        row = self.tx.execute(
            "SELECT 1 FROM file_versions WHERE name = ? AND source = 'person' AND curation_id > ? LIMIT 1",
            (name, since),
        ).fetchone()
        return row is not None

    def report(self, curation_id: int, kind: str, detail: str) -> None:
        """Store the reason why a part of a curation was refused."""
        self.tx.execute("INSERT INTO reports (curation_id, kind, detail) VALUES (?, ?, ?)", (curation_id, kind, detail))
