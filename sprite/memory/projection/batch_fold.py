"""One batch's answer -> learnings, actions and file versions, as far as the evidence and the guards allow.

Deterministic: the same answer over the same turns and the same memory gives the same rows. Whatever is refused is
reported with its reason, and nothing of it is lost: the answer itself is in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from sprite.database.actions import Action
from sprite.database.curations import Curation
from sprite.database.projected import (
    Known,
    NewLearning,
    Projected,
)
from sprite.database.transcript import Observation
from sprite.memory.curation.answer import (
    CuratorResponse,
    ParsedLearning,
    parse_response,
)
from sprite.memory.curation.answer_edits import Edited, apply_edits
from sprite.memory.files import CURATED, over_limit, over_together, sha256, template
from sprite.memory.projection.action_fold import history_of_new, status_words
from sprite.memory.projection.ageing import without_past_reminders
from sprite.memory.projection.disguises import disguise_of, told_apart
from sprite.memory.projection.evidence import (
    Evidence,
    Provenance,
    digest_evidence,
    weigh,
)
from sprite.memory.projection.guards import (
    RESTS_ON,
    Refused,
    Sources,
    drops_too_much,
    lines_to_put_back,
    new_lines,
    put_back,
    repeats,
    rests_on,
    with_pins_of,
    without_foreign_lines,
)
from sprite.memory.projection.persons_word import PersonsWord
from sprite.memory.projection.rules import rules_of
from sprite.memory.projection.voices import Origin
from sprite.memory.recall.query import (
    any_term,
    significant,
)
from sprite.memory.words import FORGOTTEN, Text, content_words, said, share

#: Origins whose repetition says something new; an assistant that repeats itself may only be reading memory aloud.
_COUNTED: frozenset[Origin] = frozenset({"user", "tool", "web"})
#: Origins that no curated file may rest on without the person's word.
_FOREIGN: frozenset[Origin] = frozenset({"tool", "web", "memory", "none"})
#: An assistant's sentence that has this part of its words from one thing in memory is that, read aloud.
ECHO_SHARE = 0.8
NEAREST = 3


class BatchFold:
    """Applies one curation of kind `batch` inside its transaction."""

    def __init__(
        self, tx: Projected, curation: Curation, turns: Sequence[Observation], earlier: Sequence[Observation] = ()
    ) -> None:
        self._tx = tx
        self._curation = curation
        self._rules = rules_of(curation.prompt_sha256)
        self._provenance = Provenance(turns, earlier, self._rules)
        self._weighed: list[tuple[ParsedLearning, Evidence]] = []
        #: What was superseded or completed: its lines may leave the files.
        self._retired: list[str] = []
        self.learnings: list[int] = []
        self.files: list[str] = []
        self.actions: list[int] = []

    def apply(self) -> None:
        """Learnings first, since files may rest on them."""
        response = parse_response(self._curation.response, as_first_read=not self._rules.unwraps_headers)
        for learning in response.learnings:
            self._learn(learning)
        self._rewrite_files(response)
        self._edit_files(response)
        self._take_out_past()
        for line in response.unparsed:
            self._report("unparsed", line)

    # --- learnings ---

    def _learn(self, learning: ParsedLearning) -> None:
        # Each has a number of its own, whatever becomes of it: later answers name learnings by their numbers, and
        # those must stand when one before them is forgotten.
        number = self._tx.next_number()
        if learning.content == FORGOTTEN:
            return
        if learning.type == "DIGEST":
            self._digest(number, learning)
            return
        evidence = weigh(learning, self._provenance)
        self._weighed.append((learning, evidence))
        if evidence.type != learning.type:
            lowered = f"a {learning.type} that the person did not say became a {evidence.type}"
            self._report("type_lowered", lowered)
        if evidence.origin == "none":
            self._report("unverified", f"its evidence is not in the turn it names: {learning.content}")
        known = self._tx.same_learning(evidence.type, said(learning.content))
        if known is None and evidence.origin in {"assistant", "memory"}:
            known = self._echoed(learning.content)
            if known is None and not learning.supersedes and self._is_stale_echo(learning.content):
                return
        learning_id = self._repeat(known, evidence) if known else self._add(number, learning, evidence)
        for replaced in learning.supersedes:
            self._retire(replaced, learning_id, evidence)

    def _digest(self, number: int, learning: ParsedLearning) -> None:
        """What a session came to: one at a time, and nobody's word, however much of it the person said."""
        evidence = digest_evidence(learning, self._provenance)
        self._weighed.append((learning, evidence))
        self._add(number, learning, evidence)
        if evidence.turn is not None:
            for earlier in self._tx.digests_of(evidence.turn.session_id):
                self._tx.supersede(earlier, number)

    def _echoed(self, content: str) -> Known | None:
        """What memory knew already and the agent only read aloud: that is no news, however it is put."""
        return next((known for known in self._nearest(content) if _reads_aloud(content, known.content)), None)

    def _is_stale_echo(self, content: str) -> bool:
        """Whether the agent read aloud what stands in a file, or what has been superseded since."""
        for name in CURATED:
            lines = (self._tx.latest_content(name) or "").split("\n")
            if any(_reads_aloud(content, line) for line in lines):
                return True
        replaced = self._tx.nearest_replaced(any_term(significant(content)), NEAREST)
        return any(_reads_aloud(content, known.content) for known in replaced)

    def _nearest(self, text: str) -> list[Known]:
        return self._tx.nearest(any_term(significant(text)), NEAREST)

    def _repeat(self, known: Known, evidence: Evidence) -> int:
        """Said before: counted, and (where this time the evidence is better) resting on it from now on."""
        if evidence.origin in _COUNTED:
            self._tx.count_again(known.id, self._curation.created_at)
        if evidence.turn is not None and _is_better(evidence, known):
            self._tx.corroborate(
                known.id,
                origin=evidence.origin,
                confidence=evidence.confidence,
                evidence=evidence.quote,
                source_observation_id=evidence.turn.id,
                session_id=evidence.turn.session_id,
            )
        return known.id

    def _add(self, number: int, learning: ParsedLearning, evidence: Evidence) -> int:
        at = self._curation.created_at
        if evidence.turn is not None and self._rules.dates_by_turn:
            at = evidence.turn.timestamp
        self._tx.add_learning(
            NewLearning(
                id=number,
                created_at=at,
                session_id=evidence.turn.session_id if evidence.turn else None,
                type=evidence.type,
                content=learning.content,
                source_observation_id=evidence.turn.id if evidence.turn else None,
                confidence=evidence.confidence,
                curation_id=self._curation.id,
                origin=evidence.origin,
                evidence=evidence.quote,
                said=said(learning.content),
            )
        )
        self.learnings.append(number)
        if evidence.type == "ACTION" and evidence.origin in {"user", "assistant"}:
            self._open_action(number, learning.content, at)
        return number

    def _open_action(self, number: int, content: str, at: float) -> None:
        action = Action(number, at, content, priority=0, status="open", source_learning_id=number)
        self._tx.actions.add(action)
        self._tx.actions.note(number, at, "curator", history_of_new(action))
        self.actions.append(number)

    def _retire(self, replaced: int, by: int, evidence: Evidence) -> None:
        known = self._tx.known(replaced)
        if known is None or known.id == by:
            return
        origin = _closed_by(evidence, known) if self._rules.acts_close_actions else None
        if not _may_retire(origin or evidence.origin, known):
            self._report("supersede_refused", f"L{replaced} stands: {self._whose_word(known)} could replace it")
        elif (known.source_observation_id or 0) > (self._curation.last_observation_id or 0):
            # A turn that was set aside is curated late: what was learned from a newer one is not taken back by it.
            self._report("supersede_refused", f"L{replaced} stands: it was learned from a newer turn")
        elif self._tx.supersede(replaced, by):
            self._retired.append(known.content)
            self._close_action_of(known.id)

    def _close_action_of(self, learning_id: int) -> None:
        for action in self._tx.actions.standing_for(learning_id):
            self._tx.actions.change(action.id, status="done")
            self._tx.actions.note(action.id, self._curation.created_at, "curator", status_words("done"))
            self.actions.append(action.id)

    def _whose_word(self, known: Known) -> str:
        if self._rules.tells_why and known.type == "ACTION":
            return "only the person's word, or a quote of the command that did it,"
        return "only the person's word"

    # --- files ---

    def _rewrite_files(self, response: CuratorResponse) -> None:
        for name, content in response.files.items():
            if name in CURATED:
                self._rewrite(name, content)

    def _edit_files(self, response: CuratorResponse) -> None:
        for name, edits in response.edits.items():
            edited = apply_edits(self._latest(name), edits)
            for words in edited.missed:
                self._report("edit_missed", f"{name}: {words}")
            self._rewrite(name, edited.content, edited)

    def _take_out_past(self) -> None:
        """Reminders whose day had passed when the person last spoke."""
        if not self._rules.takes_out_past or not self._provenance.turns:
            return
        new, gone = without_past_reminders(self._latest("context.md"), self._provenance.turns[-1].timestamp)
        if gone:
            self._add_version("context.md", new)
            self._report("aged", f"context.md: its day has passed: {'; '.join(gone)}")

    def _latest(self, name: str) -> str:
        version = self._tx.latest_content(name)
        return template(name) if version is None else version

    def _rewrite(self, name: str, content: str, edited: Edited | None = None) -> None:
        """Makes a file's next version, of a complete content or of what edits made."""
        version = self._tx.latest_content(name)
        old = template(name) if version is None else version
        # As the curator gave it, so that what is too long is refused and not cut to fit.
        wanted = with_pins_of(old, content)
        reason = over_limit(name, wanted) or self._over_together(name, wanted) or self._overtaken(name)
        if reason is None and edited is None and self._rules.keeps_what_is_not_shown:
            reason = over_limit(name, old, has="has")
        if reason is not None:
            self._refuse(name, reason)
            return
        sources = self._sources(name, old, content)
        kept, refused = self._without_foreign_lines(name, old, content, sources)
        for each in refused:
            self._report_line(name, each)
        new = with_pins_of(old, kept)
        if new == old or not new.strip():
            return
        # What the file was shipped with is scaffolding: it may all go.
        if version is not None:
            if self._rules.puts_lines_back:
                new = self._with_lost_lines(name, old, new, edited, refused)
                reason = over_limit(name, new) or self._over_together(name, new)
            else:
                reason = drops_too_much(old, new, self._retired)
            if reason is not None:
                self._refuse(name, reason)
                return
        if new == old:
            return
        self._add_version(name, new)

    def _add_version(self, name: str, content: str) -> None:
        self._tx.add_version(
            name,
            content,
            sha256(content),
            curation_id=self._curation.id,
            at=self._curation.created_at,
            source="curator",
        )
        if name not in self.files:
            self.files.append(name)

    def _with_lost_lines(self, name: str, old: str, new: str, edited: Edited | None, refused: Sequence[Refused]) -> str:
        """One careless answer costs no update: what it may not leave out stands again."""
        not_taken = [each.line for each in refused]
        explained = edited.explained(not_taken) if edited is not None else frozenset()
        lost = lines_to_put_back(old, new, self._retired, explained, not_taken)
        for line in lost:
            self._report("lines_kept", f"{name}: it was left out without a reason, and stands again: {line.strip()}")
        return put_back(old, new, lost) if lost else new

    def _report_line(self, name: str, refused: Refused) -> None:
        if self._rules.tells_why:
            self._report("line_refused", f"{name}: refused, because {refused.reason}: {refused.line}")
        else:
            self._report("line_refused", f"{name}: nobody here said this: {refused.line}")

    def _refuse(self, name: str, reason: str) -> None:
        self._report("file_refused", f"{name}: {reason}; the old file stays")

    def _over_together(self, name: str, content: str) -> str | None:
        if not self._rules.limits_together:
            return None
        return over_together(name, content, {other: self._latest(other) for other in CURATED})

    def _overtaken(self, name: str) -> str | None:
        """Why a rewrite comes too late: a person changed the file while the curator was at work on it."""
        seen = self._curation.seen_curation_id
        if seen is not None and self._tx.changed_by_a_person(name, since=seen):
            return "a person changed it meanwhile"
        return None

    def _sources(self, name: str, old: str, new: str) -> Sources:
        """Whose words the file's new lines may rest on. What a page or a pasted text said is not among it."""
        heard = self._provenance
        is_told = self._rules.results_may_be_told and name != "user.md"
        # What a document says becomes a plan or a decision only when the person takes it up.
        documents = name in {"tools.md", "files.md"}
        trusted = [*heard.person, *(Text(ll.content) for ll, evidence in self._weighed if evidence.origin == "user")]
        if name != "user.md":
            trusted += heard.acts
        taken_up = heard.taken_up if is_told else []
        foreign = heard.outsiders(documents=documents) if is_told else [voice.words for voice in heard.strangers]
        for learning, evidence in self._weighed:
            if _is_untold(evidence) if is_told else _is_strangers(evidence, name):
                foreign += [] if rests_on(learning.content, taken_up) else [Text(learning.content)]
        for line in new_lines(old, new).values():
            if not rests_on(line, trusted):
                # What the batch itself does not carry may come from memory, and is as good as it was there.
                near = [known for known in self._nearest(line) if _rests_on(line, known.content)]
                near = [known for known in near if not is_told or known.id not in self.learnings]
                trusted += [Text(known.content) for known in near if known.origin == "user"]
                foreign += [Text(known.content) for known in near if _is_foreign(known, is_told=is_told)]
        work = heard.work(documents=documents) if is_told else ()
        if not self._rules.traces_origins:
            return Sources([*trusted, *taken_up, *map(Text, old.split("\n"))], foreign, work)
        return Sources(
            [*trusted, *heard.taken_up, *(Text(told_apart(line)) for line in old.split("\n"))],
            foreign,
            work,
            own_words=heard.hearing.own_words if is_told else frozenset(),
            unseen=heard.unseen(documents=not is_told or not documents),
            sentences=heard.person,
        )

    def _without_foreign_lines(self, name: str, old: str, content: str, sources: Sources) -> tuple[str, list[Refused]]:
        """The new file without lines that are not by whom they have to be, and those lines with the reasons."""
        personal = name == "user.md"
        if not self._rules.traces_origins:
            return without_foreign_lines(old, content, sources, personal=personal)
        heard = self._provenance
        persons = self._persons_word(old, content) if personal else PersonsWord(heard.talk, (), ())

        def is_known(found: str) -> bool:
            return heard.is_spelled(found) or found.casefold() in old.casefold()

        def why(line: str) -> str | None:
            lacks = persons.lacks(line) if personal else persons.denies(line) or heard.work_word.lacks(line, old)
            return disguise_of(line, is_known, personal=personal) or lacks

        return without_foreign_lines(
            old,
            content,
            sources,
            personal=personal,
            reads=told_apart,
            lacks=why,
            carries=persons.carries if personal else None,
        )

    def _persons_word(self, old: str, content: str) -> PersonsWord:
        """What the person said that a line of user.md can rest on: in these turns, in memory, in the file."""
        heard = self._provenance
        quoted = [
            (evidence.quote, learning.content)
            for learning, evidence in self._weighed
            if evidence.origin == "user" and evidence.told and evidence.quote
        ]
        known = [
            known.content
            for line in new_lines(old, content).values()
            for known in self._nearest(line)
            if known.origin == "user" and known.id not in self.learnings and _rests_on(line, known.content)
        ]
        return PersonsWord(heard.talk, [*old.split("\n"), *known], quoted)

    def _report(self, kind: str, detail: str) -> None:
        self._tx.report(self._curation.id, kind, detail[: self._rules.report_chars])


