"""Decide which file versions follow from a batch's answer, by evidence and guards.

The curator sees the user's part of each file and the sections of the batch's projects. It can only change those; all
other text keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sprite.curation.answer import CuratorResponse, ParsedLearning
from sprite.curation.answer_files import Edited, apply_edits
from sprite.curation.provenance.evidence import Evidence, Part, ProjectTurns
from sprite.curation.provenance.guards import (
    RESTS_ON,
    Refused,
    Sources,
    lines_to_put_back,
    new_lines,
    put_back,
    repeats,
    rests_on,
    with_pins_of,
    without_foreign_lines,
)
from sprite.curation.provenance.persons_word import PersonsWord
from sprite.curation.provenance.vocabulary import disguise_of, told_apart
from sprite.curation.provenance.voices import Origin
from sprite.memory.apply import NewLearning
from sprite.memory.decision import Draft, MadeOwn, Written
from sprite.memory.files import CURATED, SECTIONED, over_limit, over_together, shown_to, template
from sprite.memory.query import any_term, significant
from sprite.memory.sections import joined, merged, split, without_past_reminders
from sprite.memory.words import Text, content_words, share
from sprite.protocol.shapes import LearningRow

#: Origins that a curated file must not rely on without the user's word.
_FOREIGN: frozenset[Origin] = frozenset({"tool", "web", "program", "memory", "none"})
#: Learnings to compare a line with.
NEAREST = 3


class FileFold:
    """Decide about an answer's files, after its learnings.

    `weighed` are the learnings with their evidence. `retired` are the contents that they superseded or completed, whose
    lines may be removed from the files. `taught` are the new learnings, by number.
    """

    def __init__(
        self,
        draft: Draft,
        projects: ProjectTurns,
        weighed: Sequence[tuple[ParsedLearning, Evidence]],
        retired: Sequence[str],
        taught: Mapping[int, NewLearning],
    ) -> None:
        self._draft = draft
        self._tx = draft.tx
        self._report = draft.refuse
        self._projects = projects
        self._provenance = projects.all
        self._weighed = weighed
        self._retired = retired
        self._taught = taught

    def apply(self, response: CuratorResponse) -> None:
        """Apply complete files, then edits, then remove past reminders."""
        for name, content in response.files.items():
            self._rewrite(name, content)
        for name, edits in response.edits.items():
            shown = self._projects.with_headings(name, self._shown(name), edits)
            edited = apply_edits(shown, edits)
            for words in edited.missed:
                self._report("edit_missed", f"{name}: {words}")
            self._rewrite(name, edited.content, edited)
        self._take_out_past()

    def _take_out_past(self) -> None:
        """Remove reminders whose day had passed at the time of the last turn."""
        if not self._provenance.turns:
            return
        shown = self._shown("context.md")
        new, gone = without_past_reminders(shown, self._provenance.turns[-1].timestamp)
        if gone:
            self._draft.put(Written("context.md", self._whole("context.md", shown, new)))
            self._report("aged", f"context.md: its day has passed: {'; '.join(gone)}")

    def _shown(self, name: str) -> str:
        """Return a file as the curator saw it: without sections of projects outside this batch."""
        return shown_to(name, self._latest(name), self._projects.keys)

    def _whole(self, name: str, shown: str, new: str) -> str:
        """Return the whole file after a change of the shown part."""
        return merged(self._latest(name), new, split(shown).sections) if name in SECTIONED else new

    def _latest(self, name: str) -> str:
        version = self._tx.latest_content(name)
        return template(name) if version is None else version

    def _rewrite(self, name: str, content: str, edited: Edited | None = None) -> None:
        """Write a file's next version, from complete content or from edits of the shown part."""
        version = self._tx.latest_content(name)
        old = self._shown(name)
        content, strays = self._projects.without_strays(name, old, content)
        for project in strays:
            self._report("line_refused", f"{name}: refused, because no turn here is of the project {project}")
        reason = self._refusal(name, old, content, is_complete=edited is None)
        if reason is not None:
            self._refuse(name, reason)
            return
        kept, refused = self._without_foreign_lines(name, old, content)
        for each in refused:
            self._report("line_refused", f"{name}: refused, because {each.reason}: {each.line}")
        new = with_pins_of(old, kept)
        if new == old or not new.strip():
            return
        # The shipped content is only a scaffold: all of it may be removed.
        if version is not None:
            new = self._with_lost_lines(name, old, new, edited, refused)
            if (reason := self._over(name, old, new)) is not None:
                self._refuse(name, reason)
                return
        whole = self._whole(name, old, new)
        if whole == self._latest(name):
            return
        self._draft.put(Written(name, whole))
        if name == "user.md":
            self._give_to_person(old, new)

    def _refusal(self, name: str, old: str, content: str, *, is_complete: bool) -> str | None:
        # Check the curator's version first, so that long content is refused, not cut to fit.
        reason = self._over(name, old, with_pins_of(old, content)) or self._overtaken(name)
        if reason is None and is_complete:
            reason = over_limit(name, self._latest(name), has="has")
        return reason

    def _over(self, name: str, shown: str, new: str) -> str | None:
        whole = self._whole(name, shown, new)
        others = {other: self._latest(other) for other in CURATED}
        return over_limit(name, whole) or over_together(name, whole, others)

    def _give_to_person(self, old: str, new: str) -> None:
        """Reassign learnings of projects to the user if lines of user.md now rely on them."""
        lines = new_lines(old, new).values()
        for number, learning in self._taught.items():
            if learning.project is not None and any(_rests_on(line, learning.content) for line in lines):
                self._draft.put(MadeOwn(number))

    def _with_lost_lines(self, name: str, old: str, new: str, edited: Edited | None, refused: Sequence[Refused]) -> str:
        """Restore lines that were omitted without a reason, instead of refusing the whole update."""
        not_taken = [each.line for each in refused]
        explained = edited.explained(not_taken) if edited is not None else frozenset()
        lost = lines_to_put_back(old, new, self._retired, explained, not_taken)
        for line in lost:
            self._report("lines_kept", f"{name}: it was left out without a reason, and stands again: {line.strip()}")
        return put_back(old, new, lost) if lost else new

    def _refuse(self, name: str, reason: str) -> None:
        self._report("file_refused", f"{name}: {reason}; the old file stays")

    def _overtaken(self, name: str) -> str | None:
        """Return why a rewrite is too late: a person changed the file after the curator read it."""
        seen = self._draft.curation.seen_curation_id
        if seen is not None and self._tx.changed_by_a_person(name, since=seen):
            return "a person changed it meanwhile"
        return None

    def _sources(self, name: str, old: str, new: str, part: Part) -> Sources:
        """Return the sources for a part's new lines, without the words of pages or pasted text."""
        heard = part.heard
        weighed = [each for each in self._weighed if each[1].turn is None or part.is_of(each[1].turn.project)]
        is_told = name != "user.md"
        # A document's statements become plans or decisions only if the user adopts them.
        documents = name in {"tools.md", "files.md"}
        trusted = [*heard.person, *(Text(ll.content) for ll, evidence in weighed if evidence.origin == "user")]
        if name != "user.md":
            trusted += heard.acts
        taken_up = heard.taken_up if is_told else []
        foreign = heard.outsiders(documents=documents) if is_told else [voice.words for voice in heard.strangers]
        foreign += part.others
        for learning, evidence in weighed:
            if _is_untold(evidence) if is_told else _is_strangers(evidence, name):
                foreign += [] if rests_on(learning.content, taken_up) else [Text(learning.content)]
        for line in new_lines(old, new).values():
            if not rests_on(line, trusted):
                # Lines without support in the batch may rely on memory, with the origin recorded there.
                near = [known for known in self._nearest(line) if _rests_on(line, known.content)]
                near = [known for known in near if part.is_of(known.project)]
                near = [known for known in near if not is_told or known.id not in self._taught]
                trusted += [Text(known.content) for known in near if known.origin == "user"]
                foreign += [Text(known.content) for known in near if _is_foreign(known, is_told=is_told)]
        work = heard.work(documents=documents) if is_told else ()
        return Sources(
            [*trusted, *heard.taken_up, *(Text(told_apart(line)) for line in old.split("\n"))],
            foreign,
            work,
            own_words=heard.hearing.own_words if is_told else frozenset(),
            unseen=heard.unseen(documents=not is_told or not documents),
            sentences=heard.person,
        )

    def _without_foreign_lines(self, name: str, old: str, content: str) -> tuple[str, list[Refused]]:
        """Return the new file without lines that lack their required source, and those lines with reasons.

        A project's section relies on turns of that project, the user's part on every turn.
        """
        before, now = split(old), split(content)
        if name not in SECTIONED or not (before.sections or now.sections):
            return self._checked(name, old, content, self._projects.part(None))
        own, refused = self._checked(name, before.own, now.own, self._projects.part(None))
        parts = [own]
        for project, section in now.sections.items():
            title, _, lines = section.partition("\n")
            _, _, known = before.sections.get(project, "").partition("\n")
            kept, more = self._checked(name, known, lines, self._projects.part(project))
            parts.append(f"{title}\n{kept}")
            refused += more
        return joined(parts), refused

    def _checked(self, name: str, old: str, content: str, part: Part) -> tuple[str, list[Refused]]:
        personal = name == "user.md"
        sources = self._sources(name, old, content, part)
        heard = part.heard
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
            lacks=why,
            carries=persons.carries if personal else None,
        )

    def _persons_word(self, old: str, content: str) -> PersonsWord:
        """Return the user's statements that a line of user.md can rely on: from turns, memory and the file."""
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
            if known.origin == "user" and known.id not in self._taught and _rests_on(line, known.content)
        ]
        return PersonsWord(heard.talk, [*old.split("\n"), *known], quoted)

    def _nearest(self, text: str) -> list[LearningRow]:
        return self._tx.nearest(any_term(significant(text)), NEAREST)


def _is_strangers(evidence: Evidence, name: str) -> bool:
    # Only the user decides whom the agent works for: in user.md, the agent's own words are foreign, too.
    return evidence.origin in _FOREIGN or (name == "user.md" and evidence.origin == "assistant")


def _is_untold(evidence: Evidence) -> bool:
    """Return whether even the files about the work must not rely on the evidence."""
    return evidence.origin in {"web", "program", "none"} or evidence.outside


def _is_foreign(known: LearningRow, *, is_told: bool) -> bool:
    """Return whether a file must not rely on an item; `is_told`: the file may report tool results."""
    if not is_told or known.origin != "tool":
        return known.origin in _FOREIGN
    # The speaker is unknown by now. The curator's own words are allowed, copied words are not.
    return repeats(known.content, known.evidence or "")


def _rests_on(line: str, known: str) -> bool:
    return share(content_words(line), content_words(known)) >= RESTS_ON
