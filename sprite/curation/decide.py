"""Decide which parts of a batch's answer become memory: learnings, actions and file versions.

The decision is made once and logged beside the answer, with each refusal and its reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sprite.common.due_times import parse_due
from sprite.common.recurrence import DEFAULT_ZONE, first_after, next_after, parse_rule
from sprite.curation.answer import ParsedLearning, parse_response
from sprite.curation.file_decisions import NEAREST, FileFold
from sprite.curation.provenance.evidence import Evidence, ProjectTurns, Provenance, digest_evidence, unproven, weigh
from sprite.curation.provenance.vocabulary import told_apart
from sprite.curation.provenance.voices import Origin
from sprite.errors import PeerError, SpriteError
from sprite.log.curations import Curation, NewCuration
from sprite.log.transcript import Observation, TranscriptDB
from sprite.memory.action_rows import MOST_SCHEDULED, alikeness, decide_action, made_words, pass_over
from sprite.memory.apply import MADE_IDS, Action, NewLearning, Projected, ProjectedActions
from sprite.memory.database import MemoryDB
from sprite.memory.decision import (
    REPORT_CHARS,
    Acted,
    Draft,
    MadeOwn,
    Numbered,
    Part,
    Refusal,
    Repeated,
    Superseded,
    write_decision,
)
from sprite.memory.files import CURATED
from sprite.memory.query import any_term, near_each_other, significant
from sprite.memory.words import FORGOTTEN, content_words, said, share
from sprite.protocol.shapes import LearningRow

#: A time that passed while its turn waited for curation still fires, late. A time from long ago, in imported
#: conversations, does not.
STILL_FIRES_SECONDS = 86_400.0
#: Minimum word overlap with an existing action: of the same turn and due time, of the same turn, of another turn.
ALIKE_AT_ONCE, ALIKE_IN_TURN, ALIKE = 0.15, 0.3, 0.7


@dataclass(frozen=True, slots=True)
class When:
    """The resulting time of an action."""

    due: float | None = None
    rrule: str | None = None
    tz: str | None = None


def time_of(
    asked: ParsedLearning, said_at: float, read_at: float, actions: ProjectedActions
) -> tuple[When, str | None]:
    """Return (its time, the reason if a requested time was refused).

    `said_at` is the time of the user's words, `read_at` the time of the answer (Unix seconds).
    """
    if asked.due is None and asked.rrule is None:
        return When(), None
    try:
        when = _read(asked, said_at, read_at, actions.zone() or DEFAULT_ZONE)
    except PeerError as error:
        return When(), str(error)
    if when.due is None:
        return When(), "its time had passed when it was said"
    if actions.scheduled() >= MOST_SCHEDULED:
        return When(), f"{MOST_SCHEDULED} open actions have a due time already"
    return when, None


def _read(asked: ParsedLearning, said_at: float, read_at: float, tz: str) -> When:
    """Parse the time; a due time of None has passed. PeerError if it is invalid."""
    oldest = max(said_at, read_at - STILL_FIRES_SECONDS)
    if asked.rrule is not None:
        parse_rule(asked.rrule)
    if asked.due is None:
        return When(first_after(asked.rrule or "", tz, oldest), asked.rrule, tz)
    due = parse_due(asked.due, tz, said_at)
    if due > oldest:
        return When(due, asked.rrule, tz)
    return When(None if asked.rrule is None else next_after(asked.rrule, due, tz, read_at), asked.rrule, tz)


def with_its_time(learning: ParsedLearning) -> ParsedLearning:
    """Return the learning with its time in its text, to find it and to distinguish it from other days."""
    parts = [f"due {learning.due}" if learning.due else "", f"every {learning.rrule}" if learning.rrule else ""]
    told = ", ".join(part for part in parts if part)
    return replace(learning, content=f"{learning.content} ({told})") if told else learning


def written_already(actions: ProjectedActions, mission_id: str | None, content: str, when: When) -> Action | None:
    """Return the action that the agent made in the same turn, or an equal open one with the same time."""
    made = actions.made_in(mission_id) if mission_id else []
    likely = [
        (alike, action)
        for action in made
        if (alike := alikeness(action.content, content)) >= (ALIKE_AT_ONCE if action.due == when.due else ALIKE_IN_TURN)
    ]
    likely += [
        (alike, action)
        for action in actions.open()
        if action.is_made and when.due in {None, action.due} and (alike := alikeness(action.content, content)) >= ALIKE
    ]
    return max(likely, key=lambda pair: pair[0])[1] if likely else None


#: Origins whose repetition is evidence. A repeating assistant may only be reading memory aloud.
_COUNTED: frozenset[Origin] = frozenset({"user", "tool", "web"})
#: If one item in memory has this share of an assistant sentence's words, the sentence repeats it.
ECHO_SHARE = 0.8


class BatchFold:
    """Decide about one curation of kind `batch`, part by part."""

    def __init__(self, draft: Draft, turns: Sequence[Observation], earlier: Sequence[Observation] = ()) -> None:
        self._draft = draft
        self._tx = draft.tx
        self._curation = draft.curation
        self._provenance = Provenance(turns, earlier)
        self._projects = ProjectTurns(turns, earlier, self._provenance)
        self._weighed: list[tuple[ParsedLearning, Evidence]] = []
        #: Learnings that were superseded or completed: their lines may be removed from the files.
        self._retired: list[str] = []
        #: The new learnings of this answer, by number.
        self._taught: dict[int, NewLearning] = {}
        self._files = FileFold(draft, self._projects, self._weighed, self._retired, self._taught)

    def apply(self) -> None:
        """Apply learnings first, since files may rely on them."""
        response = parse_response(self._curation.response)
        # Refused learnings have a number, too: later answers refer to numbers, and forgetting must not change them.
        first = self._tx.numbered() + 1
        if response.learnings:
            self._draft.put(Numbered(len(response.learnings)))
        for number, learning in enumerate(response.learnings, first):
            self._learn(number, learning)
        self._files.apply(response)
        for line in response.unparsed:
            self._draft.refuse("unparsed", line)

    # --- learnings ---

    def _learn(self, number: int, learning: ParsedLearning) -> None:
        if learning.content == FORGOTTEN:
            return
        if learning.type == "DIGEST":
            self._digest(number, learning)
            return
        evidence = weigh(learning, self._provenance)
        if evidence.turn is not None and self._projects.is_anothers(learning, evidence):
            evidence = unproven(learning, evidence.turn)
        asked, learning = learning, with_its_time(learning)
        self._weighed.append((learning, evidence))
        if evidence.type != learning.type:
            lowered = f"a {learning.type} that the person did not say became a {evidence.type}"
            self._draft.refuse("type_lowered", lowered)
        if evidence.origin == "none":
            self._draft.refuse("unverified", f"its evidence is not in the turn it names: {learning.content}")
        known = self._tx.same_learning(evidence.type, said(learning.content), _project_of(evidence))
        if known is None and evidence.origin in {"assistant", "memory"}:
            known = self._echoed(learning.content)
            if known is None and not learning.supersedes and self._is_stale_echo(learning.content):
                self._draft.refuse("echo", f"the agent only read it aloud from memory: {learning.content}")
                return
        new = self._new(number, learning, evidence)
        learning_id = self._repeat(known, new, evidence) if known else self._add(new)
        if known is None and evidence.type == "ACTION" and evidence.origin in {"user", "assistant"}:
            self._open_action(number, asked, evidence)
        for replaced in learning.supersedes:
            self._retire(replaced, learning_id, evidence)

    def _digest(self, number: int, learning: ParsedLearning) -> None:
        """Add the digest of a session, which replaces earlier ones. It is never evidence of the user's word."""
        evidence = digest_evidence(learning, self._provenance)
        self._weighed.append((learning, evidence))
        self._add(self._new(number, learning, evidence))
        if evidence.turn is not None:
            for earlier in self._tx.digests_of(evidence.turn.session_id):
                self._draft.put(Superseded(earlier, number))

    def _echoed(self, content: str) -> LearningRow | None:
        """Return the known learning that the agent only repeats in its own words, or None."""
        nearest = self._tx.nearest(any_term(significant(content)), NEAREST)
        return next((known for known in nearest if _reads_aloud(content, known.content)), None)

    def _is_stale_echo(self, content: str) -> bool:
        """Return whether the agent repeats a line of a file, or a superseded learning."""
        for name in CURATED:
            lines = (self._tx.latest_content(name) or "").split("\n")
            if any(_reads_aloud(content, line) for line in lines):
                return True
        replaced = self._tx.nearest(any_term(significant(content)), NEAREST, replaced=True)
        return any(_reads_aloud(content, known.content) for known in replaced)

    def _repeat(self, known: LearningRow, new: NewLearning, evidence: Evidence) -> int:
        """Count a repetition, and keep the better of the two pieces of evidence."""
        is_better = evidence.turn is not None and _is_better(evidence, known)
        self._draft.put(Repeated(known.id, new, counts=evidence.origin in _COUNTED, better=is_better))
        return known.id

    def _new(self, number: int, learning: ParsedLearning, evidence: Evidence) -> NewLearning:
        return NewLearning(
            number=number,
            created_at=self._dated(evidence),
            type=evidence.type,
            content=learning.content,
            said=said(learning.content),
            origin=evidence.origin,
            confidence=evidence.confidence,
            turn=evidence.turn.id if evidence.turn else None,
            session=evidence.turn.session_id if evidence.turn else None,
            quote=evidence.quote,
            project=_project_of(evidence),
        )

    def _add(self, new: NewLearning) -> int:
        self._draft.put(new)
        self._taught[new.number] = new
        return new.number

    def _dated(self, evidence: Evidence) -> float:
        return self._curation.created_at if evidence.turn is None else evidence.turn.timestamp

    def _open_action(self, number: int, learning: ParsedLearning, evidence: Evidence) -> None:
        """Open an action, or link the one that the agent or the person already wrote."""
        at, turn = self._dated(evidence), evidence.turn
        when, refused = time_of(learning, at, self._curation.created_at, self._tx.actions)
        mission = turn.mission_id if turn is not None else None
        if (mirrored := written_already(self._tx.actions, mission, learning.content, when)) is not None:
            if mirrored.source_learning_id is None:
                self._draft.put(Acted(action=mirrored.id, source_learning_id=number))
            return
        if refused is not None:
            self._draft.refuse("not_scheduled", f"{refused}: {learning.content}")
        content = learning.content if refused is None else with_its_time(learning).content
        self._draft.put(
            Acted(
                action=number,
                is_new=True,
                note=made_words(when.due, when.rrule, when.tz),
                created_at=at,
                content=content,
                source_learning_id=number,
                due=when.due,
                rrule=when.rrule,
                tz=when.tz,
                first_due=when.due,
            )
        )

    def _retire(self, replaced: int, by: int, evidence: Evidence) -> None:
        if replaced > MADE_IDS:
            self._close_written(replaced, evidence)
            return
        known = self._tx.known(replaced)
        if known is None or known.id == by:
            return
        if self._is_of_another_project(known, by, evidence):
            self._draft.refuse("supersede_refused", f"L{replaced} stands: it is of another project")
            return
        closed_by = _closed_by(evidence, known.type, known.content)
        if not _may_retire(closed_by or evidence.origin, known.type, known.origin):
            self._draft.refuse("supersede_refused", f"L{replaced} stands: {_whose_word(known.type)} could replace it")
        elif (known.source_observation_id or 0) > (self._curation.last_observation_id or 0):
            # A quarantined turn is curated late. It must not revoke learnings from newer turns.
            self._draft.refuse("supersede_refused", f"L{replaced} stands: it was learned from a newer turn")
        else:
            self._draft.put(Superseded(replaced, by))
            self._retired.append(known.content)
            if known.project is None:
                # The user's own learning is replaced by one of the user, not of a project.
                self._draft.put(MadeOwn(by))
            for action in self._tx.actions.standing_for(known.id):
                self._close(action)

    def _is_of_another_project(self, known: LearningRow, by: int, evidence: Evidence) -> bool:
        """Return whether the turn or the new learning belongs to a different project than the old one."""
        if known.project is None:
            return False
        here = evidence.turn.project if evidence.turn is not None else None
        replacing = self._tx.known(by)
        there = replacing.project if replacing is not None else None
        return here not in {None, known.project} or there not in {None, known.project}

    def _close_written(self, action_id: int, evidence: Evidence) -> None:
        """Close an action that the person or the agent wrote, by the rules for learned ones."""
        action = self._tx.actions.get(action_id)
        if action is None or action.status != "open":
            return
        origin = "user" if action.origin == "person" else "assistant"
        if _may_retire(_closed_by(evidence, "ACTION", action.content) or evidence.origin, "ACTION", origin):
            self._close(action)
        else:
            self._draft.refuse("supersede_refused", f"L{action_id} stands: {_whose_word('ACTION')} could replace it")

    def _close(self, action: Action) -> None:
        self._draft.put(Acted(action=action.id, status="done", note="done"))


