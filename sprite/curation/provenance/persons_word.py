"""Whether a person said what a line of user.md says (pure).

A line about the person is theirs if they said it: most of its words, by assertion and not by question, denied where
they denied it, and with no name, number or address that they did not give. The rest may be the curator's own phrasing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from sprite.capture.truncated_hashes import known_among
from sprite.curation.provenance.guards import (
    DATE,
    DATED,
    NEGATED,
    Given,
    exchanged_in,
    names_in,
    numbers_in,
    without_given,
)
from sprite.curation.provenance.pasted import Message
from sprite.curation.provenance.vocabulary import Vocabulary, comparable, languages_of, told_apart
from sprite.log.transcript import Observation
from sprite.memory.query import forms
from sprite.memory.words import RUN, Text, content_words

SENTENCE_END = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+|\n+")
#: What is put in place of something ends a clause, too, and denies what follows.
_INSTEAD = r"instead of|rather than|(?:an)?statt|plutôt que|au lieu de|en vez de|in plaats van"
_CLAUSE_END = re.compile(
    rf"[,;()\u2013\u2014]|\s-\s|\b(?:but|so|aber|maar|sondern|mais|pero|men|denn|want)\b|(?=\b(?:{_INSTEAD})\b)|"
    r"\b(?:and|und|et|y|e|en|och)(?=\s+(?:not?|never|nicht|nie|kein\w*|pas|nunca|niet|geen|inte|don't|can't|won't)\b)",
    re.IGNORECASE,
)
#: A question that asks the agent to do something is a wish; any other asserts nothing.
_REQUEST = re.compile(
    r"\b(?:(?:can|could|would|will|won't) (?:you|we)|kannst du|könntest du|können sie|würdest du|magst du|kan je|"
    r"kun je|wil je|peux-tu|pouvez-vous|tu peux|puedes|podrías|kan du)\b",
    re.IGNORECASE,
)
#: How questions begin.
_ASKS = re.compile(
    r"\s*(?:(?:and|so|hm+|ok|und|et|y|en)[\s,]+)?(?:do|does|did|is|are|was|were|can|could|should|shall|would|will|have|has|may|"
    r"what|who|whose|when|where|why|how|which|any|wie|was|wer|wann|wo|warum|welche\w*|kann|soll|ist|sind|hat|haben|darf|"
    r"muss|gibt|qu\w*|est-ce|comment|combien|pourquoi|où|puis|dois|qué|cómo|cuá\w+|dónde|puedo|debo|hay|"
    r"wat|hoe|wanneer|waar|mag|moet|zijn|heb|is het)\b",
    re.IGNORECASE,
)
#: What a statement ends with that wants to be agreed to.
_TAG = re.compile(
    r",?\s(?:ok|okay|right|please|pls|ja|bitte|gell|vale|de acuerdo|d'accord|hein|toch|alsjeblieft)\s*\?\s*\Z",
    re.IGNORECASE,
)
_WONDERS = re.compile(
    r"\b(?:i wonder|wondering|what if|should (?:i|we)|shall (?:i|we)|do (?:i|we)|whether|not sure (?:if|that)|"
    r"frage mich|soll(?:te)? ich|sollen wir|ob (?:ich|wir|man)|me demande|devrais-je|me pregunto|debería|zou ik|"
    r"vraag me af)\b",
    re.IGNORECASE,
)
#: What turns a clause into its opposite, beside plain negations.
_DENIES = re.compile(
    r"\b(?:not|never|no longer|no|none|nobody|nothing|nowhere|neither|nor|cannot|\w+n['\u2019]t|dont|doesnt|wont|cant|"
    r"shouldnt|mustnt|stop\w*|quit|avoid\w*|refus\w+|forbid\w*|forbidden|against|wrong|mistake|madness|crazy|nonsense|"
    r"hat(?:e|es|ed)|dislik\w+|except|anything but|far from|out of the question|opposed|"
    r"over my dead body|last thing|won['\u2019]?t|rid of|ban\w*|prohibit\w*|reject\w*|unacceptable|unthinkable|"
    r"nie|niemals|nicht|nichts|kein\w*|niemand|nirgends|weder|falsch|verboten|hör auf|aufhören|"
    r"niet|geen|nooit|niemand|verkeerd|inte|aldrig|ikke|jamais|pas|plus jamais|personne|aucun\w*|"
    rf"{_INSTEAD}|"
    r"nunca|tampoco|nadie|ningún\w*|sin|não)\b",
    re.IGNORECASE,
)
_LIMITS = re.compile(
    r"\b(?:only|within|at most|no more than|up to|instead|nur|höchstens|seulement|uniquement|solo|sólo|alleen|"
    r"hooguit|bara)\b",
    re.IGNORECASE,
)
_ANSWER = re.compile(r"\s*(?:no|nope|nein|non|nee|nej)\s*", re.IGNORECASE)
_WITHOUT = re.compile(
    r"\b(?:without|un(?:asked|attended|checked|read|seen|approved|verified|announced|signed|confirmed)|free|drop|leav(?:e|ing)\b.{0,30}\b(?:out|off)|omit\w*|skip\w*|remov\w+|weglass\w*|ohne|gratis|kostenlos|sans|sin|zonder|utan)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Statement:
    """A clause of the person's; `asked` if it is only a question, `denied` if it says that something is not so.

    `message` tells which of them are of one message.
    """

    text: str
    message: int
    asked: bool
    denied: bool
    without: bool
    limits: bool

    @cached_property
    def words(self) -> Vocabulary:
        """Its words as they are compared."""
        return Vocabulary(comparable(self.text))


@dataclass(frozen=True)
class Said:
    """One message of the person's, taken apart; what they agreed to is asserted, also if the agent asked it."""

    text: str
    is_agreed: bool = False
    message: int = 0

    @cached_property
    def statements(self) -> list[Statement]:
        """Its clauses in their order."""
        return list(statements_of(self.text, is_agreed=self.is_agreed, message=self.message))

    @cached_property
    def sentences(self) -> list[Vocabulary]:
        """The words of each sentence."""
        return [Vocabulary(comparable(sentence)) for sentence in SENTENCE_END.split(self.text)]

    @cached_property
    def words(self) -> Vocabulary:
        """All its words."""
        return Vocabulary(comparable(self.text))


