"""What a person says in a message, clause by clause: asserted or asked, denied or not (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sprite.memory.projection.vocabulary import Vocabulary, comparable
from sprite.memory.words import content_words

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
