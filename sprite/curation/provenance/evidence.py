"""Where a learning's evidence stands: whose words carry it, and how far it can be trusted (pure).

The curator cites a turn and may quote it; whether that is so is decided here, in code, from the log.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from sprite.curation.answer import ParsedLearning
from sprite.curation.answer_files import Edit, heading_name
from sprite.curation.provenance.guards import MAX_FOREIGN, Given, Sources, Work, WorkWord
from sprite.curation.provenance.persons_word import Talk, taken_up
from sprite.curation.provenance.quotes import Spoken, denials, quote_of
from sprite.curation.provenance.voices import Hearing, Origin, Voice, voices_as_shown
from sprite.log.transcript import Observation
from sprite.memory.files import SECTIONED
from sprite.memory.sections import heading, joined, split
from sprite.memory.words import Text, content_words, run_words, runs

#: How sure a learning is, by its evidence: quoted words of the person's, words of others, a mere citation.
QUOTED_USER = 0.9
QUOTED_OTHER = 0.6
CITED_ONLY = 0.5
UNVERIFIED = 0.1

#: Only the person's own words make these; from anyone else's mouth the same sentence is a mere FACT.
PERSONAL_TYPES = frozenset({"PREFERENCE", "CORRECTION"})
#: Whose words are neither the person's nor the agent's.
STRANGERS: frozenset[Origin] = frozenset({"tool", "web", "program", "memory"})
_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?。!?])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a learning rests on: its turn, whose words, how sure, and the type it may have.

    `quote` is the turn's own wording where the quote was found there. `act`: a command that did not fail says it, and
    `told`: the person says it, whosever words the learning has beside.
    `outside`: it has words of a page, a paste or another agent, whatever is quoted for it.
    """

    turn: Observation | None
    origin: Origin
    confidence: float
    type: str
    quote: str | None
    act: bool = False
    told: bool = False
    outside: bool = False


class Provenance:
    """Who said what: in a batch's turns, and in those just before it, whose words are still in the air."""

    def __init__(self, turns: Sequence[Observation], earlier: Sequence[Observation]) -> None:
        self.turns = turns
        heard = (*earlier, *turns)
        self.hearing = Hearing(heard)
        self._voices = self.hearing.voices
        #: The person's own words, message by message and sentence by sentence.
        self.messages = [self.hearing.messages[turn.id].own for turn in heard]
        self.person = [Text(said) for message in self.messages for said in _SENTENCE_END.split(message)]
        #: What the agent did: commands, paths, questions.
        self.acts = self.hearing.acts
        #: What tools and pages said, and the CLI's own notices: not trusted.
        self.strangers = [voice for turn in heard for voice in self._voices[turn.id] if voice.origin in STRANGERS]
        self._vouching = [*self.person, *self.acts]
        self._sources = Sources(self._vouching, [voice.words for voice in self.strangers])
        self._vouched = frozenset[str]().union(*(text.words for text in self._vouching))
        self._heard = heard

    def stranger_behind(self, content: str, *, outside: bool = False) -> Voice | None:
        """The tool or page whose words a learning really has, where neither the person nor the agent used them first.

        Whatever turn it cites: a true quote of somebody's greeting carries no stranger's sentence. `outside`: only what
        came from outside is asked.
        """
        if self._sources.say(content):
            return None
        words = content_words(content)
        copied = [text for run in runs(run_words(content)) if (text := self._sources.copied_from(run)) is not None]
        for voice in self.strangers:
            if outside and voice.kind != "outside":
                continue
            if len((words & voice.words.words) - self._vouched) > MAX_FOREIGN * len(words) or voice.words in copied:
                return voice
        return None

    def voices(self, turn: Observation) -> list[Voice]:
        """Every text of a turn with its speaker, in the order in which a quote is looked for."""
        return self._voices[turn.id]

    def as_shown(self, turn: Observation) -> list[Voice]:
        """Inputs and results that are no text, as the curator sees them: a quote may reach across their fields."""
        return list(voices_as_shown(turn))

    def work(self, *, documents: bool) -> Iterable[Work]:
        """What the agent wrote and did and what tools showed of it, in order: all that may be told of the work.

        What a tool read out of `documents` is among it only if they are asked for.
        """
        for turn in self._heard:
            # Inputs come before their results and the reply last, as it was; a quote is looked for in another order.
            voices = self._voices[turn.id]
            for voice in (*(v for v in voices if v.kind != "reply"), *(v for v in voices if v.kind == "reply")):
                if voice.kind in {"reply", "input", "result", "memory"} or (documents and voice.kind == "document"):
                    yield voice.work

    def unseen(self, *, documents: bool) -> AbstractSet[int]:
        """Hashes of strangers' words that the log does not keep; what tools read out of `documents` is asked for."""
        hashes = self.hearing.unseen
        return hashes["outside"] | hashes["document"] if documents else hashes["outside"]

    @cached_property
    def talk(self) -> Talk:
        """What everybody said, for comparing lines about the person with it."""
        others = [voice.text for turn in self._heard for voice in self._voices[turn.id] if voice.kind != "person"]
        strangers = [voice.text for voice in self.strangers]
        return Talk(
            self.messages, [text.text for text in self.taken_up], strangers, others, self.unseen(documents=True)
        )

    def is_spelled(self, found: str) -> bool:
        """Whether the person, the agent or a tool here spelled something so: then it is nobody's disguise."""
        return found.casefold() in self._honest.text

    @cached_property
    def _honest(self) -> Given:
        kinds = {"person", "input", "reply", "result"}
        return Given(v.text for turn in self._heard for v in self._voices[turn.id] if v.kind in kinds)

    @cached_property
    def work_word(self) -> WorkWord:
        """What lines about the work may name."""
        kinds = {"person", "input", "reply", "result", "document", "memory"}
        texts = [v.text for turn in self._heard for v in self._voices[turn.id] if v.kind in kinds]
        return WorkWord(Given([*texts, *(text.text for text in self.taken_up)]), self.hearing.unseen["result"])

    def outsiders(self, *, documents: bool) -> list[Text]:
        """What others said; what tools read out of `documents` is among it unless they count as work."""
        kinds = {"outside"} if documents else {"outside", "document"}
        return [voice.words for voice in self.strangers if voice.kind in kinds]

    @cached_property
    def taken_up(self) -> list[Text]:
        """Sentences of others that the person agreed to in a later turn, naming what they are about."""
        return taken_up(self._heard, self.hearing.messages)