def statement_of(text: str) -> Statement:
    """A text as one clause."""
    return Statement(
        text, 0, False, bool(_DENIES.search(text)), bool(_WITHOUT.search(text)), bool(_LIMITS.search(text))
    )


def statements_of(text: str, *, is_agreed: bool = False, message: int = 0) -> Iterator[Statement]:
    """The clauses of a text."""
    for sentence in SENTENCE_END.split(text):
        is_question = not is_agreed and _is_asked(sentence)
        # "I keep the books in Belegfix, does that export CSV?" says something before it asks.
        says_first = is_question and not _WONDERS.search(sentence) and not _ASKS.match(sentence)
        # What denies stands in front of what it denies: a clause without words of its own hands it on.
        carried_on = False
        clauses = [clause for clause in _CLAUSE_END.split(sentence) if clause.strip()]
        for place, clause in enumerate(clauses):
            asked = is_question and not (says_first and place < len(clauses) - 1)
            denied = bool(_DENIES.search(clause)) or carried_on
            # "No, day first" is an answer.
            is_answer = _ANSWER.fullmatch(clause) is not None
            carried_on = denied and not is_answer and not content_words(_DENIES.sub(" ", clause))
            yield Statement(clause, message, asked, denied, bool(_WITHOUT.search(clause)), bool(_LIMITS.search(clause)))


def _is_asked(sentence: str) -> bool:
    if _WONDERS.search(sentence):
        return True
    is_question = sentence.rstrip().endswith(("?", "\uff1f")) and not _TAG.search(sentence)
    return is_question and not _REQUEST.search(sentence)


def agree(line: Statement, said: Statement) -> bool:
    """Whether two clauses about the same deny, or do not deny: two negations are none."""
    if line.limits != said.limits and (line.denied or said.denied):
        # "Nothing from further than 80 km" is "only within 80 km".
        return True
    if line.denied and said.denied:
        return True
    return (line.denied + line.without) % 2 == (said.denied + said.without) % 2


def overlap(clause: Statement, other: Statement) -> bool:
    """Whether one clause is a part of the other."""
    one, two = clause.text.strip().casefold(), other.text.strip().casefold()
    return one in two or two in one