def _project_of(evidence: Evidence) -> str | None:
    """Return the project of a learning: its turn's, except that preferences belong to the user."""
    return None if evidence.turn is None or evidence.type == "PREFERENCE" else evidence.turn.project


def _whose_word(kind: str) -> str:
    if kind == "ACTION":
        return "only the person's word, or a quote of the command that did it,"
    return "only the person's word"


def _reads_aloud(content: str, known: str) -> bool:
    return share(content_words(content), content_words(known)) >= ECHO_SHARE


def _is_better(evidence: Evidence, known: LearningRow) -> bool:
    """Return whether new evidence is better. Only the user's word outranks another origin."""
    if evidence.origin == known.origin:
        return evidence.confidence > known.confidence
    return evidence.origin == "user"


def _closed_by(evidence: Evidence, kind: str, content: str) -> Origin | None:
    """Return the origin that closes an item apart from the learning itself, or None.

    It is the command that did the work or, for an action, the user in a message that mentions it. A plain "thanks"
    closes nothing.
    """
    message = content_words(evidence.turn.user_message) if evidence.turn is not None else frozenset()
    if kind == "ACTION" and evidence.told and message & content_words(content):
        return "user"
    return "assistant" if evidence.act and evidence.origin in {"tool", "program"} else None


def _may_retire(origin: Origin, kind: str, known_origin: str) -> bool:
    """Return whether an origin may retire an item. Only the user retires the user's statements."""
    if origin == "user":
        return True
    if origin == "assistant":
        return kind == "ACTION" or known_origin != "user"
    if origin == "program":
        return known_origin == "program"
    return origin in {"tool", "web"} and known_origin in {"tool", "web", "program"}


