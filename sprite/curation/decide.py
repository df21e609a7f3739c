"""Decide which parts of a batch's answer become memory: learnings, actions and file versions.

The log keeps the decision beside the answer, with each refusal and its reason. `Judge.decided` reads the turns.
`BatchFold.apply` parses the answer (answer.py) and checks each learning's quote, numbers and letters (provenance/) and
its verdict (verifier.py), then the files' lines (file_decisions.py). `Fold.put` (memory/decision.py) applies each part.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from sprite.common.due_times import parse_due
from sprite.common.recurrence import DEFAULT_ZONE, first_after, next_after, parse_rule
from sprite.curation.answer import ParsedDone, ParsedLearning, parse_response, read_learning
from sprite.curation.answer_files import Header, begins, read_header, read_line
from sprite.curation.file_decisions import FileFold, Replaced, rests_on
from sprite.curation.provenance.checks import Given, flaw
from sprite.curation.provenance.evidence import Evidence, Turn, Turns
from sprite.curation.verifier import KEEP, Item, Request, Ruling, Rulings, Verification, build_request, keep_item
from sprite.errors import PeerError, SpriteError
from sprite.log.curations import Curation
from sprite.log.transcript import TranscriptDB
from sprite.memory import decision as effects
from sprite.memory.action_rows import MOST_SCHEDULED, alikeness, made_words
from sprite.memory.answers import NEAREST, decide_change
from sprite.memory.database import MemoryDB
from sprite.memory.decision import (
    MADE_IDS,
    QUOTED_OTHER,
    UNVERIFIED,
    VERIFIED,
    Action,
    NewLearning,
    ProjectedActions,
)
from sprite.memory.words import FORGOTTEN, content_words, said, share
from sprite.protocol.shapes import LearningRow
from sprite.rules.condition import parse, shown

#: A time that passed while its turn waited for curation still fires, late. A time from long ago, in imported
#: conversations, does not.
STILL_FIRES_SECONDS = 86_400.0
#: Minimum word overlap with an existing action: of the same turn and due time, of the same turn, of another turn.
ALIKE_AT_ONCE, ALIKE_IN_TURN, ALIKE = 0.15, 0.3, 0.7


@dataclass(frozen=True, slots=True)
class When:
    """The due time, repeat and time zone of a new action."""

    due: float | None = None
    rrule: str | None = None
    tz: str | None = None


def time_of(
    asked: ParsedLearning, said_at: float, read_at: float, actions: ProjectedActions, zone: str
) -> tuple[When, str | None]:
    """Return (an action's time and repeat, the reason if the requested ones were refused).

    `said_at` is the time of the user's words, `read_at` that of the answer, in Unix seconds.
    """
    if asked.due is None and asked.rrule is None:
        return When(), None
    try:
        when = _read(asked, said_at, read_at, zone)
    except PeerError as error:
        return When(), str(error)
    if when.due is None:
        return When(), "its time had passed when it was said"
    if actions.scheduled() >= MOST_SCHEDULED:
        return When(), f"{MOST_SCHEDULED} open actions have a due time already"
    return when, None


def _read(asked: ParsedLearning, said_at: float, read_at: float, tz: str) -> When:
    """Parse an action's requested time; a due time of None has passed. Raise PeerError if the time is invalid."""
    oldest = max(said_at, read_at - STILL_FIRES_SECONDS)
    if asked.rrule is not None:
        parse_rule(asked.rrule)
    if asked.due is None:
        return When(first_after(asked.rrule or "", tz, oldest), asked.rrule, tz)
    due = parse_due(asked.due, tz, said_at)
    if due > oldest:
        return When(due, asked.rrule, tz)
    return When(None if asked.rrule is None else next_after(asked.rrule, due, tz, read_at), asked.rrule, tz)


def written_already(actions: ProjectedActions, mission_id: str | None, content: str, when: When) -> Action | None:
    """Return the similar action that was made in the same turn, or is open with the same time; None without one."""
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


#: The verifier's names of the types that only the person's own words make; from anyone else the sentence is a FACT.
_KINDS = {"PREFERENCE": "preference", "CORRECTION": "correction", "ACTION": "action"}
#: If memory has this share of a sentence's words, the agent may only have read it aloud.
ECHO_SHARE = 0.8
ECHO = "the agent only read it aloud from memory"
#: A learning may keep parts of the superseded ones that it shares so many content words with, the nearest of them.
RELATED_WORDS = 2
MOST_CHANGED = 2


class BatchFold(FileFold):
    """Decide about one logged answer of the curator, part by part."""

    def apply(self) -> list[effects.Part]:  # noqa: C901 - its steps in order
        """Return the decision: learnings first, since files may rest on them. The caller rolls the transaction back."""
        response = parse_response(self.draft.curation.response)
        state = self.draft.state()
        self.files = state.files
        for turn in [turn for turn in response.off_record if turn in self.turns.batch]:
            # The verifier decides, or a page could hide what the person said.
            self.rulings.of(keep_item(turn))
        # Refused learnings have a number, too: later answers refer to numbers, and forgetting must not change them.
        first = state.numbered + 1
        if response.learnings:
            self.draft.put(effects.Numbered(len(response.learnings)))
        if response.files or response.edits:
            self._read_edits(response)
        for number, learning in enumerate(response.learnings, first):
            take = self._digest if learning.type == "DIGEST" else self._learn
            if learning.content != FORGOTTEN:
                take(number, learning)
        for name, edits in self.edits.items():
            self._edit(name, edits)
        if "context.md" in self.files:
            self._take_out_past()
        if response.rules:
            propose(response.rules, self.draft, self.turns, self.rulings)
        # After the files: a line may rest on an action that is finished here.
        for done in response.done:
            self._finish(done)
        for replaced in self.replaced:
            self._retire_behind(replaced)
        if self.outdated:
            self._retire_digests(first)
        for line in response.unparsed:
            self.draft.refuse("unparsed", line)
        return self.draft.parts

    # --- learnings ---

    def _learn(self, number: int, asked: ParsedLearning) -> None:
        """Accept a learning if its evidence and the verifier support it; else refuse it."""
        evidence = self.turns.find(asked.turn_id, asked.quote)
        if evidence is None or evidence.voice.kind == "reply":
            self._keep_unproven(number, asked, evidence)
            return
        if evidence.turn.logged.id in self.turns.off_record:
            return
        voice = evidence.voice
        self.changed[number] = old = self._replaced_words(asked) if asked.supersedes else []
        is_echo = voice.kind == "memory"
        is_fact = asked.type not in _KINDS
        # A fact may name what the turn's work shows. The verifier checks the time of an action.
        due = (asked.due or "").replace("-", " ").replace("T", " ")
        given = Given([*evidence.spoken, *(evidence.turn.worked if is_fact else ()), *old, due])
        may_name_files = is_fact and voice.kind != "person"
        why = ECHO if is_echo else flaw(asked.content, given, evidence.turn.day, may_name_files=may_name_files)
        if why is not None:
            self._refuse("echo" if is_echo else "refused", why, asked, evidence)
            return
        type_, ruling = asked.type, Ruling("", "yes")
        if voice.kind == "person":
            item = Item(_KINDS.get(type_, "fact"), asked.told, evidence.turn.logged.id, evidence.quote, " / ".join(old))
            ruling = self.rulings.of(item)
            is_work = is_fact and ruling.verdict != "yes"
            work = self.turns.find(evidence.turn.logged.id, evidence.quote, in_work=True) if is_work else None
            shown = None if work is None else Given([*work.spoken, *work.turn.worked])
            if work and shown and flaw(asked.content, shown, work.turn.day, may_name_files=True) is None:
                # The work shows it, and the person's request has its words as well.
                evidence, voice, ruling = work, work.voice, Ruling("", "yes")
        elif not is_fact:
            type_ = "FACT"
            self._refuse("type_lowered", f"a {asked.type} that the user did not say became a FACT", asked, evidence)
        if ruling.verdict == "no":
            self._refuse("not_verified", ruling.reason or "the user's messages do not say it", asked, evidence)
        elif ruling.verdict == "unsure":
            self._refuse("unsure", "is this right?", asked, evidence)
            self._add(number, asked, "FACT", "none", evidence.turn, evidence.quote, must_ask=True)
        else:
            # A stranger's sentence stays theirs in the agent's commands.
            is_strangers = voice.kind == "input" and self.turns.first_use.strangers(asked.told) is not None
            origin = "tool" if is_strangers else voice.origin
            # No client proves that a human typed these messages.
            must_ask = voice.kind == "source" or voice.origin == "program"
            by, new = self._add(number, asked, type_, origin, evidence.turn, evidence.quote, must_ask=must_ask)
            for replaced in asked.supersedes:
                self._supersede(replaced, by, new, evidence)

    def _replaced_words(self, asked: ParsedLearning) -> list[str]:
        """Return the texts of the user's learnings that a new one replaces: it may repeat their numbers."""
        words = content_words(asked.content)
        replaced = [known for number in asked.supersedes if (known := self.draft.known(number)) is not None]
        shared = {
            known.content: len(words & content_words(known.content))
            for known in replaced
            if known.origin == "user" and known.type != "ACTION"
        }
        near = [content for content, number in shared.items() if number >= RELATED_WORDS]
        return sorted(near, key=lambda content: -shared[content])[:MOST_CHANGED]

    def _keep_unproven(self, number: int, asked: ParsedLearning, evidence: Evidence | None) -> None:
        """Store a learning without a quote, or with the agent's word alone, as unverified: only search finds it."""
        turn = evidence.turn if evidence is not None else self.turns.batch.get(asked.turn_id or 0)
        if turn is not None and turn.logged.id in self.turns.off_record:
            return
        if flaw(asked.told, None) is not None or self._is_known(asked.told):
            self._refuse("echo", "memory has it, and nothing new proves it", asked, None)
            return
        self.draft.refuse("unverified", f"its quote is not in the turn it names: {asked.told}")
        self._add(number, asked, "FACT", "none", turn, asked.quote)

    def _is_known(self, content: str) -> bool:
        """Return whether memory already says nearly the same: the agent may have read it there."""
        known = [row.content for was in (False, True) for row in self.draft.nearest(content, NEAREST, replaced=was)]
        lines = [line for content in self.files.values() for line in content.split("\n")]
        words = content_words(content)
        return any(share(words, content_words(text)) >= ECHO_SHARE for text in (*known, *lines))

    def _digest(self, number: int, asked: ParsedLearning) -> None:
        """Add a session's digest, and supersede its earlier ones. A digest is never evidence of the user's word."""
        turn = self.turns.batch.get(asked.turn_id or 0) or list(self.turns.batch.values())[-1]
        session = turn.logged.session_id
        heard = [known for known in self.turns.all.values() if known.logged.session_id == session]
        if any(known.logged.id in self.turns.off_record for known in heard):
            return
        digests = self.draft.digests(session)
        earlier = [digest.content for digest in digests]
        given = Given([*(voice.text for known in heard for voice in known.voices), *earlier])
        why = flaw(asked.told, given, turn.day, may_name_files=True, missing="")
        if why is not None:
            self.draft.refuse("refused", f"{why}: {asked.told}")
            return
        origin = "tool" if self.turns.first_use.strangers(asked.told) else "assistant"
        self._add(number, asked, "DIGEST", origin, turn, None)
        for digest in digests:
            self.draft.put(effects.Superseded(digest.id, number))

    def _add(
        self,
        number: int,
        asked: ParsedLearning,
        type_: str,
        origin: str,
        turn: Turn | None,
        quote: str | None,
        *,
        must_ask: bool = False,
    ) -> tuple[int, NewLearning]:
        """Add a learning, or count a repeat of a known one. Return its id, and the learning.

        With `must_ask`, the person is asked to confirm the learning with the curator's type; a confirmation
        creates no action.
        """
        new = NewLearning(
            number=number,
            created_at=self.draft.curation.created_at if turn is None else turn.logged.timestamp,
            type=type_,
            content=asked.told,
            said=said(asked.told),
            origin=origin,
            confidence=UNVERIFIED if origin == "none" else VERIFIED if origin == "user" else QUOTED_OTHER,
            turn=turn.logged.id if turn else None,
            session=turn.logged.session_id if turn else None,
            quote=quote,
            # Preferences belong to the user, not to a project.
            project=None if turn is None or type_ == "PREFERENCE" else turn.logged.project,
            proposed=None if not must_ask else type_ if asked.type == "ACTION" else asked.type,
        )
        known = None if type_ == "DIGEST" else self.draft.same_learning(type_, new.said, new.project)
        if known is not None:
            is_better = new.origin == "user" if new.origin != known.origin else new.confidence > known.confidence
            counts = new.origin not in {"assistant", "memory", "none"}
            self.draft.put(effects.Repeated(known.id, new, counts=counts, better=turn is not None and is_better))
            return known.id, new
        if must_ask and self.draft.is_retired(new.said):
            self.draft.refuse("retired", f"the user said that it is not right: {new.content}", new.turn)
        else:
            self.draft.put(new)
            self.taught[number] = new
            if type_ == "ACTION" and turn is not None:
                self._open_action(number, asked, turn)
        return number, new

    def _refuse(self, kind: str, why: str, asked: ParsedLearning, evidence: Evidence | None) -> None:
        turn = evidence.turn.logged.id if evidence is not None else asked.turn_id
        self.draft.refuse(kind, f"{why}: {asked.told}", turn)

    # --- actions ---

    def _open_action(self, number: int, learning: ParsedLearning, turn: Turn) -> None:
        """Create an action from a learning, or link the learning to the action that already exists for it."""
        at, actions, zone = turn.logged.timestamp, self.draft.actions, self.turns.tz or DEFAULT_ZONE
        when, refused = time_of(learning, at, self.draft.curation.created_at, actions, zone)
        mirrored = written_already(actions, turn.logged.mission_id, learning.content, when)
        if mirrored is not None:
            if mirrored.source_learning_id is None:
                self.draft.put(effects.Acted(action=mirrored.id, source_learning_id=number))
            return
        if refused is not None:
            self.draft.refuse("not_scheduled", f"{refused}: {learning.content}")
        content = learning.content if refused is None else learning.told
        self.draft.put(
            effects.Acted(
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

    def _finish(self, done: ParsedDone) -> None:
        """Close the actions of a `DONE` line."""
        evidence = self.turns.find(done.why.turn_id, done.why.quote)
        turn = evidence.turn if evidence is not None else self.turns.batch.get(done.why.turn_id or 0)
        for number in self._meant(done):
            known = self.draft.known(number)
            is_written = number > MADE_IDS
            actions = [self.draft.actions.get(number)] if is_written else self.draft.actions.standing_for(number)
            open_ = [action for action in actions if action is not None and action.status == "open"]
            if not open_:
                continue
            if turn is None:
                self.draft.refuse("done_refused", f"L{number} stays open: name the turn that finished it")
            elif self._is_finished(open_[0].content, done.why.text, turn, evidence, f"L{number}"):
                for action in open_:
                    self._close(action)
                if known is not None:
                    # It is finished, so no learning replaces it.
                    self.draft.put(effects.Superseded(number, number))
                self.retired.append(open_[0].content if known is None else known.content)

    def _meant(self, done: ParsedDone) -> Sequence[int]:
        """Return the numbers of the actions that a `DONE` line names; its first words choose among them."""
        if not done.words:
            return done.ids
        alike = [
            number
            for action in self.draft.actions.open()
            for number in [action.source_learning_id or action.id]
            for known in [self.draft.known(number)]
            if any(begins(text, done.words) for text in (action.content, known.content if known else ""))
        ]
        found = [number for number in alike if number in done.ids] or alike
        if len(found) == 1:
            return found
        why = "several open actions begin" if found else "no open action begins"
        self.draft.refuse("done_refused", f"{why} like this: {done.words}", done.why.turn_id)
        return ()

    def _is_finished(self, content: str, reason: str, turn: Turn, evidence: Evidence | None, name: str) -> bool:
        """Return whether a turn finishes an action: by a command that concerns it, or by the user's word.

        A command that ended with an error also counts, if its quoted result names the thing.
        """
        number = turn.logged.id
        if number in self.turns.off_record:
            return False
        words = content_words(content)
        shown = evidence.quote if evidence is not None and words & content_words(evidence.quote) else ""
        is_act = any(words & content_words(text) for text in turn.done(shown))
        line = f"{content} (by the agent's command in t{number})" if is_act else f"{content}: {reason}"
        unproven = "neither a command nor the user's words finish it"
        is_possible = is_act or bool(turn.own)
        why = self.rulings.objection(Item("done", line, number), unproven) if is_possible else unproven
        if why is not None:
            self.draft.refuse("done_refused", f"{name} stays open: {why}: {content}", number)
        return why is None

    def _close(self, action: Action) -> None:
        self.draft.put(effects.Acted(action=action.id, status="done", note="done"))

    # --- superseding ---

    def _supersede(self, replaced: int, by: int, new: NewLearning, evidence: Evidence) -> None:
        name = f"L{replaced}"
        if replaced > MADE_IDS:
            action = self.draft.actions.get(replaced)
            is_open = action is not None and action.status == "open"
            if action and is_open and self._is_finished(action.content, new.content, evidence.turn, evidence, name):
                self._close(action)
            return
        known = self.draft.known(replaced)
        if known is None or known.id == by:
            return
        why = self._keeps_standing(known, by, new, evidence)
        if why is not None:
            self.draft.refuse("supersede_refused", f"{name} stands: {why}: {known.content}", new.turn)
            return
        self.draft.put(effects.Superseded(replaced, by))
        self.retired.append(known.content)
        self.outdated.append((known.content, by))
        if known.project is None:
            # The user's own learning is replaced by one of the user, not of a project.
            self.draft.put(effects.MadeOwn(by))
        for action in self.draft.actions.standing_for(known.id):
            self._close(action)

    def _retire_behind(self, line: Replaced) -> None:
        """Supersede the learning that a replaced line of a file came from, by the learning of the new line.

        If no learning says what the new line says, retire the old learning.
        """
        known, basis = self._behind(line.old), line.basis
        if known is None or known.type == "ACTION" or self._is_from_later(known):
            return
        if known.project not in {None, basis.project}:
            return
        new = basis.learning
        by = new.number if new is not None and new.confidence > UNVERIFIED and rests_on(line.new, new.content) else None
        if known.origin != "user":
            is_over = by is not None
        elif basis.turn is None or not basis.is_persons or self.rulings.is_off:
            is_over = False
        else:
            item = Item("supersede", line.new.strip(), basis.turn.logged.id, basis.quote, known.content)
            is_over = self.rulings.of(item).verdict == "yes"
        if is_over:
            self.draft.put(effects.Superseded(known.id, by or known.id))
            self.outdated.append((known.content, by or known.id))

    def _retire_digests(self, first: int) -> None:
        """Supersede digests older than learning `first` that mention something which is now outdated."""
        for digest in self.draft.digests():
            if digest.id >= first:
                continue
            points = [content_words(point) for point in digest.content.split(" / ")]
            for content, by in self.outdated:
                words = content_words(content)
                if any(len(words & point) >= RELATED_WORDS for point in points):
                    self.draft.put(effects.Superseded(digest.id, by))
                    break

    def _is_from_later(self, known: LearningRow) -> bool:
        """Return whether a learning is newer than this batch, whose turns waited in quarantine."""
        return (known.source_observation_id or 0) > (self.draft.curation.last_observation_id or 0)

    def _keeps_standing(self, known: LearningRow, by: int, new: NewLearning, evidence: Evidence) -> str | None:  # noqa: PLR0911 - its cases in order
        """Return why one learning cannot replace another, or None."""
        replacing = self.draft.known(by)
        projects = {evidence.turn.logged.project, replacing.project if replacing is not None else None}
        if known.project is not None and not projects <= {None, known.project}:
            return "it is of another project"
        if self._is_from_later(known):
            return "it was learned from a newer turn"
        # The verifier says whether the user's words are about it.
        is_asked_about = known.origin == "user" and new.origin == "user" and not self.rulings.is_off
        shared = content_words(known.content) & content_words(new.content)
        if not is_asked_about and not shared and not self._replaces(known.content, new.content):
            return "the new learning is not about it"
        if known.type == "ACTION":
            is_done = self._is_finished(known.content, new.content, evidence.turn, evidence, f"L{known.id}")
            return None if is_done else "it is not finished"
        if known.origin != "user":
            is_outranked = new.origin in {"user", "assistant"} or known.origin not in {"user", "assistant"}
            return None if is_outranked else "the words of others cannot replace it"
        # A tool call may replace it that a message of the user's asks for.
        is_asked_work = evidence.voice.kind == "input" and evidence.turn.own and not self.rulings.is_off
        if new.origin != "user" and not is_asked_work:
            return "only the user's word could replace it"
        item = Item("supersede", new.content, evidence.turn.logged.id, evidence.quote, known.content)
        return self.rulings.objection(item, "the user's messages do not replace it")


#: Turns before a batch that are read with it: for the messages and questions before a cited one, and for pages whose
#: text the agent may still refer to.
EARLIER_TURNS = 50

_CITED = re.compile(r"\[t(\d+)\]")
_QUOTED = re.compile(r'"([^"]+)"')

log = logging.getLogger(__name__)


class Judge:
    """Decide about curator answers and changes of actions with the current memory; write nothing.

    Without `verifies`, no model is asked about lines of the person (`SPRITE_VERIFY=off`).
    """

    def __init__(self, transcript: TranscriptDB, memory: MemoryDB, *, verifies: bool = True) -> None:
        self._transcript = transcript
        self._memory = memory
        self._verifies = verifies

    async def request(self, answer: Curation) -> Request | None:
        """Return the request to the verifier about an answer, or None if no line needs a verdict."""
        if not self._verifies or answer.kind != "batch":
            return None
        answer = replace(answer, created_at=answer.created_at or time.time())
        turns = await self._turns(answer, {})
        # Found by a rehearsal of the decision, since the lines of a file rest on the learnings.
        rulings = Rulings({}, "yes")
        await self._memory.transact(
            lambda tx: BatchFold(effects.Fold(tx, answer), turns, rulings).apply(), is_kept=False
        )
        if not rulings.asked:
            return None
        for turn in sorted({item.turn for item in rulings.asked.values() if item.turn is not None}):
            if turns.all[turn].own:
                rulings.of(keep_item(turn))
        return build_request(rulings.asked, turns)

    async def decided(self, answer: Curation) -> Curation:
        """Return an answer, or a person's change, with the decision about it, ready for the log.

        A missing time becomes the current one. The decision uses the verdicts that the answer carries. If a check
        fails, it refuses everything: a second call would cost again and fail again.
        """
        answer = replace(answer, created_at=answer.created_at or time.time())
        try:
            if answer.kind == "batch":
                known: dict[str, Ruling] = {}
                if answer.verification_json is not None:
                    verification = msgspec.json.decode(answer.verification_json, type=Verification)
                    known = {ruling.line: ruling for ruling in verification.rulings}
                turns, rulings = await self._turns(answer, known), Rulings(known, is_off=not self._verifies)
                parts = await self._memory.transact(
                    lambda tx: BatchFold(effects.Fold(tx, answer), turns, rulings).apply(), is_kept=False
                )
            else:
                parts = await self._memory.transact(lambda tx: decide_change(effects.Fold(tx, answer)), is_kept=False)
        except SpriteError:
            raise
        except Exception as error:
            log.exception("a curation could not be decided about")
            words = f"nothing was taken over, since deciding about it failed: {type(error).__name__}: {error}"
            parts = [effects.Refusal("undecided", words[: effects.REPORT_CHARS])]
        if answer.off_record:
            parts = [part for part in parts if not isinstance(part, effects.Refusal) or part.kind != "unparsed"]
            answer = without_off_record(answer, parts, await self._turns(answer, {}))
        return replace(answer, decision_json=msgspec.json.encode(parts).decode())

    async def _turns(self, answer: Curation, known: Mapping[str, Ruling]) -> Turns:
        """Return the turns of an answer's range, the turns just before it, and those that its prompt repeated."""
        first, last = answer.first_observation_id or 0, answer.last_observation_id or 0
        state = await self._memory.transact(lambda tx: effects.Projected(tx).state(first), is_kept=False)
        heard = await self._transcript.observations_of([*range(first - EARLIER_TURNS, last + 1), *state.shown_again])
        # Each message is split, however long.
        turns = await asyncio.to_thread(lambda: {id_: Turn(turn, state.tz) for id_, turn in heard.items()})
        batch = {id_: turn for id_, turn in turns.items() if id_ >= first or id_ in state.shown_again}
        off_record = {id_ for id_ in turns if (ruling := known.get(f"{KEEP}{id_}")) and ruling.verdict == "no"}
        return Turns(batch, turns, state.tz, frozenset(off_record))


def without_off_record(answer: Curation, parts: Sequence[effects.Part], turns: Turns) -> Curation:
    """Return a decided answer without the words of turns that it puts off the record.

    Refused learnings leave a placeholder, so that later ones keep their numbers. Edits stay if they cite only other
    turns. The verification keeps only the turns off the record, because its request has changed.
    """
    taken = {part.content for part in parts if isinstance(part, NewLearning)}
    taken |= {part.new.content for part in parts if isinstance(part, effects.Repeated)}
    hidden = [turns.all[number].own.casefold() for number in answer.off_record if number in turns.all]
    left: list[str] = []
    header: Header | None = None
    for line in answer.response.split("\n"):
        header = read_header(line) or header
        learning = read_learning(line) if header is None else None
        cited = {int(number) for number in _CITED.findall(line)}
        quotes = [quote.casefold() for quote in _QUOTED.findall(line)]
        is_hidden = not cited.isdisjoint(answer.off_record) or any(quote in text for quote in quotes for text in hidden)
        if learning is not None:
            is_taken = learning.told in taken
            left.append(line if is_taken else f"{learning.type}: {FORGOTTEN}")
        elif header is not None and header.kind == "EDIT" and (read_header(line) or (cited and not is_hidden)):
            left.append(line)
    verification = msgspec.json.decode(answer.verification_json or "", type=Verification)
    rulings = [Ruling(f"{KEEP}{number}", "no") for number in answer.off_record]
    blank = msgspec.structs.replace(verification, request_sha256="", answer="", rulings=rulings)
    return replace(answer, response="\n".join(left), verification_json=msgspec.json.encode(blank).decode())


#: Rules that one answer may propose: each is checked against the whole log.
MOST_PROPOSED = 5


def propose(rules: Sequence[str], draft: effects.Fold, turns: Turns, rulings: Rulings) -> None:
    """Propose the answer's rules that the person's own words support. A proposed rule stops no call yet."""
    for text in rules[:MOST_PROPOSED]:
        line = read_line(text)
        try:
            proposed = parse(line.text)
        except PeerError as error:
            draft.refuse("rule_refused", f"{error} {line.text}", line.turn_id)
            continue
        evidence = turns.find(line.turn_id, line.quote)
        if evidence is None or (evidence.voice.kind, evidence.voice.origin) != ("person", "user"):
            draft.refuse("rule_refused", f"the user did not say it: {line.text}", line.turn_id)
            continue
        turn = evidence.turn.logged.id
        if turn in turns.off_record:
            continue
        item = Item("preference", proposed.reason, turn, evidence.quote)
        why = flaw(proposed.reason, Given(evidence.spoken), evidence.turn.day)
        if (why := why or rulings.objection(item, "the user's messages do not say it")) is not None:
            draft.refuse("rule_refused", f"{why}: {line.text}", turn)
            continue
        draft.put(effects.Proposed(f"{shown(proposed)}: {proposed.reason}", turn, evidence.quote))
