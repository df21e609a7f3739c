"""What of others' words a person has made their own by agreeing to it (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sprite.database.transcript import Observation
from sprite.memory.projection.disguises import told_apart
from sprite.memory.projection.pasted import Message
from sprite.memory.projection.statements import SENTENCE_END
from sprite.memory.projection.vocabulary import Vocabulary, comparable
from sprite.memory.words import Text

#: An answer of so many words means what it was asked, whatever its words are ("the blue one").
_SHORT_ANSWER = 8
#: A shorter question refers to the sentence before it ("All on Fridays then. OK?").
_LEAST_QUESTION = 3
#: So many sentences of the last paste are meant by "do what she asks".
_LAST_PASTED = 20

_CLAUSE_END = re.compile(r"[.,;:!?\n\u2013\u2014]+|\bbut\b")
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
    return [clause.strip() for clause in _CLAUSE_END.split(text)]


def _sentences(text: str) -> list[str]:
    return [said for said in SENTENCE_END.split(text) if said.strip()]