def weigh(learning: ParsedLearning, provenance: Provenance) -> Evidence:
    """Judges one learning against the batch it was drawn from."""
    turn = _cited(learning, provenance)
    if turn is None:
        return Evidence(None, "none", UNVERIFIED, _allowed(learning.type, "none"), learning.quote)
    voice, quote = _said(learning, turn, provenance)
    origin: Origin = voice.origin if voice else "none"
    if voice and origin in {"user", "assistant"}:
        stranger = provenance.stranger_behind(learning.content)
        origin = stranger.origin if stranger else origin
    # What tools showed here may be told of the work; a page's sentence may not, whatever result is quoted for it.
    outside = voice is not None and (
        voice.kind == "outside" or provenance.stranger_behind(learning.content, outside=True) is not None
    )
    type_ = _allowed(learning.type, origin)
    act = voice is not None and voice.act
    told = voice is not None and voice.kind == "person" and learning.quote is not None
    return Evidence(
        turn, origin, _confidence(origin, learning.quote), type_, quote, act=act, told=told, outside=outside
    )


def unproven(learning: ParsedLearning, turn: Observation) -> Evidence:
    """What a learning rests on that its turn does not carry: nothing."""
    return Evidence(turn, "none", UNVERIFIED, _allowed(learning.type, "none"), learning.quote)


def _said(learning: ParsedLearning, turn: Observation, provenance: Provenance) -> tuple[Voice | None, str | None]:
    """Whose words a learning rests on, and the quote that proves it, as it is kept."""
    if not learning.quote:
        return _closest_voice(learning.content, provenance.voices(turn)), None
    return _quoted(learning.quote, learning.content, [*provenance.voices(turn), *provenance.as_shown(turn)])


def _quoted(quote: str, content: str, voices: Sequence[Voice]) -> tuple[Voice | None, str]:
    """Who said a quote, in the strictest way of reading it in which anybody did, and how it stands there."""
    # The curator is shown turns as XML, and may copy what it sees.
    wordings = [quote_of(wording) for wording in dict.fromkeys((quote, html.unescape(quote)))]
    if not any(wording.words for wording in wordings):
        return _spoken_by(quote, voices), quote
    cut_out: str | None = None
    for read in (Spoken.as_it_is, Spoken.in_parts, Spoken.nearly):
        for voice in voices:
            for wording in wordings:
                for places in read(voice.spoken, wording):
                    denial = _denial(voice, places)
                    said = voice.spoken.wording(places, denial)
                    if denial is None or denials(content) - denials(voice.spoken.wording(places)):
                        return voice, said
                    cut_out = cut_out or said
    # What was said is the opposite: the clause is kept, so that a reader sees why it counts for nothing.
    return None, cut_out or quote


def _denial(voice: Voice, places: Sequence[range]) -> int | None:
    """Where a negation stands that the quote was cut out of; in commands and results "no" is mostly an option."""
    if voice.kind not in {"person", "reply"}:
        return None
    denied = [voice.spoken.denied_from(place) for place in places]
    return next((at for at in denied if at is not None), None)


def digest_evidence(learning: ParsedLearning, provenance: Provenance) -> Evidence:
    """What a session's digest rests on: the agent's word for what was done, or a stranger's where it is theirs."""
    stranger = provenance.stranger_behind(learning.content)
    origin: Origin = "assistant" if stranger is None else stranger.origin
    return Evidence(_cited(learning, provenance), origin, CITED_ONLY, learning.type, None)


