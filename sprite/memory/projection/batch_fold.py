"""Decide which parts of a batch's answer become memory: learnings, actions and file versions.

The decision is made once and logged beside the answer, with each refusal and its reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from sprite.database.projected import MADE_IDS, Action, NewLearning
from sprite.database.transcript import Observation
from sprite.memory.curation.answer import (
    ParsedLearning,
    parse_response,
)
from sprite.memory.files import CURATED
from sprite.memory.projection.action_fold import status_words
from sprite.memory.projection.action_times import (
    AskedTime,
    new_action,
    time_of,
    with_its_time,
    written_already,
)
from sprite.memory.projection.decision import Acted, Draft, MadeOwn, Numbered, Repeated, Superseded
from sprite.memory.projection.evidence import (
    Evidence,
    Provenance,
    digest_evidence,
    unproven,
    weigh,
)
from sprite.memory.projection.file_fold import NEAREST, FileFold
from sprite.memory.projection.project_turns import ProjectTurns
from sprite.memory.projection.voices import Origin
from sprite.memory.recall.query import (
    any_term,
    significant,
)
from sprite.memory.words import FORGOTTEN, content_words, said, share
from sprite.protocol.rows import LearningRow

#: Origins whose repetition is evidence. A repeating assistant may only be reading memory aloud.
_COUNTED: frozenset[Origin] = frozenset({"user", "tool", "web"})
#: Origins that a curated file must not rely on without the user's word.
_FOREIGN: frozenset[Origin] = frozenset({"tool", "web", "program", "memory", "none"})
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
        return next((known for known in self._nearest(content) if _reads_aloud(content, known.content)), None)

    def _is_stale_echo(self, content: str) -> bool:
        """Return whether the agent repeats a line of a file, or a superseded learning."""
        for name in CURATED:
            lines = (self._tx.latest_content(name) or "").split("\n")
            if any(_reads_aloud(content, line) for line in lines):
                return True
        replaced = self._tx.nearest_replaced(any_term(significant(content)), NEAREST)
        return any(_reads_aloud(content, known.content) for known in replaced)

    def _nearest(self, text: str) -> list[LearningRow]:
        return self._tx.nearest(any_term(significant(text)), NEAREST)

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
        asked = AskedTime(learning.due, learning.rrule, turn.timestamp if turn else at, self._curation.created_at)
        when, refused = time_of(asked, self._tx.actions)
        mission = turn.mission_id if turn is not None else None
        if (mirrored := written_already(self._tx.actions, mission, learning.content, when)) is not None:
            if mirrored.source_learning_id is None:
                self._draft.put(Acted(action=mirrored.id, source_learning_id=number))
            return
        if refused is not None:
            self._draft.refuse("not_scheduled", f"{refused}: {learning.content}")
        content = learning.content if refused is None else with_its_time(learning).content
        self._draft.put(new_action(number, at, content, when))

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
        if not _may_retire(_closed_by(evidence, known) or evidence.origin, known):
            self._draft.refuse("supersede_refused", f"L{replaced} stands: {_whose_word(known)} could replace it")
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
        known = LearningRow(
            id=action.id,
            created_at=action.created_at,
            session_id=None,
            type="ACTION",
            content=action.content,
            source_observation_id=None,
            confidence=1.0,
            curation_id=0,
            origin=origin,
            evidence=None,
            superseded_by=None,
            seen=1,
            last_seen=action.created_at,
        )
        if _may_retire(_closed_by(evidence, known) or evidence.origin, known):
            self._close(action)
        else:
            self._draft.refuse("supersede_refused", f"L{action_id} stands: {_whose_word(known)} could replace it")

    def _close(self, action: Action) -> None:
        self._draft.put(Acted(action=action.id, status="done", note=status_words("done")))


def _project_of(evidence: Evidence) -> str | None:
    """Return the project of a learning: its turn's, except that preferences belong to the user."""
    return None if evidence.turn is None or evidence.type == "PREFERENCE" else evidence.turn.project


def _whose_word(known: LearningRow) -> str:
    if known.type == "ACTION":
        return "only the person's word, or a quote of the command that did it,"
    return "only the person's word"


def _reads_aloud(content: str, known: str) -> bool:
    return share(content_words(content), content_words(known)) >= ECHO_SHARE


def _is_better(evidence: Evidence, known: LearningRow) -> bool:
    """Return whether new evidence is better. Only the user's word outranks another origin."""
    if evidence.origin == known.origin:
        return evidence.confidence > known.confidence
    return evidence.origin == "user"


def _closed_by(evidence: Evidence, known: LearningRow) -> Origin | None:
    """Return the origin that closes an item apart from the learning itself, or None.

    It is the command that did the work or, for an action, the user in a message that mentions it. A plain "thanks"
    closes nothing.
    """
    message = content_words(evidence.turn.user_message) if evidence.turn is not None else frozenset()
    if known.type == "ACTION" and evidence.told and message & content_words(known.content):
        return "user"
    return "assistant" if evidence.act and evidence.origin in {"tool", "program"} else None


def _may_retire(origin: Origin, known: LearningRow) -> bool:
    """Return whether an origin may retire an item. Only the user retires the user's statements."""
    if origin == "user":
        return True
    if origin == "assistant":
        return known.type == "ACTION" or known.origin != "user"
    if origin == "program":
        return known.origin == "program"
    return origin in {"tool", "web"} and known.origin in {"tool", "web", "program"}
