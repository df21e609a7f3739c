"""Decisions about curator answers and action changes: their parts, their JSON, and applying them.

Memory is a fold of decisions, which the log keeps. Applying one calls no guard, so the same log gives the same memory.
A new decision is made part by part; each part is applied at once, for the next one. The caller rolls it back.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from sprite.log.curations import Curation
from sprite.memory.learning_index import LEARNING_COLUMNS
from sprite.memory.query import any_term, significant
from sprite.protocol.shapes import RETIRED, LearningRow

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
    """An action: a task or reminder; `status` is open, done, dismissed or failed.

    `due` is the next time, `first_due` the first, `fired_at` the last. `rrule` is the repeat (RFC 5545), computed in
    `tz`. `mission_id` is the agent's turn that created it. `history_json` is a list of {at, by, what}, oldest first.
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


@dataclass(slots=True)
class Change:
    """The result of one curation: the rewritten files, the added learnings and the changed actions by id.

    `is_of_memory` is False if it only changed the action list or a rule, without curation of turns.
    """

    curation_id: int
    files: list[str] = field(default_factory=list)
    learnings: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    #: Earlier learnings that the person confirmed or retired.
    answered: list[int] = field(default_factory=list)
    #: Rules to offer.
    proposed: list[Proposed] = field(default_factory=list)
    is_of_memory: bool = True


class _Part(Struct, frozen=True, omit_defaults=True, tag_field="did"):
    """One effect of a decision about a curation on memory.db."""


#: Confidence of a learning: verified words of the person, words of others, unverified.
VERIFIED = 0.9
QUOTED_OTHER = 0.6
UNVERIFIED = 0.1


class NewLearning(_Part, frozen=True, tag="learn"):
    """A learning that the curator found, with its number, as stored in the log.

    `turn` and `quote` are its evidence, `origin` is the author of those words. `said` is the content without
    fillers, used to detect repeats. `proposed` is the type that it gets if the person confirms it; None if it need not
    be confirmed.
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
    proposed: str | None = None


class Numbered(_Part, frozen=True, tag="number"):
    """The count of learnings in a curator's answer. Each learning gets a number, even if it was refused."""

    count: int


class Repeated(_Part, frozen=True, tag="repeat"):
    """A new learning `new` repeats the known learning `of`, so the number of `new` stays unused.

    The repeat `counts` unless it may only be an echo. If the new evidence is `better`, it replaces the old
    evidence.
    """

    of: int
    new: NewLearning
    counts: bool = False
    better: bool = False


class Heard(_Part, frozen=True, tag="hear"):
    """A turn taught a known learning again; a forget has removed the words of this repeat."""

    learning: int


class Superseded(_Part, frozen=True, tag="supersede"):
    """One learning replaces another; `by` is 0 if the person retired it."""

    learning: int
    by: int


class Confirmed(_Part, frozen=True, tag="confirm"):
    """The person confirmed a learning, which is of this type from here on."""

    learning: int
    type: str


class MadeOwn(_Part, frozen=True, tag="own"):
    """A learning of a project became the person's own."""

    learning: int


class Written(_Part, frozen=True, tag="file"):
    """A curated file gets new content; `by` says who wrote it."""

    name: str
    content: str
    by: str = "curator"


class Refusal(_Part, frozen=True, tag="refuse"):
    """A refused part of the curator's answer, the reason, and the turn that it cited."""

    kind: str
    detail: str
    turn: int | None = None


class Proposed(_Part, frozen=True, tag="rule"):
    """A rule that the curator proposes, in one line, with its evidence."""

    rule: str
    turn: int
    quote: str


class Acted(_Part, frozen=True, tag="act", kw_only=True):
    """A new action, or a change of one.

    Unset columns keep their values. If `action` is None, it is the action that the row itself created. `note` is
    the entry in the action's history, and `by` its author.
    """

    action: int | None = None
    is_new: bool = False
    by: str = "curator"
    note: str = ""
    created_at: float | UnsetType = UNSET
    content: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    status: str | UnsetType = UNSET
    source_learning_id: int | UnsetType | None = UNSET
    due: float | UnsetType | None = UNSET
    rrule: str | UnsetType | None = UNSET
    tz: str | UnsetType | None = UNSET
    fired_at: float | UnsetType = UNSET
    origin: str | UnsetType = UNSET
    first_due: float | UnsetType | None = UNSET
    mission_id: str | UnsetType | None = UNSET