#: Turns before a batch, in its conversations, whose pages and results the agent may still refer to.
EARLIER_TURNS = 25
#: The search reads this many earlier turns that match, and this many recent ones for words missing from the log.
DISTANT_TURNS, RECENT_TURNS = 10, 200
#: The search uses at most this many new lines of one answer.
_MOST_TRACED = 60
_WORK = frozenset(CURATED) - {"user.md"}

log = logging.getLogger(__name__)


class Judge:
    """Decide about curator answers and changes of actions with the current memory; write nothing."""

    def __init__(self, transcript: TranscriptDB, memory: MemoryDB) -> None:
        self._transcript = transcript
        self._memory = memory

    async def decided(self, answer: NewCuration) -> NewCuration:
        """Return an answer with a decision made now, ready for the log."""
        now = time.time()
        return replace(answer, decision=write_decision(await self.decide(answer.at(now))), created_at=now)

    async def decide(self, curation: Curation) -> list[Part]:
        """Return the decision about a curation.

        If a guard fails, the decision refuses everything: a second call would cost again and fail again.
        """
        try:
            turns: list[Observation] = []
            if curation.kind == "batch":
                first, last, match = turns_to_read(curation)
                turns = await self._transcript.heard(first, last, match, limit=DISTANT_TURNS, recent=RECENT_TURNS)
            return await self._memory.rehearse(lambda tx: decide(tx, curation, turns))
        except SpriteError:
            raise
        except Exception as error:
            log.exception("a curation could not be decided about")
            words = f"nothing was taken over, since deciding about it failed: {type(error).__name__}: {error}"
            return [Refusal("undecided", words[:REPORT_CHARS])]


def turns_to_read(curation: Curation) -> tuple[int, int, str]:
    """Return the first and the last turn that the decision about a batch needs, and a search for earlier ones.

    The search is an FTS5 expression for the new lines about the work. It is empty without such lines: user.md needs
    the person's word anyway.
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

    `heard` are the turns that the decision about an answer needs. The decision is also written to memory.db, so the
    caller rolls the transaction back.
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