#: A line about the work is what the person denied if each has so many of the other's words.
DENIED = 2 / 3
#: A heading has so many words; a longer one is a sentence.
_HEADING_WORDS = 3
#: A line that somebody else's words are in too needs so many of its words from the person.
CARRIED = 0.5
#: One that is in nobody's words needs so many: a curator says "prefers" where people say "please".
PHRASED = 0.25
#: So many at least are asserted, not asked.
ASSERTED = 0.2
#: A line is a stranger's if more of its words come only from strangers, and so is one with a part of which more do.
MAX_FOREIGN = 0.5
#: Shorter beginnings of a name are no abbreviation of it.
_SHORTEST_NAME = 3
#: A clause of a line is compared with what the person said if it has so many words.
_CLAUSE_WORDS = 2
MAX_FOREIGN_PART, _PART_WORDS = 2 / 3, 3
#: Whoever grafts a sentence on a true one puts it behind a comma or an "and".
_PARTS = re.compile(r"[,;()]|:\s|\b(?:and|but|und|aber|et|mais|y|pero|en|maar)\b", re.IGNORECASE)


class Talk:
    """What everybody said in a batch's turns, taken apart once for all files.

    `said` are the person's messages, `agreed` what of others they agreed to. `strangers` are texts of pages, pastes and
    tools, `unseen` the hashes of their words that are not written down; `others` has the agent's texts as well.
    """

    def __init__(
        self,
        said: Iterable[str],
        agreed: Iterable[str],
        strangers: Sequence[str],
        others: Sequence[str],
        unseen: AbstractSet[int] = frozenset(),
    ) -> None:
        self.said = [Said(text, message=number) for number, text in enumerate(said) if text.strip()]
        self.said += [Said(text, is_agreed=True, message=-1) for text in agreed if text.strip()]
        self.unseen = unseen
        self.others = others
        self._strangers = strangers

    @cached_property
    def statements(self) -> list[Statement]:
        """The person's clauses."""
        return [statement for said in self.said for statement in said.statements]

    @cached_property
    def strangers_words(self) -> Vocabulary:
        """The words that strangers used."""
        return Vocabulary(word for text in self._strangers for word in comparable(text))

    @cached_property
    def others_words(self) -> Vocabulary:
        """The words that anybody but the person used."""
        return Vocabulary(word for text in self.others for word in comparable(text))

    @cached_property
    def others_sentences(self) -> list[Vocabulary]:
        """The words of each sentence that anybody but the person said."""
        return [sentence for text in self.others for sentence in Said(text).sentences]

    @cached_property
    def others_vocabulary(self) -> Vocabulary:
        """The words of all those sentences."""
        return Vocabulary(word for sentence in self.others_sentences for word in sentence.words)

    @cached_property
    def others_numbers(self) -> frozenset[str]:
        """The numbers that anybody but the person gave."""
        return frozenset[str]().union(*(numbers_in(text, as_written=True) for text in self.others))