def _is_strangers(evidence: Evidence, name: str) -> bool:
    # Whom it works for is for the person to say: there what rests on the agent's words is a stranger's, too.
    return evidence.origin in _FOREIGN or (name == "user.md" and evidence.origin == "assistant")


def _is_untold(evidence: Evidence) -> bool:
    """Whether not even the files about the work may rest on it."""
    return evidence.origin in {"web", "none"} or evidence.outside


def _is_foreign(known: Known, *, is_told: bool) -> bool:
    """Whether a file may not rest on what is known; `is_told`: the file may tell what tools showed."""
    if not is_told or known.origin != "tool":
        return known.origin in _FOREIGN
    # Who spoke there is not known any more: the curator's own words may be told, and what it copied may not.
    return repeats(known.content, known.evidence or "")


def _reads_aloud(content: str, known: str) -> bool:
    return share(content_words(content), content_words(known)) >= ECHO_SHARE


def _rests_on(line: str, known: str) -> bool:
    return share(content_words(line), content_words(known)) >= RESTS_ON


def _is_better(evidence: Evidence, known: Known) -> bool:
    """Only the person's word lifts what others said: a stranger's sentence, read aloud, must not become the agent's."""
    if evidence.origin == known.origin:
        return evidence.confidence > known.confidence
    return evidence.origin == "user"


def _closed_by(evidence: Evidence, known: Known) -> Origin | None:
    """Whose word says that something is done, whatever else the learning tells beside; None if only the learning can.

    That is the command that did it, or, of an action, the person in a message about it: no "thanks" closes one.
    """
    message = content_words(evidence.turn.user_message) if evidence.turn is not None else frozenset()
    if known.type == "ACTION" and evidence.told and message & content_words(known.content):
        return "user"
    return "assistant" if evidence.act and evidence.origin == "tool" else None


def _may_retire(origin: Origin, known: Known) -> bool:
    """Only the person retires what the person said; an action is done when the agent says so."""
    if origin == "user":
        return True
    if origin == "assistant":
        return known.type == "ACTION" or known.origin != "user"
    return origin in {"tool", "web"} and known.origin in {"tool", "web"}
