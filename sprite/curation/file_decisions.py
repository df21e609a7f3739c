"""Decide which edits of the curated files are accepted, line by line, by their evidence.

The curator sees the user's part of each file and the sections of the batch's projects. It can only change those; all
other text keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sprite.curation.answer import CuratorResponse
from sprite.curation.answer_files import Edit, EditedFile, Line, edits_between, heading_name
from sprite.curation.provenance.checks import Given, flaw
from sprite.curation.provenance.evidence import Kind, Turn, Turns
from sprite.curation.verifier import Item, Rulings
from sprite.log.transcript import projects_of
from sprite.memory.answers import LIVES_ON, NEAREST
from sprite.memory.decision import Fold, MadeOwn, NewLearning, Written
from sprite.memory.files import CURATED, SECTIONED, over_limit, over_together, shown_to, template
from sprite.memory.sections import heading, joined, merged, project_of, split, without_past_reminders
from sprite.memory.words import RUN, content_words, share
from sprite.protocol.shapes import LearningRow

#: A line rests on a learning that has this part of its words.
RESTS_ON = 0.5
#: Complete new content may drop this part of a file's lines without a reason, and at least one.
MAX_DROPPED = 0.25
#: Voices that may carry a line about the work: the person, and what the agent did and saw on this computer.
_WORKING: frozenset[Kind] = frozenset({"person", "input", "result", "printed"})
_WORKING_ORIGINS = frozenset({"user", "assistant", "tool"})
#: The origin of a learning without a quote that stands in its turn.
UNPROVEN = "none"


@dataclass(frozen=True, slots=True)
class Basis:
    """The evidence of a file's line: a quote in a turn, or a learning. The line's numbers must occur in `texts`."""

    texts: Sequence[str]
    is_persons: bool
    may_carry_work: bool
    quote: str
    turn: Turn | None = None
    project: str | None = None
    learning: NewLearning | None = None


@dataclass(frozen=True, slots=True)
class Replaced:
    """A line of a file that an accepted edit replaced."""

    old: str
    new: str
    basis: Basis


@dataclass
class FileFold:
    """Decide which file edits of a curator's answer are accepted."""

    draft: Fold
    turns: Turns
    rulings: Rulings
    #: The curated files by name, with the changes so far.
    files: dict[str, str] = field(default_factory=dict, init=False)
    #: The new learnings of this answer, by number, and the user's learnings that each of them changes.
    taught: dict[int, NewLearning] = field(default_factory=dict, init=False)
    changed: dict[int, list[str]] = field(default_factory=dict, init=False)
    #: Contents of learnings that were superseded or completed: their lines may leave the files.
    retired: list[str] = field(default_factory=list, init=False)
    #: Contents of learnings that were superseded, each with the learning that says what holds now.
    outdated: list[tuple[str, int]] = field(default_factory=list, init=False)
    #: Edits by file, and the files whose edits come from complete new content.
    edits: dict[str, tuple[Edit, ...]] = field(default_factory=dict, init=False)
    complete: Mapping[str, str] = field(default_factory=dict, init=False)
    #: Lines that edits replaced.
    replaced: list[Replaced] = field(default_factory=list, init=False)
    #: New lines of the file that is being edited: a sentence may be copied in parts.
    accepted: list[str] = field(default_factory=list, init=False)

    @cached_property
    def _projects(self) -> list[str]:
        return projects_of(turn.logged for turn in self.turns.batch.values())

    def _read_edits(self, response: CuratorResponse) -> None:
        """Collect the file edits of an answer. A complete file becomes the edits between it and the present one."""
        self.complete = response.files
        self.edits = {name: edits_between(self._shown(name), content) for name, content in response.files.items()}
        self.edits |= response.edits

    def _replaces(self, old: str, new: str) -> bool:
        """Return whether an edit removes a line that rests on learning `old`, or makes it rest on learning `new`."""
        for name, edits in self.edits.items():
            file = EditedFile(self._shown(name))
            for edit in edits:
                at = _found(file, edit)
                if at is None or not rests_on(file.lines[at], old):
                    continue
                if edit.verb == "delete" or any(rests_on(line.text, new) for line in edit.lines):
                    return True
        return False

    def _behind(self, line: str) -> LearningRow | None:
        """Return the earlier learning with most of a line's words, or None."""
        near = self.draft.nearest(line, NEAREST)
        found = [known for known in near if known.id not in self.taught and rests_on(line, known.content)]
        return max(found, key=lambda known: share(content_words(line), content_words(known.content)), default=None)

    def _edit(self, name: str, edits: Sequence[Edit]) -> None:
        seen = self.draft.curation.seen_curation_id
        if name in self.complete and seen is not None and self.draft.changed_by_a_person(name, since=seen):
            self.draft.refuse("file_refused", f"{name}: a person changed it meanwhile; the old file stays")
            return
        old = self._with_headings(name, self._shown(name), edits)
        file = EditedFile(old)
        drops = max(1, int(MAX_DROPPED * sum(bool(line.strip()) for line in old.split("\n"))))
        accepted: list[tuple[str, Basis]] = []
        self.accepted = []
        for edit in edits:
            at: int | None = None
            if edit.verb != "add":
                try:
                    at = file.find(edit)
                except ValueError as error:
                    self.draft.refuse("edit_missed", f"{name}: {edit}: {error}", edit.cited)
                    continue
            if edit.verb == "delete" and at is not None:
                if self._may_delete(name, edit, file.lines[at]) and (name not in self.complete or drops):
                    drops -= name in self.complete
                    file.put(at, ())
                continue
            section = f"## {edit.path[0]}" if at is None else file.section(at)
            replaced = "" if at is None else file.lines[at].strip()
            taken = [
                (line.text, basis) for line in edit.lines if (basis := self._basis_of(name, line, replaced, section))
            ]
            accepted += taken
            if at is None:
                for text, _ in taken:
                    file.add(edit.path, text)
            elif taken:
                file.put(at, [text for text, _ in taken])
                self.replaced += [Replaced(replaced, text, basis) for text, basis in taken]
        self._write(name, self._shown(name), file.content, accepted)

    def _write(self, name: str, old: str, new: str, accepted: Sequence[tuple[str, Basis]]) -> None:
        if new == old or not new.strip():
            return
        whole = self._whole(name, old, new)
        others = {other: self._latest(other) for other in CURATED}
        if (reason := over_limit(name, whole) or over_together(name, whole, others)) is not None:
            self.draft.refuse("file_refused", f"{name}: {reason}; the old file stays")
            return
        if whole == self._latest(name):
            return
        self._put(name, whole)
        if name == "user.md":
            for basis in (basis for _, basis in accepted):
                # A learning of a project becomes the user's own.
                if basis.learning is not None and basis.learning.project is not None:
                    self.draft.put(MadeOwn(basis.learning.number))

    # --- lines ---

    def _basis_of(self, name: str, line: Line, replaced: str, section: str) -> Basis | None:
        """Return the evidence of a new line, or refuse the line and return None."""
        basis = self._basis(line)
        turn = None if basis is None else basis.turn
        if turn is not None and turn.logged.id in self.turns.off_record:
            return None
        reason: str | None = "no turn, quote or learning carries it"
        if basis is not None:
            reason = self._refusal(name, line, basis, replaced, section)
        if reason is None:
            self.accepted.append(line.text)
            return basis
        cited = line.turn_id if turn is None else turn.logged.id
        self.draft.refuse("line_refused", f"{name}: refused, because {reason}: {line.text}", cited)
        return None

    def _refusal(self, name: str, line: Line, basis: Basis, replaced: str, section: str) -> str | None:  # noqa: PLR0911 - its cases in order
        text = line.text.strip()
        worked = [] if name == "user.md" or basis.turn is None else basis.turn.worked
        before = " / ".join(filter(None, (replaced, *self._known_before(text, basis))))
        given = Given([*basis.texts, *worked, before])
        day = None if basis.turn is None else basis.turn.day
        if (why := flaw(text, given, day, may_name_files=name != "user.md")) is not None:
            return why
        project = project_of(section)
        if project is not None and name not in SECTIONED:
            return f"{name} has no section for the project {project}"
        if project is not None and basis.project not in {None, project}:
            return f"no turn of the project {project} carries it"
        if name == "user.md" and not basis.is_persons:
            return "only the user's words carry a line of user.md"
        if basis.is_persons:
            turn = None if basis.turn is None else basis.turn.logged.id
            item = Item("line", text, turn, basis.quote, before)
            reason = self.rulings.objection(item, "the user's messages do not say it")
            # A line that the person's words do not carry may still tell of the turn's work.
            if reason is None or name == "user.md" or not self._is_work(text, basis):
                return reason
        elif not basis.may_carry_work and not self._is_work(text, basis):
            return "a page, a mail, a file or the agent's own word is no evidence for it"
        first_use = self.turns.first_use
        copied = first_use.strangers(text, may_tell_documents=name in {"tools.md", "files.md"})
        return copied or first_use.copied(text, after=" ".join(self.accepted[-RUN:]))

    def _known_before(self, text: str, basis: Basis) -> Sequence[str]:
        """Return the user's learnings that a new learning of the same turn changes: a line may repeat their numbers."""
        new = basis.learning
        if new is None or basis.turn is None or new.turn != basis.turn.logged.id or not rests_on(text, new.content):
            return ()
        return self.changed.get(new.number, ())

    def _is_work(self, text: str, basis: Basis) -> bool:
        """Return whether the turn's work has most of a line's words: then it is no statement of the person's alone."""
        words = content_words(text)
        return basis.turn is not None and share(words, content_words(" ".join(basis.turn.worked))) >= RESTS_ON

    def _basis(self, line: Line) -> Basis | None:
        taught, checked = self._resting(line.text), ""
        evidence = self.turns.find(line.turn_id, line.quote)
        if evidence is None and line.learning_id is None and taught is not None:
            evidence = self.turns.find(taught.turn, taught.quote)
            checked = taught.content if taught.origin != UNPROVEN else ""
        if evidence is not None:
            return Basis(
                [checked, *evidence.spoken],
                evidence.voice.kind == "person",
                evidence.voice.kind in _WORKING,
                evidence.quote,
                evidence.turn,
                evidence.turn.logged.project,
                taught,
            )
        cited = self.draft.known(line.learning_id) if line.learning_id is not None else None
        near = [*([cited] if cited else []), *self.draft.nearest(line.text, NEAREST)]
        # A number may be wrong, and the words of a cited learning may be others.
        resting = [known for known in near if rests_on(line.text, known.content)] or ([cited] if cited else [])
        return next((self._by_known(known) for known in resting if known.origin != UNPROVEN), None)

    def _by_known(self, known: LearningRow) -> Basis:
        quote, is_persons = known.evidence, known.origin == "user"
        # The person confirmed a learning without a quote: its content is their own word, not its turn.
        is_confirmed = is_persons and quote is None
        turn = None if is_confirmed else self.turns.all.get(known.source_observation_id or 0)
        said = [] if turn is None else [each.own for each in self.turns.around(turn).messages]
        may_carry_work = known.origin in _WORKING_ORIGINS
        return Basis(
            [known.content, quote or "", *said], is_persons, may_carry_work, quote or known.content, turn, known.project
        )

    def _resting(self, text: str) -> NewLearning | None:
        """Return the batch's new learning that a line rests on: the one with most of its words, or the only one."""
        words = content_words(text)
        found = {number: share(words, content_words(taught.content)) for number, taught in self.taught.items()}
        best = max(found, key=lambda number: found[number], default=None)
        return self.taught[best] if best is not None and words and (found[best] or len(found) == 1) else None

    def _may_delete(self, name: str, edit: Edit, line: str) -> bool:
        """Return whether a line may be deleted. Refuse a line of user.md without a reason in the user's own words.

        No reason is needed if a learning replaced the learning of the line.
        """
        if any(share(content_words(line), content_words(gone)) >= LIVES_ON for gone in self.retired):
            return True
        if name != "user.md":
            return True
        evidence = self.turns.find(edit.why.turn_id, edit.why.quote)
        turn = evidence.turn if evidence is not None else self.turns.batch.get(edit.why.turn_id or 0)
        reason = "cite the message that ends it"
        if turn is not None and turn.own:
            quote = evidence.quote if evidence is not None else ""
            item = Item("delete", line.strip(), turn.logged.id, quote)
            objection = self.rulings.objection(item, "the user's messages do not end it")
            if objection is None:
                return True
            reason = objection
        self.draft.refuse("lines_kept", f"{name}: it stands, because {reason}: {line.strip()}", edit.cited)
        return False

    # --- files ---

    def _with_headings(self, name: str, content: str, edits: Sequence[Edit]) -> str:
        """Return a file with the missing project headings that edits add lines under."""
        if name not in SECTIONED:
            return content
        added = {edit.path[0].casefold() for edit in edits if edit.verb == "add"}
        missing = [key for key in self._projects if key not in split(content).sections]
        asked = [heading(key) for key in missing if heading_name(heading(key)).casefold() in added]
        return joined([content, *asked]) if asked else content

    def _take_out_past(self) -> None:
        """Remove reminders from context.md whose day had passed at the time of the batch's last turn."""
        shown = self._shown("context.md")
        last = max((turn.logged.timestamp for turn in self.turns.batch.values()), default=0.0)
        new, gone = without_past_reminders(shown, last)
        if gone:
            self._put("context.md", self._whole("context.md", shown, new))
            self.draft.refuse("aged", f"context.md: its day has passed: {'; '.join(gone)}")

    def _shown(self, name: str) -> str:
        """Return a file as the curator saw it: without sections of projects outside this batch."""
        return shown_to(name, self._latest(name), self._projects)

    def _whole(self, name: str, shown: str, new: str) -> str:
        """Return the whole new file: `new` is the edited part, `shown` that part as the curator saw it."""
        return merged(self._latest(name), new, split(shown).sections) if name in SECTIONED else new

    def _latest(self, name: str) -> str:
        return self.files[name] if name in self.files else template(name)

    def _put(self, name: str, content: str) -> None:
        self.files[name] = content
        self.draft.put(Written(name, content))


def _found(file: EditedFile, edit: Edit) -> int | None:
    try:
        return None if edit.verb == "add" else file.find(edit)
    except ValueError:
        return None


def rests_on(line: str, known: str) -> bool:
    """Return whether a line probably comes from a learning: the learning has enough of its words."""
    words = content_words(line)
    return bool(words) and share(words, content_words(known)) >= RESTS_ON
