"""Decide which versions of the files come of a batch's answer, as far as the evidence and the guards allow.

The curator is shown of each file the person's own part and the sections of the batch's projects, and changes no more
than that: all else stays to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sprite.database.projected import Known, NewLearning
from sprite.memory.curation.answer import CuratorResponse, ParsedLearning
from sprite.memory.curation.answer_edits import Edited, apply_edits
from sprite.memory.files import CURATED, SECTIONED, over_limit, over_together, shown_to, template
from sprite.memory.projection.ageing import without_past_reminders
from sprite.memory.projection.decision import Draft, MadeOwn, Written
from sprite.memory.projection.disguises import disguise_of, told_apart
from sprite.memory.projection.evidence import Evidence
from sprite.memory.projection.guards import (
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
from sprite.memory.projection.persons_word import PersonsWord
from sprite.memory.projection.project_turns import Part, ProjectTurns
from sprite.memory.projection.voices import Origin
from sprite.memory.recall.query import any_term, significant
from sprite.memory.sections import joined, merged, split
from sprite.memory.words import Text, content_words, share

#: Origins that no curated file may rest on without the person's word.
_FOREIGN: frozenset[Origin] = frozenset({"tool", "web", "program", "memory", "none"})
#: Learnings that a line is looked up among.
NEAREST = 3


class FileFold:
    """Decides what an answer says of files, after its learnings.

    `weighed` are those with their evidence, `retired` what they superseded or completed (its lines may leave the
    files), `taught` what of them was new, by number.
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
        """Complete files first, then edits; what has passed leaves last."""
        self._rewrite_files(response)
        self._edit_files(response)
        self._take_out_past()

    def _rewrite_files(self, response: CuratorResponse) -> None:
        for name, content in response.files.items():
            if name in CURATED:
                self._rewrite(name, content)

    def _edit_files(self, response: CuratorResponse) -> None:
        for name, edits in response.edits.items():
            shown = self._projects.with_headings(name, self._shown(name), edits)
            edited = apply_edits(shown, edits)
            for words in edited.missed:
                self._report("edit_missed", f"{name}: {words}")
            self._rewrite(name, edited.content, edited)

    def _take_out_past(self) -> None:
        """Reminders whose day had passed when the person last spoke."""
        if not self._provenance.turns:
            return
        shown = self._shown("context.md")
        new, gone = without_past_reminders(shown, self._provenance.turns[-1].timestamp)
        if gone:
            self._draft.put(Written("context.md", self._whole("context.md", shown, new)))
            self._report("aged", f"context.md: its day has passed: {'; '.join(gone)}")

    def _shown(self, name: str) -> str:
        """A file as the curator was shown it: without the sections of projects that no turn here is of."""
        return shown_to(name, self._latest(name), self._projects.keys)

    def _whole(self, name: str, shown: str, new: str) -> str:
        """The file that comes of what was shown of it and changed."""
        return merged(self._latest(name), new, split(shown).sections) if name in SECTIONED else new

    def _latest(self, name: str) -> str:
        version = self._tx.latest_content(name)
        return template(name) if version is None else version

    def _rewrite(self, name: str, content: str, edited: Edited | None = None) -> None:
        """Makes a file's next version, of a complete content or of what edits made of what was shown of it."""
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
        # What the file was shipped with is scaffolding: it may all go.
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
        # As the curator gave it, so that what is too long is refused and not cut to fit.
        reason = self._over(name, old, with_pins_of(old, content)) or self._overtaken(name)
        if reason is None and is_complete:
            reason = over_limit(name, self._latest(name), has="has")
        return reason

    def _over(self, name: str, shown: str, new: str) -> str | None:
        whole = self._whole(name, shown, new)
        others = {other: self._latest(other) for other in CURATED}
        return over_limit(name, whole) or over_together(name, whole, others)

    def _give_to_person(self, old: str, new: str) -> None:
        """What a project's turns taught about the person, and what now stands in their file, is the person's own."""
        lines = new_lines(old, new).values()
        for number, learning in self._taught.items():
            if learning.project is not None and any(_rests_on(line, learning.content) for line in lines):
                self._draft.put(MadeOwn(number))

    def _with_lost_lines(self, name: str, old: str, new: str, edited: Edited | None, refused: Sequence[Refused]) -> str:
        """One careless answer costs no update: what it may not leave out stands again."""
        not_taken = [each.line for each in refused]
        explained = edited.explained(not_taken) if edited is not None else frozenset()
        lost = lines_to_put_back(old, new, self._retired, explained, not_taken)
        for line in lost:
            self._report("lines_kept", f"{name}: it was left out without a reason, and stands again: {line.strip()}")
        return put_back(old, new, lost) if lost else new

    def _refuse(self, name: str, reason: str) -> None:
        self._report("file_refused", f"{name}: {reason}; the old file stays")

    def _overtaken(self, name: str) -> str | None:
        """Why a rewrite comes too late: a person changed the file while the curator was at work on it."""
        seen = self._draft.curation.seen_curation_id
        if seen is not None and self._tx.changed_by_a_person(name, since=seen):
            return "a person changed it meanwhile"
        return None

    def _sources(self, name: str, old: str, new: str, part: Part) -> Sources:
        """Whose words the new lines of a part may rest on. What a page or a pasted text said is not among it."""
        heard = part.heard
        weighed = [each for each in self._weighed if each[1].turn is None or part.is_of(each[1].turn.project)]
        is_told = name != "user.md"
        # What a document says becomes a plan or a decision only when the person takes it up.
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
                # What the batch itself does not carry may come from memory, and is as good as it was there.
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
        """The new file without lines that are not by whom they have to be, and those lines with the reasons.

        A project's section rests on what was said of that project, the person's own part on every turn.
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
            if known.origin == "user" and known.id not in self._taught and _rests_on(line, known.content)
        ]
        return PersonsWord(heard.talk, [*old.split("\n"), *known], quoted)

    def _nearest(self, text: str) -> list[Known]:
        return self._tx.nearest(any_term(significant(text)), NEAREST)


def _is_strangers(evidence: Evidence, name: str) -> bool:
    # Whom it works for is for the person to say: there what rests on the agent's words is a stranger's, too.
    return evidence.origin in _FOREIGN or (name == "user.md" and evidence.origin == "assistant")


def _is_untold(evidence: Evidence) -> bool:
    """Whether not even the files about the work may rest on it."""
    return evidence.origin in {"web", "program", "none"} or evidence.outside


def _is_foreign(known: Known, *, is_told: bool) -> bool:
    """Whether a file may not rest on what is known; `is_told`: the file may tell what tools showed."""
    if not is_told or known.origin != "tool":
        return known.origin in _FOREIGN
    # Who spoke there is not known any more: the curator's own words may be told, and what it copied may not.
    return repeats(known.content, known.evidence or "")


def _rests_on(line: str, known: str) -> bool:
    return share(content_words(line), content_words(known)) >= RESTS_ON