class PersonsWord:
    """What the person said, as far as it may carry lines about them.

    `trusted` are lines that stand already. `quoted` are sentences of the person's that a learning rests on, with what
    the curator learned from each.
    """

    def __init__(self, talk: Talk, trusted: Iterable[str], quoted: Sequence[tuple[str, str]]) -> None:
        self._talk = talk
        self._said, self._statements = talk.said, talk.statements
        self._trusted = [Said(text) for text in trusted if text.strip()]
        self._quoted = quoted
        #: Asked of one line for each of the quotes.
        self._told_by_others: dict[frozenset[str], bool] = {}

    @cached_property
    def _words(self) -> Vocabulary:
        return Vocabulary(word for each in (*self._said, *self._trusted) for word in each.words.words)

    @cached_property
    def _asserted(self) -> Vocabulary:
        told = (word for each in self._statements if not each.asked for word in each.words.words)
        return Vocabulary((*told, *(word for each in self._trusted for word in each.words.words)))

    @cached_property
    def _given(self) -> Given:
        return Given(each.text for each in (*self._said, *self._trusted))

    @cached_property
    def _is_dated(self) -> bool:
        """Whether the person spoke of a day."""
        return DATED.search(self._given.text) is not None

    def lacks(self, line: str) -> str | None:
        """Why this is not the person's word, or None if it is."""
        words = comparable(line)
        if not words or (line.lstrip().startswith("#") and len(words) <= _HEADING_WORDS):
            return None
        is_quoted = self._is_quoted(line, words)
        if (why := self._not_given(line, is_quoted=is_quoted)) is not None:
            return why
        if not is_quoted and (why := self._contradicts(line)) is not None:
            return why
        unsaid = words - self._words.among(words) - self._given.numbers
        strange = self._talk.strangers_words.among(unsaid) | known_among(
            unsaid & content_words(line), self._talk.unseen
        )
        if len(strange) > MAX_FOREIGN * len(words) or any(
            len(strange & part) >= MAX_FOREIGN_PART * len(part) for part in self._parts(line)
        ):
            return f"nobody but others said {', '.join(sorted(strange))}"
        if is_quoted or self._is_carried(words, unsaid):
            return None
        return "no message of the user's says it"

    def _parts(self, line: str) -> list[frozenset[str]]:
        """The words of each part of a line that says something by itself."""
        return [words for part in _PARTS.split(line) if len(words := comparable(part)) >= _PART_WORDS]

    def denies(self, line: str) -> str | None:
        """How the person denied what a line about the work asserts, or None.

        Nothing else is asked of it: what was done may differ from what was said.
        """
        whole = statement_of(told_apart(line))
        words = whole.words.words
        if whole.denied or whole.without or whole.limits or len(words) < RUN:
            return None
        for each in self._statements:
            shared = len(each.words.among(words))
            if each.denied and shared >= DENIED * len(words) and shared >= DENIED * len(each.words.words):
                return "the user said the opposite"
        return None

    def carries(self, line: str) -> bool:
        """Whether a sentence of the person's has half of a line's words, or is quoted for it.

        A fragment is in everybody's mouth.
        """
        words = comparable(line)
        sentences = (sentence for said in self._said for sentence in said.sentences)
        if len(words) < RUN:
            return False
        said = any(len(each.among(words)) >= CARRIED * len(words) for each in sentences)
        return said or self._is_quoted(line, words)

    def _is_carried(self, words: frozenset[str], unsaid: frozenset[str]) -> bool:
        if any(len(each.words.among(words)) >= CARRIED * len(words) for each in self._trusted):
            return True
        need = CARRIED if self._talk.others_words.among(unsaid) else PHRASED
        heard: frozenset[str] = frozenset()
        # Curators condense: what was said in one message or two after each other is one statement.
        for said in self._said:
            here = said.words.among(words)
            if len(here | heard) >= need * len(words) and self._is_asserted(words):
                return True
            heard = here
        return False

    def _is_asserted(self, words: frozenset[str]) -> bool:
        told = frozenset[str]().union(*(each.words.among(words) for each in self._statements if not each.asked))
        return len(told) >= ASSERTED * len(words)

    def _is_quoted(self, line: str, words: frozenset[str]) -> bool:
        """Whether a learning that says the same quotes the person for it."""
        return any(self._rests_on_quote(line, words, quote, content) for quote, content in self._quoted)

    def _rests_on_quote(self, line: str, words: frozenset[str], quote: str, content: str) -> bool:
        learned = comparable(content)
        if len(Vocabulary(learned).among(words)) < CARRIED * min(len(words), len(learned)):
            return False
        said = next((said for said in self._said if quote.casefold() in said.text.casefold()), None)
        if said is None or not self._is_meant(quote, said, line):
            return False
        shared = said.words.nearly_among(words)
        if self._is_told_by_others(words):
            return bool(shared) or _is_translated(said.text, f"{line} {content}")
        # Nobody else says it: then it is the curator's own phrasing of what is quoted.
        return True

    def _is_meant(self, quote: str, said: Said, line: str) -> bool:
        """Whether a quote asserts, in its place, what it says by itself, and denies what the line denies."""
        quoted = list(statements_of(quote, is_agreed=True))
        for each in said.statements:
            for part in quoted:
                if overlap(part, each) and (each.asked or (each.denied and not part.denied)):
                    return False
        clauses = [statement_of(told_apart(line)), *statements_of(told_apart(line), is_agreed=True)]
        if any(agree(clause, part) for clause in clauses for part in quoted):
            return True
        # Languages deny differently; what one denies is denied in any.
        return not any(part.denied for part in quoted) and _is_translated(said.text, line)

    def _is_told_by_others(self, words: frozenset[str]) -> bool:
        """Whether a sentence of anybody's but the person's has half of these words."""
        if words not in self._told_by_others:
            least = CARRIED * len(words)
            # No sentence has a word that all of them together have not.
            used = self._talk.others_vocabulary.among(words)
            self._told_by_others[words] = len(used) >= least and any(
                len(each.among(used)) >= least for each in self._talk.others_sentences
            )
        return self._told_by_others[words]

    def _contradicts(self, line: str) -> str | None:
        """How the person denied what a clause of the line says, or the other way round; None if they did not."""
        for clause in statements_of(told_apart(line), is_agreed=True):
            if len(clause.words.words) >= _CLAUSE_WORDS and (why := self._contradicts_clause(clause)) is not None:
                return why
        return None

    def _contradicts_clause(self, clause: Statement) -> str | None:
        words = clause.words.words
        shared = [(len(each.words.among(words)), each) for each in self._statements]
        # About the same are two clauses that have most of each other's words.
        shared = [(number, each) for number, each in shared if number >= CARRIED * len(each.words.words)]
        best = max((number for number, _ in shared), default=0)
        if best < max(_CLAUSE_WORDS, CARRIED * len(words)):
            return None
        closest = [each for number, each in shared if number == best]
        if any(not each.asked and (agree(clause, each) or self._is_told_beside(clause, each)) for each in closest):
            return None
        return "the user only asked about it" if all(each.asked for each in closest) else "the user said the opposite"

    def _is_told_beside(self, clause: Statement, closest: Statement) -> bool:
        """Whether the same message says it in another clause: "no emojis, that's how clients like it"."""
        beside = [
            each
            for each in self._statements
            if each.message == closest.message and each is not closest and not each.asked
        ]
        return clause.denied and any(each.denied for each in beside)

    def _not_given(self, line: str, *, is_quoted: bool) -> str | None:
        """A name, a number or an address that the person did not give.

        What somebody else gave may have been exchanged for theirs. What nobody gave, the curator worked out.
        """
        if (what := exchanged_in(line, self._given)) is not None:
            return f"the user did not give {what}"
        # A day that was spoken of has its date worked out.
        rest = DATE.sub(" ", line) if self._is_dated else line
        rest = NEGATED.sub(" ", without_given(rest, self._given.text))
        for number in sorted(numbers_in(rest, as_written=True) - self._given.numbers - {"0"}):
            if not is_quoted or number in self._talk.others_numbers:
                return f"the user did not give the number {number}"
        names = (name for name in names_in(line) if self._is_anothers(name, line, is_quoted=is_quoted))
        return next((f"the user did not name {name}" for name in names), None)

    def _is_anothers(self, name: str, line: str, *, is_quoted: bool) -> bool:
        """Whether a name is not the person's: only others used it, or nobody at all without the person's quote."""
        word = name.casefold()
        if self._talk.strangers_words.has(word) and not self._asserted.has(word):
            # The person may ask about somebody whom others speak of.
            return not self._completes(name, line)
        if self._words.has(word) or word in self._given.text:
            return False
        is_abbreviated = any(word.startswith(said) for said in self._words.words if len(said) >= _SHORTEST_NAME)
        if is_abbreviated or self._words.nearly_among((word, *forms(word))):
            return False
        if "de" in languages_of(line):
            # German writes every noun with a capital.
            return False
        return not self._completes(name, line) if self._talk.others_words.has(word) else not is_quoted

    def _completes(self, name: str, line: str) -> bool:
        """Whether it stands beside a name that the person gave without it: "Petra" is "Petra Lund" everywhere else."""
        pair = re.search(rf"(\w+)\s+{re.escape(name)}\b", line)
        if pair is None or not self._words.has(pair[1].casefold()) or not pair[1][0].isupper():
            return False
        together = re.compile(rf"\b{re.escape(pair[1])}\s+{re.escape(name)}\b", re.IGNORECASE)
        another = re.compile(rf"\b{re.escape(pair[1])}\s+[A-ZÀ-Þ]\w+")
        return any(together.search(text) for text in self._talk.others) and not another.search(self._given.as_written)