class Zone(_Part, frozen=True, tag="zone"):
    """A change of the user's time zone."""

    tz: str


class Again(_Part, frozen=True, tag="again"):
    """A person's change, applied again at this point of a re-extraction, with its effects on an action."""

    row: int
    parts: list[Part] = []


_OfLearning = NewLearning | Numbered | Repeated | Heard | Superseded | Confirmed | MadeOwn
Part = _OfLearning | Written | Refusal | Proposed | Acted | Zone | Again
_DECODER: msgspec.json.Decoder[list[Part]] = msgspec.json.Decoder(list[Part])
_NO_COLUMNS = frozenset({"action", "is_new", "by", "note"})


def read_decision(decision: str) -> list[Part]:
    """Read the JSON of a decision. ValueError if it is not one."""
    return _DECODER.decode(decision)


def in_order(rows: Iterable[Curation], changes: Iterable[Curation]) -> Iterator[Curation]:
    """Yield the rows of a re-extraction, each after the changes by people that its decision applies again."""
    known = {change.id: change for change in changes}
    for row in rows:
        for part in read_decision(row.decision_json or "[]"):
            if isinstance(part, Again) and (change := known.get(part.row)) is not None:
                decision = msgspec.json.encode(part.parts).decode() if change.kind in DECIDED else None
                yield replace(change, decision_json=decision)
        yield row


#: Kinds of people's changes with a decision of their own; others state their effect.
DECIDED = frozenset({"action", "learning"})
#: The longest reason of a refusal.
REPORT_CHARS = 2000


class ProjectedActions:
    """Read and write the table of actions in memory.db, within a curation's transaction."""

    def __init__(self, tx: sqlite3.Connection) -> None:
        self._tx = tx

    def get(self, action_id: int) -> Action | None:
        """Return the action with this id, or None."""
        found = self._select("WHERE id = ?", (action_id,))
        return found[0] if found else None

    def learned(self) -> list[tuple[Action, str, int | None]]:
        """Return (action, its learning's text, its learning's source turn) of each action from a learning."""
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
        """Return the text of the learning that an action comes from, or None."""
        row = self._tx.execute("SELECT content FROM learnings WHERE id = ?", (action.source_learning_id,)).fetchone()
        return str(row[0]) if row else None

    def open(self) -> list[Action]:
        """Return the open actions."""
        return self._select("WHERE status = 'open' ORDER BY id")

    def standing_for(self, learning_id: int) -> list[Action]:
        """Return the open actions that come from a learning."""
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
        self.change(action_id, history_json=json.dumps(history, ensure_ascii=False))


#: The refusals of the newest answer that had a learning or a refusal.
REFUSED_LAST = (
    "reports WHERE kind NOT IN ('over_limit', 'damaged', 'undecided', 'unknown_kind', 'aged') "
    "AND curation_id = (SELECT max(id) FROM (SELECT max(curation_id) AS id FROM learnings "
    "UNION ALL SELECT max(curation_id) FROM reports))"
)
#: Turns of refused lines that a prompt shows again.
MOST_SHOWN_AGAIN = 5


@dataclass(frozen=True, slots=True)
class State:
    """The parts of memory that a decision starts from.

    `numbered` is the count of learnings so far, `tz` the person's time zone if known, `files` the curated files
    that differ from the shipped ones. `shown_again` are earlier turns that the newest refusals cite: the curator's
    prompt repeats them.
    """

    numbered: int
    tz: str | None
    files: dict[str, str]
    shown_again: list[int]