def _confidence(origin: Origin, quote: str | None) -> float:
    if origin in {"none", "memory"}:
        return UNVERIFIED
    if quote is None:
        return CITED_ONLY
    return QUOTED_USER if origin == "user" else QUOTED_OTHER


def _allowed(type_: str, origin: Origin) -> str:
    return "FACT" if type_ in PERSONAL_TYPES and origin != "user" else type_


def _cited(learning: ParsedLearning, provenance: Provenance) -> Observation | None:
    turns = provenance.turns
    if learning.turn_id is not None:
        return next((turn for turn in turns if turn.id == learning.turn_id), None)
    # An answer without citations is in the format too: the turn that shares most words is taken.
    words = content_words(learning.content)

    def shared(turn: Observation) -> int:
        return len(words & content_words(" ".join(voice.text for voice in provenance.voices(turn))))

    return max(turns, key=shared, default=None)


def _spoken_by(quote: str, voices: Iterable[Voice]) -> Voice | None:
    # The curator is shown turns as XML, and may copy what it sees.
    wanted = {_folded(quote), _folded(html.unescape(quote))}
    for voice in voices:
        said = _folded(voice.text)
        if any(words in said for words in wanted):
            return voice
    return None


def _closest_voice(content: str, voices: Iterable[Voice]) -> Voice | None:
    words = content_words(content)
    scored = [(len(words & content_words(voice.text)), voice) for voice in voices]
    # max keeps the first of equals, and voices come with the person's first.
    shared, voice = max(scored, key=lambda pair: pair[0])
    return voice if shared else None


def _folded(text: str) -> str:
    """A quote is verbatim but for case, white space and typographic quotes."""
    plain = text.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
    return _SPACE.sub(" ", plain).strip().casefold()


@dataclass(frozen=True)
class Part:
    """The evidence for one part of the files: `heard` counts, `others` are strangers there.

    `project` is None for the user's own part, for which all turns count.
    """

    project: str | None
    heard: Provenance
    others: list[Text] = field(default_factory=list)

    def is_of(self, project: str | None) -> bool:
        """Return whether items of a project count here."""
        return self.project is None or project in {None, self.project}

    @cached_property
    def _sources(self) -> Sources:
        texts = [voice.words for turn in self.heard.turns for voice in self.heard.voices(turn)]
        return Sources(texts, self.others)

    def is_anothers(self, content: str) -> bool:
        """Return whether a sentence has too many words that only strangers said."""
        return bool(self.others) and self._sources.own(content_words(content))


class ProjectTurns:
    """The projects of a batch, in the order of turns, and the evidence for each."""

    def __init__(self, turns: Sequence[Observation], earlier: Sequence[Observation], provenance: Provenance) -> None:
        self._turns = turns
        self._earlier = earlier
        #: The evidence from all turns.
        self.all = provenance
        self.keys = projects_of(turns)
        self._parts: dict[str | None, Part] = {}

    def part(self, project: str | None) -> Part:
        """Return the evidence for a project's part; all turns count for the user's own part."""
        if project is None:
            return Part(None, self.all)
        return self._saying(project)

    def is_anothers(self, learning: ParsedLearning, evidence: Evidence) -> bool:
        """Return whether a learning cites a turn of one project for statements in turns of others."""
        turn = evidence.turn
        if turn is None or self.keys in ([], [turn.project]):
            return False
        return self._saying(turn.project).is_anothers(learning.content)

    def _saying(self, project: str | None) -> Part:
        part = self._parts.get(project)
        if part is None:
            own = [turn for turn in self._turns if turn.project in {None, project}]
            before = [turn for turn in self._earlier if turn.project in {None, project}]
            others = [turn for turn in self._turns if turn.project not in {None, project}]
            said = [voice.words for turn in others for voice in self.all.voices(turn)]
            part = self._parts[project] = Part(project, Provenance(own, before), said)
        return part

    def with_headings(self, name: str, content: str, edits: Sequence[Edit]) -> str:
        """Return a file with the missing project headings that edits add lines under."""
        if name not in SECTIONED:
            return content
        added = {edit.path[0].casefold() for edit in edits if edit.verb == "add"}
        parts = split(content)
        missing = [key for key in self.keys if key not in parts.sections]
        asked = [heading(key) for key in missing if heading_name(heading(key)).casefold() in added]
        return joined([content, *asked]) if asked else content

    def without_strays(self, name: str, old: str, content: str) -> tuple[str, list[str]]:
        """Return a file without new sections of projects outside this batch, and those projects."""
        parts = split(content)
        allowed = {*split(old).sections, *(self.keys if name in SECTIONED else [])}
        strays = [key for key in parts.sections if key not in allowed]
        if not strays:
            return content, []
        return joined([parts.own, *(text for key, text in parts.sections.items() if key in allowed)]), strays


def projects_of(turns: Sequence[Observation]) -> list[str]:
    """Return the projects of turns, in order."""
    return list(dict.fromkeys(turn.project for turn in turns if turn.project is not None))