def _is_translated(said: str, written: str) -> bool:
    """Whether two texts are in different languages, so that no word in common is to be expected."""
    spoken = languages_of(said)
    return bool(spoken) and spoken.isdisjoint(languages_of(written))


#: An answer of so many words means what it was asked, whatever its words are ("the blue one").
_SHORT_ANSWER = 8
#: A shorter question refers to the sentence before it ("All on Fridays then. OK?").
_LEAST_QUESTION = 3
#: So many sentences of the last paste are meant by "do what she asks".
_LAST_PASTED = 20

_AGREED_CLAUSE_END = re.compile(r"[.,;:!?\n\u2013\u2014]+|\bbut\b")
#: A clause that agrees: it begins so, or it says of something that it is right.
_AGREES = re.compile(
    r"(?:yes|yep|yeah|yup|ok|okay|agreed|accepted|confirmed|right|correct|exactly|sure|perfect|great|fine|good|both|please|"
    r"go (?:ahead|with|for)|do (?:it|that|so|what|as)|sounds good|works for me|that works|(?:we|i)(?:'ll)? (?:take|go)|"
    r"ja|jo|jep|genau|gerne|passt|stimmt|einverstanden|mach (?:das|es)|so machen|perfekt|"
    r"oui|d'accord|parfait|sí|si|vale|claro|perfecto|de acuerdo|akkoord|klopt|prima|goed|doe maar|sim)\b|"
    r".{0,60}\b(?:works|suits|passt|(?:is|are|sounds|looks) (?:right|correct|fine|good|ok|okay|true))\b",
    re.IGNORECASE,
)
#: It agrees to all of it.
_WHOLLY = re.compile(
    r"\b(?:i've|i have|i|we've|we have|we) (?:\w+ )?(?:confirmed|agreed|accepted)\b|"
    r"\bthat's what we (?:do|make|want|need)\b|"
    r"\bdo (?:what|as) (?:\w+ ){1,4}?(?:asks?|says?|wants?|suggests?|proposes?|requests?|writes?)\b|"
    r"\bmach\w*,? (?:was|wie) \w+ (?:will|schreibt|sagt|vorschlägt|möchte)\b|"
    r"\bas (?:she|he|they) (?:asks?|says?|suggests?)\b",
    re.IGNORECASE,
)
_REFUSES = re.compile(
    r"\s*(?:no|nope|nein|non|nee|never|not|don't|dont|stop|wait|hm+|lieber nicht|pas|mejor no)\b|.*\?\s*\Z",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")


def taken_up(turns: Sequence[Observation], messages: Mapping[int, Message]) -> list[Text]:
    """Sentences that the person agreed to: of what they pasted, and of the reply that they answer.

    `messages` are theirs, by turn.
    """
    found: list[str] = []
    pasted: list[str] = []
    reply = ""
    for turn in turns:
        own = messages[turn.id].own
        here = _sentences("\n".join(messages[turn.id].pasted))
        if turn.trigger == "user":
            if _WHOLLY.search(own):
                found += here or pasted[-_LAST_PASTED:]
            # A later sentence of the same message speaks of what was pasted before it.
            pasted += here
            agreed = [said for said in _sentences(own) if any(map(_AGREES.match, _clauses(said)))]
            about = Vocabulary(word for said in agreed for word in comparable(said))
            if agreed:
                found += [said for said in pasted if about.among(comparable(said))]
            found += _of_reply(reply, own, about, agrees=bool(agreed))
        reply = turn.agent_response
    return [Text(told_apart(said)) for said in dict.fromkeys(found)]


def _of_reply(reply: str, answer: str, about: Vocabulary, *, agrees: bool) -> Iterator[str]:
    """What the agent asked or proposed, where the person's next message says yes to it."""
    is_short = len(_WORD.findall(answer)) <= _SHORT_ANSWER and not _REFUSES.match(answer) and bool(answer.strip())
    if not (agrees or is_short):
        return
    sentences = _sentences(reply)
    for at, said in enumerate(sentences):
        asks = said.rstrip().endswith(("?", "\uff1f"))
        if asks and at and len(comparable(said)) < _LEAST_QUESTION:
            yield sentences[at - 1]
        if asks or about.among(comparable(said)):
            yield said


def _clauses(text: str) -> list[str]:
    return [clause.strip() for clause in _AGREED_CLAUSE_END.split(text)]


def _sentences(text: str) -> list[str]:
    return [said for said in SENTENCE_END.split(text) if said.strip()]