@dataclass
class Projected:
    """Read memory.db as the curations so far made it, within a transaction; `Fold.put` writes it."""

    tx: sqlite3.Connection

    @cached_property
    def actions(self) -> ProjectedActions:
        """Return the table of actions."""
        return ProjectedActions(self.tx)

    def state(self, before: int = 0) -> State:
        """Return the state that a decision about turns from id `before` on starts from."""
        numbered, tz = self.tx.execute("SELECT numbered, tz FROM projection").fetchone()
        files = self.tx.execute(
            "SELECT name, content FROM file_versions "
            "WHERE (name, version) IN (SELECT name, max(version) FROM file_versions GROUP BY name)"
        )
        again = self.tx.execute(
            f"SELECT DISTINCT turn FROM {REFUSED_LAST} AND turn < ? ORDER BY turn DESC LIMIT {MOST_SHOWN_AGAIN}",  # noqa: S608 - our clause
            (before,),
        )
        return State(numbered, tz, {row[0]: row[1] for row in files}, [row[0] for row in again])

    def same_learning(self, type_: str, said: str, project: str | None) -> LearningRow | None:
        """Return a valid learning of this type and text, of the project or else of the person's own, or None."""
        row = self.tx.execute(
            f"SELECT {LEARNING_COLUMNS} FROM learnings WHERE said = ? AND type = ? AND superseded_by IS NULL "  # noqa: S608 - our columns
            "AND (project IS NULL OR project = ?) ORDER BY project IS NULL, id LIMIT 1",
            (said, type_, project),
        ).fetchone()
        return LearningRow(*row) if row else None

    def known(self, learning_id: int) -> LearningRow | None:
        """Return the valid learning with this id, or None."""
        sql = f"SELECT {LEARNING_COLUMNS} FROM learnings WHERE id = ? AND superseded_by IS NULL"  # noqa: S608 - our columns
        row = self.tx.execute(sql, (learning_id,)).fetchone()
        return LearningRow(*row) if row else None

    def nearest(self, text: str, limit: int, *, replaced: bool = False) -> list[LearningRow]:
        """Return the learnings nearest to a text: superseded ones if `replaced`, else valid ones.

        Valid digests are excluded: they repeat other learnings and prove nothing.
        """
        if not (match := any_term(significant(text))):
            return []
        where = "l.superseded_by IS NOT NULL" if replaced else "l.superseded_by IS NULL AND l.type <> 'DIGEST'"
        rows = self.tx.execute(
            f"SELECT l.{LEARNING_COLUMNS.replace(', ', ', l.')} FROM learnings_fts f "  # noqa: S608 - our clause
            f"JOIN learnings l ON l.id = f.rowid WHERE learnings_fts MATCH ? AND {where} "
            "ORDER BY f.rank, l.id LIMIT ?",
            (f"{{content}} : ({match})", limit),
        )
        return [LearningRow(*row) for row in rows]

    def digests(self, session_id: str | None = None) -> list[LearningRow]:
        """Return the valid digests, of one session if it is given."""
        rows = self.tx.execute(
            f"SELECT {LEARNING_COLUMNS} FROM learnings WHERE type = 'DIGEST' AND superseded_by IS NULL "  # noqa: S608 - our columns
            "AND (?1 IS NULL OR session_id = ?1) ORDER BY id",
            (session_id,),
        )
        return [LearningRow(*row) for row in rows]

    def is_retired(self, said: str) -> bool:
        """Return whether the person retired a learning of this text."""
        row = self.tx.execute(
            "SELECT 1 FROM learnings WHERE said = ? AND superseded_by = ? LIMIT 1", (said, RETIRED)
        ).fetchone()
        return row is not None

    def changed_by_a_person(self, name: str, since: int) -> bool:
        """Return whether a person changed a curated file in a curation after `since`."""
        row = self.tx.execute(
            "SELECT 1 FROM file_versions WHERE name = ? AND source = 'person' AND curation_id > ? LIMIT 1",
            (name, since),
        ).fetchone()
        return row is not None


@dataclass
class Fold(Projected):
    """Apply parts of a decision to memory.db in their curation's transaction, and collect the parts."""

    curation: Curation
    parts: list[Part] = field(default_factory=list)

    def put(self, part: Part) -> None:  # noqa: C901, PLR0912 - a case for each kind of part
        """Apply one part of the decision, and add it to `parts`."""
        run, at = self.tx.execute, self.curation.created_at
        match part:
            case NewLearning():
                run(_LEARN, (*msgspec.structs.astuple(part), self.curation.id))
            case Numbered(count):
                run("UPDATE projection SET numbered = numbered + ?", (count,))
            case Repeated(of, new, counts, better):
                if counts:
                    run(_HEAR, (at, of))
                if better:
                    run(_CORROBORATE, {"learning": of, **msgspec.structs.asdict(new)})
            case Heard(learning):
                run(_HEAR, (at, learning))
            case Superseded(learning, by):
                run("UPDATE learnings SET superseded_by = ? WHERE id = ? AND superseded_by IS NULL", (by, learning))
            case Confirmed(learning, type_):
                run(_CONFIRM, (type_, VERIFIED, learning))
            case MadeOwn(learning):
                run("UPDATE learnings SET project = NULL WHERE id = ?", (learning,))
            case Written(name, content, by):
                sha256 = hashlib.sha256(content.encode()).hexdigest()
                run(_WRITE, (name, self.curation.id, at, by, content, sha256))
            case Refusal(kind, detail, turn):
                run(_REFUSE, (self.curation.id, kind, detail, turn))
            case Zone(tz):
                run("UPDATE projection SET tz = ?", (tz,))
            case Acted():
                self._act(part)
        self.parts.append(part)

    def refuse(self, kind: str, detail: str, turn: int | None = None) -> None:
        """Refuse a part of the curator's answer, with a reason and the turn that it cited."""
        self.put(Refusal(kind, detail[:REPORT_CHARS], turn))

    def _act(self, part: Acted) -> None:
        number, at = self._number(part), self.curation.created_at
        given = msgspec.structs.asdict(part).items()
        columns = {name: value for name, value in given if name not in _NO_COLUMNS and value is not UNSET}
        if part.is_new:
            new: dict[str, Any] = {"created_at": at, "priority": 0, "status": "open", "source_learning_id": None}
            new |= columns
            self.actions.add(Action(id=number, **new))
            at = new["created_at"]
        elif columns:
            self.actions.change(number, **columns)
        if part.note:
            self.actions.note(number, at, part.by, part.note)

    def _number(self, part: Acted) -> int:
        return MADE_IDS + self.curation.id if part.action is None else part.action

    def change(self) -> Change:
        """Return what the parts have changed so far."""
        change = Change(self.curation.id, is_of_memory=self.curation.kind not in {"action", "rule"})
        change.proposed += [part for part in self.parts if isinstance(part, Proposed)]
        for part in self.parts:
            match part:
                case Written(name):
                    if name not in change.files:
                        change.files.append(name)
                case NewLearning():
                    change.learnings.append(part.number)
                case Acted():
                    if part.is_new or part.note or part.status is not UNSET:
                        change.actions.append(self._number(part))
                case Confirmed(learning):
                    change.answered.append(learning)
                case Superseded(learning, by):
                    if self.curation.kind == "learning" or by == RETIRED:
                        change.answered.append(learning)
        return change


#: The columns are in the order of a learning's fields.
_LEARN = """INSERT INTO learnings (
    id, created_at, type, content, said, origin, confidence, source_observation_id, session_id, evidence, project,
    proposed, curation_id, last_seen
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?2)"""
_HEAR = "UPDATE learnings SET seen = seen + 1, last_seen = ? WHERE id = ?"
#: The better evidence of a learning that says the same replaces a learning's own.
_CORROBORATE = """UPDATE learnings SET
    origin = :origin, confidence = :confidence, evidence = :quote, source_observation_id = :turn, session_id = :session,
    proposed = CASE WHEN :origin = 'user' THEN NULL ELSE coalesce(:proposed, proposed) END
WHERE id = :learning"""
#: An unverified learning becomes the person's own word: its content replaces the evidence that proved nothing.
_CONFIRM = """UPDATE learnings SET type = ?, origin = 'user', confidence = ?, evidence = NULL, proposed = NULL
WHERE id = ?"""
_WRITE = """INSERT INTO file_versions (name, version, curation_id, created_at, source, content, sha256) VALUES (
    ?1, (SELECT coalesce(max(version), 0) + 1 FROM file_versions WHERE name = ?1), ?2, ?3, ?4, ?5, ?6
)"""
_REFUSE = "INSERT INTO reports (curation_id, kind, detail, turn) VALUES (?, ?, ?, ?)"
